package Chaos::Changes;

# A process that sets and takes back overrides of keys by the API of random nodes until it is stopped, and
# records each change with its times. A key has one change at a time.

use strict;
use warnings;

use Chaos::Limits qw(limits own_limit);
use Ratelimit::Http qw(request);
use Ratelimit::Process qw(start_code stop_process wait_until read_file);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(changed_keys);

# Seconds until the next change of a key: at most, and at least after one that failed. What is on its way to
# a server that is stopped, or behind a stalled link, is executed or lost by then.
my $pause  = 5;
my $settle = 2.5;

# [zone, key] of each key that is overridden.
sub changed_keys {
    my $limits = limits();
    return map { my $zone = $_; map { [$zone, $_] } qw(a b) }
        grep { $limits->{$_}{overrides} } sort keys %{$limits};
}

# Options: ports (of the nodes), seed, output (a file).
sub new {
    my ($class, %options) = @_;
    my $self = bless {%options}, $class;
    $self->{pid} = start_code('changes', sub { $self->_run });
    return $self;
}

# Returns all changes, as hashes: zone, key, value (what own_limit returns, the limit of an override,
# "block" or "unlimited"), begun and answered (seconds), http (0: no response).
sub stop {
    my ($self) = @_;
    kill USR1 => $self->{pid};
    wait_until('changes have stopped', sub { read_file($self->{output}) =~ /^end$/m }, 60);
    stop_process($self->{pid});
    my @changes;
    for my $line (grep { $_ ne 'end' } split /\n/, read_file($self->{output})) {
        my %change;
        @change{qw(zone key value begun answered http)} = split /\t/, $line;
        push @changes, \%change;
    }
    return \@changes;
}

sub _run {
    my ($self) = @_;
    srand $self->{seed};
    my $stopping = 0;
    local $SIG{USR1} = sub { $stopping = 1 };
    open my $output, '>', $self->{output} or die "$self->{output}: $!";
    $output->autoflush(1);
    my @keys = map { { zone => $_->[0], key => $_->[1], next => time + rand 1 } } changed_keys();
    while (!$stopping) {
        my ($due) = sort { $a->{next} <=> $b->{next} } @keys;
        my $wait = $due->{next} - time;
        if ($wait > 0) {
            sleep $wait;
            next;
        }
        my @values = ('block', 'unlimited', own_limit($due->{zone}), keys %{ limits()->{ $due->{zone} }{overrides} });
        @values = grep { $_ ne ($due->{value} // own_limit($due->{zone})) } sort @values;
        $due->{value} = $values[rand @values];
        my $begun  = time;
        my $http   = _change($self->{ports}[rand @{ $self->{ports} }], $due);
        $due->{next} = time + ($http ? 0.2 + rand $pause : $settle);
        $due->{next} += $settle if $http && $http >= 500;
        print {$output} join("\t", @{$due}{qw(zone key value)}, sprintf('%.6f', $begun), sprintf('%.6f', time),
            $http), "\n";
    }
    print {$output} "end\n";
    close $output or die "$self->{output}: $!";
    return;
}

# The status of the response, or 0.
sub _change {
    my ($port, $change) = @_;
    my ($zone, $value) = @{$change}{qw(zone value)};
    my $text = $value =~ /\D/ ? qq({"$value":true}) : limits()->{$zone}{overrides}{$value};
    my @how  = $value eq own_limit($zone) ? (method => 'DELETE') : (method => 'PUT', body => $text);
    my $answer = eval { request($port, "/api/zones/$zone/keys/$change->{key}/override", @how) };
    return $answer ? $answer->status : 0;
}

1;

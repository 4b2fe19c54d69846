package Chaos::Remains;

# What remains when the faults are over: memory, files and connections, totals, the log.

use strict;
use warnings;

use Chaos::Limits qw(counting limits);
use List::Util qw(max);
use POSIX qw(mktime);
use Ratelimit::Process qw(read_file);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(measure connections judge_remains judge_totals judge_logs);

my $patience = 5;        # seconds until all must be as before
my $growth_kb = 4096;    # of a worker's own memory

# Measures workers and Redis while there are no requests.
sub measure {
    my ($fleet) = @_;
    my @workers = map { ($_->workers, $_->workers(1)) } $fleet->nginx;
    my @connections = map { connections($_->cmd(qw(CLIENT LIST TYPE normal))) } grep { $_->lives } $fleet->servers;
    return {
        workers     => scalar @workers,
        memory      => max(map { read_file("/proc/$_/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : 0 } @workers),
        files       => max(map { my @files = glob "/proc/$_/fd/*"; scalar @files } @workers),
        connections => scalar @connections,
        clients     => \@connections,
        totals      => [map { _totals($_) } $fleet->nginx],
    };
}

# Descriptions of the connections in a server's reply to CLIENT LIST, without Sentinels, the test
# itself, and cluster nodes that moved keys by MIGRATE, which keep their connection for ten seconds.
sub connections {
    my ($list) = @_;
    my @words;
    for my $line (split /\n/, $list) {
        my %of = $line =~ /([\w-]+)=(\S*)/g;
        next if $of{name} =~ /^sentinel-/ || $of{cmd} =~ /^(?:client\|list|restore(?:-asking)?)$/;
        push @words, "$of{name} at $of{laddr}, age $of{age}, idle $of{idle}, cmd $of{cmd}";
    }
    return @words;
}

# ratelimit_requests_total of a node: "zone result" => number.
sub _totals {
    my ($node) = @_;
    my %totals;
    for my $line (split /\n/, $node->get('/api/metrics')->body) {
        my ($labels, $number) = $line =~ /^ratelimit_requests_total\{(.*)\} (\d+)/ or next;
        my %label = $labels =~ /(\w+)="([^"]*)"/g;
        $totals{"$label{zone} $label{result}"} += $number;
    }
    return \%totals;
}

# Sentences about figures that have not returned to those before, after some seconds.
sub judge_remains {
    my ($fleet, $before) = @_;
    my $end = time + $patience;
    while (1) {
        my $now = measure($fleet);
        # Masters of clusters and sentinels change, and connections to former masters may stay for a while.
        my $connections = max($before->{connections}, $before->{workers} * $fleet->masters);
        my @sentences;
        my $check = sub {
            my ($name, $most) = @_;
            push @sentences, "$name: $before->{$name} before, $now->{$name} $patience s after, at most $most"
                if $now->{$name} > $most;
        };
        $check->(workers     => $before->{workers});
        $check->(files       => $before->{files} + 2);
        $check->(connections => $connections);
        $check->(memory      => $before->{memory} + $growth_kb);
        push @sentences, map { "connection: $_" } @{ $now->{clients} } if $now->{connections} > $connections;
        return ($now, @sentences) if !@sentences || time > $end;
        sleep 0.2;
    }
}

# Sentences about nodes whose totals differ from their clients' records. Exempt are the nodes in `killed`,
# by number, and zones that several locations count in. The decision of a request without a response is
# unknown.
sub judge_totals {
    my ($requests, $before, $after, $killed) = @_;
    my %shared = map { $_ => 1 } map { ($_, counting($_)) }
        grep { counting($_) > 1 || limits()->{$_}{of} || limits()->{$_}{parameters} } keys %{ limits() };
    my @sentences;
    for my $node (grep { !$killed->{$_} } 0 .. $#{ $after->{totals} }) {
        my (%recorded, $unknown);
        for my $request (grep { $_->{node} == $node } @{$requests}) {
            my $status = $request->{status};
            next if $status eq 'UNLIMITED';    # no limit counts it
            if ($status =~ /^[A-Z]/ && $status ne 'UNSEEN') { $recorded{"$request->{zone} " . lc $status}++ }
            else                                            { $unknown++ }
        }
        my ($new, $old) = map { $_->{totals}[$node] } $after, $before;
        my %names = map { $_ => 1 } keys %recorded, keys %{$new};
        for my $name (sort keys %names) {
            next if $shared{ (split ' ', $name)[0] };
            my $counted = ($new->{$name} // 0) - ($old->{$name} // 0);
            my $seen = $recorded{$name} // 0;
            next if $counted >= $seen && $counted <= $seen + ($unknown // 0);
            push @sentences, "node $node counted $counted times \"$name\", its clients recorded $seen";
        }
    }
    return @sentences;
}

# Sentences about logs with complaints, or with more lines than the faults explain. An nginx that gets TERM while it
# shuts down complains about its clients' connections.
sub judge_logs {
    my ($fleet, $faults) = @_;
    my @sentences;
    my $most = 200 + 40 * @{$faults};
    my %ended = map { $_ => 1 } map { int($_->{from}) .. int($_->{to}) + 1 } grep { $_->{ends} } @{$faults};
    for my $node ($fleet->nginx) {
        my $lines = $node->count_log(qr/\[(?:warn|error|crit)\]/);
        push @sentences, "$lines lines in a node's log, at most $most for @{[ scalar @{$faults} ]} faults" if $lines > $most;
    }
    push @sentences, grep { !(/(?:open socket #\d+ left in connection \d+|aborting)$/ && $ended{ _time_of($_) }) }
        Ratelimit::Nginx::complaints();
    return @sentences;
}

# Of a line of nginx's log.
sub _time_of {
    my ($year, $month, $day, $hour, $minute, $second) = $_[0] =~ m{^(\d+)/(\d+)/(\d+) (\d+):(\d+):(\d+) } or return 0;
    return mktime($second, $minute, $hour, $day, $month - 1, $year - 1900, 0, 0, -1);
}

1;

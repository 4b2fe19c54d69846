package Chaos::Held;

# Limits of requests at one time: never too many, and none is held when all requests have ended.

use strict;
use warnings;

use Chaos::Bounds qw(violations);
use Chaos::Limits qw(limits);
use JSON::PP qw(decode_json);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(judge_held judge_released held_in);

my $patience = 5;    # seconds

# The requests that Redis admitted, by key, from the lines of held.log: [decided, released]. nginx writes the
# line before it releases the request.
sub held_in {
    my ($text) = @_;
    my %keys;
    for my $line (split /\n/, $text) {
        my ($key, $end, $took, $waited, $status, $source) = $line =~ /^(\S+) (\S+) (\S+) (\S+) "(\w*)" "(\w*)"/
            or next;
        next if $status ne 'PASSED' || $source ne 'redis';
        push @{ $keys{$key} }, [$end - $took + $waited + 0.001, $end - 0.001];
    }
    return \%keys;
}

# Sentences about more requests at one time than the limit. faults: as for the judge.
sub judge_held {
    my ($faults, @nodes) = @_;
    my @gaps = map { [$_->{from}, $_->{to}] } grep { $_->{loses} || $_->{step} } @{$faults};
    my $keys = held_in(join '', map { $_->file('held.log') } @nodes);
    my @sentences;
    for my $key (sort keys %{$keys}) {
        push @sentences, map { "key $key of zone busy: $_" } violations(limits()->{busy}, $keys->{$key}, \@gaps);
    }
    return @sentences;
}

# Sentences about keys that are still held although all requests have ended.
sub judge_released {
    my ($node) = @_;
    my $limit = limits()->{busy};
    my $end = time + 1.3 * $limit->{hold} + $patience;
    my %held = map { $_ => 1 } 'a', 'b';
    while (1) {
        for my $key (sort keys %held) {
            my $state = eval { decode_json($node->get("/api/zones/busy/keys/$key")->body) } // {};
            $held{$key} = $limit->{quota} - ($state->{remaining} // 0);
            delete $held{$key} if $held{$key} == 0;
        }
        return if !%held;
        return map { "key $_ of zone busy: $held{$_} are held, no request is in flight" } sort keys %held
            if time > $end;
        sleep 0.2;
    }
}

1;

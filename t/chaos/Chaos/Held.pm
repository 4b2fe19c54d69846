package Chaos::Held;

# Limits of requests at one time: never too many, and none is held when all requests have ended.

use strict;
use warnings;

use Chaos::Bounds qw(violations);
use Chaos::Limits qw(limits);
use JSON::PP qw(decode_json);
use List::Util qw(max min);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(judge_held judge_released held_in);

my $patience = 5;       # seconds
my $turn     = 0.02;    # nginx reads its clock once in a turn of its event loop, which may last as long

# The requests that Redis admitted, by key, from the lines of held.log: [decided at the latest, released, decided
# at the earliest]. nginx writes the line before it releases the request; what Redis holds is free after `hold` at
# the earliest, less a part for its resolution. late: code that returns by how much nginx's clock may have been
# behind at a time: a decision that is taken for an earlier one would be held together with requests that it came
# after.
sub held_in {
    my ($text, $late) = @_;
    my %keys;
    for my $line (split /\n/, $text) {
        my ($key, $end, $took, $waited, $status, $source) = $line =~ /^(\S+) (\S+) (\S+) (\S+) "(\w*)" "(\w*)"/
            or next;
        next if $status ne 'PASSED' || $source ne 'redis';
        my $decided = $end - $took + $waited + 0.001;
        my $free = min($end - 0.001, $decided + 0.8 * limits()->{busy}{hold});
        push @{ $keys{$key} }, [min($decided + $late->($decided), $free), $free, $decided];
    }
    return \%keys;
}

# Sentences about more requests at one time than the limit. faults, busy: as for the judge.
sub judge_held {
    my ($faults, $busy, @nodes) = @_;
    my @stops = grep { $_->{name} =~ /^worker stop/ } @{$faults};
    my $late  = sub {
        my ($at) = @_;
        my $then = max($at, map { $_->{to} } grep { $_->{from} < $at + $turn && $at < $_->{to} } @stops);
        return $then - $at + $turn + $busy->($at, $then + $turn);
    };
    my @gaps = map { [$_->{from}, $_->{to}] } grep { $_->{loses} || $_->{step} } @{$faults};
    my $keys = held_in(join('', map { $_->file('held.log') } @nodes), $late);
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

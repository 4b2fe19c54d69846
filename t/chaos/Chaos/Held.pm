package Chaos::Held;

# Limits of requests at one time: never too many, none is refused while fewer are held, and none is held when all
# requests have ended.

use strict;
use warnings;

use Chaos::Bounds qw(violations);
use Chaos::Counted qw(delays);
use Chaos::Failures qw(in_words);
use Chaos::Limits qw(counting key_in keys_of limits);
use JSON::PP qw(decode_json);
use List::Util qw(max min);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(judge_held judge_refused judge_released held_in holders);

my $patience = 1;       # seconds
my $unanswered = 10;    # seconds that a node may take to say what is held
my $longest  = 2;       # the largest factor of hold= (Chaos::Fleet)
my $turn     = 0.02;    # nginx reads its clock once in a turn of its event loop, which may last as long

# The requests that Redis admitted, by key, from the lines of held.log: [decided at the latest, released, decided
# at the earliest]. nginx writes the line before it releases the request; what Redis holds is free after `hold` at
# the earliest, less a part for its resolution. late: code that returns by how much nginx's clock may have been
# behind at a time: a decision that is taken for an earlier one would be held together with requests that it came
# after. hold: seconds.
sub held_in {
    my ($text, $late, $hold) = @_;
    my %keys;
    for my $line (split /\n/, $text) {
        my ($key, $end, $took, $waited, $status, $source) = $line =~ /^(\S+) (\S+) (\S+) (\S+) "(\w*)" "(\w*)"/
            or next;
        next if $status ne 'PASSED' || $source ne 'redis';
        my $decided = $end - $took + $waited + 0.001;
        my $free = min($end - 0.001, $decided + 0.8 * $hold);
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
    my @sentences;
    for my $zone (grep { limits()->{$_} } qw(busy mixed)) {
        my $keys = held_in(join('', map { $_->file("held-$zone.log") } @nodes), $late, limits()->{$zone}{hold});
        for my $key (sort keys %{$keys}) {
            push @sentences, map { "key $key of zone $zone: $_" } violations(limits()->{$zone}, $keys->{$key}, \@gaps);
        }
    }
    return @sentences;
}

# By zone and key, which requests may have held a unit: request, from and to (seconds), calm (no fault prolonged that).
# requests: all, also those before the run. exits: workers that exited during a takeover (Chaos::Takeovers).
sub holders {
    my ($requests, $faults, $busy, @exits) = @_;
    my $late  = delays($faults, $busy);
    my @kills = (@exits, grep { $_->{name} eq 'worker kill' } @{$faults});
    my %zones;
    for my $zone (_zones()) {
        my $hold = $longest * limits()->{$zone}{hold};
        for my $request (grep { my $of = $_; grep { $_ eq $zone } counting($of->{zone}) } @{$requests}) {
            my ($status, $source, $node) = @{$request}{qw(status source node)};
            next if $status eq 'unreachable' || $status eq 'REJECTED' && ($request->{by} eq $zone || $source eq 'cache');
            my $to = $late->($request->{received}, $node);
            my $calm = $to < $request->{received} + 0.15;
            # What a worker held that was killed, or that exited during a takeover, is free after `hold`.
            my @lost = map { $late->($_->{to}, $node) + 1.125 * $hold }
                grep { $_->{node} == $node && $_->{to} > $request->{sent} - 0.05 && $_->{from} < $to } @kills;
            push @{ $zones{$zone}{ key_in($zone, $request) } },
                { request => $request, from => $request->{sent}, to => max($to, @lost), calm => $calm && !@lost };
        }
    }
    return \%zones;
}

# Sentences about requests that were refused although fewer than the limit may have been held, and the number of
# refusals that were judged. holders: of `holders`.
sub judge_refused {
    my ($requests, $holders, $faults) = @_;
    my ($judged, @sentences) = (0);
    for my $zone (_zones()) {
        my ($limit, %bad) = (limits()->{$zone});
        my @back = map { [$_->{from}, $_->{to} + 1.25 * $longest * $limit->{hold} + 1] } grep { ($_->{step} // 0) < 0 } @{$faults};
        for my $request (grep { $_->{status} eq 'REJECTED' && $_->{by} eq $zone } @{$requests}) {
            next if grep { $_->[0] <= $request->{received} && $_->[1] >= $request->{sent} } @back;
            $judged++;
            my $key = key_in($zone, $request);
            my $most = grep { $_->{from} < $request->{received} && $_->{to} > $request->{sent}
                && $_->{request} != $request && !_before($_, $request) } @{ $holders->{$zone}{$key} // [] };
            push @{ $bad{$key} }, [$request, $most] if $most < $limit->{quota};
        }
        for my $key (sort keys %bad) {
            my ($first, @more) = @{ $bad{$key} };
            push @sentences, "refused without a cause by $zone, key $key, at most $first->[1] of $limit->{quota} held: "
                . in_words($first->[0]) . (@more ? ', and ' . @more . ' more' : '');
        }
    }
    return (\@sentences, $judged);
}

# Whether the holder ended before the request: over one connection, a worker has both, and sends no check of the
# second before the end of the first.
sub _before {
    my ($holder, $request) = @_;
    my $first = $holder->{request};
    return $holder->{calm} && $first->{link} && $first->{link} == ($request->{link} || 0) && $first->{received} <= $request->{sent};
}

# Sentences about units that are held although all requests have ended, later than the faults explain.
# holders: of `holders`; clients: their number.
sub judge_released {
    my ($holders, $clients, @nodes) = @_;
    my %until = map { my $zone = $_; map {
        ("$zone $_" => max(time, map { $_->{to} } @{ $holders->{$zone}{$_} // [] }) + $patience)
    } keys_of($zone, $clients) } _zones();
    my %bad;
    while (1) {
        for my $place (sort keys %until) {
            my ($zone, $key) = split ' ', $place;
            my $answer = eval { $nodes[0]->get("/api/zones/$zone/keys/$key")->body } // $@;
            my $left = (eval { decode_json($answer) } // {})->{remaining};
            my $held = limits()->{$zone}{quota} - ($left // 0);
            # On a busy machine, Redis's answer to the node may be late.
            my $late = time - $until{$place};
            if    (!$held)                        { delete $until{$place} }
            elsif (defined $left && $late > 0)    { $bad{$place} = "$held are held, no request is in flight" }
            elsif ($late > $unanswered)           { $bad{$place} = "what is held is not known: $answer" }
            delete $until{$place} if $bad{$place};
        }
        last if !%until;
        sleep 0.2;
    }
    return ((map { my ($zone, $key) = split ' ', $_; "key $key of zone $zone: $bad{$_}" } sort keys %bad),
        map { _in_flight($nodes[$_], "node $_") } 0 .. $#nodes);
}

sub _in_flight {
    my ($node, $name) = @_;
    return map { /^ratelimit_in_flight\{zone="(\w+)"\} ([1-9]\d*)/ ? "$name: ratelimit_in_flight of zone $1 is $2 at rest" : () }
        split /\n/, $node->get('/api/metrics')->body;
}

sub _zones { return sort grep { (limits()->{$_}{algorithm} // '') eq 'concurrency' } keys %{ limits() } }

1;

package Chaos::Counted;

# What requests may have counted under a limit, at most: the judge of refusals (Chaos::Refusals) asks whether even
# that explains no refusal. Clients know when they sent a request and when its response came; what was counted was
# counted in between, or later if the fail mode decided, or if nobody knows the decision.

use strict;
use warnings;

use Chaos::Limits qw(counting key_in limits);
use List::Util qw(max);

use Exporter 'import';
our @EXPORT_OK = qw(delays cuts counted);

my $way     = 0.1;    # seconds until a message to Redis has an effect, without a fault
my $reported = 0.5;   # the same, for what passed ahead: it waits for the answer to an earlier report, or for another try
my $settled = 0.3;    # seconds after the end of a fault and its slack, until all that waited for it is sent

# Code: when a message of a node that is sent at a time has had its effect, at the latest.
sub delays {
    my ($faults, $busy) = @_;
    my @faults = sort { $a->{from} <=> $b->{from} } grep { $_->{from} } @{$faults};
    return sub {
        my ($at, $node) = @_;
        my $until = $at + $way + $busy->($at, $at + $way);
        for my $fault (@faults) {
            last if $fault->{from} > $until;
            next if defined $fault->{node} && $fault->{node} != $node && !defined $fault->{slack};
            my $over = $fault->{to} + ($fault->{slack} // 0) + $settled;
            $until = max($until, $over + $busy->($fault->{to}, $over)) if $over > $at;
        }
        return $until;
    };
}

# Code: whether messages of a node may have been lost between two times, or sent again, by a fault that `which` (code)
# takes, default: any. after: seconds after the end of a
# fault in which that may be (default: until all that waited for it is sent).
sub cuts {
    my ($faults, $after, $which) = @_;
    my @cuts = map { my $fault = $_; [$fault->{from} - ($fault->{loses} && !$after ? 1 : 0.05),
        $fault->{to} + ($fault->{slack} // 0) + ($after // $settled), $fault->{cuts} ? undef : $fault->{node}] }
        grep { ($_->{cuts} || $_->{name} eq 'worker kill') && (!$which || $which->($_)) } @{$faults};
    return sub {
        my ($from, $to, $node) = @_;
        return scalar grep { $_->[0] <= $to && $_->[1] >= $from && (!defined $_->[2] || $_->[2] == $node) } @cuts;
    };
}

# Code: until when what passed ahead at a time is sent again, if it was sent on a connection that stays silent. When
# another one has a reply, that is kept for as long again and a second (src/redis/silent_pipelines.h).
sub _kept {
    my ($faults) = @_;
    my @silent = grep { $_->{silent} } @{$faults};
    return sub {
        my ($from, $to) = @_;
        return max($to, map { my ($begun, $replied) = ($_->{from}, $_->{to} + $_->{slack});
            $begun <= $to && $replied >= $from ? 2 * $replied - $begun + 1 + $reported : () } @silent);
    };
}

# What requests may have counted in a zone, by key: hashes of from and to (seconds: counted between these times),
# weight, until (not later than this, it is taken back), charge (1: counted beyond the limit), limit (the size of the
# limit that decided, if it is known), rooted (the weight that may begin a block: without what no request used, which a
# worker states when its messages are lost; but one that is killed does not, and Redis may lose that).
sub counted {
    my ($zone, $requests, $late, $faults) = @_;
    my ($cut, $silent) = (cuts($faults), cuts($faults, undef, sub { $_[0]{loses} || !$_[0]{cuts} }));
    my $kept = _kept($faults);
    my %keys;
    for my $request (@{$requests}) {
        next unless grep { $_ eq $zone } counting($request->{zone});
        push @{ $keys{ key_in($zone, $request) } }, _counted_by($request, limits()->{$zone}, $late, $cut, $silent, $kept);
    }
    return \%keys;
}

sub _counted_by {
    my ($request, $limit, $late, $cut, $silent, $kept) = @_;
    my ($status, $source, $node) = @{$request}{qw(status source node)};
    my $several = counting($request->{zone}) > 1;
    return if $status =~ /^(?:UNLIMITED|unreachable)$/;
    return if ($source // '') =~ /^(?:cache|override)$/;
    return if $status eq 'REJECTED' && !$several && $source ne 'local';
    my $known = $status =~ /^(?:PASSED|DELAYED)$/ && $source eq 'redis';
    # What passes ahead is counted behind that, also beyond the limit. A request that a lease pays for may renew it.
    my ($ahead, $leased) = map { ($source // '') eq $_ } qw(ahead lease);
    my $end  = $late->($request->{received} + ($ahead ? $reported : 0), $node);
    $end = $kept->($request->{sent}, $end) if $ahead;
    my $lost = $cut->($request->{sent}, $end, $node);
    my %item = (from => $request->{sent} - 0.002, to => $known && !$lost ? $request->{received} + 0.001 : $end,
        limit => $request->{limit}, weight => (($leased ? 0 : 1) + ($limit->{lease} // 0)) * ($lost ? 2 : 1));
    $item{charge} = 1 if $ahead;
    my $refunded = $status =~ /^(?:REJECTED|FAILED_CLOSED)$/ || defined $limit->{charge} && $limit->{charge} == 0;
    $item{until} = $end if $refunded && !$lost;
    $item{rooted} = $lost && !$silent->($request->{sent}, $end, $node) ? ($refunded ? 0 : $item{weight} / 2) : $item{weight};
    my $more = max(0, ($limit->{charge} // 0) - 1);
    return (\%item, $more ? { %item, to => $end, weight => $more, rooted => $more, charge => 1 } : ());
}

1;

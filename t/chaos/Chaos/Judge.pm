package Chaos::Judge;

# All checks of a run; the results are sentences about violations.

use strict;
use warnings;

use Chaos::Blocks qw(judge_blocks);
use Chaos::Bounds qw(violations);
use Chaos::Counted qw(cuts);
use Chaos::Failures qw(judge_failures judge_waits in_words);
use Chaos::Fleet qw(all_workers connect_timeout timeout);
use Chaos::Limits qw(limits let_in);
use List::Util qw(max);

use Exporter 'import';
our @EXPORT_OK = qw(judge_requests with_logs);

# The requests, with nginx's records for clients that left. Without a record such a request is UNSEEN: nginx
# has not read it, or its worker was killed. A request to which an override let no limit apply is UNLIMITED.
sub with_logs {
    my ($requests, @nodes) = @_;
    my %logged;
    for my $node (@nodes) {
        for my $line (split /\n/, $node->file('left.log')) {
            my ($id, $when, $http, $status, $source, $by) = $line =~ /^(\d+) (\S+) (\d+) "([^"]*)" "([^"]*)"(?: "([^"]*)")?/
                or next;
            s/^-$// for $status, $source, $by;
            $logged{$id} = { received => $when + 0.002, http => $http, status => $status || 'none',
                source => $source, by => $by };
        }
    }
    my $unseen = { status => 'UNSEEN' };
    my @seen = map { $_->{status} eq 'left' ? { %{$_}, %{ $logged{ $_->{id} } // $unseen } } : $_ } @{$requests};
    for my $request (grep { $_->{status} eq 'none' && $_->{http} =~ /^(?:200|499)$/ } @seen) {
        $request->{status} = 'UNLIMITED' if limits()->{ $request->{zone} }{overrides};
    }
    return \@seen;
}

# Returns sentences, and the number of failures that a busy machine excuses.
sub judge_requests {
    my ($requests, $faults, $busy) = @_;
    my ($sentences, $excused) = judge_failures($requests, $faults, $busy, timeout() / 2);
    my (%pauses, %kills);
    for my $fault (@{$faults}) {
        push @{ $pauses{ $fault->{node} } }, [$fault->{from}, $fault->{to}] if $fault->{name} =~ /^worker stop/;
        push @{ $kills{ $fault->{node} } }, [@{$fault}{qw(from to)}] if $fault->{name} eq 'worker kill' || $fault->{ends};
    }
    my @all = (
        @{$sentences},
        judge_waits([grep { $_->{way} =~ /^(?:stay|half)$/ } @{$requests}], \&_longest_wait, \%pauses, $busy),
        _bounds($requests, $faults, \%pauses),
        _undecided($requests, \%kills, $faults),
    );
    return (\@all, $excused);
}

# With an allowance for scheduling on an idle machine.
sub _longest_wait {
    my ($request) = @_;
    return connect_timeout() + timeout() + 0.1 + (limits()->{ $request->{zone} }{delay} // 0);
}

# Sentences about requests without a decision or a response, one for each way in which clients leave or
# stay. Requests whose worker was killed or whose node was stopped, or that left while they were delayed, are exempt. The cost of each
# way of leaving is added to the faults.
sub _undecided {
    my ($requests, $kills, $faults) = @_;
    my (%bad, %ways);
    for my $request (sort { $a->{sent} <=> $b->{sent} } @{$requests}) {
        my $way = $request->{way};
        $ways{$way}++;
        next if $request->{status} =~ /^(?:[A-Z]|again$)/;
        next if $way ne 'stay' && limits()->{ $request->{zone} }{delay};
        next if grep { $_->[1] > $request->{sent} - 0.5 && $_->[0] < $request->{received} + 0.5 }
            @{ $kills->{ $request->{node} } // [] };
        push @{ $bad{$way} }, $request;
    }
    for my $way (grep { $_ ne 'stay' } keys %ways) {
        push @{$faults},
            { name => "client leaves: $way", times => $ways{$way}, bad => scalar @{ $bad{$way} // [] } };
    }
    return map { in_words($bad{$_}[0]) . " (HTTP $bad{$_}[0]{http}): no decision, or no answer, client: $_"
            . ', and ' . (@{ $bad{$_} } - 1) . ' more' } sort keys %bad;
}

# Seconds after a fault in which no refusal may begin a block: keys may count what no request used, or what is later than
# the clock of Redis.
sub _spared {
    my ($limit, $fault) = @_;
    my $back = max(0, -($fault->{step} // 0));
    return 0 if !$fault->{cuts} && !$back;
    my $counted = $limit->{algorithm} =~ /window/ ? 2 * $limit->{window} : ($limit->{burst} + 1) * $limit->{window} / $limit->{quota};
    return $back + 2 * $counted if $back;
    return $counted + ($fault->{slack} // 0) + 2 * (connect_timeout() + timeout());
}

# Violations of the bounds, for every key of every limit.
sub _bounds {
    my ($requests, $faults, $pauses) = @_;
    my @lost  = grep { $_->{loses} } @{$faults};
    my @steps = grep { $_->{step} } @{$faults};
    # A lease expires after a second of its worker's clock, which stands still while the worker is stopped.
    my $lag = sub {
        my ($request) = @_;
        my @late = map { $_->[1] - $_->[0] }
            grep { $_->[0] < $request->{received} && $_->[1] > $request->{sent} - 2 }
            @{ $pauses->{ $request->{node} } // [] };
        return 1.3 + max(0, @late);
    };
    # What was sent again, because its connection was lost, may pass beyond the limit, and begins no block.
    my $again = cuts($faults, 0.05);
    my @once = grep { !$again->(@{$_}{qw(sent received node)}) } @{$requests};
    my @sentences;
    for my $zone (sort grep { limits()->{$_}{algorithm} } keys %{ limits() }) {
        my $limit = limits()->{$zone};
        next if $limit->{algorithm} eq 'concurrency' || $limit->{overrides};    # Chaos::Held, Chaos::Overrides
        # None of its requests counts in the end, or not all that pass.
        next if defined $limit->{charge} && $limit->{charge} == 0 || $limit->{parameters};
        push @sentences, map { "zone $zone: $_" } judge_blocks($limit->{block},
            [grep { $_->{zone} eq $zone } @once], [map { [$_->{from}, $_->{to} + 0.5 + _spared($limit, $_)] } @{$faults}],
            0.5 + _spared($limit, { cuts => 1 })) if $limit->{block};
        my @counts = $limit->{ahead} ? grep { ($_->{source} // '') eq 'ahead' || !$again->(@{$_}{qw(sent received node)}) } @{$requests} : @once;
        my $keys  = let_in($zone, \@counts, $lag);
        my @gaps  = map { [@{$_}{qw(from to)}] } @lost;
        push @gaps, _may_add($faults) if $limit->{ahead};
        for my $key (sort keys %{$keys}) {
            my ($passes, $gaps) = _by_redis_clock($limit, $keys->{$key}, \@gaps, \@steps);
            push @sentences, map { "key $key of zone $zone: $_" } violations(_beyond($limit), $passes, $gaps);
        }
    }
    return @sentences;
}

# The limit with what each worker of the fleet may let in beyond it.
sub _beyond {
    my ($limit) = @_;
    my $more = all_workers() * ($limit->{ahead} // return $limit);
    my $most = defined $limit->{burst} ? 'burst' : 'quota';
    return { %{$limit}, $most => $limit->{$most} + $more };
}

# Times at which that much may pass once more: workers are killed, or others take their place, or the clock of Redis
# steps.
sub _may_add {
    my ($faults) = @_;
    return map { [$_->{from}, $_->{to} + 1] }
        grep { $_->{step} || $_->{ends} || $_->{name} =~ /^(?:worker kill|reload|hold changes)/ } @{$faults};
}

# For limits that drain, a forward step of Redis's clock is elapsed time; windows before and after a step
# are judged separately, as their starts have moved.
sub _by_redis_clock {
    my ($limit, $passes, $lost, $steps) = @_;
    return ($passes, [@{$lost}, map { [$_->{from}, $_->{to}] } @{$steps}])
        if $limit->{algorithm} =~ /window/;
    return (_stepped($passes, $steps), _stepped($lost, $steps));
}

# The same times, later by each forward step that began before the second or ended before the first.
sub _stepped {
    my ($times, $steps) = @_;
    my @forward = grep { $_->{step} > 0 } @{$steps};
    return [map {
        my ($first, $second) = @{$_};
        [_later($first, 'to', \@forward), _later($second, 'from', \@forward)]
    } @{$times}];
}

sub _later {
    my ($time, $edge, $steps) = @_;
    my $later = $time;
    $later += $_->{step} for grep { $_->{$edge} <= $time } @{$steps};
    return $later;
}

1;

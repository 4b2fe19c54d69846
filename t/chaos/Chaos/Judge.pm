package Chaos::Judge;

# All that is checked of a run: sentences about what was wrong with it.

use strict;
use warnings;

use Chaos::Bounds qw(violations);
use Chaos::Failures qw(judge_failures judge_waits in_words);
use Chaos::Fleet qw(connect_timeout timeout);
use Chaos::Limits qw(limits let_in);
use List::Util qw(max);

use Exporter 'import';
our @EXPORT_OK = qw(judge_requests with_logs);

# The requests, those of clients that left with what nginx logged of them; without that they are UNSEEN:
# nginx has not read them, or its worker was killed.
sub with_logs {
    my ($requests, @nodes) = @_;
    my %logged;
    for my $node (@nodes) {
        for my $line (split /\n/, $node->file('left.log')) {
            my ($id, $when, $http, $status, $source) = $line =~ /^(\d+) (\S+) (\d+) "([^"]*)" "([^"]*)"/ or next;
            s/^-$// for $status, $source;
            $logged{$id} = { received => $when + 0.002, http => $http, status => $status || 'none',
                source => $source };
        }
    }
    my $unseen = { status => 'UNSEEN' };
    return [map { $_->{status} eq 'left' ? { %{$_}, %{ $logged{ $_->{id} } // $unseen } } : $_ } @{$requests}];
}

# Returns sentences, and how many failures a busy machine excuses.
sub judge_requests {
    my ($requests, $faults, $busy) = @_;
    my ($sentences, $excused) = judge_failures($requests, $faults, $busy, timeout() / 2);
    my (%pauses, %kills);
    for my $fault (@{$faults}) {
        push @{ $pauses{ $fault->{node} } }, [$fault->{from}, $fault->{to}] if $fault->{name} =~ /^worker stop/;
        push @{ $kills{ $fault->{node} } }, $fault->{from} if $fault->{name} eq 'worker kill';
    }
    my @all = (
        @{$sentences},
        judge_waits([grep { $_->{way} =~ /^(?:stay|half)$/ } @{$requests}], \&_longest_wait, \%pauses, $busy),
        _bounds($requests, $faults, \%pauses),
        _undecided($requests, \%kills, $faults),
    );
    return (\@all, $excused);
}

# With what scheduling takes when nothing is wrong.
sub _longest_wait {
    my ($request) = @_;
    return connect_timeout() + timeout() + 0.1 + (limits()->{ $request->{zone} }{delay} // 0);
}

# Of requests that got no decision, or no answer, a sentence for each way in which clients leave or
# stay; but not of those whose worker was killed, and those that left while they were delayed. What
# each way of leaving cost is added to the faults.
sub _undecided {
    my ($requests, $kills, $faults) = @_;
    my (%bad, %ways);
    for my $request (sort { $a->{sent} <=> $b->{sent} } @{$requests}) {
        my $way = $request->{way};
        $ways{$way}++;
        next if $request->{status} =~ /^[A-Z]/;
        next if $way ne 'stay' && limits()->{ $request->{zone} }{delay};
        next if grep { $_ > $request->{sent} - 0.5 && $_ < $request->{received} + 0.5 }
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

# Every key of every limit.
sub _bounds {
    my ($requests, $faults, $pauses) = @_;
    my @lost  = map { [$_->{from}, $_->{to}] } grep { $_->{loses} } @{$faults};
    my @steps = grep { $_->{step} } @{$faults};
    # A lease lapses after a second of its worker's clock, which stands while the worker does.
    my $lag = sub {
        my ($request) = @_;
        my @late = map { $_->[1] - $_->[0] }
            grep { $_->[0] < $request->{received} && $_->[1] > $request->{sent} - 2 }
            @{ $pauses->{ $request->{node} } // [] };
        return 1.3 + max(0, @late);
    };
    my @sentences;
    for my $zone (sort grep { limits()->{$_}{algorithm} } keys %{ limits() }) {
        my $limit = limits()->{$zone};
        my $keys  = let_in($zone, $requests, $lag);
        for my $key (sort keys %{$keys}) {
            my ($passes, $gaps) = _by_redis_clock($limit, $keys->{$key}, \@lost, \@steps);
            push @sentences, map { "key $key of zone $zone: $_" } violations($limit, $passes, $gaps);
        }
    }
    return @sentences;
}

# A step of Redis's clock forwards is time that passes, for limits that drain; windows before
# one are judged apart from those after it, as their beginnings have moved.
sub _by_redis_clock {
    my ($limit, $passes, $lost, $steps) = @_;
    return ($passes, [@{$lost}, map { [$_->{from}, $_->{to}] } @{$steps}])
        if $limit->{algorithm} =~ /window/;
    return (_stepped($passes, $steps), _stepped($lost, $steps));
}

# The same times, later by each step forwards that was begun before the second or ended before the first.
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

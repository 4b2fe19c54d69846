package Chaos::Refusals;

# Judges refusals: for each there must be a history of requests that explains it. Of all requests of its key that may
# have been counted (Chaos::Counted), each is taken to be counted at the time at which it matters most; if the limit
# had admitted the refused request even then, the refusal has no cause. During a block= a refusal needs an earlier one
# that had a cause, at most the length of the block before it. What no request used (it was to be taken back, or was
# counted twice, and the message was lost) causes refusals, but no block.

use strict;
use warnings;

use Chaos::Counted qw(counted cuts delays);
use Chaos::Failures qw(in_words);
use Chaos::Fleet qw(connect_timeout timeout);
use Chaos::Limits qw(counting key_in limits);
use JSON::PP qw(decode_json);
use List::Util qw(max min sum0);
use POSIX qw(floor);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(judge_refusals judge_unblocked);

my $reading    = 0.003;   # nginx's clock, and that of clients
my $remembered = 1;       # seconds for which a node remembers a refusal that may be taken back
my $longest    = 5;       # seconds for which a node remembers a block

# Returns sentences, the number of refusals that were judged, and until when each key may be blocked: zone and key => time.
# history: all requests, also those before the run. faults, busy: as for the judge.
sub judge_refusals {
    my ($requests, $history, $faults, $busy) = @_;
    my ($late, $cut) = (delays($faults, $busy), cuts($faults));
    my (@sentences, %blocked, $judged);
    my $back = grep { ($_->{step} // 0) < 0 } @{$faults};    # a block lasts until it has refused, and its time longer
    for my $zone (sort grep { (limits()->{$_}{algorithm} // 'concurrency') ne 'concurrency' } keys %{ limits() }) {
        my $counted = counted($zone, $history, $late, $faults);
        my $refused = _refusals($zone, $history, $faults, $busy, $late);
        my %within  = map { $_->{id} => 1 } @{$requests};
        for my $key (sort keys %{$refused}) {
            my @all = @{ $refused->{$key} };
            _explain(limits()->{$zone}, [@{ $counted->{$key} // [] }, _left_by_steps(limits()->{$zone}, $faults)], \@all);
            $blocked{$zone}{$key} = _explain_blocks(limits()->{$zone}, \@all, $late, $cut)
                + ($back ? 86400 : 0) if limits()->{$zone}{block};
            _explain_remembered(\@all);
            my @judged = grep { $_->{judged} && $within{ $_->{request}{id} } && !_stepped_back(limits()->{$zone}, $_, $counted->{$key} // [], $faults) } @all;
            $judged += @judged;
            my ($first, @more) = grep { !$_->{explained} } @judged;
            push @sentences, "refused without a cause by $zone, key $key: " . in_words($first->{request})
                . (@more ? ', and ' . @more . ' more' : '') if $first;
            my ($long) = grep { ($_->{request}{retry} || 0) > _longest($_->{request}) } @judged;
            push @sentences, 'refused for too long: ' . in_words($long->{request}) . ", Retry-After $long->{request}{retry}"
                if $long;
        }
    }
    return (\@sentences, $judged // 0, \%blocked);
}

# By key, what a zone refused or may have refused: request; at and to (seconds: refused between these times, by the
# node's clock); judged (a refusal that the client saw); certain (it is not delayed by a fault).
sub _refusals {
    my ($zone, $requests, $faults, $busy, $late) = @_;
    my @stops = grep { $_->{name} =~ /^worker stop/ } @{$faults};
    my %keys;
    for my $request (@{$requests}) {
        my @zones = counting($request->{zone});
        next unless grep { $_ eq $zone } @zones;
        my ($status, $source) = ($request->{status}, $request->{source} // '');
        next if $status =~ /^(?:PASSED|DELAYED|UNLIMITED|unreachable)$/ || $source eq 'override';
        my $judged = $status eq 'REJECTED';
        next if $judged && ($request->{by} || $zones[0]) ne $zone;
        # A worker that was stopped, or waited for a processor, may go on with the time at which it was stopped.
        my $slow = $source ne 'cache' && $source ne 'local' ? 0 : 0.02 + $busy->(@{$request}{qw(sent received)})
            + sum0(map { $_->{to} - $_->{from} } grep { $_->{node} == $request->{node} && $_->{from} < $request->{received}
                && $_->{to} > $request->{sent} - 0.1 } @stops);
        my $end = $late->($request->{received}, $request->{node});
        push @{ $keys{ key_in($zone, $request) } }, { request => $request, judged => $judged, source => $source,
            at => $request->{sent} - $reading - $slow, to => $judged ? $request->{received} + $reading : $end,
            certain => $judged && $source eq 'redis' && @zones == 1 && $end < $request->{received} + 0.2 };
    }
    return \%keys;
}

# Adds to each refusal whether counts explain it: `explained`, and `rooted` without what is taken back. Overrides are
# counted apart.
sub _explain {
    my ($limit, $items, $refused) = @_;
    return _explain_by($limit, $items, $refused) unless $limit->{overrides};
    my %sizes = map { ($_->{request}{limit} || '') => 1 } @{$refused};
    for my $size (grep { $_ } keys %sizes) {
        my %own = $limit->{algorithm} =~ /window/ ? (quota => $size) : (burst => $size - 1);
        _explain_by({ %{$limit}, %own }, [grep { !$_->{limit} || $_->{limit} == $size } @{$items}],
            [grep { $_->{request}{limit} && $_->{request}{limit} == $size } @{$refused}]);
    }
    $_->{explained} = 1 for grep { !$_->{request}{limit} } @{$refused};    # by an unknown limit
    return;
}

sub _explain_by {
    my ($limit, $items, $refused) = @_;
    my $capacity = _capacity($limit);
    my $level = $limit->{algorithm} =~ /window/ ? \&_by_windows : \&_by_level;
    my $full  = $level->($limit, $items, $refused);
    my $used  = $limit->{block}
        ? $level->($limit, [map { { %{$_}, weight => $_->{rooted} // $_->{weight} } } @{$items}], $refused) : $full;
    my @passing = grep { defined $_->{until} } @{$items};
    for my $refusal (@{$refused}) {
        my $lasting  = $full->($refusal);
        my $passing  = sum0(map { $_->{weight} } grep { $_->{from} < $refusal->{to} && $_->{until} > $refusal->{at} } @passing);
        $refusal->{rooted}    = $used->($refusal) > $capacity - 1 + 1e-9 ? 1 : 0;
        $refusal->{explained} = $lasting + $passing > $capacity - 1 + 1e-9 ? 1 : 0;
    }
    return;
}

sub _capacity {
    my ($limit) = @_;
    return $limit->{quota} if $limit->{algorithm} =~ /window/;
    return $limit->{burst} + ($limit->{algorithm} eq 'token_bucket' ? 0 : 1);
}

# Code: the most that may be counted for a refusal, by a window algorithm.
sub _by_windows {
    my ($limit, $items) = @_;
    my @lasting = sort { $a->{from} <=> $b->{from} } grep { !defined $_->{until} } @{$items};
    # A bucket counts until its end has left the window.
    my $window = $limit->{window} + ($limit->{algorithm} =~ /buckets/ ? $limit->{precision} : 0);
    # Items that may be counted between two times, of those that were sent before the refusal was answered.
    my $between = sub {
        my ($refusal, $from, $to) = @_;
        my ($low, $high) = (0, scalar @lasting);
        while ($low < $high) {
            my $middle = int(($low + $high) / 2);
            if ($lasting[$middle]{from} < $to) { $low = $middle + 1 }
            else                               { $high = $middle }
        }
        my $sum = 0;
        for my $i (reverse 0 .. $low - 1) {
            my $item = $lasting[$i];
            last if $item->{from} < $from - 30;
            $sum += $item->{weight} if $item->{to} > $from && $item->{from} < $refusal->{to};
        }
        return $sum;
    };
    return sub { my ($refusal) = @_; return $between->($refusal, $refusal->{at} - $window, $refusal->{to}) }
        if $limit->{algorithm} =~ /log|buckets/;
    return sub {
        my ($refusal) = @_;
        my @sums;
        for my $number (floor($refusal->{at} / $window) .. floor($refusal->{to} / $window)) {
            my $begin = $number * $window;
            my $sum = $between->($refusal, $begin, $begin + $window);
            if ($limit->{algorithm} eq 'sliding_window_counter') {
                my $left = 1 - max(0, $refusal->{at} - $begin) / $window;
                $sum += floor($between->($refusal, $begin - $window, $begin) * $left + 1e-9);
            }
            push @sums, $sum;
        }
        return max(@sums);
    };
}

# The same for a bucket that drains. Each item fills it as late as possible.
sub _by_level {
    my ($limit, $items, $refused) = @_;
    my $rate = $limit->{quota} / $limit->{window};
    my $most = _capacity($limit);
    my @lasting = grep { !defined $_->{until} } @{$items};
    my @ends    = sort { $a->{to} <=> $b->{to} } @lasting;
    my @begins  = sort { $a->{from} <=> $b->{from} } @lasting;
    my (%level, $level, $time, @open) = ();
    ($level, $time) = (0, 0);
    for my $refusal (sort { $a->{at} <=> $b->{at} } @{$refused}) {
        while (@ends && $ends[0]{to} <= $refusal->{at}) {
            my $item = shift @ends;
            $level = max(0, $level - $rate * ($item->{to} - $time)) + $item->{weight};
            $level = min($level, max($most, $level - $item->{weight})) if !$item->{charge};
            $time  = $item->{to};
        }
        push @open, shift @begins while @begins && $begins[0]{from} < $refusal->{to};
        @open = grep { $_->{to} > $refusal->{at} } @open;
        $level{$refusal} = max(0, $level - $rate * ($refusal->{at} - $time))
            + sum0(map { $_->{weight} } grep { $_->{from} < $refusal->{to} } @open);
    }
    return sub { return $level{ $_[0] } };
}

# A block lasts `block` seconds from a refusal with a cause on that may have been outside of every block. A worker begins
# it when it has the answer; of refusals until then, any may be the one that it lasts from. One that began because of a
# lost message ends when its worker has said so. Returns until when the key may be blocked.
sub _explain_blocks {
    my ($limit, $refused, $late, $cut) = @_;
    my ($surely, $perhaps, $begun) = (0, 0, 0);    # ends of blocks; when the one that is sure has begun
    # Of limits that may be on several servers, it begins later; so it does while the node is owed a reply about the key.
    my $with = grep { $_ == $limit } map { limits()->{$_} } map { @{ $_->{with} // [] } } values %{ limits() };
    my @owed = grep { !$_->{judged} } @{$refused};
    for my $refusal (sort { $a->{to} <=> $b->{to} } @{$refused}) {
        my ($by_counts, $node) = ($refusal->{explained}, $refusal->{request}{node});
        $refusal->{explained} = 1 if $refusal->{at} < $perhaps;
        $perhaps = max($perhaps, $late->($refusal->{to}, $node) + $longest)
            if $by_counts && !$refusal->{rooted} && $cut->($refusal->{at}, $refusal->{to}, $node);
        next unless $refusal->{rooted} && ($refusal->{to} > $surely || $refusal->{at} < $begun);
        my $later = $limit->{with} || $with || grep { $_->{request}{node} == $node && $_->{at} < $refusal->{to}
            && $_->{to} > $refusal->{at} } @owed;
        ($surely, $begun) = ($refusal->{at} + $limit->{block}, $late->($refusal->{to}, $node))
            if $refusal->{certain} && !$later && $refusal->{at} > $perhaps;
        $perhaps = max($perhaps, $refusal->{to} + $limit->{block} + ($later ? connect_timeout() + timeout() : 0));
    }
    return $perhaps;
}

# A refusal that may be taken back is remembered by its node for a second.
sub _explain_remembered {
    my ($refused) = @_;
    my @known = grep { $_->{explained} && $_->{source} ne 'cache' } @{$refused};
    for my $refusal (grep { !$_->{explained} && $_->{source} eq 'cache' } @{$refused}) {
        $refusal->{explained} = 1 if grep { $_->{request}{node} == $refusal->{request}{node} && $_->{at} < $refusal->{to}
            && $_->{to} + $remembered > $refusal->{at} } @known;
    }
    return;
}

# What steps back of Redis's clock leave of a bucket, as items: it stays as full as it was, for as long as it drains. A key
# that is never idle keeps that.
sub _left_by_steps {
    my ($limit, $faults) = @_;
    return if $limit->{algorithm} =~ /window/;
    return map { { from => $_->{from}, to => $_->{to}, charge => 1,
        weight => $limit->{quota} * min(1, -$_->{step} / $limit->{window}) } } grep { ($_->{step} // 0) < 0 } @{$faults};
}

# Whether Redis's clock ran backwards, which may prolong what was counted before: once by a window and the time since the
# latest count, from the next request on.
sub _stepped_back {
    my ($limit, $refusal, $items, $faults) = @_;
    my $size = $limit->{overrides} && $refusal->{request}{limit};
    my @own = grep { !$size || $_->{limit} && $_->{limit} == $size } @{$items};
    for my $step (grep { ($_->{step} // 0) < 0 } @{$faults}) {
        my ($back, $after) = (-$step->{step}, $step->{to});
        my $next = min($after + $back, $refusal->{at}, map { $_->{from} } grep { $_->{from} > $after } @own);
        my $longest = 3 * $limit->{window} + ($limit->{block} ? $limit->{block} + $back : 0) + 1;
        next if $refusal->{to} < $step->{from} || $refusal->{at} > $next + $longest;
        return 1 if grep { $_->{from} <= $after } @{$items};
    }
    return 0;
}

# The longest retry time that any limit of the request has.
sub _longest {
    my ($request) = @_;
    my @longest = map { limits()->{$_} } counting($request->{zone});
    return max(map {
        1 + ($_->{block} // 0) + 2 * $_->{window} + (defined $_->{burst} ? $_->{burst} * $_->{window} / $_->{quota} : 0)
    } grep { $_->{window} } @longest);
}

# Sentences about keys that are blocked at rest, but not by a refusal with a cause. blocked: of judge_refusals.
sub judge_unblocked {
    my ($node, $blocked, $requests) = @_;
    my @sentences;
    for my $zone (sort grep { limits()->{$_}{block} && limits()->{$_}{block} < 60 } keys %{ limits() }) {
        my %keys = map { key_in($zone, $_) => 1 } grep { my $of = $_; grep { $_ eq $zone } counting($of->{zone}) }
            @{$requests}[max(0, @{$requests} - 3000) .. $#{$requests}];
        for my $key (sort keys %keys) {
            my $state = eval { decode_json($node->get("/api/zones/$zone/keys/$key")->body) } // {};
            next if !$state->{blocked} || time < ($blocked->{$zone}{$key} // 0);
            push @sentences, "key $key of zone $zone is blocked for $state->{blocked} s without a cause";
        }
    }
    return @sentences;
}

1;

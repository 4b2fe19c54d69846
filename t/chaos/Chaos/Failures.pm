package Chaos::Failures;

# Judges the cost of faults: requests that the fail mode decided, and how long requests waited.

use strict;
use warnings;

use List::Util qw(max min);

use Exporter 'import';
our @EXPORT_OK = qw(judge_failures judge_waits is_failure in_words);

# Whether the fail mode decided: FAILED_OPEN, FAILED_CLOSED, or this node's memory in place of Redis.
sub is_failure {
    my ($request) = @_;
    return $request->{status} =~ /^FAILED/ || ($request->{source} // '') eq 'local';
}

# Returns sentences, one for each fault, about requests that failed outside it and its slack, and the number
# of failures that a busy machine excuses. Adds each fault's cost to it: `failed`, `longest` (the latest
# sending time of a failed request after the fault's end), `bad` (failures that are not allowed), `excused`.
# faults: name, from, to, slack (seconds after its end in which requests may fail; undef: none may fail).
# busy: code that returns how long processes waited for a processor between two times, which is added to
# the slack; a request outside any fault is excused if that is more than `patience`.
sub judge_failures {
    my ($requests, $faults, $busy, $patience) = @_;
    my ($excused, @bad) = (0);    # [fault, first sentence, number of others] of each fault
    my @faults = sort { $a->{from} <=> $b->{from} } @{$faults};
    for my $request (sort { $a->{sent} <=> $b->{sent} } grep { is_failure($_) } @{$requests}) {
        my ($fault, $late, $allowed) = _blamed($request, \@faults, $busy);
        if ($fault) {
            $fault->{failed}++;
            $fault->{longest} = max($fault->{longest} // 0, $late) if $allowed ne 'busy';
            next if $allowed eq 'allowed';
        }
        # A breaker that opened because the machine was busy may stay open for a moment.
        if ($allowed || $busy->($request->{sent} - 0.2, $request->{received}) > $patience) {
            $fault->{excused}++ if $fault;
            $excused++;
            next;
        }
        $fault->{bad}++ if $fault;
        my ($same) = grep { ($_->[0] // 0) == ($fault // 0) } @bad;
        $same->[2]++ if $same;
        push @bad, [$fault, in_words($request) . ', ' . ($fault ? _after($fault, $late) : 'before any fault'), 0]
            unless $same;
    }
    return ([map { $_->[1] . ($_->[2] ? ", and $_->[2] more" : '') } @bad], $excused);
}

# The fault that explains a failed request, or else the last that had begun; how long after its end the
# request was sent; and "allowed", or "busy" if only a busy machine allows it.
sub _blamed {
    my ($request, $faults, $busy) = @_;
    my ($last, $last_late);
    for my $fault (reverse @{$faults}) {
        next if $fault->{from} > $request->{received};
        my $late = max(0, $request->{sent} - $fault->{to});
        ($last, $last_late) = ($fault, $late) unless $last;
        last if $late > 30;
        next unless defined $fault->{slack};
        my $slack = $fault->{slack};
        return ($fault, $late, 'allowed') if $late <= $slack;
        return ($fault, $late, 'busy') if $late <= $slack + $busy->($fault->{to}, $request->{sent});
    }
    return ($last, $last_late, '');
}

sub _after {
    my ($fault, $late) = @_;
    my $what = sprintf '%s at %.3f (%.3f s)', $fault->{name}, $fault->{from}, $fault->{to} - $fault->{from};
    return "in $what, which may cost none" if !defined $fault->{slack} && $late == 0;
    return sprintf '%.3f s after the end of %s, which may cost %s', $late, $what,
        defined $fault->{slack} ? "$fault->{slack} s" : 'none';
}

# Sentences about requests that waited longer than `bound` seconds (code, for each request) and the delays
# of a busy machine; the time of `pauses` ([from, to], by node: a worker was stopped) does not count.
sub judge_waits {
    my ($requests, $bound, $pauses, $busy) = @_;
    my @sentences;
    for my $request (@{$requests}) {
        my ($sent, $received) = @{$request}{qw(sent received)};
        next if $received - $sent <= $bound->($request);
        my $waited = $received - $sent;
        for my $pause (@{ $pauses->{ $request->{node} } // [] }) {
            $waited -= max(0, min($received, $pause->[1]) - max($sent, $pause->[0]));
        }
        $waited -= $busy->($sent, $received);
        next if $waited <= $bound->($request);
        push @sentences, in_words($request)
            . sprintf(', waited %.3f s, at most %.3f are allowed', $received - $sent, $bound->($request));
    }
    return @sentences;
}

sub in_words {
    my ($request) = @_;
    return sprintf 'request %d to node %d, %s of %s, sent %.3f, answered %.3f: %s %s',
        @{$request}{qw(id node key zone sent received)}, $request->{status}, $request->{source} // '';
}

1;

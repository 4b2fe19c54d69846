package Chaos::Overrides;

# Judges the decisions about keys whose overrides change meanwhile: each must be one of a limit that was in
# force at some time in the two seconds before it.
#
# What may be in force on a node:
# - A change is made at some time between its request and its response, which ends what was before.
# - A change that failed, or was answered near a fault by which Redis may lose data, may be in force or not,
#   and what was before too, until the next change that is certain.
# - A node knows what was in Redis two seconds ago. If a fault kept Redis or a worker of this node from
#   answering in these two seconds, the node may know no more than it knew when the fault began, until two
#   seconds after Redis answers again. So two seconds without such a fault bring a node up to date.
# - A node does not go back: what a response shows that it knows, it knows from then on.

use strict;
use warnings;

use Chaos::Bounds qw(violations);
use Chaos::Changes qw(changed_keys);
use Chaos::Counted qw(cuts);
use Chaos::Failures qw(in_words);
use Chaos::Limits qw(limits own_limit);
use JSON::PP qw(decode_json);
use List::Util qw(max min);
use POSIX qw(floor);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(judge_changes judge_agreement);

my $delay    = 2;      # seconds until a change is in force on every node
my $reading  = 0.1;    # for the clocks of nginx, which reads its own once in each turn of its loop
my $unsure   = 1;      # seconds before and after a loss of data in which a change may be lost
my $patience = 5;      # seconds after the faults until all agree

# Returns sentences, and the number of decisions that only one limit could explain.
# requests, faults, busy: as for judge_failures. changes: of Chaos::Changes.
sub judge_changes {
    my ($requests, $changes, $faults, $busy) = @_;
    my @sentences = map {
        "key $_->{key} of zone $_->{zone}: $_->{value} sent at $_->{begun}, and the API answered $_->{http}" }
        grep { $_->{http} !~ /^(?:0|200|204|404|503|504)$/ } @{$changes};
    my %of = map { ("$_->[0] $_->[1]" => { spans => _spans(@{$_}, $changes, $faults), bad => [], passes => [] }) }
        changed_keys();
    my $again = cuts($faults, 0.05);    # what was sent again may pass beyond the limit
    my (%knows, $sharp);
    for my $request (sort { $a->{sent} <=> $b->{sent} } @{$requests}) {
        my $key     = $of{"$request->{zone} $request->{key}"} // next;
        my $decided = _decided_by($request) // next;
        my $node    = $knows{ $request->{node} } //= { at_least => 0, later => [] };
        my $since   = max(_shown($node, $request->{sent}), _known_since($request, $faults, $busy));
        my @may     = _between($key->{spans}, $since, $request->{received});
        my @by      = grep { $decided eq $_->[0] || $decided eq 'any' && $_->[0] !~ /\D/ } @may;
        my @values  = _values(@may);
        $sharp++ if @values == 1;
        push @{ $key->{bad} }, _unexplained($request, $since, @values) unless @by;
        push @{ $node->{later} }, [$request->{received}, min(map { $_->[3] } @by)] if @by;
        push @{ $key->{passes} }, [$request, grep { !/\D/ } @values]
            if @by && $request->{status} eq 'PASSED' && ($request->{source} // '') eq 'redis'
            && !$again->(@{$request}{qw(sent received node)});
    }
    my @gaps = map { [@{$_}{qw(from to)}] } grep { $_->{loses} || $_->{step} } @{$faults};
    for my $of (changed_keys()) {
        my ($first, @more) = @{ $of{"@{$of}"}{bad} };
        push @sentences, $first . (@more ? ', and ' . @more . ' more' : '') if $first;
        push @sentences, map { "key $of->[1] of zone $of->[0]: $_" }
            _too_many(limits()->{ $of->[0] }, $of{"@{$of}"}{passes}, \@gaps);
    }
    return (\@sentences, $sharp // 0);
}

# What the responses that came before a time show: the node knows all that was in Redis at the time that is
# returned. node: at_least, that time so far; later: [received, the same time] of further responses.
sub _shown {
    my ($node, $sent) = @_;
    $node->{at_least} = max($node->{at_least}, map { $_->[1] } grep { $_->[0] < $sent } @{ $node->{later} });
    $node->{later} = [grep { $_->[0] >= $sent } @{ $node->{later} }];
    return $node->{at_least};
}

sub _unexplained {
    my ($request, $since, @values) = @_;
    return sprintf '%s, by the limit %s; in force since %.3f: %s', in_words($request),
        $request->{limit} || '(unknown)', $since, join(' or ', @values);
}

# Which limit decided: "block", "unlimited", the limit's size, "any" if the size is unknown; undef: none did.
sub _decided_by {
    my ($request) = @_;
    my ($status, $source) = @{$request}{qw(status source)};
    return undef unless $status =~ /^(?:PASSED|REJECTED|FAILED_OPEN|UNLIMITED)$/;    ## no critic (ProhibitExplicitReturnUndef)
    return 'unlimited' if $status eq 'UNLIMITED';
    return 'block' if ($source // '') eq 'override';
    return $request->{limit} || 'any';
}

# [value, from, to, shows] of each limit: when it may have been in force in Redis; a node that decides by it
# knows all that was in Redis at the time `shows`. Of a change that is certain that is after its response, since
# no change is made while another one waits.
sub _spans {
    my ($zone, $key, $changes, $faults) = @_;
    my @lost  = grep { $_->{loses} } @{$faults};
    my @spans = ([own_limit($zone), 0, 9e99, 0]);
    my @open  = @spans;
    for my $change (sort { $a->{begun} <=> $b->{begun} }
        grep { $_->{zone} eq $zone && $_->{key} eq $key } @{$changes}) {
        my $span = [$change->{value}, $change->{begun}, 9e99, $change->{begun}];
        my $certain = $change->{http} =~ /^(?:200|204|404)$/
            && !grep { $_->{from} - $unsure <= $change->{answered} && $_->{to} + $unsure >= $change->{begun} }
            @lost;
        if ($certain) {
            $_->[2] = $change->{answered} for @open;
            $span->[3] = $change->{answered} + 1e-6;
            @open = ();
        }
        push @open,  $span;
        push @spans, $span;
    }
    return \@spans;
}

sub _between {
    my ($spans, $from, $to) = @_;
    return grep { $_->[1] <= $to && $_->[2] >= $from } @{$spans};
}

sub _values {
    my %values = map { $_->[0] => 1 } @_;
    my @sorted = sort keys %values;
    return @sorted;
}

# The time since which the request's node knows all that was in Redis at that time.
sub _known_since {
    my ($request, $faults, $busy) = @_;
    my $since = $request->{sent} - $delay - $reading - $busy->($request->{sent} - $delay, $request->{received});
    for my $fault (sort { $b->{to} <=> $a->{to} } grep { _keeps_from_answering($_, $request->{node}) } @{$faults}) {
        next if $fault->{from} > $request->{sent};
        my $answers = $fault->{to} + ($fault->{slack} // 0);
        $since = min($since, $fault->{from} - $delay - $reading) if $answers + $busy->($fault->{to}, $answers) >= $since;
    }
    return $since;
}

# Whether the fault may keep Redis, or the worker of this node that talks to it, from answering.
sub _keeps_from_answering {
    my ($fault, $node) = @_;
    return $fault->{node} == $node if $fault->{name} =~ /^worker/ || $fault->{ends};
    return defined $fault->{slack} || $fault->{loses};
}

# Sentences about more requests than a limit allows, of those that it decided: each counts apart, in each window,
# or for other algorithms at any time. All have one rate, or one window.
# passes: [request, limits that may have decided it].
sub _too_many {
    my ($limit, $passes, $gaps) = @_;
    my %groups;
    for my $pass (@{$passes}) {
        my ($request, @may) = @{$pass};
        my $size = $request->{limit} || (@may == 1 ? $may[0] : next);
        my $window = $limit->{algorithm} eq 'fixed_window' ? floor($request->{sent} / $limit->{window}) : 0;
        push @{ $groups{$size}{$window} }, $request;
    }
    my @sentences;
    for my $most (sort { $a <=> $b } keys %groups) {
        my %size = $limit->{algorithm} eq 'fixed_window' ? (quota => $most) : (burst => $most - 1);
        for my $window (sort { $a <=> $b } keys %{ $groups{$most} }) {
            push @sentences, violations({ %{$limit}, %size },
                [map { [$_->{sent} - 0.001, $_->{received} + 0.001] } @{ $groups{$most}{$window} }], $gaps);
        }
    }
    return @sentences;
}

# Sentences about nodes that do not agree with Redis on the overrides, or Redis with the changes, some seconds
# after all faults. wait: the seconds to wait for that.
sub judge_agreement {
    my ($fleet, $changes, $faults, $wait) = @_;
    my $end = time + ($wait // $patience);
    while (1) {
        my @sentences = map { _disagreements($_, $fleet, $changes, $faults) }
            grep { limits()->{$_}{overrides} } sort keys %{ limits() };
        return @sentences if !@sentences || time > $end;
        sleep 0.2;
    }
}

sub _disagreements {
    my ($zone, $fleet, $changes, $faults) = @_;
    my (@sentences, $number);
    for my $node ($fleet->nginx) {
        my $name = 'node ' . ($number++ // 0) . ", zone $zone";
        my $list = eval { decode_json($node->get("/api/zones/$zone/overrides")->body) } // {};
        if (!$list->{overrides}) {
            push @sentences, "$name: no list of overrides";
            next;
        }
        push @sentences, "$name has $list->{count} overrides, Redis " . @{ $list->{overrides} }
            if $list->{count} != @{ $list->{overrides} };
        my %listed = map { $_->{key} => _value_of($zone, $_) } @{ $list->{overrides} };
        for my $key (map { $_->[1] } grep { $_->[0] eq $zone } changed_keys()) {
            my $redis = $listed{$key} // own_limit($zone);
            my @may   = _values(_between(_spans($zone, $key, $changes, $faults), (time) x 2));
            push @sentences, "$name: Redis has $redis for key $key, after changes to " . join ' or ', @may
                unless grep { $_ eq $redis } @may;
            my $got = _ask($node, $zone, $key);
            push @sentences, "$name: a request of key $key is decided by $got, Redis has $redis" if $got ne $redis;
        }
    }
    return @sentences;
}

# The limit of an override, as Chaos::Changes names it.
sub _value_of {
    my ($zone, $override) = @_;
    return 'block'     if $override->{block};
    return 'unlimited' if $override->{unlimited};
    my $known = limits()->{$zone}{overrides};
    my ($value) = grep { my $text = decode_json($known->{$_});
        !grep { ($override->{$_} // '') ne ($text->{$_} // '') } qw(rate burst) } keys %{$known};
    return $value // 'another';
}

sub _ask {
    my ($node, $zone, $key) = @_;
    my $answer = $node->get("/$zone?k=$key&i=0");
    my ($status, $source, $limit) = map { scalar $answer->header("X-$_") } qw(Status Source Limit);
    my %request = (status => $status // 'UNLIMITED', source => $source, limit => $limit);
    return _decided_by(\%request) // $request{status};
}

1;

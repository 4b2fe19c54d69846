package Chaos::Takeovers;

# Takeovers that no fault ordered. Sentinels demote a running master when they believe it down, as
# after BUSY replies or on a busy machine. The replica is promoted up to a second before any
# sentinel names it, and receives nothing of what the old master counts in that time: clients learn
# of the promotion only from the sentinels, so no client can prevent that loss.

use strict;
use warnings;

use List::Util qw(first max min);
use POSIX qw(mktime);

use Exporter 'import';
our @EXPORT_OK = qw(takeovers unplanned exits);

my %months = map { (qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec))[$_] => $_ } 0 .. 11;

# [from, to] of each takeover in the logs of sentinels: from when the replica is sent REPLICAOF NO ONE to when the last
# sentinel says so to its subscribers. The sentinel that leads says it by +promoted-slave, long before its +switch-master.
sub takeovers {
    my (@logs) = @_;
    my @told = map { [_events($_)] } @logs;
    my @promoted = sort { $a->[0] <=> $b->[0] } grep { $_->[1] eq '+failover-state-wait-promotion' } map { @{$_} } @told;
    my @takeovers;
    for my $i (0 .. $#promoted) {
        my ($from, undef, $server) = @{ $promoted[$i] };
        my $next = first { $_->[2] eq $server } @promoted[$i + 1 .. $#promoted];
        my $is_named = sub {
            my ($at, $event, $of) = @{ $_[0] };
            return $event =~ /^\+(?:promoted-slave|switch-master)$/ && $of eq $server && $at >= $from && !($next && $at >= $next->[0]);
        };
        my $last = max(map { $_->[0] } grep { $_ } map { first { $is_named->($_) } @{$_} } @told);
        push @takeovers, [$from, $last] if defined $last;    # otherwise the sentinel gave it up
    }
    return @takeovers;
}

# [seconds since the epoch, event, address of the server that is promoted] of each event of a log.
sub _events {
    my ($log) = @_;
    my @events;
    while ($log =~ /:X (\d+) (\w+) (\d+) (\d+):(\d+):([\d.]+) [#*] (\+[\w-]+) (.*)/g) {
        my ($day, $month, $year, $hour, $minute, $second, $event, $about) = ($1, $2, $3, $4, $5, $6, $7, $8);
        my $server = $about =~ /^slave \S+ (\S+) (\d+)/ || $about =~ / (\S+) (\d+)$/ ? "$1:$2" : '';
        push @events, [mktime(0, $minute, $hour, $day, $months{$month}, $year - 1900, 0, 0, -1) + $second, $event, $server];
    }
    return @events;
}

# The takeovers that are not part of any fault, as faults.
sub unplanned {
    my ($takeovers, $faults) = @_;
    my @planned = grep { $_->{loses} } @{$faults};
    my $delay = 0.1;    # seconds until every worker has the message
    return map { { name => 'unplanned takeover', from => $_->[0], to => $_->[1] + $delay, loses => 1, cuts => 1 } }
        grep { my $begins = $_->[0]; !grep { $begins >= $_->{from} && $begins <= $_->{to} } @planned }
        @{$takeovers};
}

# Where a worker of a node exited during a takeover, by the nodes' error logs: what its last requests released may be
# counted at the new master, since no process is left that could state it again. node, from and to (seconds).
sub exits {
    my ($faults, @logs) = @_;
    my @exits;
    for my $node (0 .. $#logs) {
        while ($logs[$node] =~ m{^(\d+)/(\d+)/(\d+) (\d+):(\d+):(\d+) \[notice\] \d+#\d+: exit$}mg) {
            my $at = mktime($6, $5, $4, $3, $2 - 1, $1 - 1900, 0, 0, -1);    # to a second
            push @exits, map { { node => $node, from => $_->{from}, to => min($_->{to}, $at + 1) } }
                grep { $_->{loses} && $_->{from} < $at + 1 && $_->{to} > $at } @{$faults};
        }
    }
    return @exits;
}

1;

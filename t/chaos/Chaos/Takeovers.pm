package Chaos::Takeovers;

# Takeovers that no fault ordered. Sentinels demote a running master when they believe it down, as
# after BUSY replies or on a busy machine. The replica is promoted up to a second before any
# sentinel names it, and receives nothing of what the old master counts in that time: clients learn
# of the promotion only from the sentinels, so no client can prevent that loss.

use strict;
use warnings;

use List::Util qw(max);
use POSIX qw(mktime);

use Exporter 'import';
our @EXPORT_OK = qw(takeovers unplanned);

my %months = map { (qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec))[$_] => $_ } 0 .. 11;

# [from, to] of each takeover in the logs of all sentinels: from when the replica is sent REPLICAOF NO ONE
# to when the last sentinel names it.
sub takeovers {
    my (@logs) = @_;
    my (@promoted, @named);
    for my $line (map { split /\n/ } @logs) {
        my ($day, $month, $year, $hour, $minute, $second, $event)
            = $line =~ /:X (\d+) (\w+) (\d+) (\d+):(\d+):([\d.]+) [#*] (\+[\w-]+) / or next;
        my $time = mktime(0, $minute, $hour, $day, $months{$month}, $year - 1900, 0, 0, -1) + $second;
        push @promoted, $time if $event eq '+failover-state-wait-promotion';
        push @named,    $time if $event eq '+switch-master';
    }
    my @takeovers;
    @promoted = sort { $a <=> $b } @promoted;
    for my $i (0 .. $#promoted) {
        my $next = $promoted[$i + 1] // 9e99;
        my $last = max(grep { $_ >= $promoted[$i] && $_ < $next } @named);
        push @takeovers, [$promoted[$i], $last] if defined $last;    # otherwise the sentinel gave it up
    }
    return @takeovers;
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

1;

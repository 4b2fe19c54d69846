#!/usr/bin/env perl

# A Redis in another region: what a request waits for, exact, with lease= and with ahead=, behind links of 1, 20 and
# 80 ms; what passes beyond a limit under attack, beside a peer that synchronises at intervals; and what ahead= costs
# beside Redis. ROUNDS and SECONDS as in load.pl.

use strict;
use warnings;

use List::Util qw(max sum);
use Ratelimit::Proxy;
use Ratelimit::Redis;
use Time::HiRes qw(sleep time);

use Bench::Generators qw(generator_version wrk);
use Bench::Measure qw($rounds $seconds measure figure by_round spread);
use Bench::Report;
use Bench::Servers qw(location ours peer_that_synchronises redis_block versions all_stopped);

my @away = (1, 20, 80);           # milliseconds
my @keys = (1, 200, 20_000);
my %ways = (exact => '', lease => 'lease=1000', ahead => 'ahead=200');
my $passing = 'algorithm=gcra rate=1r/m burst=59999999';    # as in load.pl: nothing is refused
my ($quota, $window, $nodes) = (1000, 10, 3);               # of the attack
my $few  = 10;                                              # its ahead=
my $fast = 10;                                              # requests of its key, times the limit

my $redis = Ratelimit::Redis->new;
my %link  = map { $_ => link_of($_) } @away;

sub link_of {
    my ($milliseconds) = @_;
    my $link = Ratelimit::Proxy->new(to => $redis->addr);
    $link->delay($milliseconds / 1000);
    return $link;
}

# nginx with a location for each way to limit.
sub node_at {
    my ($server, %zones) = @_;
    return ours(
        http => redis_block($server) . join('', map { "ratelimit_zone $zones{$_};\n" } sort keys %zones),
        server => location('/none', '') . join '', map { location("/$_", "ratelimit zone=$_;") } sort keys %zones,
    );
}

# Each way, for each distance and number of keys, beside no limit.
sub region_rows {
    my @rows;
    for my $away (@away) {
        my $nginx = node_at($link{$away}, map { ("$_" => "\$arg_key zone=$_ $passing $ways{$_}") } keys %ways);
        push @rows, { name => "no limit, $away", away => $away, keys => 200, nginx => $nginx, path => '/none', paced => 1 }
            if $away == $away[0];
        for my $keys (@keys) {
            push @rows, map { { name => "$_, $away ms, $keys keys", away => $away, keys => $keys, way => $_, nginx => $nginx,
                path => "/$_", paced => 1, redis => [$redis], calls => [0, 1.5] } } qw(exact lease ahead);
        }
    }
    return @rows;
}

# Beside Redis, as fast as possible.
sub near_rows {
    my %zones = (keys => "\$arg_key zone=keys:64m $passing", ahead_keys => "\$arg_key zone=ahead_keys:64m $passing ahead=100",
        ahead_hot => "\$arg_one zone=ahead_hot $passing ahead=1000", ahead_refused => '$arg_one zone=ahead_refused algorithm=gcra rate=1r/m ahead=1');
    my $nginx = ours(
        http => redis_block($redis) . join('', map { "ratelimit_zone $zones{$_};\n" } sort keys %zones)
            . 'limit_req_zone $arg_one zone=req_hot:1m rate=1000000r/s; limit_req_zone $arg_one zone=req_refused:1m rate=1r/m;',
        server => location('/none', '') . location('/req_hot', 'limit_req zone=req_hot burst=100000 nodelay;')
            . location('/req_refused', 'limit_req zone=req_refused;')
            . join '', map { location("/$_", "ratelimit zone=$_;") } sort keys %zones,
    );
    my %row = map { $_ => { name => $_, nginx => $nginx, path => "/$_", keys => 100_000, redis => [$redis] } }
        qw(none req_hot req_refused), keys %zones;
    $row{$_}{calls} = [0, 1.2] for keys %zones;
    @{ $row{$_} }{qw(refused keys)} = (1, 1) for qw(req_refused ahead_refused);
    my %few = (connections => 1);
    $row{"${_}_calm"} = { %{ $row{$_} }, name => "$_, one connection", %few } for qw(req_hot ahead_hot);
    return %row;
}

# Requests that passed of the one key, at all nodes together, in one window; and how many were sent.
sub attack {
    my ($path, @nodes) = @_;
    my $begin = $window * (1 + int(time / $window));
    sleep $begin + 0.1 - time;
    my @figures;
    for my $nginx (@nodes) {
        my $pid = open(my $from, '-|') // die "fork: $!\n";
        if (!$pid) {
            # 100 ms between two requests of a connection, on average.
            my $load = wrk(port => $nginx->port, path => $path, keys => 1, seconds => 6, paced => 1,
                connections => 1 + int $fast * $quota / $window / 10 / $nodes);
            print "$load->{requests} $load->{refused}\n";
            exec 'true';    # destroys no server
        }
        push @figures, $from;
    }
    my ($passed, $sent) = (0, 0);
    for my $from (@figures) {
        my ($requests, $refused) = split ' ', scalar(<$from>) // die "an attack ended\n";
        $passed += $requests - $refused;
        $sent   += $requests;
        close $from;
    }
    die "the attack lasted longer than its window\n" if time > $begin + $window;
    return { passed => $passed, sent => $sent };
}

# Each: name, the bound (or none), and what passed in each of the rounds.
sub attacks {
    my $limit = "rate=${quota}r/${window}s algorithm=fixed_window";
    my @ours = map { node_at($link{80}, exact => "\$arg_one zone=exact $limit", ahead => "\$arg_one zone=ahead $limit ahead=$few") } 1 .. $nodes;
    my %peers = map { my $interval = $_; $interval => [map { peer_that_synchronises($link{80}, '/sync', quota => $quota, window => $window, interval => $interval) } 1 .. $nodes] } 0.05, 1;
    my @all = (['exact', 0, '/exact', @ours], ["ahead=$few", $few * $nodes, '/ahead', @ours],
        map { ["lua, synchronises every $_ s", undef, '/sync', @{ $peers{$_} }] } 0.05, 1);
    my @seen;
    for my $row (@all) {
        my ($name, $bound, $path, @nodes) = @{$row};
        my @rounds = map { attack($path, @nodes) } 1 .. $rounds;
        push @seen, { name => $name, bound => $bound, sent => max(map { $_->{sent} } @rounds),
            beyond => max(map { $_->{passed} - $quota } @rounds) };
    }
    return @seen;
}

sub milliseconds { return sprintf '%.2f', $_[0] / 1000 }

my @region = region_rows();
my ($none) = grep { !$_->{way} } @region;
measure(@region);
my @attacks = attacks();
my %near = near_rows();
measure(@near{ sort keys %near });

sub waited { my ($row, $what) = @_; return figure($row, $what) - figure($none, $what) }
sub added { my ($name) = @_; return figure($near{$name}, 'nginx') - figure($near{none}, 'nginx') }
sub ratio { my ($what, $name, $other) = @_; return figure($near{$name}, $what) / figure($near{$other}, $what) }

my ($load) = split ' ', do { open my $file, '<', '/proc/loadavg' or die "loadavg: $!\n"; scalar <$file> };
my $report = Bench::Report->new('region', 'A Redis in another region', generator_version(), versions($redis));
$report->lines("Medians of $rounds rounds of $seconds s, rows interleaved; one nginx worker; everything on this machine, which had a load of $load (of other programs, too) at the end; a proxy delays the replies of Redis.",
    '64 connections, each with a request every 100 ms on average, so about 600 requests a second in all; gcra, nothing refused. lease=1000, ahead=200. added: to no limit, with the same requests. Keys are idle before each row, so the p99 of lease= has the waits of their first second. calls: of scripts, for each request.');
my @table = (['', 'keys', 'p50 ms added', 'p99 ms added', 'calls']);
for my $row (grep { $_->{way} } @region) {
    push @table, ["$row->{away} ms, $row->{way}", $row->{keys}, map({ milliseconds(waited($row, $_)) } qw(p50 p99)), sprintf '%.2f', figure($row, 'calls')];
}
$report->table(@table);
$report->lines("Under attack: $nodes nodes with one worker each, 80 ms from Redis, $quota requests in $window s, one key with $fast times as many; the most of $rounds windows.");
$report->table(['', 'sent', 'passed beyond the limit', 'bound'],
    map { [$_->{name}, $_->{sent}, $_->{beyond}, $_->{bound} // 'none'] } @attacks);
$report->lines('Beside Redis, as fast as possible: 64 connections, or one.');
$report->table(['', 'requests/s', '+-', 'nginx us', 'calls', 'p50 us', 'p99 us'], map {
    my $row = $near{$_};
    [$row->{name} =~ tr/_/ /r, sprintf('%.0f', figure($row, 'requests')), sprintf('%.0f %%', spread($row)), sprintf('%.2f', figure($row, 'nginx')),
        sprintf('%.3f', figure($row, 'calls')), map { sprintf '%.0f', figure($row, $_) } qw(p50 p99)]
} sort keys %near);

my @targets = (
    (map { my $row = $_; ["$row->{name}: p99 added, ms", sub { waited($row, 'p99') / 1000 }, 1] }
        grep { ($_->{way} // '') eq 'ahead' && $_->{away} == 80 } @region),
    ['hot key: requests/s, of limit_req\'s', sub { ratio('requests', 'ahead_hot', 'req_hot') }, 0.9, 1],
    ['refused flood: requests/s, of limit_req\'s', sub { ratio('requests', 'ahead_refused', 'req_refused') }, 0.95, 1],
    (map { my $what = $_; ["hot key, one connection: $what, of limit_req\'s", sub { ratio($what, 'ahead_hot_calm', 'req_hot_calm') }, 1.1] } qw(p50 p99)),
    ['100000 keys: nginx CPU added, of exact\'s', sub { added('ahead_keys') / added('keys') }, 1.2],
);
my @met = (['target', 'bound', 'measured', 'rounds', 'met']);
for my $target (@targets) {
    my ($text, $value, $bound, $at_least) = @{$target};
    my @values = sort { $a <=> $b } by_round($value);
    my $good = grep { $at_least ? $_ >= $bound : $_ <= $bound } @values;
    push @met, [$text, ($at_least ? '>= ' : '<= ') . $bound, sprintf('%.2f', $value->()), sprintf('%.2f to %.2f', @values[0, -1]),
        $good == @values ? 'yes' : "$good of " . @values];
}
push @met, map { ["$_->{name}: beyond the limit", "<= $_->{bound}", $_->{beyond}, '-', $_->{beyond} <= $_->{bound} ? 'yes' : 'no'] }
    grep { defined $_->{bound} } @attacks;
$report->table(@met);
$report->warn_of_noise(map { spread($_) } @region, values %near);
$report->publish;
all_stopped();

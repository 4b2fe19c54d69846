#!/usr/bin/env perl

# How the cost grows: with the number of limits of a request, of keys, of nginx's workers, with the length of a sliding
# window's log, and with fewer checks in a call, where a worker has few requests at a time.

use strict;
use warnings;

use Ratelimit::Redis;
use Time::HiRes qw(time);

use Bench::Generators qw(wrk generator_version);
use Bench::Measure qw($rounds $seconds measure figure spread);
use Bench::Report;
use Bench::Scripts qw(load_script call_words send_calls);
use Bench::Servers qw(location ours redis_block versions all_stopped);

$rounds = $ENV{ROUNDS} // 3;    # growth shows in few rounds

# As in load.pl: nothing is refused, and no key expires during the measurement.
my $passing = 'algorithm=gcra rate=1r/m burst=59999999';
my @numbers = (0, 1, 60_000_000, 60_000_000, 1);
my $few     = 100_000;

sub make_keys {
    my ($redis, $zone, $keys) = @_;
    my $digest = load_script($redis, 'gcra');
    return send_calls($redis, $keys, sub {
        return call_words($digest, sprintf('rl:%s:{k%012d}', $zone, $_[0]), @numbers);
    });
}

sub row {
    my ($name, $redis, $nginx, $path, $keys) = @_;
    return {name => $name, nginx => $nginx, path => $path, keys => $keys, redis => [$redis],
        calls => [1 / 17, 1], reads => [1, 1]};
}

# 1, 2 and 4 limits of one request, each with its own keys.
sub limit_rows {
    my $redis = Ratelimit::Redis->new;
    my $http  = redis_block($redis) . join '', map { "ratelimit_zone \$arg_key zone=z$_ $passing;" } 1 .. 4;
    my $limits = sub { join ' ', map { "ratelimit zone=z$_;" } 1 .. $_[0] };
    my $nginx = ours(http => $http,
        server => join '', map { location("/limits$_", $limits->($_)) } 1, 2, 4);
    make_keys($redis, "z$_", $few) for 1 .. 4;
    return map { +{ %{ row("$_ limit" . ($_ > 1 ? 's' : ''), $redis, $nginx, "/limits$_", $few) }, reads => [$_, $_] } } 1, 2, 4;
}

# A thousand to a million keys, each number in its own Redis.
sub key_rows {
    return map {
        my $redis = Ratelimit::Redis->new;
        my $nginx = ours(http => redis_block($redis) . "ratelimit_zone \$arg_key zone=all $passing;",
            server => location('/all', 'ratelimit zone=all;'));
        make_keys($redis, 'all', $_);
        row("$_ keys", $redis, $nginx, '/all', $_);
    } 1000, 100_000, 1_000_000;
}

# 1 to 8 workers of nginx, each with a connection to one Redis.
sub worker_rows {
    my $redis = Ratelimit::Redis->new;
    make_keys($redis, 'all', $few);
    return map {
        my $nginx = ours(workers => $_, server => location('/all', 'ratelimit zone=all;'),
            http => redis_block($redis) . "ratelimit_zone \$arg_key zone=all $passing;");
        row("$_ worker" . ($_ > 1 ? 's' : ''), $redis, $nginx, '/all', $few);
    } 1, 2, 4, 8;
}

# Requests at a moderate rate (each connection sends ten a second), spread over the workers. Each worker has a call of
# its own, so many workers with few requests share little. With io-threads too.
sub sharing_rows {
    my @servers = map { my $redis = Ratelimit::Redis->new(conf => $_); make_keys($redis, 'all', $few); $redis }
        '', "io-threads 2\n";
    return map {
        my ($workers, $redis, $text) = @{$_};
        my $nginx = ours(workers => $workers, server => location('/all', 'ratelimit zone=all;'),
            http => redis_block($redis) . "ratelimit_zone \$arg_key zone=all $passing;");
        map { +{ %{ row("$text, " . 10 * $_ . '/s', $redis, $nginx, '/all', $few) }, connections => $_, paced => 1 } }
            100, 400, 1200;
    } [1, $servers[0], '1 worker'], [8, $servers[0], '8 workers'], [32, $servers[0], '32 workers'],
        [32, $servers[1], '32 workers, io-threads 2'];
}

sub sharing_table {
    my ($report, @rows) = @_;
    $report->lines('Checks that share a call, by workers and requests a second, gcra; each connection sends ten requests a '
            . "second. Redis us: of all its threads; busy: of one processor.");
    return $report->table(['', 'requests/s', 'calls', 'checks in a call', 'nginx us', 'Redis us', 'Redis busy'],
        map { [$_->{name}, sprintf('%.0f', figure($_, 'requests')), sprintf('%.2f', figure($_, 'calls')),
                sprintf('%.1f', 1 / figure($_, 'calls')), sprintf('%.1f', figure($_, 'nginx')), sprintf('%.1f', figure($_, 'redis')),
                sprintf '%.0f %%', 100 * figure($_, 'redis_busy')] } @rows);
}

# Logs that stay full: at $rate requests a second, as many entries leave each log as are added. Each round
# starts with logs in that state, made by calls of the script with times in the past: entries evenly over
# the window, and before it up to as many that have left but are not yet cut off, differently for each key.
# L => [keys, calls that fill a window].
my %logs = (10 => [20_000, 5], 1000 => [1000, 50], 100_000 => [100, 500]);

sub log_rows {
    my ($rate) = @_;
    my $redis  = Ratelimit::Redis->new;
    my $digest = load_script($redis, 'sliding_window_log');
    my ($http, $server) = (redis_block($redis), '');
    my %window;
    for my $length (keys %logs) {
        $window{$length} = int($length * $logs{$length}[0] / $rate) + 1;
        $http .= "ratelimit_zone \$arg_key zone=log$length algorithm=sliding_window_log rate="
            . 2 * $length . "r/$window{$length}s;\n";
        $server .= location("/log$length", "ratelimit zone=log$length;");
    }
    my $nginx = ours(http => $http, server => $server);
    return map {
        my $length = $_;
        my $keys   = $logs{$length}[0];
        my $call   = sub {
            my ($key, $now, $cost) = @_;
            return call_words($digest, sprintf('rl:log%d:{k%012d}', $length, $key), $now, 2 * $length,
                $window{$length} * 1_000_000, 0, $cost);
        };
        +{
            %{ row("L = $length, $keys keys", $redis, $nginx, "/log$length", $keys) },
            reads  => [0.9, 20],    # requests for one of a hundred keys can share a call
            before => sub { fill($redis, $length, $window{$length}, $call) },
            after  => sub { entries($redis, $length, $call) },
        };
    } sort { $a <=> $b } keys %logs;
}

sub fill {
    my ($redis, $length, $window, $call) = @_;
    my ($keys, $parts) = @{ $logs{$length} };
    $redis->cmd('FLUSHALL');
    my $now = time;
    my @calls;
    for my $part (1 - $parts .. $parts) {
        my $at = sprintf '%.0f', ($now - $window + $window * $part / $parts) * 1e6;
        push @calls, map { [$_, $at, $length / $parts] }
            grep { $part > -$parts * $_ / $keys } 0 .. $keys - 1;
    }
    send_calls($redis, scalar @calls, sub { $call->(@{ $calls[$_[0]] }) });
    return;
}

# The number of requests that a log holds, averaged over some keys.
sub entries {
    my ($redis, $length, $call) = @_;
    my ($sum, $some) = (0, 50);
    for my $i (1 .. $some) {
        my $answer = $redis->cmd($call->(int $logs{$length}[0] * $i / $some - 1, 0, 0));
        my (undef, $remaining) = unpack 'd<2', $answer;
        $sum += 2 * $length - $remaining;
    }
    my $held = $sum / $some;
    # The window follows the rate that was measured first; a table that took minutes is not thrown away for a row.
    warn "\nL = $length: the logs hold $held; the machine was not equally fast all the time\n"
        if $held < $length / 4 || $held > 1.9 * $length;
    return $held;
}

sub growth_table {
    my ($report, $title, $state, @rows) = @_;
    $report->lines($title);
    my @table = (['', 'requests/s', '+-', 'nginx us', 'Redis us', 'p50 us', 'p99 us', $state // ()]);
    for my $row (@rows) {
        push @table, [
            $row->{name}, sprintf('%.0f', figure($row, 'requests')), sprintf('%.0f %%', spread($row)),
            map({ sprintf '%.2f', figure($row, $_) } qw(nginx redis)),
            map({ sprintf '%.0f', figure($row, $_) } qw(p50 p99), $state ? 'state' : ()),
        ];
    }
    $report->table(@table);
    return;
}

my @limits  = limit_rows();
my @keys    = key_rows();
my @workers = worker_rows();
my $rate    = wrk(%{ $limits[0] }, port => $limits[0]{nginx}->port, connections => 64, seconds => 2);
$rate = $rate->{requests} / $rate->{seconds};
my @logs = log_rows($rate);
my @sharing = sharing_rows();
measure(@limits, @keys, @workers, @logs, @sharing);

my $processors = qx(nproc) + 0;
my $report = Bench::Report->new('growth', 'How cost grows', generator_version(),
    versions($limits[0]{redis}[0]));
$report->lines("Medians of $rounds rounds of $seconds s, rows interleaved; 64 connections, wrk with one "
        . 'thread; each request has one of the keys, and nothing is refused.',
    'us: microseconds of CPU for each request, nginx\'s (all workers) and Redis\'s. +-: spread '
        . 'between rounds.');
growth_table($report, "Limits of one request, gcra, $few keys each:", undef, @limits);
growth_table($report, 'Keys, one limit, gcra:', undef, @keys);
growth_table($report, "Workers of nginx, gcra, $few keys (this machine has $processors processors for "
    . 'them, Redis and wrk):', undef, @workers);
sharing_table($report, @sharing);
growth_table($report, 'sliding_window_log with keys that hold L requests: as many requests leave the '
    . 'window as arrive (the logs are filled beforehand with times in the past; the last column is what they '
    . 'held at the end):', 'held', @logs);
$report->warn_of_noise(map { spread($_) } @limits, @keys, @workers, @logs);
$report->publish;
all_stopped();

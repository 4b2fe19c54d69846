#!/usr/bin/env perl

# What ratelimit_fleet costs: a request, with and without overrides, and Redis, by the number of nodes.

use strict;
use warnings;

use Ratelimit::Process qw(wait_until);
use Ratelimit::Redis;

use Bench::Generators qw(generator_version);
use Bench::Measure qw($rounds $seconds measure figure spread);
use Bench::Report;
use Bench::Scripts qw($top call_words load_script send_calls);
use Bench::Servers qw(location ours redis_block versions all_stopped);

# As in load.pl: nothing is refused.
my $passing = 'algorithm=gcra rate=1r/m burst=59999999';
my @numbers = (0, 1, 60_000_000, 60_000_000, 1);
my $keys    = 100_000;
my $second_of_nodes = 1e6;    # each node calls once a second

sub text_of {
    my ($file) = @_;
    open my $in, '<', "$top/lua/$file.lua" or die "$file: $!\n";
    local $/ = undef;
    return scalar <$in>;
}

sub fleet_keys {
    return map { "rl:{fleet}:$_" } @_;
}

# Sets an override of $keys keys, as the API does.
sub set_overrides {
    my ($redis, $name) = @_;
    my $digest = $redis->cmd('SCRIPT', 'LOAD', text_of('fleet_change'));
    my @all = fleet_keys(qw(changes overrides ends events state));
    return send_calls($redis, $keys, sub {
        my $id = 'kall' . sprintf "\0$name%012d", $_[0];
        return ('EVALSHA', $digest, scalar @all, @all, 'set', $id,
            '{"rate":"1r/m","burst":59999999,"by":"bench"', 0, 1_000_000);
    });
}

sub request_row {
    my ($name, $fleet, $overridden) = @_;
    my $redis = Ratelimit::Redis->new;
    my $digest = load_script($redis, 'gcra');
    send_calls($redis, $keys, sub { call_words($digest, sprintf('rl:all:{k%012d}', $_[0]), @numbers) });
    set_overrides($redis, $overridden) if $overridden;
    my $nginx = ours(http => redis_block($redis) . "$fleet ratelimit_zone \$arg_key zone=all $passing;",
        server => location('/all', 'ratelimit zone=all;') . 'location /ops/ { ratelimit_api; }');
    if ($overridden) {
        wait_until('the overrides are known', sub { $nginx->get("/ops/metrics")->body =~ /^ratelimit_overrides\{zone="all"\} $keys$/m }, 30);
    }
    return { name => $name, nginx => $nginx, path => '/all', keys => $keys, redis => [$redis], calls => [1 / 17, 1],
        reads => [0.9, 1.1] };
}

# Calls of the script by which a node says each second that it is there, by turns of this many nodes.
sub sync_row {
    my ($nodes) = @_;
    my $redis  = Ratelimit::Redis->new;
    set_overrides($redis, 'k');
    my $digest = $redis->cmd('SCRIPT', 'LOAD', text_of('fleet_sync'));
    my @all    = fleet_keys(qw(alive nodes changes overrides ends events state));
    my $state  = '{"name":"' . 'x' x 1000 . '"}';
    my $sync   = sub {
        my ($count) = @_;
        my $cursor = $redis->cmd('HGET', $all[-1], 'version');
        return send_calls($redis, $count, sub {
            return ('EVALSHA', $digest, scalar @all, @all, sprintf('%032x', $_[0] % $nodes), $state, $cursor, 1000);
        });
    };
    $sync->($nodes);
    my $calls = 20_000;
    return { name => "$nodes nodes", redis => [$redis], calls => [1, 1],
        load => sub { $sync->($calls); return { requests => $calls, seconds => 1 } } };
}

my @requests = (
    request_row('without ratelimit_fleet', '', undef),
    request_row('ratelimit_fleet, no override', 'ratelimit_fleet size=32m;', undef),
    request_row("$keys overrides of other keys", 'ratelimit_fleet size=32m;', 'o'),
    request_row("$keys overrides of these keys", 'ratelimit_fleet size=32m;', 'k'),
);
my @syncs = map { sync_row($_) } 3, 30, 300;
measure(@requests, @syncs);

my $report = Bench::Report->new('fleet', 'What ratelimit_fleet costs', generator_version(),
    versions($requests[0]{redis}[0]));
$report->lines("Medians of $rounds rounds, rows interleaved; 64 connections, wrk with one thread; each of $seconds s has "
        . "requests of $keys keys.",
    'us: microseconds of CPU for each request, nginx\'s and Redis\'s. +-: spread between rounds.');
my $none = figure($requests[0], 'nginx');
$report->table(
    ['', 'requests/s', '+-', 'nginx us', 'added', 'Redis us'],
    map { [$_->{name}, sprintf('%.0f', figure($_, 'requests')), sprintf('%.0f %%', spread($_)),
        map { sprintf '%.2f', $_ } figure($_, 'nginx'), figure($_, 'nginx') - $none, figure($_, 'redis')] } @requests
);
$report->lines("Each node calls Redis once a second. Redis's CPU for one call and for the whole fleet, with $keys "
        . 'overrides of which none has changed:');
$report->table(
    ['', 'Redis us of a call', 'of a processor'],
    map {
        my ($nodes) = $_->{name} =~ /(\d+)/;
        my $call = figure($_, 'redis');
        [$_->{name}, sprintf('%.1f', $call), sprintf '%.2f %%', 100 * $call * $nodes / $second_of_nodes]
    } @syncs
);
$report->warn_of_noise(map { spread($_) } @requests);
$report->publish;
all_stopped();

#!/usr/bin/env perl

# Fifteen minutes (SOAK_MINUTES) of full load on a worker with every kind of request: distinct keys, a hot
# key, leases, several limits, refusals, a shadow limit, and the API. The worker's memory must not grow.

use strict;
use warnings;

use Ratelimit::Http qw(request);
use Ratelimit::Process qw(start_code ended_with alive read_file);
use Ratelimit::Redis;
use POSIX ();

use Bench::Generators qw(wrk generator_version);
use Bench::Report;
use Bench::Servers qw(location ours redis_block versions all_stopped);

my $minutes = $ENV{SOAK_MINUTES} // 15;
my $most_growth_kb = 256;
my $least_a_minute = 100_000;
die "SOAK_MINUTES is at least 4\n" if $minutes < 4;

my $redis = Ratelimit::Redis->new(conf => "maxmemory 200mb\nmaxmemory-policy allkeys-lru\n");
my $zones = redis_block($redis) . join '', map { "ratelimit_zone $_;\n" } (
    '$arg_key zone=keys rate=1000000r/h algorithm=gcra burst=1000000',
    '$arg_one zone=hot rate=100000000r/h',
    '$arg_one zone=leased rate=100000000r/h algorithm=token_bucket lease=1000',
    '$arg_key zone=refused rate=1r/d algorithm=fixed_window',
    '$arg_key zone=log rate=100r/s algorithm=sliding_window_log',
    '$arg_key zone=buckets rate=100r/m algorithm=sliding_window_buckets',
);
my %limits = (
    keys    => 'ratelimit zone=keys;',
    hot     => 'ratelimit zone=hot;',
    leased  => 'ratelimit zone=leased;',
    refused => 'ratelimit zone=refused;',
    several => 'ratelimit zone=keys; ratelimit zone=log; ratelimit zone=buckets shadow;',
);
my $nginx = ours(http => $zones,
    server => join('', 'location /api/ { ratelimit_api write=on; }', map { location("/$_", $limits{$_}) } keys %limits));
my ($worker) = $nginx->workers;

sub minute {
    my @loads = map { my $path = "/$_"; start_code('wrk', sub {
        wrk(port => $nginx->port, path => $path, keys => 100_000, connections => 8, seconds => 60);
        POSIX::_exit(0);
    }) } sort keys %limits;
    my @pages = ('metrics', 'zones', 'redis', 'zones/keys/keys?key=k1', '');
    while (grep { alive($_) } @loads) {
        for my $page (@pages) {
            my $status = request($nginx->port, "/api/$page")->status;
            die "/api/$page answers $status\n" if $status != 200;
        }
        request($nginx->port, '/api/zones/refused/keys?key=k000000000001', method => 'DELETE');
        select undef, undef, undef, 0.2;
    }
    ended_with($_) == 0 or die "wrk failed\n" for @loads;
    return;
}

sub requests {
    my $sum = 0;
    $sum += $_ for request($nginx->port, '/api/metrics')->body =~ /^ratelimit_requests_total\S* (\d+)$/mg;
    return $sum;
}

sub resident { return read_file("/proc/$worker/status") =~ /^VmRSS:\s*(\d+)/m ? $1 : die "the worker has exited\n" }
sub descriptors { return scalar(() = glob "/proc/$worker/fd/*") }

my $report = Bench::Report->new('soak', "$minutes minutes at full load", generator_version(), versions($redis));
my @rows = (['minute', 'decisions', 'worker kB', 'descriptors', 'Redis kB']);
for my $minute (1 .. $minutes) {
    minute();
    my ($used) = $redis->cmd('INFO', 'memory') =~ /^used_memory:(\d+)/m;
    push @rows, [$minute, requests(), resident(), descriptors(), int $used / 1024];
    print join('  ', @{ $rows[-1] }), "\n";
    die "too few decisions\n" if $rows[-1][1] - ($minute > 1 ? $rows[-2][1] : 0) < $least_a_minute;
}
$report->table(@rows);
# In its first minutes a worker allocates the buffers of its connections and its keys.
my $growth = $rows[-1][2] - $rows[3][2];
$report->lines("From the third minute on the worker grew by $growth kB.");
$report->save;
all_stopped();
die "the worker grew by more than $most_growth_kb kB\n" if $growth > $most_growth_kb;
die "the worker leaks descriptors\n" if $rows[-1][3] > $rows[3][3] + 2;

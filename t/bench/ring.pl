#!/usr/bin/env perl

# A ring of three Redis servers with 200 clients, beside the figures that a limiter in Go states for such a
# ring: 18 769 requests a second, 95th percentile 16 ms. Its machine is unknown, so no ratio is computed.

use strict;
use warnings;

use Ratelimit::Redis;

use Bench::Generators qw(generator_version);
use Bench::Measure qw($rounds $seconds measure figure spread);
use Bench::Report;
use Bench::Servers qw(location ours redis_block versions all_stopped);

my ($single, @ring) = map { Ratelimit::Redis->new } 1 .. 4;
my $zone  = '$arg_key zone=all rate=1000000r/h algorithm=sliding_window_counter';

sub row {
    my ($name, $zones, @servers) = @_;
    my $limit = $zones ? 'ratelimit zone=all;' : '';
    my $nginx = ours(http => $zones, server => location('/all', $limit));
    return {name => $name, nginx => $nginx, path => '/all', keys => 100_000, connections => 200,
        redis => \@servers, $zones ? (calls => [1 / 17, 1], reads => [1, 1]) : ()};
}

my @rows = (
    row('no limit', ''),
    row('one Redis', redis_block($single) . "ratelimit_zone $zone;", $single),
    row('a ring of three Redis servers', redis_block(@ring) . "ratelimit_zone $zone;", @ring),
);
measure(@rows);
for my $server (@ring) {
    die "a server of the ring got no calls\n" if $server->calls('evalsha') < 100;
}

my $report = Bench::Report->new('ring', 'A ring of three Redis servers, 200 clients', generator_version(),
    versions($single));
$report->lines("Medians of $rounds rounds of $seconds s, rows interleaved; sliding_window_counter, 100000 "
        . 'keys, nothing refused; one nginx worker; everything on this machine.');
my @table = (['', 'requests/s', '+-', 'p50 ms', 'p95 ms', 'p99 ms', 'nginx us', 'Redis us']);
for my $row (@rows) {
    push @table, [
        $row->{name}, sprintf('%.0f', figure($row, 'requests')), sprintf('%.0f %%', spread($row)),
        map({ sprintf '%.1f', figure($row, $_) / 1000 } qw(p50 p95 p99)),
        sprintf('%.2f', figure($row, 'nginx')),
        $row->{calls} ? sprintf '%.2f', figure($row, 'redis') : '-',
    ];
}
$report->table(@table, ['stated: a limiter in Go, three shards', 18769, ('-') x 2, '16', ('-') x 3]);
$report->warn_of_noise(map { spread($_) } @rows);
$report->publish;
all_stopped();

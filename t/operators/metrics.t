# ratelimit_api: the metrics for Prometheus.
# needs: prometheus

use Ratelimit::Test;
use Ratelimit::Process qw(temp_folder);

my $api = 'location /ops/ { ratelimit_api; }';

# {'name{labels}' => value}
sub metrics_of {
    my ($node) = @_;
    return { map { /^([^#\s]\S*(?: \S+)*) (\S+)$/ ? ($1 => $2) : () } split /\n/, $node->get('/ops/metrics')->body };
}

# promtool's output about a node's metrics, and its exit status.
sub promtool {
    my ($node) = @_;
    my $dir = temp_folder();
    write_file("$dir/metrics", $node->get('/ops/metrics')->body);
    my $output = qx(promtool check metrics < $dir/metrics 2>&1);
    return "$output$?";
}

subtest 'promtool accepts the metrics' => sub {
    my $node = node(zone => 'rate=2r/d', server => $api);
    $node->status('/') for 1 .. 5;
    is $node->get('/ops/metrics')->header('Content-Type'), 'text/plain; version=0.0.4; charset=utf-8';
    is promtool($node), '0', 'without a warning';
};

subtest 'promtool accepts the metrics of a ring with an unavailable server, whose ratelimit_redis_up is 0' => sub {
    my $away = '127.0.0.1:' . free_port();
    my $node = node(zone => 'rate=2r/d', server => $api, block => "server $away;");
    my $here = $node->{redis}->addr;
    $node->wait_for_log(qr/\Q$away\E.* is away/);
    $node->status("/?k=$_") for 1 .. 20;
    is promtool($node), '0';
    my @series = map { s/ \S+$//r } grep { !/^#/ } split /\n/, $node->get('/ops/metrics')->body;
    is scalar(@series), scalar(keys %{ { map { $_ => 1 } @series } }), 'no series is repeated';
    my $metrics = metrics_of($node);
    is_deeply [map { $metrics->{"ratelimit_redis_up{redis=\"main\",server=\"$_\"}"} } $here, $away], [1, 0];
    cmp_ok $metrics->{"ratelimit_redis_errors_total{redis=\"main\",server=\"$away\",kind=\"connection\"}"}, '>', 0;
};

subtest 'the metrics show what happened' => sub {
    my $node = node(zone => 'rate=2r/d', server => $api);
    my $at = $node->{redis}->addr;
    $node->status('/') for 1 .. 5;
    my $metrics = metrics_of($node);
    my %expected = (
        'ratelimit_requests_total{zone="test",result="passed",source="redis"}'   => 2,
        'ratelimit_requests_total{zone="test",result="rejected",source="redis"}' => 1,
        'ratelimit_requests_total{zone="test",result="rejected",source="cache"}' => 2,
        'ratelimit_requests_total{zone="test",result="failed_open",source="none"}' => 0,
        "ratelimit_redis_up{redis=\"main\",server=\"$at\"}" => 1,
        "ratelimit_breaker_open{redis=\"main\",server=\"$at\"}" => 0,
        "ratelimit_redis_errors_total{redis=\"main\",server=\"$at\",kind=\"timeout\"}" => 0,
        "ratelimit_redis_reconnects_total{redis=\"main\",server=\"$at\"}" => 0,
        "ratelimit_redis_request_duration_seconds_count{redis=\"main\",server=\"$at\"}" => 3,
        "ratelimit_redis_request_duration_seconds_bucket{redis=\"main\",server=\"$at\",le=\"+Inf\"}" => 3,
        'ratelimit_coalesced_total{redis="main"}' => 0,
        'ratelimit_cost_total{zone="test"}' => 2,
        'ratelimit_charged_total{zone="test"}' => 0,
        'ratelimit_refunded_total{zone="test"}' => 0,
        'ratelimit_blocks_total{zone="test"}' => 0,
        'ratelimit_ahead_beyond_total{zone="test"}' => 0,
        'ratelimit_near_limit_total{zone="test"}' => 1,
        'ratelimit_zone_highest_use_ratio{zone="test"}' => '1.000000',
        'ratelimit_node_requests_total{result="passed"}' => 2,
        'ratelimit_node_requests_total{result="rejected"}' => 3,
        'ratelimit_zone_keys{zone="test"}' => 1,
        'ratelimit_zone_evictions_total{zone="test"}' => 0,
    );
    is_deeply { map { $_ => $metrics->{$_} } keys %expected }, \%expected;
    cmp_ok $metrics->{"ratelimit_redis_request_duration_seconds_sum{redis=\"main\",server=\"$at\"}"}, '>', 0;
};

subtest 'coalesced requests are counted' => sub {
    my $node = node(zone => 'rate=100000r/d', server => $api);
    burst($node->port, '/', 300, 100);
    my $metrics = metrics_of($node);
    is $metrics->{'ratelimit_requests_total{zone="test",result="passed",source="redis"}'}, 300;
    cmp_ok $metrics->{'ratelimit_coalesced_total{redis="main"}'}, '>', 0;
    cmp_ok $metrics->{'ratelimit_coalesced_total{redis="main"}'}, '<', 300;
};

finish();

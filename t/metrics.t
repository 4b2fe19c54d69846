# ratelimit_api: Prometheus.

use Ratelimit::Test;
use Ratelimit::Process qw(start_process free_port temp_folder write_file);
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use JSON::PP qw(decode_json);

my $api = 'location /ops/ { ratelimit_api; }';

# {'name{labels}' => value}
sub metrics_of {
    my ($node) = @_;
    return { map { /^([^#\s]\S*(?: \S+)*) (\S+)$/ ? ($1 => $2) : () } split /\n/, $node->get('/ops/metrics')->body };
}

subtest 'promtool accepts the text' => sub {
    my $dir = temp_folder();
    my $node = node(zone => 'rate=2r/d', server => $api);
    $node->status('/') for 1 .. 5;
    my $answer = $node->get('/ops/metrics');
    is $answer->header('Content-Type'), 'text/plain; version=0.0.4; charset=utf-8';
    write_file("$dir/metrics", $answer->body);
    is qx(promtool check metrics < $dir/metrics 2>&1), '', 'and has nothing to say about it';
    is $?, 0;
};

subtest 'what Prometheus is told is what happened' => sub {
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

subtest 'a real Prometheus scrapes it, and its alerts can be read' => sub {
    my $top = abs_path(dirname(__FILE__) . '/..');
    my $dir = temp_folder();
    my $node = node(zone => 'rate=2r/d', server => $api);
    $node->status('/') for 1 .. 5;
    my ($port, $listen) = ($node->port, free_port());
    write_file("$dir/prometheus.yml", <<"END");
global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: ['$top/doc/monitoring/alerts.yml']
scrape_configs:
  - job_name: ratelimit
    metrics_path: /ops/metrics
    static_configs: [{ targets: ['127.0.0.1:$port'] }]
END
    is system("promtool check config $dir/prometheus.yml >$dir/check 2>&1"), 0, 'promtool reads configuration and alerts'
        or diag qx(cat $dir/check);
    start_process('prometheus', "$dir/prometheus.log", 'prometheus', "--config.file=$dir/prometheus.yml",
        "--storage.tsdb.path=$dir/data", "--web.listen-address=127.0.0.1:$listen");
    my $value;
    wait_until('it has scraped', sub {
        my $answer = eval { request($listen, '/api/v1/query?query=ratelimit_requests_total%7Bresult%3D%22rejected%22%2Csource%3D%22cache%22%7D') }
            or return;
        return unless $answer->status == 200;
        my $result = decode_json($answer->body)->{data}{result}[0] or return;
        $value = $result->{value}[1];
        return 1;
    }, 30);
    is $value, 2;
    my $rules = decode_json(request($listen, '/api/v1/rules')->body);
    cmp_ok scalar(map { @{ $_->{rules} } } @{ $rules->{data}{groups} }), '>=', 4, 'it has the alerts';
};

finish();

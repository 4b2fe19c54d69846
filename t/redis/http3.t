# HTTP/3: each stream is limited separately. Debian 12's nginx lacks HTTP/3, later ones have it.
# needs: ngtcp2-client

use Ratelimit::Certificates;
use Ratelimit::Http3 qw(http3 http3_command);
use Ratelimit::Process qw(start_process stop_process);
use Ratelimit::Test;

my $program = Ratelimit::Nginx::program();
plan skip_all => "$program is built without HTTP/3" if qx($program -V 2>&1) !~ /with-http_v3_module/;

my $certificates = Ratelimit::Certificates->new;
my $folder = $certificates->folder;
$certificates->authority('ours');

# A node that listens for HTTP/3 too and drops an idle client after two seconds; its HTTP/3 port.
sub http3_node {
    my (%options) = @_;
    my $port = free_port();
    my $node = node(%options, server => "listen 127.0.0.1:$port quic reuseport; keepalive_timeout 2s; ssl_protocols TLSv1.3;"
            . " ssl_certificate $folder/ours.pem; ssl_certificate_key $folder/ours.key;" . ($options{more} // ''));
    return ($node, $port);
}

sub statuses { return [map { $_ ? $_->status : 'none' } @_] }

subtest 'streams of one connection are limited separately, with headers' => sub {
    my (undef, $port) = http3_node(zone => 'rate=3r/d algorithm=fixed_window');
    my @answers = sort { $a->status <=> $b->status } http3($port, '/?k=streams', 5);
    is_deeply statuses(@answers), [200, 200, 200, 429, 429];
    is_deeply [sort map { $_->header('X-RateLimit-Remaining') } @answers], [0, 0, 0, 1, 2];
    ok $_->header('Retry-After') for @answers[3, 4];
};

subtest 'a refusal that is a problem has its whole body' => sub {
    my ($node, $port) = http3_node(zone => 'rate=1r/d algorithm=fixed_window', location => 'ratelimit_problem_details on;');
    my $body = do { $node->status('/?k=problem'); $node->get('/?k=problem')->body };
    for (http3($port, '/?k=problem', 3)) {
        is $_->status, 429;
        is $_->header('Content-Type'), 'application/problem+json';
        is $_->header('Content-Length'), length $body;
    }
};

subtest 'hundreds of streams are counted exactly' => sub {
    my (undef, $port) = http3_node(zone => 'rate=150r/d algorithm=sliding_window_log', workers => 2);
    my @passed = grep { $_ && $_->status == 200 } map { http3($port, '/?k=many', 100) } 1 .. 3;
    is scalar(@passed), 150;
};

subtest 'requests with an unread body are limited' => sub {
    my ($node, $port) = http3_node(zone => 'rate=1r/d algorithm=fixed_window',
        location => 'error_page 405 =200 /index.html;');
    my @answers = map { http3($port, '/?k=body', 1, body => "$node->{folder}/html/big.bin") } 1 .. 2;
    is_deeply statuses(@answers), [200, 429];
};

subtest 'a delayed stream is answered when its delay is over' => sub {
    my (undef, $port) = http3_node(zone => 'rate=20r/s algorithm=leaky_bucket burst=9');
    is_deeply statuses(http3($port, '/?k=delayed', 5)), [(200) x 5];
};

subtest 'a client that leaves while its checks are in flight does not change their decisions' => sub {
    my @servers = map { redis() } 1 .. 2;
    my ($node, $port) = http3_node(
        redis => $servers[0], block => "server @{[ $servers[1]->addr ]};", level => 'debug',
        zone  => 'rate=1000r/d algorithm=fixed_window', location => 'ratelimit zone=tight;',
        http  => 'ratelimit_zone t$arg_t zone=tight rate=3r/d algorithm=fixed_window;',
        more  => 'location /ratelimit/ { ratelimit_api; }',
    );
    my (%on, $answer);
    for my $key (1 .. 40) {
        $node->status("/?k=$key&t=$key");
        $on{k}{ $servers[0]->cmd('EXISTS', "rl:test:{k$key}") ? 0 : 1 } = $key;
        $on{t}{ $servers[0]->cmd('EXISTS', "rl:tight:{t$key}") ? 0 : 1 } = $key;
    }
    $_->cmd('FLUSHALL') for @servers;
    my ($keys, $made) = ("k=$on{k}{0}&t=$on{t}{1}", $node->count_log(qr/ratelimit check sent/));
    $_->pause for @servers;
    my $client = start_process('gtlsclient', "$node->{folder}/client", http3_command($port, "/?$keys", 30));
    wait_until('its checks are sent', sub { $node->count_log(qr/ratelimit check sent/) == $made + 30 });
    # After its idle timeout nginx closes the connection and terminates the requests of its streams.
    stop_process($client, 'KILL');
    wait_until('nginx terminates the requests', sub { $node->count_log(qr/http terminate request/) >= 30 });
    $_->resume for @servers;
    wait_until('the refused requests are refunded', sub { ($answer = $node->get("/peek?$keys"))->header('X-RateLimit-Remaining') == 997 });
    like $node->get('/ratelimit/metrics')->body, qr/zone="tight",result="rejected",source="redis"\} 27\n/, 'counted';
    is $node->count_log(qr/limiting requests, by zone "tight"/), 1, 'logged';
    is_deeply statuses(http3($port, '/?k=next&t=next', 1)), [200], 'the next request gets its own response';
};

finish();

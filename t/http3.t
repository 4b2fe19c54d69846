# HTTP/3: each stream is limited for itself. The nginx of Debian 12 has none, a later one does.
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

# A node that listens to HTTP/3, too, and forgets a client that is gone after two seconds; its port.
sub http3_node {
    my (%options) = @_;
    my $port = free_port();
    my $node = node(%options, server => "listen 127.0.0.1:$port quic reuseport; keepalive_timeout 2s; ssl_protocols TLSv1.3;"
            . " ssl_certificate $folder/ours.pem; ssl_certificate_key $folder/ours.key;");
    return ($node, $port);
}

sub statuses { return [map { $_ ? $_->status : 'none' } @_] }

subtest 'streams of one connection are limited one by one, with headers' => sub {
    my (undef, $port) = http3_node(zone => 'rate=3r/d algorithm=fixed_window');
    my @answers = sort { $a->status <=> $b->status } http3($port, '/?k=streams', 5);
    is_deeply statuses(@answers), [200, 200, 200, 429, 429];
    is_deeply [sort map { $_->header('X-RateLimit-Remaining') } @answers], [0, 0, 0, 1, 2];
    ok $_->header('Retry-After') for @answers[3, 4];
};

subtest 'hundreds of streams are counted exactly' => sub {
    my (undef, $port) = http3_node(zone => 'rate=150r/d algorithm=sliding_window_log', workers => 2);
    my @passed = grep { $_ && $_->status == 200 } map { http3($port, '/?k=many', 100) } 1 .. 3;
    is scalar(@passed), 150;
};

subtest 'with a body that nobody reads' => sub {
    my ($node, $port) = http3_node(zone => 'rate=1r/d algorithm=fixed_window',
        location => 'error_page 405 =200 /index.html;');
    my @answers = map { http3($port, '/?k=body', 1, body => "$node->{folder}/html/big.bin") } 1 .. 2;
    is_deeply statuses(@answers), [200, 429];
};

subtest 'a stream that is delayed goes on when it is its turn' => sub {
    my (undef, $port) = http3_node(zone => 'rate=20r/s algorithm=leaky_bucket burst=9');
    is_deeply statuses(http3($port, '/?k=delayed', 5)), [(200) x 5];
};

subtest 'a client that leaves while its check is in flight harms nothing' => sub {
    my ($node, $port) = http3_node(zone => 'rate=100r/d algorithm=fixed_window');
    is_deeply statuses(http3($port, '/?k=warm', 1)), [200];
    $node->{redis}->pause;
    my $client = start_process('gtlsclient', "$node->{folder}/client", http3_command($port, '/?k=gone', 10));
    wait_until('its requests are sent', sub { $node->file('client') =~ /stream 0x24 submit request headers/ });
    stop_process($client, 'KILL');
    $node->{redis}->resume;
    is_deeply statuses(http3($port, '/?k=next', 1)), [200], 'the next request gets its own answer';
};

finish();

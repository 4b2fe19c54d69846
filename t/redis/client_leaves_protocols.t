# A client that leaves while its check is in flight, over HTTP/1.1, HTTP/2 and HTTP/3: nginx serves or drops its
# request as a stock nginx does whose auth_request waits as long. Debian 12's nginx lacks HTTP/3.
# needs: ngtcp2-client

use Ratelimit::Backend;
use Ratelimit::Certificates;
use Ratelimit::Http2 qw(http2_one http2_reset);
use Ratelimit::Http3 qw(http3_command);
use Ratelimit::Process qw(start_process stop_process);
use Ratelimit::Test;
use Socket qw(SOL_SOCKET SO_LINGER);

my $count = 5;  # clients of a round
my $has_http3 = qx(@{[ Ratelimit::Nginx::program() ]} -V 2>&1) =~ /with-http_v3_module/;
my $redis  = redis();
my $auth   = Ratelimit::Backend->new;
my $target = nginx(module => 0, http => q(log_format one '$request_uri';),
    server => 'access_log got.log one; error_page 405 =200 /index.html;');

# The same locations on both nodes; $wait is what their requests wait for.
sub waiting_node {
    my ($wait, %options) = @_;
    my ($h2, $h3) = map { free_port() } 1 .. 2;
    my $pass = "$wait; proxy_pass http://127.0.0.1:@{[ $target->port ]};";
    my $http3 = $has_http3 ? "listen 127.0.0.1:$h3 quic reuseport; ssl_protocols TLSv1.3; $options{certificate}" : '';
    my $node = nginx(
        %options, level => 'debug', http => "log_format ended '\$request_uri \$status'; " . ($options{http} // ''),
        server => "listen 127.0.0.1:$h2 http2; $http3 access_log ended.log ended; keepalive_timeout 2s;"
            . "location /on/ { proxy_ignore_client_abort on; $pass } location /off/ { $pass }"
            . "location = /free { access_log off; try_files /index.html =404; }" . ($options{server} // ''));
    @{$node}{qw(h1 h2 h3)} = ($node->port, $h2, $h3);
    return $node;
}

my $certificates = Ratelimit::Certificates->new;
$certificates->authority('ours');
my $folder = $certificates->folder;
my $certificate = "ssl_certificate $folder/ours.pem; ssl_certificate_key $folder/ours.key;";

my $module = waiting_node('ratelimit zone=z', certificate => $certificate,
    http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 60s; connect_timeout 60s; }"
        . 'ratelimit_zone all zone=z rate=1000000r/d;');
my $stock = waiting_node('auth_request /wait', module => 0, certificate => $certificate,
    server => "location = /wait { internal; access_log off; proxy_pass http://@{[ $auth->addr ]};"
        . 'proxy_ignore_client_abort on; proxy_pass_request_body off; proxy_set_header Content-Length ""; }');

# What begins a wait, how many requests wait, and what ends it.
my %node = (
    module => { node => $module, begin => sub { $redis->pause },
        waiting => sub { $module->count_log(qr/ratelimit check sent/) }, end => sub { $redis->resume } },
    stock => { node => $stock, begin => sub { },
        waiting => sub { $auth->begun }, end => sub { $auth->finish } },
);

# A body of ten bytes, whole or in part.
my %bodies = (none => '', whole => 'x' x 10, part => 'x' x 5);

sub by_http1 {
    my ($node, $path, $body) = @_;
    my $socket = http_connect($node->{h1});
    my ($method, $length) = $body eq '' ? ('GET', '') : ('POST', "Content-Length: 10\r\n");
    print {$socket} "$method $path HTTP/1.1\r\nHost: x\r\n$length\r\n$body";
    return $socket;
}

sub by_http2 {
    my ($node, $path, $body) = @_;
    return http2_one($node->{h2}, $path, $body eq '' ? () : (method => 'POST', body => $body, length => 10));
}

sub by_http3 {
    my ($node, $path, $body) = @_;
    write_file("$folder/body", $body) if $body ne '' && !-e "$folder/body";  # clients of a round share it
    my @body = $body eq '' ? () : (body => "$folder/body");
    return start_process('gtlsclient', "$folder/client", http3_command($node->{h3}, $path, 1, @body));
}

# Ways to send a request and to leave. Each returns what leaves.
my %ways = (
    'HTTP/1.1, closed' => sub { my $socket = by_http1(@_); sub { close $socket } },
    'HTTP/1.1, reset'  => sub {
        my $socket = by_http1(@_);
        sub { setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0; close $socket };
    },
    'HTTP/2, closed'       => sub { my $socket = by_http2(@_); sub { close $socket } },
    'HTTP/2, stream reset' => sub { my $socket = by_http2(@_); sub { http2_reset($socket, 1); $socket } },
    'HTTP/3, silent'       => sub { my $client = by_http3(@_); sub { stop_process($client, 'KILL') } },
);

# How the requests ended: their statuses, and how many reached the backend.
my $rounds = 0;
sub outcome {
    my ($which, $way, $abort, $body) = @_;
    my ($node, $begin, $waiting, $end) = @{ $node{$which} }{qw(node begin waiting end)};
    my $path = "/$abort/?n=" . ++$rounds;
    my $closed = sub { $node->count_log(qr/quic client timed out/) };
    my ($before, $ended) = ($waiting->(), $closed->());
    $begin->();
    my @leave = map { $ways{$way}->($node, $path, $bodies{$body}) } 1 .. $count;
    wait_until('they wait', sub { $waiting->() - $before == $count });
    $node->get('/free');
    my @kept = map { $_->() } @leave;
    # After its idle timeout nginx closes a connection of HTTP/3.
    wait_until('nginx closes them', sub { $closed->() - $ended == $count }) if $way =~ m{/3};
    $node->get('/free') for 1 .. 2;  # by then the worker has seen that the clients left
    $end->();
    my $log = sub { [map { /^\Q$path\E (\d+)$/ ? $1 : () } split /\n/, $node->file('ended.log')] };
    wait_until('every request has ended', sub { @{ $log->() } == $count });
    $target->get('/');  # by then it has logged what it answered
    return { statuses => [sort @{ $log->() }], asked => scalar(() = $target->file('got.log') =~ /^\Q$path\E$/gm) };
}

for my $abort (qw(on off)) {
    for my $body (qw(none whole part)) {
        my $what = "$abort, " . { none => 'no body', whole => 'a whole body', part => 'a part of a body' }->{$body};
        my %http1;
        for my $way (grep { /1\.1/ } sort keys %ways) {
            $http1{$way} = outcome('module', $way, $abort, $body);
            is_deeply $http1{$way}, outcome('stock', $way, $abort, $body), "$way: $what";
        }
        # Over HTTP/2 a stock nginx drops every request whose client leaves while auth_request waits. Here what
        # came whole is served or dropped as over HTTP/1.1.
        my $asked = $http1{'HTTP/1.1, closed'}{asked};
        for my $way (grep { m{/2} } sort keys %ways) {
            my $seen = outcome('module', $way, $abort, $body);
            is_deeply $seen, { asked => $asked, statuses => [($asked ? 404 : 499) x $count] }, "$way: $what";
        }
        next if !$has_http3 || $body eq 'part';
        is_deeply outcome('module', $_, $abort, $body), outcome('stock', $_, $abort, $body), "$_: $what"
            for grep { m{/3} } sort keys %ways;
    }
}

finish();

# A client that leaves changes nothing about its decision: the check that was sent is decided, refunded,
# cached, logged and counted, and nginx serves or drops the request as it would without the module.
# needs: libprotocol-http2-perl

use Ratelimit::Http2 qw(http2_send http2_reset);
use Ratelimit::Test;
use Socket qw(SOL_SOCKET SO_LINGER SHUT_WR);

# The servers of the ring. With the keys of keys_apart, "loose" and "tight" are on different servers.
my @servers = map { redis() } 1 .. 2;
my $zones = 'ratelimit_zone a$arg_a zone=loose rate=1000r/d algorithm=fixed_window;'
    . 'ratelimit_zone b$arg_b zone=tight rate=3r/d algorithm=fixed_window;'
    . 'ratelimit_zone a$arg_a zone=ahead rate=1000r/d algorithm=fixed_window lease=40;'
    . 'ratelimit_zone a$arg_a zone=slow rate=1r/20s algorithm=leaky_bucket burst=100;';

# A node whose access log has a line for each request that ended: its URI, status and decision.
sub leaving_node {
    my ($servers, %options) = @_;
    my $block = join ' ', map { "server $_;" } map { ref ? $_->addr : $_ } @{$servers};
    my $redis = $block && "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; }";
    my $zones = $redis ? $zones : $zones =~ s/ lease=40//r;  # lease= needs Redis
    my $h2 = free_port();
    my $node = nginx(
        level => 'debug',
        http  => "$redis $zones log_format ended '\$request_uri \$status \$ratelimit_status';",
        server => "listen 127.0.0.1:$h2 http2; access_log ended.log ended; add_header X-Source \$ratelimit_source always;"
            . ($options{server} // '') . <<'END',
        location / { ratelimit zone=loose; try_files /index.html =404; }
        location = /free { access_log off; try_files /index.html =404; }
        location = /both { ratelimit zone=loose; ratelimit zone=tight; try_files /index.html =404; }
        location = /tight { ratelimit zone=tight; try_files /index.html =404; }
        location = /ahead { ratelimit zone=ahead; try_files /index.html =404; }
        location = /slow { ratelimit zone=slow; try_files /index.html =404; }
        location = /peek { access_log off; ratelimit zone=loose cost=0; try_files /index.html =404; }
        location /ratelimit/ { access_log off; ratelimit_api; }
END
    );
    @{$node}{qw(h2 servers)} = ($h2, $servers);
    return $node;
}

sub keys_apart {
    my ($node) = @_;
    my %on;
    $_->cmd('FLUSHALL') for @servers;
    for my $key (1 .. 40) {
        $node->status("/both?a=$key&b=$key");
        $on{a}{ $servers[0]->cmd('EXISTS', "rl:loose:{a$key}") ? 0 : 1 } = $key;
        $on{b}{ $servers[0]->cmd('EXISTS', "rl:tight:{b$key}") ? 0 : 1 } = $key;
    }
    $_->cmd('FLUSHALL') for @servers;
    return "a=$on{a}{0}&b=$on{b}{1}";
}

sub counted { my ($node, $keys) = @_; return 1000 - $node->get("/peek?$keys")->header('X-RateLimit-Remaining') }

sub ended { my ($node, $pattern) = @_; return scalar grep { /$pattern/ } split /\n/, $node->file('ended.log') }

sub counts_of {
    my ($node, $zone) = @_;
    my %counts;
    my $text = $node->get('/ratelimit/metrics')->body;
    $counts{$1} += $2 while $text =~ /^ratelimit_requests_total\{zone="$zone",result="(\w+)",source="\w+"\} (\d+)/gm;
    return { map { $_ => $counts{$_} } grep { $counts{$_} } keys %counts };
}

# Ways to send requests and to leave before their responses; $sent->() returns when nginx has them all.
my %ways = (
    'a client that closes' => sub {
        my ($node, $paths, $sent) = @_;
        my @sockets = map { my $socket = http_connect($node->port); http_send($socket, $_); $socket } @{$paths};
        $sent->();
        close $_ for @sockets;
    },
    'a client that resets its connection' => sub {
        my ($node, $paths, $sent) = @_;
        my @sockets = map { my $socket = http_connect($node->port); http_send($socket, $_); $socket } @{$paths};
        $sent->();
        for (@sockets) { setsockopt $_, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0; close $_ }
    },
    'a client that resets its HTTP/2 streams' => sub {
        my ($node, $paths, $sent) = @_;
        my $socket = http2_send($node->{h2}, $paths);
        $sent->();
        http2_reset($socket, scalar @{$paths});
        return $socket;
    },
    'a client that closes its HTTP/2 connection' => sub {
        my ($node, $paths, $sent) = @_;
        my $socket = http2_send($node->{h2}, $paths);
        $sent->();
        close $socket;
    },
);

# Sends the paths and leaves while Redis is paused; returns when all requests have ended.
my $rounds = 0;
sub leave {
    my ($node, $way, @paths) = @_;
    $rounds++;
    $_ .= "&n=$rounds" for @paths;
    # One line for each request. The phases of rewrites are passed once more after error_page, and by each subrequest.
    my $read = qr{http2? request line: "};
    my $sent = $node->count_log($read);
    $_->pause for @{ $node->{servers} };
    my $kept = $ways{$way}->($node, \@paths, sub {
        wait_until('nginx has all requests', sub { $node->count_log($read) >= $sent + @paths });
        $node->get('/free');
    });
    $node->get('/free') for 1 .. 2;  # by then the worker has seen that the clients left
    $_->resume for @{ $node->{servers} };
    wait_until('every request has ended', sub { ended($node, qr/&n=$rounds /) == @paths });
    return;
}

for my $way (sort keys %ways) {
    subtest "on a ring, $way gets a refund where another limit refused" => sub {
        my $node = leaving_node(\@servers);
        my $keys = keys_apart($node);
        leave($node, $way, ("/both?$keys") x 100);
        wait_until('the refund has arrived', sub { counted($node, $keys) == 3 });
        is ended($node, qr/both\?\Q$keys\E&n.* PASSED/), 3;
        is ended($node, qr/both\?\Q$keys\E&n.* REJECTED/), 97;
    };

    subtest "$way is counted and logged, its refusal is cached, and its lease is used" => sub {
        $servers[0]->cmd('FLUSHALL');
        my $node = leaving_node([$servers[0]]);
        leave($node, $way, ('/tight?b=flood') x 50);
        is_deeply counts_of($node, 'tight'), { passed => 3, rejected => 47 }, 'counters';
        is $node->count_log(qr/limiting requests, by zone "tight", key "bflood"/), 1, 'the log';
        is $node->get('/tight?b=flood')->header('X-Source'), 'cache', 'the denial cache';
        leave($node, $way, ('/ahead?a=busy') x 30);
        is $node->get('/ahead?a=busy')->header('X-Source'), 'lease', 'the next request uses the lease';
    };
}

subtest 'proxy_ignore_client_abort keeps its meaning' => sub {
    my $backend = nginx(module => 0, http => q(log_format one '$request_uri';),
        server => 'access_log got.log one; error_page 405 =200 /index.html;');
    my $node = leaving_node([$servers[0]], server => "location /on/ { ratelimit zone=loose; proxy_ignore_client_abort on;"
            . " proxy_pass http://127.0.0.1:@{[ $backend->port ]}; }"
            . "location /off/ { ratelimit zone=loose; proxy_pass http://127.0.0.1:@{[ $backend->port ]}; }");
    for (['on', qr/on.*PASSED/], ['off', qr/off.* 499 PASSED/]) {
        my ($value, $pattern) = @{$_};
        $servers[0]->pause;
        my @sockets = map { http_connect($node->port) } 1 .. 100;
        http_send($_, "/$value/?a=$value", method => 'POST', body => 'hello') for @sockets;
        $node->get('/free');
        close $_ for @sockets;
        $node->get('/free') for 1 .. 2;
        $servers[0]->resume;
        wait_until("all requests have ended, $value", sub { ended($node, $pattern) == 100 });
        is counted($node, "a=$value"), 100, "$value: all requests are counted";
    }
    $backend->get('/');    # by then it has logged what it answered
    is scalar(() = $backend->file('got.log') =~ m{^/on/}gm), 100, 'on: all requests reach the backend';
};

subtest 'half-closed clients get their responses, also to pipelined requests' => sub {
    my $proxy = proxy(to => $servers[0]->addr);
    my $node = leaving_node([$proxy->addr]);
    $node->get('/?a=warm');
    $proxy->delay(0.2);
    my @sockets = map { http_connect($node->port) } 1 .. 75;
    for (@sockets) { http_send($_, '/?a=half'); http_send($_, '/?a=half'); shutdown $_, SHUT_WR }
    is scalar(grep { my $answer = http_read($_); $answer && $answer->status == 200 } map { ($_, $_) } @sockets), 150;
    is counted($node, 'a=half'), 150;
};

subtest 'a delayed request whose client leaves ends at once, as in limit_req' => sub {
    my $node = leaving_node([$servers[0]]);
    $node->status('/slow?a=d');
    my $socket = http_connect($node->port);
    http_send($socket, '/slow?a=d');
    $node->wait_for_log(qr/ratelimit delay/, 1);
    close $socket;
    wait_until('the request has ended', sub { ended($node, qr/slow.* 499 DELAYED/) == 1 }, 5);
    leave($node, 'a client that closes', ('/slow?a=d') x 20);
    is ended($node, qr/slow.* 499 DELAYED/), 21, 'also if the client left while the check was in flight';
};

subtest 'a request ends once on every path through the phases' => sub {
    my $node = leaving_node([$servers[0]], server => <<'END');
        location /any/ { satisfy any; allow all; deny all; ratelimit zone=loose; try_files /index.html =404; }
        location /auth/ { auth_request /free; ratelimit zone=loose; try_files /index.html =404; }
        location /named/ { error_page 404 = @named; }
        location @named { ratelimit zone=loose; try_files /index.html =404; }
        location /before/ { error_page 404 /absent; ratelimit zone=loose; try_files /nowhere =404; }
        location /page/ { error_page 403 =200 /?a=page; deny all; }
END
    for my $path (qw(any auth named before)) {
        leave($node, $_, ("/$path/?a=$path") x 20) for sort keys %ways;
        is counted($node, "a=$path"), 80, $path;
        is ended($node, qr{^/$path/.* PASSED$}), 80;
    }
};

subtest 'a request that nginx terminates while its check is in flight is decided and ends once' => sub {
    # The mp4 module discards the body before it finds that there is no file; an invalid chunk then ends the
    # request.
    plan skip_all => 'nginx is built without mp4' if qx(@{[ Ratelimit::Nginx::program() ]} -V 2>&1) !~ /http_mp4_module/;
    my $node = leaving_node([$servers[0]], server => 'location /page/ { mp4; error_page 404 = /limited/?b=bad; }'
            . 'location /limited/ { ratelimit zone=tight; try_files /index.html =404; }');
    my @sockets = map { http_connect($node->port) } 1 .. 20;
    $servers[0]->pause;
    for (@sockets) {
        print {$_} "GET /page/x.mp4 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel";
    }
    wait_until('their checks are sent', sub { $node->count_log(qr/ratelimit check sent/) == 20 });
    print {$_} "lo\r\nno chunk\r\n" for @sockets;
    wait_until('nginx terminates the requests', sub { $node->count_log(qr/http terminate request/) == 20 });
    $node->get('/free');
    $servers[0]->resume;
    wait_until('the requests have ended', sub { ended($node, qr/page/) == 20 });
    is_deeply counts_of($node, 'tight'), { passed => 3, rejected => 17 };
    is $node->get('/tight?b=bad')->header('X-Source'), 'cache';
};

subtest 'a client that leaves with its body unread is counted' => sub {
    my $node = leaving_node([$servers[0]]);
    $servers[0]->pause;
    my @sockets = map { http_connect($node->port) } 1 .. 20;
    print {$_} "POST /?a=body HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" . 'x' x 5000 for @sockets;
    $node->get('/free');
    close $_ for @sockets;
    $node->get('/free') for 1 .. 2;
    $servers[0]->resume;
    wait_until('the requests have ended', sub { ended($node, qr/a=body .* PASSED/) == 20 });
    is counted($node, 'a=body'), 20;
};

subtest 'clients that leave are counted without Redis too' => sub {
    my $node = leaving_node([]);
    leave($node, $_, ("/tight?b=alone") x 20) for sort keys %ways;
    is_deeply counts_of($node, 'tight'), { passed => 3, rejected => 77 };
};

subtest 'debug lines show each decision and its source' => sub {
    my $node = leaving_node([$servers[0]]);
    $node->get('/tight?b=%22x%0a%22') for 1 .. 5;
    my $log = $node->log;
    like $log, qr/ratelimit zone "tight": key "b%22x%0a%22", cost 1\n/;
    like $log, qr/ratelimit check sent, 1 limits/;
    like $log, qr/ratelimit check ended/;
    like $log, qr/ratelimit zone "tight": granted by redis, remaining 2, reset \d+ us, retry after 0 us/;
    like $log, qr/ratelimit zone "tight": refused by cache, remaining 0/;
    like $log, qr/ratelimit decision: refused, 0 undecided, waited \d+ ms/;
};

finish();

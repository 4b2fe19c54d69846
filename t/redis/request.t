# One decision for each request, on every path through nginx's phases.
# needs: curl nghttp2-client

use Ratelimit::Test;
use IO::Socket::INET;
use IO::Socket::UNIX;

my $zone = 'rate=100r/d algorithm=fixed_window';

# The number of requests of a key that Redis has counted.
sub counted {
    my ($node, $key) = @_;
    my $value = $node->{redis}->cmd('GET', "rl:test:{k$key}") // return 0;
    my (undef, $count) = unpack 'd<2', $value;
    return $count;
}

my $node = node(
    zone   => $zone,
    level  => 'debug',
    http   => 'ratelimit_zone $arg_j zone=second rate=100r/d algorithm=fixed_window;',
    server => <<'END',
        error_page 404 /index.html;
        location /try/ { ratelimit zone=test; try_files $uri /index.html; }
        location /named/ { ratelimit zone=test; error_page 404 = @named; }
        location @named { ratelimit zone=test; try_files /index.html =404; }
        location /auth/ { ratelimit zone=test; auth_request /check; try_files /index.html =404; }
        location = /check { ratelimit zone=test; try_files /index.html =404; }
        location /denied/ { ratelimit zone=test; deny all; }
        location /any/ { satisfy any; allow all; deny all; ratelimit zone=test;
            try_files /index.html =404; }
        location /none/ { satisfy any; deny all; auth_basic x; auth_basic_user_file /dev/null;
            ratelimit zone=test; }
        location /return/ { ratelimit zone=test; return 200 "early"; }
        location /post/ { ratelimit zone=test; dav_methods PUT; client_max_body_size 10m; }
        location /off/ { ratelimit off; try_files /index.html =404; }
        location /empty/ { ratelimit zone=second; error_page 404 = /off/x; }
        location /passed/ { ratelimit zone=test; proxy_pass http://127.0.0.1:8; }
END
);

for (
    ['a static file',               '/',            200, 1],
    ['a redirect to the index',     '/index.html',  200, 1],
    ['a missing file and its page', '/absent',      404, 1],
    ['try_files',                   '/try/x',       200, 1],
    ['a named location',            '/named/x',     200, 1],
    ['auth_request',                '/auth/x',      200, 1],
    ['a backend that is down',      '/passed/x',    502, 1],
    ['satisfy any, allowed',        '/any/x',       200, 1],
    ['satisfy any, denied',         '/none/x',      401, 0],
    ['a denied request',            '/denied/x',    403, 0],
    ['return, which precedes limits',    '/return/x',    200, 0],
    ['ratelimit off',               '/off/x',       200, 0],
    ['an empty key',                '/empty/x',     200, 0],
) {
    my ($what, $path, $status, $count) = @{$_};
    my $key = $what =~ tr/a-zA-Z//cdr;
    is $node->status("$path?k=$key"), $status, "$what: status";
    is counted($node, $key), $count, "$what: counted " . ($count ? 'once' : 'not at all');
}

subtest 'a location with satisfy any is limited' => sub {
    my $any = node(zone => 'rate=2r/d algorithm=fixed_window', server => <<'END');
        location /any/ { satisfy any; allow all; auth_basic x; auth_basic_user_file /dev/null;
            ratelimit zone=test; try_files /index.html =404; }
END
    is_deeply [map { $any->status('/any/') } 1 .. 3], [200, 200, 429];
};

subtest 'a keepalive connection stays usable after a refusal, whether the body was read or not' => sub {
    my $kept = node(zone => 'rate=2r/d algorithm=fixed_window');
    my $socket = http_connect($kept->port);
    my @statuses;
    for my $body ('', 'x' x 10, 'x' x 100_000, 'x' x 500_000, '') {
        http_send($socket, '/', method => length $body ? 'POST' : 'GET',
            length $body ? (body => $body) : ());
        my $answer = http_read($socket) or last;
        push @statuses, $answer->status;
    }
    is_deeply \@statuses, [200, 405, 429, 429, 429];
};

subtest 'pipelined requests are answered in order' => sub {
    my $piped = node(zone => 'rate=3r/d algorithm=fixed_window');
    my $socket = http_connect($piped->port);
    print {$socket} "GET /?k=p HTTP/1.1\r\nHost: x\r\n\r\n" x 5;
    is_deeply [map { http_read($socket)->status } 1 .. 5], [200, 200, 200, 429, 429];
};

subtest 'a large proxied response arrives whole' => sub {
    my $backend = nginx(module => 0);
    my $proxy = node(zone => $zone,
        server => "location /big.bin { ratelimit zone=test; proxy_pass http://127.0.0.1:@{[ $backend->port ]}; }");
    is length $proxy->get('/big.bin')->body, 200_000;
    is counted($proxy, ''), 1;
};

subtest 'HTTP/2 streams are limited separately' => sub {
    my $h2 = node(zone => 'rate=3r/d algorithm=fixed_window', listen => 'http2');
    my $url = 'http://127.0.0.1:' . $h2->port . '/';
    my $out = qx(curl -sS --no-progress-meter --parallel --parallel-immediate --http2-prior-knowledge -w '%{http_code} ' -o /dev/null -o /dev/null -o /dev/null -o /dev/null -o /dev/null $url $url $url $url $url);
    is join(' ', sort split ' ', $out), '200 200 200 429 429';
    # Not curl: nginx resets a stream whose body it has not read, and curl may then show no status.
    $out = qx(nghttp -nv -d $h2->{folder}/html/index.html $url 2>&1);
    like $out, qr/:status: 429/, 'a refused request with a body gets its 429';
};

subtest 'thousands of HTTP/2 streams at once are counted exactly' => sub {
    my $h2 = node(zone => 'rate=500r/d algorithm=sliding_window_log', listen => 'http2', workers => 2);
    my $out = qx(h2load -n 1500 -c 10 -m 50 http://127.0.0.1:@{[ $h2->port ]}/ 2>&1);
    like $out, qr/status codes: 500 2xx, 0 3xx, 1000 4xx, 0 5xx/;
};

subtest 'checks made in one turn of the event loop share calls, which leave in few writes' => sub {
    my $turn = node(zone => $zone, http => 'ratelimit_zone x$arg_k zone=other rate=100r/d;',
        location => 'ratelimit zone=other;');
    my @sockets = map { http_connect($turn->port) } 1 .. 30;
    for (@sockets) { http_send($_, '/?k=warm'); http_read($_) }
    my ($worker) = $turn->workers;
    pause_processes($worker);
    my $reads = sub { $turn->{redis}->cmd('INFO', 'stats') =~ /total_reads_processed:(\d+)/ ? $1 : 0 };
    my $calls = $turn->{redis}->calls('evalsha');
    my $before = $reads->();
    http_send($sockets[$_], "/?k=$_") for 0 .. 29;
    kill CONT => $worker;
    is scalar(grep { http_read($_)->status == 200 } @sockets), 30;
    my $read = $reads->() - $before;
    is $turn->{redis}->calls('evalsha') - $calls, 2, 'up to sixteen requests in a call, of two limits each';
    cmp_ok $read, '<=', 5, 'Redis reads them at once, or in a few reads';
};

for my $protocol ('', 'http2') {
    subtest 'a client that leaves while its check is in flight does not affect others ' . $protocol => sub {
        my $left = node(zone => $zone, listen => $protocol, timeout => '60s');
        is $left->status('/?k=warm'), 200 unless $protocol;
        $left->{redis}->pause;
        if ($protocol) {
            my $url = 'http://127.0.0.1:' . $left->port . '/?k=gone';
            system "curl -s -m 0.2 --http2-prior-knowledge -o /dev/null '$url'" for 1 .. 3;
        }
        else {
            for (1 .. 20) {
                my $socket = http_connect($left->port);
                http_send($socket, '/?k=gone');
                close $socket;
            }
        }
        $left->{redis}->resume;
        my @command = ('curl', '-s', '-o', '/dev/null', '-w', '%{http_code}',
            $protocol ? '--http2-prior-knowledge' : '--http1.1',
            'http://127.0.0.1:' . $left->port . '/?k=next');
        open my $curl, '-|', @command or die $!;
        is <$curl>, '200', 'the next request gets its own response';
        close $curl;
        is counted($left, 'next'), 1;
    };
}

subtest 'nginx with master_process off limits requests' => sub {
    my $single = node(zone => 'rate=2r/d algorithm=fixed_window', single => 1);
    is_deeply [map { $single->status('/') } 1 .. 3], [200, 200, 429];
};

subtest 'with ratelimit_phase preaccess a limit is decided before authentication' => sub {
    my $pre = node(
        zone   => 'rate=2r/d algorithm=fixed_window',
        http   => 'ratelimit_phase preaccess;',
        server => 'location /denied/ { ratelimit zone=test; deny all; }',
    );
    is_deeply [map { $pre->status('/denied/') } 1 .. 3], [403, 403, 429];
};

subtest 'a request is counted in all of its limits or in none, whichever of them apply' => sub {
    # Six limits: more than one script of a sequence has. A limit without its argument does not apply.
    my @limits = ([4, 'fixed_window'], [6, 'gcra burst=5'], [5, 'sliding_window_log'],
        [9, 'sliding_window_counter'], [7, 'token_bucket'], [8, 'sliding_window_buckets']);
    my @numbers = 0 .. $#limits;
    my $many = node(
        zone => $zone,
        http => join('', map {
            "ratelimit_zone \$arg_k$_ zone=z$_ rate=$limits[$_][0]r/d algorithm=$limits[$_][1] cache=off;"
        } @numbers),
        server => 'location /many/ { try_files /index.html =404;'
            . join('', map { "ratelimit zone=z$_;" } @numbers) . '}',
    );
    srand 7;
    my (%count, @statuses, @expected);
    for (1 .. 200) {
        my %key = map { rand() < 0.5 ? ($_ => ('a', 'b')[rand 2]) : () } @numbers;
        my @applied = map { "$_$key{$_}" } keys %key;
        push @statuses, $many->status('/many/?' . join '&', map { "k$_=$key{$_}" } keys %key);
        my $full = grep { ($count{$_} // 0) == $limits[substr $_, 0, 1][0] } @applied;
        push @expected, $full ? 429 : 200;
        ++$count{$_} for $full ? () : @applied;
    }
    is_deeply \@statuses, \@expected;
    cmp_ok scalar(grep { $_ == 200 } @expected), '>', 20, 'requests that passed';
};

subtest 'keys may contain any bytes' => sub {
    my $keys = node(zone => 'rate=1r/d algorithm=fixed_window', key => '$http_x_key');
    my $long = 'x' x 5000;
    for my $key ('a b', '{x}', '}', "tab\there", '%00', '"quoted"', "\xc3\xa4\xff", 'x' x 128, $long) {
        is $keys->status('/', headers => ['X-Key', $key]), 200, 'the first request passes';
        is $keys->status('/', headers => ['X-Key', $key]), 429, 'the second is refused';
    }
    is $keys->status('/', headers => ['X-Key', $long . 'y']), 200, 'long keys that differ at their end are counted separately';
    is $keys->status('/'), 200, 'an empty key is not limited' for 1 .. 2;
    my @names = $keys->{redis}->keys_like;
    ok((grep { $_ eq 'rl:test:{a b}' } @names), 'a short key is stored as it is');
    is scalar(grep { length > 200 } @names), 0, 'a long key is hashed';
};

finish();

# ratelimit_check: other programs, and nginx's own auth_request, ask this nginx whether a request passes.
# needs: libprotocol-http2-perl

use Ratelimit::Http2 qw(http2_send);
use Ratelimit::Http2 qw(http2 http2_send http2_reset);
use Ratelimit::Test;
use JSON::PP qw(decode_json);

my $zone = 'rate=2r/d algorithm=fixed_window';

sub checker {
    my (%options) = @_;
    my $redis = redis();
    my $node = nginx(
        %options,
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } ratelimit_zone \$key zone=test @{[ $options{zone} // $zone ]};"
            . 'map "$http_x_forwarded_for$arg_k" $key { default "$http_x_forwarded_for$arg_k"; }' . ($options{http} // ''),
        server => 'location /check/ { ratelimit_check; ratelimit zone=test; }'
            . 'location /peek/ { ratelimit_check peek; ratelimit zone=test cost=2$arg_none; }' . ($options{server} // ''),
    );
    $node->{redis} = $redis;
    return $node;
}

sub limits { my ($answer) = @_; return decode_json($answer->body)->{limits} }

subtest 'it answers 200 or 429, with the headers and JSON' => sub {
    my $node = checker();
    my @answers = map { $node->get('/check/any/path?k=a') } 1 .. 3;
    is_deeply [map { $_->status } @answers], [200, 200, 429];
    is $answers[0]->header('X-RateLimit-Remaining'), 1;
    is $answers[0]->header('Cache-Control'), 'no-store';
    my ($limit) = @{ limits($answers[0]) };
    is_deeply [@{$limit}{qw(zone limit remaining)}], ['test', 2, 1];
    is $limit->{reset}, $answers[0]->header('X-RateLimit-Reset');
    ok decode_json($answers[0]->body)->{allowed};
    is_deeply decode_json($answers[2]->body)->{'violated-policies'}, ['test'];
    cmp_ok $answers[2]->header('Retry-After'), '>', 0;
    is_deeply [map { $node->get('/check/?k=b', method => $_)->status } qw(HEAD OPTIONS DELETE)], [200, 200, 429], 'of any method';
    is $node->get('/check/?k=c', method => 'POST', body => 'x' x 100_000)->status, 200, 'a body is not read';
    is_deeply limits($node->get('/check/')), [], 'without a key no limit applies';
};

subtest 'peek counts nothing, and says what a request would get' => sub {
    my $node = checker();
    is_deeply [map { $node->status('/peek/?k=a') } 1 .. 3], [200, 200, 200];
    is $node->status('/check/?k=a'), 200;
    my $answer = $node->get('/peek/?k=a');
    is $answer->status, 429, 'its cost is 2, and 1 is left';
    is_deeply [map { $_->{remaining} } @{ limits($answer) }], [1];
    is $answer->header('X-RateLimit-Remaining'), 1, 'with the rate headers of a refusal';
    ok !decode_json($answer->body)->{allowed};
    is_deeply [map { $node->status('/check/?k=a&peek') } 1 .. 2], [200, 429], 'a client cannot choose to peek';
};

subtest 'peek asks Redis, also where requests pass ahead of it' => sub {
    my $node = checker(zone => "$zone ahead=1");
    is $node->status('/check/?k=a'), 200;
    my $redis = $node->{redis};
    wait_until('it is counted', sub { $redis->keys_like('*a*') });
    is $node->status('/peek/?k=a'), 429;
    $redis->cmd('DEL', $redis->keys_like('*a*'));
    is $node->status('/peek/?k=a'), 200, 'what this node last knew is too little';
};

subtest 'peek writes nothing into Redis, also of a zone with concurrency=' => sub {
    my $node = checker(zone => 'concurrency=2');
    is $node->status('/peek/?k=a'), 200;
    is_deeply [$node->{redis}->keys_like('*')], [];
};

subtest 'peek says what the next request gets, also by a lease of this node' => sub {
    my $node = checker(zone => 'rate=60r/d algorithm=fixed_window lease=20', server => 'location /one/ { ratelimit_check peek; ratelimit zone=test; }');
    my (@said, @got);
    for (1 .. 65) {
        push @said, $node->status('/one/?k=a');
        push @got, $node->status('/check/?k=a');
    }
    is_deeply \@said, \@got;
    is scalar(grep { $_ == 200 } @got), 60;
};

subtest 'a location without problem details has none inside of "if", either' => sub {
    my $node = checker(server => 'location /plain/ { ratelimit_check; ratelimit zone=test; ratelimit_problem_details off; if ($arg_x) { add_header X-If 1 always; } }');
    my @answers = map { $node->get('/plain/?k=a&x=1') } 1 .. 3;
    is_deeply [map { $_->status } @answers], [200, 200, 429];
    is $answers[2]->header('X-If'), 1;
    unlike $answers[2]->header('Content-Type'), qr/json/;
};

# As the documentation of each describes what it sends.
subtest 'Envoy, Traefik and Caddy take the status and the headers' => sub {
    my $node = checker();
    my %requests = (
        'Envoy: ext_authz with http_service and path_prefix /check' =>
            ['/check/orders/7?x=1', method => 'POST', headers => ['X-Forwarded-For', '192.0.2.1', 'Content-Length', '0', 'X-Envoy-Internal', 'true']],
        'Traefik: forwardAuth' => ['/check/', headers => ['X-Forwarded-Method', 'POST', 'X-Forwarded-Proto', 'https',
            'X-Forwarded-Host', 'example.com', 'X-Forwarded-Uri', '/orders/7', 'X-Forwarded-For', '192.0.2.2']],
        'Caddy: forward_auth' => ['/check/', headers => ['X-Forwarded-Method', 'POST', 'X-Forwarded-Uri', '/orders/7',
            'X-Forwarded-For', '192.0.2.3']],
    );
    for my $program (sort keys %requests) {
        my @answers = map { $node->get(@{ $requests{$program} }) } 1 .. 3;
        is_deeply [map { $_->status } @answers], [200, 200, 429], $program;
        is $answers[2]->header('X-RateLimit-Remaining'), 0;
        ok $answers[2]->header('Retry-After');
    }
};

my $asks = 'location /api/ {
        auth_request /check/; auth_request_set $retry $ratelimit_retry_after;
        auth_request_set $left $sent_http_x_ratelimit_remaining;
        add_header X-Left $left; error_page 403 = @limited; try_files /index.html =404;
    }
    location @limited { add_header Retry-After $retry always; return 429 "slow down"; }';

subtest 'auth_request: one subrequest is counted, a refusal is a 429 with its Retry-After' => sub {
    my $node = checker(server => $asks);
    my @answers = map { $node->get('/api/x?k=a', headers => ['X-Forwarded-For', 'a']) } 1 .. 3;
    is_deeply [map { $_->status } @answers], [200, 200, 429];
    is_deeply [map { $_->header('X-Left') } @answers[0, 1]], [1, 0];
    is $answers[2]->body, 'slow down';
    cmp_ok $answers[2]->header('Retry-After'), '>', 0;
    is $node->count_log(qr/auth request unexpected status/), 0;
    is $node->count_log(qr/limiting requests/), 1;
};

subtest 'auth_request beside a limit of the location itself: each is counted once' => sub {
    my $node = checker(server => 'location /api/ { ratelimit zone=own; auth_request /check/; try_files /index.html =404; }',
        http => 'ratelimit_zone $http_x_forwarded_for zone=own rate=9r/d algorithm=fixed_window;');
    my @statuses = map { $node->get('/api/', headers => ['X-Forwarded-For', 'a'])->status } 1 .. 3;
    is_deeply \@statuses, [200, 200, 403];
    is $node->get('/api/', headers => ['X-Forwarded-For', 'b'])->header('X-RateLimit-Remaining'), 8, 'the response shows its own';
};

subtest 'auth_request asks again after an internal redirect: the request is counted once, and holds once' => sub {
    my $server = 'location / { auth_request /check/; index index.html; error_page 404 /index.html; }';
    my @as = (headers => ['X-Forwarded-For', 'a']);
    my $node = checker(zone => 'rate=3r/d algorithm=fixed_window', server => $server);
    is_deeply [map { $node->get($_, @as)->status } '/', '/missing', '/', '/', '/missing'], [200, 404, 200, 403, 403];
    is checker(zone => 'concurrency=1', server => $server)->get('/', @as)->status, 200, 'with concurrency=1';
};

subtest 'while Redis is away the fail mode decides, of the subrequest, too' => sub {
    my $node = checker(server => "$asks location /closed/ { ratelimit_check; ratelimit zone=test; ratelimit_fail_mode closed; }
        location /guarded/ { auth_request /closed/; try_files /index.html =404; }");
    $node->{redis}->stop('KILL');
    my @as = (headers => ['X-Forwarded-For', 'a']);
    is $node->get('/api/', @as)->status, 200;
    is $node->get('/check/', @as)->status, 200;
    is $node->get('/closed/', @as)->status, 503;
    is $node->get('/guarded/', @as)->status, 403;
};

subtest 'clients that leave while a subrequest waits for its check disturb no other request' => sub {
    my $node = checker(zone => 'rate=100000r/d algorithm=fixed_window', server => $asks);
    my @as = (headers => ['X-Forwarded-For', 'a']);
    is $node->get('/check/', @as)->header('X-RateLimit-Remaining'), 99_999;
    my ($worker) = $node->workers;
    $node->{redis}->cmd('CLIENT', 'PAUSE', 300, 'ALL');
    my @sockets = map { my $socket = http_connect($node->port); http_send($socket, '/api/', @as); $socket } 1 .. 60;
    close $_ for @sockets[0 .. 29];
    is http_read($_)->status, 200 for @sockets[30 .. 59];
    my $counted = 99_998 - $node->get('/check/', @as)->header('X-RateLimit-Remaining');
    ok $counted >= 30 && $counted <= 60, 'no request was counted twice, none of those that stayed was lost' or diag $counted;
    is_deeply [$node->workers], [$worker], 'the worker lives';
};

subtest 'streams of one HTTP/2 connection: each is limited, also if others are reset' => sub {
    my $node = checker(zone => 'rate=20r/d algorithm=fixed_window', listen => 'http2', server => $asks);
    $node->wait_for_workers($node->pid);
    my ($worker) = $node->workers;
    $node->{redis}->cmd('CLIENT', 'PAUSE', 200, 'ALL');
    my $socket = http2_send($node->port, [('/api/?k=left') x 10]);
    http2_reset($socket, 10);
    my %statuses;
    $statuses{ $_->status }++ for http2($node->port, [('/api/?k=a') x 30], headers => ['x-forwarded-for', 'a']);
    is_deeply \%statuses, { 200 => 20, 429 => 10 };
    is_deeply [$node->workers], [$worker], 'the worker lives';
};

subtest 'mirror counts each request once, also behind its response, and refuses none' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node  = nginx(
        http   => "ratelimit_redis main { server @{[ $proxy->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=test rate=9r/d algorithm=fixed_window; ratelimit_zone $arg_k zone=none rate=9r/d;'
            . 'ratelimit_zone $arg_k zone=held concurrency=9;',
        server => <<'END',
        location = /check { ratelimit_check; ratelimit zone=test; ratelimit zone=held; }
        location = /plain { internal; ratelimit zone=none; try_files /index.html =404; }
        location = /mirrored { mirror /check; mirror /plain; try_files /index.html =404; }
        location = /peek { ratelimit zone=test cost=0; ratelimit_headers off; try_files /index.html =404; }
        location = /others { ratelimit zone=none cost=0; try_files /index.html =404; }
        location = /held { ratelimit zone=held cost=0; try_files /index.html =404; }
        add_header X-Left $ratelimit_remaining always;
END
    );
    my $left = sub { $node->get($_[0])->header('X-Left') };
    is $left->('/peek?k=warm'), 9;
    for my $delay (0, 0.2) {
        $proxy->delay($delay);
        is $node->status("/mirrored?k=$delay"), 200 for 1 .. 7;
        wait_until('each is counted', sub { $left->("/peek?k=$delay") == 2 });
        is $node->status("/mirrored?k=$delay"), 200, 'none is refused' for 1 .. 4;
        wait_until('the limit is used up', sub { $left->("/peek?k=$delay") == 0 });
        wait_until('nothing is held', sub { $left->("/held?k=$delay") == 9 });
        is $left->("/others?k=$delay"), 9, 'a subrequest to another location is not counted';
    }
    $proxy->pass;
};

finish();

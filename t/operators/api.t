# ratelimit_api: the zones of a node.

use Ratelimit::Test;
use Digest::SHA qw(sha256_base64);
use JSON::PP qw(decode_json);
use Time::HiRes qw(time sleep);

my $api = 'location /ops/ { ratelimit_api; }';

sub json_of {
    my ($node, $path, %options) = @_;
    my $answer = $node->get($path, %options);
    is $answer->header('Content-Type'), 'application/json', "$path is JSON";
    return decode_json($answer->body);
}

sub zone_of {
    my ($node, $name) = @_;
    return json_of($node, '/ops/zones/' . ($name // 'test'));
}

subtest 'the API shows zones with their settings' => sub {
    my $node = node(zone => 'rate=3r/m', server => $api,
        http => 'ratelimit_zone $arg_other zone=bucket:512k rate=10r/s algorithm=token_bucket burst=25 '
            . 'clock=local cache=off lease=20 nodes=4;'
            . 'ratelimit_zone $arg_k zone=fine rate=60r/2m algorithm=sliding_window_buckets precision=4s;'
            . 'ratelimit_zone $arg_k zone=plan rate=$arg_rate algorithm=gcra block=90s;');
    my $before = time;
    my $all = json_of($node, '/ops/zones');
    my $after = time;
    is $all->{write}, JSON::PP::false, 'the API is read-only';
    like $all->{version}, qr/^\d+\.\d+/;
    ok length $all->{node}, 'the response has the node\'s name';
    ok $before - 2 < $all->{time} && $all->{time} < $after + 2, 'and its time' or diag $all->{time};
    my %zone = map { $_->{name} => $_ } @{ $all->{zones} };
    is_deeply [sort keys %zone], [qw(bucket fine plan test)];
    my $settings = sub {
        my ($zone, @names) = @_;
        return { map { $_ => $zone{$zone}{$_} } @names };
    };
    is_deeply $settings->('test', qw(key algorithm rate burst precision block blocks limit redis clock cache lease ahead nodes size)),
        { key => 'k$arg_k', algorithm => 'sliding_window_counter', rate => '3r/m', burst => undef,
            precision => undef, block => undef, blocks => 0, limit => 3, redis => 'main', clock => 'redis', cache => JSON::PP::true,
            lease => 0, ahead => 0, nodes => 1, size => 1048576 };
    is_deeply $settings->('bucket', qw(key rate burst limit clock cache lease nodes size)),
        { key => '$arg_other', rate => '10r/s', burst => 25, limit => 25, clock => 'local',
            cache => JSON::PP::false, lease => 20, nodes => 4, size => 524288 };
    cmp_ok $zone{fine}{precision}, '==', 4;
    cmp_ok $zone{plan}{block}, '==', 90;
    is_deeply $settings->('plan', qw(rate limit)), { rate => '$arg_rate', limit => undef };
    my $one = zone_of($node, 'bucket');
    is_deeply [@{$one}{qw(name rate)}], ['bucket', '10r/s'], 'a zone by its name';
};

subtest 'requests are counted once each, whatever their zones, and so are those near a limit' => sub {
    my $node = node(zone => 'rate=2r/d algorithm=fixed_window', server => "$api
        location /both/ { ratelimit zone=test; ratelimit zone=wide; try_files /index.html =404; }
        location /dry/ { ratelimit zone=test; ratelimit zone=wide; ratelimit_dry_run on; try_files /index.html =404; }
        location /free/ { ratelimit off; try_files /index.html =404; }",
        http => 'ratelimit_zone k$arg_k zone=wide rate=20r/d algorithm=fixed_window;');
    my $all = sub { json_of($node, '/ops/zones')->{requests} };
    is_deeply $all->(), {};
    $node->status('/both/?k=a') for 1 .. 5;
    is_deeply $all->(), { passed => 2, rejected => 3 };
    $node->status('/dry/?k=a') for 1 .. 4;
    $node->status('/free/') for 1 .. 3;
    is_deeply $all->(), { passed => 2, rejected => 3, rejected_dry_run => 4 };
    my $metrics = $node->get('/ops/metrics')->body;
    like $metrics, qr/^ratelimit_node_requests_total\{result="$_->[0]"\} $_->[1]$/m, "$_->[0] in the metrics"
        for ['passed', 2], ['rejected', 3], ['rejected_dry_run', 4], ['failed_open', 0];
    my $history = json_of($node, '/ops/history');
    is $history->{zone}, undef;
    my $sum = sub { my $sum = 0; $sum += $_ // 0 for @{ $history->{steps}[0]{ $_[0] } }; $sum };
    is_deeply [map { $sum->($_) } qw(passed refused would_refuse)], [6, 3, 4], 'and in the history';
    is $node->status('/ops/history?since=x'), 400;
    is zone_of($node)->{near_limit}, 1, 'of 2 requests the last one left less than a fifth';
    $node->status('/both/?k=b$_') for 1;
    $node->reload;
    is_deeply $all->(), { passed => 3, rejected => 3, rejected_dry_run => 4 }, 'a reload keeps them';
    is zone_of($node, 'wide')->{near_limit}, 0;
    like $node->get('/ops/metrics')->body, qr/^ratelimit_near_limit_total\{zone="test"\} 1$/m;
};

subtest 'refusals that were only tried are apart, with the time of the first' => sub {
    my $node = node(zone => 'rate=1r/d', server => "$api
        location /dry/ { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }");
    my $before = time;
    $node->status('/?k=a') for 1 .. 4;
    $node->status('/dry/?k=a') for 1 .. 5;
    $node->status('/dry/?k=b') for 1 .. 3;
    my $after = time;
    my ($first, $second) = @{ zone_of($node)->{busiest} };
    is_deeply [@{$first}{qw(key refused would_refuse error rate)}], ['ka', 3, 5, 0, undef];
    is_deeply [@{$second}{qw(key refused would_refuse)}], ['kb', 0, 2];
    ok $first->{since} >= $before - 2 && $first->{since} <= $after + 2, 'the time of the first' or diag "$first->{since}, not $before to $after";
};

subtest 'decisions are counted by result and source' => sub {
    my $redis = redis();
    my $node = node(redis => $redis, zone => 'rate=2r/d', server => "$api
        location /dry/ { ratelimit zone=dry; ratelimit_dry_run on; try_files /index.html =404; }
        location /slow/ { ratelimit zone=slow delay=0; try_files /index.html =404; }
        location /shadow/ { ratelimit zone=wide; ratelimit zone=new shadow; try_files /index.html =404; }
        location /slow_shadow/ { ratelimit zone=slow delay=0 shadow; try_files /index.html =404; }
        location /both/ { ratelimit zone=wide; ratelimit zone=narrow; try_files /index.html =404; }
        location /mixed/ { ratelimit zone=narrow; ratelimit zone=plan; try_files /index.html =404; }
        location /bad/ { ratelimit zone=plan; ratelimit_fail_mode closed; try_files /index.html =404; }",
        http => 'ratelimit_zone $arg_k zone=dry rate=1r/d cache=off;'
            . 'ratelimit_zone $arg_k zone=slow rate=1r/m burst=5 algorithm=leaky_bucket;'
            . 'ratelimit_zone $arg_k zone=wide rate=100r/d; ratelimit_zone $arg_k zone=narrow rate=1r/d;'
            . 'ratelimit_zone $arg_k zone=new rate=1r/d; ratelimit_zone $arg_k zone=plan rate=$arg_rate;');
    my $counted = sub { return zone_of($node, $_[0])->{counters} };
    is_deeply $counted->('test'), {}, 'no counters before the first request';
    $node->status('/') for 1 .. 5;
    is_deeply $counted->('test'), { passed => { redis => 2 }, rejected => { redis => 1, cache => 2 } };
    $node->status('/dry/?k=a') for 1 .. 3;
    is_deeply $counted->('dry'), { passed => { redis => 1 }, rejected_dry_run => { redis => 2 } };
    is $node->status('/slow/?k=a'), 200;
    my $waits = http_connect($node->port);
    http_send($waits, '/slow/?k=a');
    wait_until('it is decided', sub { keys %{ $counted->('slow') } > 1 });
    is_deeply $counted->('slow'), { passed => { redis => 1 }, delayed => { redis => 1 } };
    close $waits;    # it would wait for a minute
    $node->status('/slow_shadow/?k=b') for 1 .. 2;
    is_deeply [@{ $counted->('slow') }{qw(passed_shadow delayed_shadow)}], [{ redis => 1 }, { redis => 1 }];
    $node->status('/shadow/?k=a') for 1 .. 3;
    is_deeply $counted->('new'), { passed_shadow => { redis => 1 }, rejected_shadow => { redis => 1, cache => 1 } };
    $node->status('/both/?k=b') for 1 .. 2;
    is_deeply $counted->('narrow'), { passed => { redis => 1 }, rejected => { redis => 1 } };
    is_deeply $counted->('wide'), { passed => { redis => 4 } },
        'only the refusing limit is counted when a request is refused';
    is $node->status('/bad/?k=c&rate=nonsense'), 503;
    is_deeply $counted->('plan'), { failed_closed => { none => 1 } };
    is $node->status("/mixed/?k=$_&rate=nonsense"), $_ eq 'b' ? 429 : 200 for qw(b d);
    is_deeply $counted->('plan')->{failed_open}, { none => 1 }, 'a request that another limit refuses is not counted as admitted';
    $redis->stop;
    is $node->status('/?k=other'), 200;
    wait_until('the fail mode decides', sub {
        $node->status('/?k=another');
        return ($counted->('test')->{failed_open} // {})->{none};
    });
    pass 'requests that fail open are counted';
};

subtest 'this node\'s memory and leases are separate sources' => sub {
    my $alone = nginx(http => 'ratelimit_zone $arg_k zone=here rate=1r/d;',
        server => "$api location / { ratelimit zone=here; try_files /index.html =404; }");
    $alone->status('/?k=a') for 1 .. 2;
    is_deeply zone_of($alone, 'here')->{counters}, { passed => { local => 1 }, rejected => { local => 1 } };
    is zone_of($alone, 'here')->{redis}, undef;
    is zone_of($alone, 'here')->{keys}, 1;
    my $node = node(zone => 'rate=100000r/d lease=50', server => $api);
    $node->status('/') for 1 .. 60;
    my $passed = zone_of($node)->{counters}{passed};
    is $passed->{redis} + $passed->{lease}, 60;
    cmp_ok $passed->{lease}, '>', 0, 'some are admitted by leases';
};

subtest 'counters include all workers, and survive a reload' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api, workers => 3);
    burst($node->port, '/', 90, 30);
    is zone_of($node)->{counters}{passed}{redis}, 90;
    $node->reload;
    is zone_of($node)->{counters}{passed}{redis}, 90;
    $node->status('/');
    is zone_of($node)->{counters}{passed}{redis}, 91;
};

subtest 'evictions are counted' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=here:32k rate=1r/d;',
        server => "$api location / { ratelimit zone=here; try_files /index.html =404; }");
    $node->status("/?k=$_") for 1 .. 400;
    my $zone = zone_of($node, 'here');
    cmp_ok $zone->{evictions}, '>', 0;
    cmp_ok $zone->{keys} + $zone->{evictions}, '>=', 400, 'every key is present or evicted';
};

subtest 'evicted log records do not count as evictions' => sub {
    my $node = node(key => '$arg_k', zone => 'rate=1r/d cache=off', server => $api,
        http => 'ratelimit_zone $arg_k zone=small:32k rate=1r/d algorithm=fixed_window cache=off;');
    $node->configure(server => "$api location / { ratelimit zone=small; try_files /index.html =404; }");
    $node->reload(gone => 1);
    for my $key (1 .. 400) { $node->status("/?k=$key") for 1 .. 2 }
    is_deeply [@{ zone_of($node, 'small') }{qw(keys evictions)}], [0, 0];
};

subtest 'the API shows the most refused keys' => sub {
    my $node = node(zone => 'rate=1r/d', server => $api, http => 'keepalive_requests 10000;');
    my %refused = (a => 5, b => 9, c => 2);
    for my $key (keys %refused) {
        $node->status("/?k=$key") for 0 .. $refused{$key};
    }
    is_deeply [map { [@{$_}{qw(key id refused error)}] } @{ zone_of($node)->{busiest} }],
        [['kb', 'kb', 9, 0], ['ka', 'ka', 5, 0], ['kc', 'kc', 2, 0]];
    my $socket = http_connect($node->port);
    my $send = sub { http_send($socket, "/?k=$_[0]"); http_read($socket) };
    my $flood = sub { $send->("$_[0]$_") for map { ($_) x 3 } 1 .. 250 };
    $flood->('many');
    $send->('late') for 0 .. 40;
    $flood->('more');
    $refused{late} = 40;
    my @busiest = @{ zone_of($node)->{busiest} };
    cmp_ok scalar(@busiest), '<=', 10;
    is $busiest[0]{key}, 'klate', 'the most refused key stays first in a flood of others';
    for (@busiest) {
        my $times = $refused{ substr $_->{key}, 1 } // 2;
        cmp_ok $_->{refused} - $_->{error}, '<=', $times, "$_->{key}: at most the true count and its error";
        cmp_ok $_->{refused}, '>=', $times, 'at least the true count';
    }
    ok scalar(grep { $_->{error} > 0 } @busiest), 'a key that took over another\'s counter shows an error';
};

subtest 'keys are escaped as in the log, and have an id of the exact bytes' => sub {
    my $node = node(zone => 'rate=1r/d', key => '$binary_remote_addr$arg_k$http_x_key', server => $api);
    my @key = (headers => ['X-Key' => qq{"\\ \xff\xc3\xa9<}]);
    $node->status('/', @key) for 1 .. 2;
    is_deeply [@{ zone_of($node)->{busiest}[0] }{qw(key id)}],
        ['\x7f\x00\x00\x01\x22\x5c \xff\xc3\xa9<', '%7F%00%00%01%22%5C%20%FF%C3%A9%3C'];
};

subtest 'the API\'s methods, paths and headers' => sub {
    my $node = node(zone => 'rate=1000r/d', server => "$api
        location /bare { ratelimit_api; }
        location ~ ^/inner { rewrite ^/inner/(.*) /ops/\$1 last; }
        location /limited/ { ratelimit zone=test; ratelimit_api; }");
    my $got = $node->get('/ops/zones');
    my $head = $node->get('/ops/zones/test', method => 'HEAD');
    is_deeply [$head->status, $head->body], [200, ''];
    cmp_ok $head->header('Content-Length'), '>', 100, 'HEAD has the length of GET';
    is $got->header('Cache-Control'), 'no-store';
    for my $path ('/ops/', '/ops/zones', '/ops/metrics', '/ops/redis', '/ops/zones/test', '/bare/zones',
        '/bare/', '/ops/zones/', '/ops//zones', '/inner/zones', '/limited/redis') {
        is $node->status($path), 200, $path;
    }
    my %none = (404 => ['/ops/nothing', '/ops/zones/none', '/ops/zones/test/other', '/ops/metrics/x', '/barely',
        '/ops/zones/none/keys/k'], 400 => ['/ops/zones/test/keys', '/ops/zones/test/keys/', '/ops/zones/test/keys?key=%']);
    for my $case (map { my $status = $_; map { [$status, $_] } @{ $none{$status} } } keys %none) {
        my ($status, $path) = @{$case};
        my $answer = $node->get($path);
        is $answer->status, $status, $path;
        ok decode_json($answer->body)->{error}, 'the response has a reason';
    }
    for my $method (qw(POST PUT DELETE OPTIONS)) {
        my $answer = $node->get('/ops/zones', method => $method, body => 'x');
        is $answer->status, 405, $method;
        is $answer->header('Allow'), 'GET, HEAD';
    }
    my $slash = $node->get('/bare');
    is $slash->status, 301;
    like $slash->header('Location'), qr{^http://[^/]+/bare/$};
    like $node->get('/bare?from=mail')->header('Location'), qr{/bare/\?from=mail$};
    my $page = $node->get('/ops/');
    is $page->header('Content-Type'), 'text/html; charset=utf-8';
    my $policy = $page->header('Content-Security-Policy');
    like $policy, qr/^default-src 'none'; script-src 'sha256-/;
    for my $kind (qw(script style)) {
        my @hashes = map { "'sha256-" . sha256_base64($_) . "='" } $page->body =~ m{<$kind>(.*?)</$kind>}gs;
        is "$kind-src @hashes", $policy =~ /($kind-src [^;]*)/ ? $1 : '', "the policy allows each $kind of the page";
    }
    like $page->body, qr/^<!doctype html>/i;
};

subtest 'an exact location serves one page of the API only' => sub {
    my $node = node(zone => 'rate=1000r/d', server => 'location = /prom/metrics { ratelimit_api; }'
            . ' location = /status/redis { ratelimit_api; } location = /status/zones { ratelimit_api; }');
    like $node->get('/prom/metrics')->body, qr/^# HELP ratelimit_/;
    is $node->status($_), 200, $_ for '/status/redis', '/status/zones';
    is $node->get('/prom/metrics/')->header('X-RateLimit-Limit'), 1000, 'a path below it belongs to another location';
    ok !defined $node->get('/prom/metrics')->header('X-RateLimit-Limit');
};

subtest 'gzip and charset apply to the API\'s types' => sub {
    my $node = node(zone => 'rate=1000r/d', server => "$api gzip on; gzip_types text/plain application/json;"
            . ' gzip_min_length 1; gzip_http_version 1.0; charset koi8-r; charset_types *;');
    for my $path ('', 'metrics', 'zones') {
        my $answer = $node->get("/ops/$path", headers => ['Accept-Encoding' => 'gzip']);
        is $answer->header('Content-Encoding'), 'gzip', "/ops/$path";
        unlike $answer->header('Content-Type'), qr/charset.*charset/;
    }
};

subtest 'API responses can be included by SSI' => sub {
    my $node = node(zone => 'rate=1000r/d', server => "$api location /pages/ { ssi on; ssi_types *; }");
    my $include = sub { qq{<!--# include virtual="/ops/$_[0]" -->} };
    mkdir "$node->{folder}/html/pages" or die "mkdir: $!";
    open my $page, '>', "$node->{folder}/html/pages/p.html" or die "p.html: $!";
    print {$page} 'HEAD ', $include->('zones/test'), ' MIDDLE ', $include->('zones/test/keys/k'), ' TAIL';
    close $page;
    my $body = $node->get('/pages/p.html')->body;
    like $body, qr/^HEAD \{"name":"test".*\}\s+MIDDLE \{"zone":"test".*\}\s+TAIL$/s;
};

subtest 'limit_except restricts who may free keys' => sub {
    my $node = node(zone => 'rate=1r/d', server =>
        'location /ops/ { ratelimit_api write=on; limit_except GET { deny all; } }'
            . 'location /ours/ { ratelimit_api write=on; limit_except GET { allow 127.0.0.1; deny all; } }');
    is $node->status('/ops/zones'), 200;
    is $node->status('/ops/zones/test/keys/k', method => 'DELETE'), 403;
    is $node->status('/ours/zones/test/keys/k', method => 'DELETE'), 200;
};

subtest 'requests that nginx refuses before the API get nginx\'s page' => sub {
    my $node = node(zone => 'rate=1000r/d', server => "$api location /kept/ { ratelimit_api; deny all; }");
    for (['/ops/zones/test/keys/%00', 400], ['/kept/zones', 403]) {
        my ($path, $status) = @{$_};
        my $answer = $node->get($path);
        is_deeply [$answer->status, $answer->header('Content-Type')], [$status, 'text/html'], $path;
    }
};

subtest 'connections to the API are kept alive' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api);
    my $socket = http_connect($node->port);
    for (['/ops/zones', 200], ['/ops/zones/test/keys/k', 200], ['/ops/nothing', 404], ['/ops/metrics', 200]) {
        my ($path, $status) = @{$_};
        http_send($socket, $path, method => 'GET', body => 'an unread body');
        is http_read($socket)->status, $status, $path;
    }
};

subtest 'nginx -t rejects bad ratelimit_api directives' => sub {
    my @wrong = (
        ['location /a/ { ratelimit_api on; }', qr/"ratelimit_api": invalid "on", expected write=on or write=off/],
        ['location /a/ { ratelimit_api user=ops; }', qr/invalid "user=ops", expected .* user= with a variable/],
        ['location /a/ { ratelimit_api write=on write=off; }', qr/invalid "write=off", expected .* at most once/],
        ['location /a/ { ratelimit_api; ratelimit_api; }', qr/"ratelimit_api" directive is duplicate/],
        ['location = /a { ratelimit_api; }', qr/needs a location that is a prefix, .* or exact and ends in/],
        ['location = /a/zones/z { ratelimit_api; }', qr/needs a location that is a prefix/],
        ['location ~ ^/a/ { ratelimit_api; }', qr/needs a location that is a prefix/],
        ['location @a { ratelimit_api; }', qr/needs a location that is a prefix/],
        ['ratelimit_api;', qr/"ratelimit_api" directive is not allowed here/],
    );
    for my $case (@wrong) {
        my ($status, $text) = conf_test(server => $case->[0]);
        isnt $status, 0, $case->[0];
        like $text, $case->[1];
    }
    is((conf_test(server => 'location /a/ { ratelimit_api write=on; }'))[0], 0, 'the API needs no zone');
};

finish();

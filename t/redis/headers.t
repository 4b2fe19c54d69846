# Headers and variables of limited responses, with exact values.
# needs: curl

use Ratelimit::Test;

my $day = 86_400;

# The values of these headers of a response, by name.
sub of {
    my ($answer, @names) = @_;
    return { map { $_ => scalar $answer->header($_) } @names };
}

my @three = qw(X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset);

subtest 'the x-ratelimit headers are the default, on passed and refused responses' => sub {
    my $node = node(zone => 'rate=3r/d algorithm=sliding_window_log');
    for my $remaining (2, 1, 0) {
        my $answer = $node->get('/');
        is $answer->status, 200;
        is_deeply of($answer, @three, 'Retry-After', 'RateLimit', 'RateLimit-Limit'),
            { 'X-RateLimit-Limit' => 3, 'X-RateLimit-Remaining' => $remaining,
            'X-RateLimit-Reset' => $day, 'Retry-After' => undef, 'RateLimit' => undef,
            'RateLimit-Limit' => undef };
    }
    my $answer = $node->get('/');
    is $answer->status, 429;
    is $answer->header('X-RateLimit-Remaining'), 0;
    cmp_ok $answer->header('Retry-After'), '>', $day - 60;
    cmp_ok $answer->header('Retry-After'), '<=', $day;
};

subtest 'a cost above the limit is refused, however large, and never passes' => sub {
    for my $algorithm (qw(token_bucket gcra leaky_bucket sliding_window_log sliding_window_buckets)) {
        my $node = node(zone => "rate=1r/d algorithm=$algorithm", limit => 'cost=$arg_cost');
        for my $cost (2, 100_000_000, 1_000_000_000) {
            my $answer = $node->get("/?cost=$cost");
            is_deeply [$answer->status, of($answer, @three, 'Retry-After')],
                [429, { 'X-RateLimit-Limit' => 1, 'X-RateLimit-Remaining' => 1, 'X-RateLimit-Reset' => 0,
                    'Retry-After' => undef }], "$algorithm: $cost";
        }
        is $node->status('/?cost=1'), 200;
        is $node->count_log(qr/malformed|fail mode/), 0, 'and Redis is blamed for nothing';
    }
};

subtest 'each set of headers, and several sets' => sub {
    my $node = node(
        zone   => 'rate=10r/d algorithm=token_bucket',
        server => join '',
        map { "location /$_->[0]/ { ratelimit zone=test; ratelimit_headers $_->[1]; try_files /index.html =404; }" }
            ['legacy', 'legacy'], ['draft', 'draft'], ['all', 'draft legacy x-ratelimit'],
        ['off', 'off'],
    );
    my @legacy = qw(RateLimit-Limit RateLimit-Remaining RateLimit-Reset);
    is_deeply of($node->get('/legacy/?k=1'), @three, @legacy),
        { (map { $_ => undef } @three), 'RateLimit-Limit' => 10, 'RateLimit-Remaining' => 9,
        'RateLimit-Reset' => 8640 };
    is_deeply of($node->get('/draft/?k=2'), @three, @legacy, 'RateLimit', 'RateLimit-Policy'),
        { (map { $_ => undef } @three, @legacy), 'RateLimit' => '"test";r=9;t=77760',
        'RateLimit-Policy' => '"test";q=10;w=86400' };
    my $all = of($node->get('/all/?k=3'), @three, @legacy, 'RateLimit', 'RateLimit-Policy');
    is scalar(grep { defined } values %{$all}), 8;
    is_deeply of($node->get('/off/?k=4'), @three, @legacy, 'RateLimit', 'Retry-After'),
        { map { $_ => undef } @three, @legacy, 'RateLimit', 'Retry-After' };
    $node->status('/off/?k=4') for 1 .. 9;
    my $refused = $node->get('/off/?k=4');
    is $refused->status, 429;
    like $refused->header('Retry-After'), qr/^8[56]\d\d$/, 'Retry-After is in no set';
};

subtest 'the limit of each algorithm is the most that can remain' => sub {
    for (
        ['fixed_window', 4], ['sliding_window_counter', 4], ['sliding_window_log', 4],
        ['sliding_window_buckets', 4], ['token_bucket', 4], ['token_bucket burst=7', 7],
        ['gcra', 1], ['gcra burst=5', 6], ['leaky_bucket burst=2', 3],
    ) {
        my ($algorithm, $limit) = @{$_};
        my $node = node(zone => "rate=4r/d algorithm=$algorithm",
            location => 'ratelimit_headers draft x-ratelimit;');
        my $answer = $node->get('/');
        is $answer->header('X-RateLimit-Limit'), $limit, $algorithm;
        is $answer->header('X-RateLimit-Remaining'), $limit - 1;
        my $w = $algorithm =~ /window/ ? $day : $limit * $day / 4;
        is $answer->header('RateLimit-Policy'), "\"test\";q=$limit;w=$w";
    }
};

# The value of a header that the first answer of a key has, by a zone that is counted in memory.
sub first_answer_has {
    my ($zone, $header, $value) = @_;
    my $node = nginx(http => "ratelimit_zone k zone=test $zone;", server => 'ratelimit zone=test; ratelimit_headers draft;');
    is $node->get('/')->header($header), "\"test\";$value", $zone;
    return;
}

subtest 'a policy whose window has a fraction of a second is shown as its rate and burst' => sub {
    first_answer_has($_->[0], 'RateLimit-Policy', $_->[1]) for (
        ['rate=100r/s algorithm=gcra',                  'q=100;w=1'],
        ['rate=100r/s algorithm=gcra burst=50',         'q=100;w=1;ratelimit-burst=50'],
        ['rate=100r/s algorithm=leaky_bucket burst=99', 'q=100;w=1'],
        ['rate=3r/10s algorithm=token_bucket burst=7',  'q=3;w=10;ratelimit-burst=7'],
    );
};

subtest 't is the time for which the remaining requests last at the rate' => sub {
    first_answer_has($_->[0], 'RateLimit', $_->[1]) for (
        ['rate=10r/s algorithm=token_bucket burst=1000', 'r=999;t=100'],
        ['rate=10r/m algorithm=gcra burst=9',            'r=9;t=54'],
        ['rate=10r/m algorithm=leaky_bucket burst=9',    'r=9;t=54'],
        ['rate=10r/m algorithm=gcra',                    'r=0;t=6'],
        ['rate=10r/366d algorithm=sliding_window_log',   'r=9;t=31622400'],
    );
};

subtest 'a cost in bytes has its unit' => sub {
    my $node = nginx(
        http   => 'ratelimit_zone k zone=bytes rate=1000r/d; ratelimit_zone k zone=some rate=1000r/d;'
            . 'ratelimit_zone k zone=one rate=1000r/d;',
        server => 'ratelimit zone=bytes cost=$content_length; ratelimit zone=some cost=$arg_c; ratelimit zone=one;'
            . 'ratelimit_headers draft; error_page 405 =200 /index.html;',
    );
    my $answer = $node->get('/', method => 'POST', body => 'x' x 300);
    is $answer->header('RateLimit-Policy'),
        '"bytes";q=1000;qu="content-bytes";w=86400, "some";q=1000;w=86400, "one";q=1000;w=86400';
    like $answer->header('RateLimit'), qr/^"bytes";r=700;t=\d+, "some";r=999;t=\d+, "one";r=999;/;
};

subtest 'every applied limit is named in RateLimit-Policy, with any source and when a decision fails' => sub {
    my $redis = redis();
    my $lines = 'ratelimit zone=wide; ratelimit zone=absent; ratelimit zone=quiet shadow;'
        . 'ratelimit_headers draft x-ratelimit; add_header X-Source $ratelimit_source always;';
    my $node = node(
        redis    => $redis, zone => 'rate=1r/d algorithm=fixed_window', block => 'breaker failures=1 open=1s;',
        http     => 'ratelimit_zone w$arg_k zone=wide rate=9r/d algorithm=fixed_window;'
            . 'ratelimit_zone $arg_no zone=absent rate=9r/d; ratelimit_zone k zone=quiet rate=9r/d;'
            . 'ratelimit_zone k zone=wrong rate=$arg_rate algorithm=fixed_window;',
        location => $lines,
        server   => "location /closed { ratelimit zone=test; $lines ratelimit_fail_mode closed; try_files /index.html =404; }"
            . "location /local { ratelimit zone=test; $lines ratelimit_fail_mode local; try_files /index.html =404; }"
            . 'location /wrong { ratelimit zone=wrong; ratelimit zone=wide; ratelimit_headers draft; try_files /index.html =404; }',
    );
    my $policies = '"test";q=1;w=86400, "wide";q=9;w=86400';
    my @seen = map { $node->get('/?k=a') } 1 .. 3;
    is_deeply [map { $_->status . $_->header('X-Source') } @seen], ['200redis', '429redis', '429cache'];
    is $_->header('RateLimit-Policy'), $policies for @seen;
    like $seen[1]->header('RateLimit'), qr/^"test";r=0;t=\d+, "wide";r=8;t=\d+$/;
    like $seen[2]->header('RateLimit'), qr/^"test";r=0;t=\d+$/, 'a limit that was not checked has no state';
    is $node->get('/wrong?k=b&rate=lots')->header('RateLimit-Policy'), '"wide";q=9;w=86400', 'a malformed rate is no policy';
    $redis->stop('KILL');
    for (['/', 200], ['/closed', 503]) {
        my ($path, $status) = @{$_};
        my $answer = $node->get("$path?k=c");
        is $answer->status, $status, $path;
        is_deeply of($answer, 'RateLimit-Policy', 'RateLimit', @three),
            { 'RateLimit-Policy' => $policies, map { $_ => undef } 'RateLimit', @three };
    }
    my $local = $node->get('/local?k=d');
    is $local->header('RateLimit-Policy'), $policies, 'local';
    like $local->header('RateLimit'), qr/^"test";r=0;t=\d+, "wide";r=8;t=\d+$/;
};

subtest 'with several limits, x-ratelimit shows the one with the smallest share left, draft all in order' => sub {
    my $node = node(
        zone     => 'rate=10r/d algorithm=sliding_window_log',
        http     => 'ratelimit_zone a$arg_k zone=second rate=4r/2d algorithm=sliding_window_log;'
            . 'ratelimit_zone b zone=quiet rate=1r/d algorithm=fixed_window;',
        location => 'ratelimit zone=second; ratelimit zone=quiet shadow;'
            . 'ratelimit_headers draft x-ratelimit;',
    );
    my $answer = $node->get('/');
    is $answer->header('X-RateLimit-Limit'), 4, 'three of four are less than nine of ten';
    is $answer->header('X-RateLimit-Remaining'), 3;
    is $answer->header('RateLimit-Policy'), '"test";q=10;w=86400, "second";q=4;w=172800';
    is $answer->header('RateLimit'), '"test";r=9;t=86400, "second";r=3;t=172800';
    is $node->status('/'), 200, 'the shadow limit refuses nothing' for 1 .. 3;
    my $refused = $node->get('/');
    is $refused->status, 429;
    my ($t) = $refused->header('RateLimit') =~ /^"test";r=6;t=\d+, "second";r=0;t=(\d+)$/;
    is $t, $refused->header('Retry-After'), 'the refusing limit\'s t is its retry time';
};

subtest 'a refunded limit is shown as if it had not been counted' => sub {
    my @servers = map { redis() } 1 .. 2;
    my $node = node(
        redis  => $servers[0], block => "server @{[ $servers[1]->addr ]};",
        zone   => 'rate=2r/d algorithm=token_bucket',
        http   => 'ratelimit_zone t$arg_t zone=tight rate=3r/d algorithm=fixed_window;',
        server => 'location = /both { ratelimit zone=test; ratelimit zone=tight cost=2; ratelimit_headers x-ratelimit draft;'
            . ' try_files /index.html =404; }'
            . 'location = /tight { ratelimit zone=tight cost=$arg_c; try_files /index.html =404; }',
    );
    my %on;
    for my $key (1 .. 40) {
        $node->status("/both?k=$key&t=$key");
        $on{k}{ $servers[0]->cmd('EXISTS', "rl:test:{k$key}") ? 0 : 1 } = $key;
        $on{t}{ $servers[0]->cmd('EXISTS', "rl:tight:{t$key}") ? 0 : 1 } = $key;
    }
    $_->cmd('FLUSHALL') for @servers;
    my ($k, $t) = ($on{k}{0}, $on{t}{1});
    # One of two is left, and one of three. Without the refund the request would leave none of the first.
    is $node->status("/?k=$k"), 200;
    is $node->status("/tight?t=$t&c=2"), 200;
    my $answer = $node->get("/both?k=$k&t=$t");
    is $answer->status, 429;
    is $answer->header('X-RateLimit-Limit'), 3, 'the headers are those of the refusing limit';
    my ($remaining, $reset) = $answer->header('RateLimit') =~ /^"test";r=(\d+);t=(\d+), "tight";r=1;/;
    is $remaining, 1;
    ok $reset > 43_000 && $reset <= 43_200, 'one token is missing, not two' or diag $reset;
};

subtest 'a cost that never fits has no Retry-After' => sub {
    my $node = node(zone => 'rate=3r/d algorithm=fixed_window', limit => 'cost=$arg_c');
    my $answer = $node->get('/?c=4');
    is $answer->status, 429;
    is $answer->header('Retry-After'), undef;
    is $answer->header('X-RateLimit-Remaining'), 3;
    is $node->get('/?c=2')->header('X-RateLimit-Remaining'), 1;
    is $node->get('/?c=0')->header('X-RateLimit-Remaining'), 1, 'cost=0 counts nothing';
    is $node->status('/?c=2'), 429;
    is $node->get('/')->header('X-RateLimit-Remaining'), 0, 'a missing cost counts as 1';
    is $node->status('/?c=0'), 200, 'cost=0 is never refused';
};

subtest 'HTTP/2 responses have the headers too' => sub {
    my $node = node(zone => 'rate=1r/d algorithm=fixed_window', listen => 'http2');
    my $url = 'http://127.0.0.1:' . $node->port . '/';
    my @out = map { scalar qx(curl -s --http2-prior-knowledge -D - -o /dev/null $url) } 1, 2;
    like $out[0], qr/^HTTP\/2 200.*^x-ratelimit-remaining: 0\r$/ms;
    like $out[1], qr/^HTTP\/2 429.*^retry-after: \d+\r$/ms;
};

subtest 'variables in an access log' => sub {
    my $format = '$ratelimit_status|$ratelimit_zone|$ratelimit_limit|$ratelimit_remaining|'
        . '$ratelimit_reset|$ratelimit_retry_after|$ratelimit_source|$ratelimit_time';
    my $node = node(
        zone   => 'rate=2r/d algorithm=sliding_window_log',
        http   => "log_format v '\$uri|$format';",
        server => <<'END',
        access_log variables.log v;
        location /dry/ { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }
        location /none/ { try_files /index.html =404; }
END
    );
    my $watch = stopwatch();
    $node->status('/?k=a') for 1 .. 3;
    $node->status('/dry/?k=a');
    my $least = $day - $watch->elapsed;
    $node->status('/none/');
    my @lines;
    wait_until('five lines in the access log',
        sub { (@lines = split /\n/, $node->file('variables.log')) == 5 });
    my $time = qr/\d\.\d{3}/;
    like $lines[0], qr/^\/index.html\|PASSED\|test\|2\|1\|86400\|-\|redis\|$time$/;
    like $lines[2], qr/^\/\|REJECTED\|test\|2\|0\|\d+\|\d+\|redis\|$time$/;
    like $lines[3], qr/^\/index.html\|REJECTED_DRY_RUN\|test\|2\|0\|\d+\|\d+\|cache\|$time$/;
    is_deeply [grep { $_ < $least || $_ > $day } map { (split /\|/)[5, 6] } @lines[2, 3]], [], 'seconds until a request passes';
    is $lines[4], '/index.html|-|-|-|-|-|-|-|-', 'variables are empty without a limit';
};

subtest '$ratelimit_client is the client address, of IPv6 its prefix' => sub {
    my $node = node(
        zone => 'rate=100r/d algorithm=fixed_window',
        key  => '$ratelimit_client',
        http => 'set_real_ip_from 127.0.0.1; real_ip_header X-Client; ratelimit_ipv6_prefix 60;',
    );
    for (
        ['192.0.2.1',               'c0000201'],
        ['::ffff:192.0.2.1',        'c0000201'],
        ['2001:db8:1:23ff::1',      '20010db8000123f0' . '0' x 16],
        ['2001:db8:1:23f0:ffff::9', '20010db8000123f0' . '0' x 16],
    ) {
        my ($address, $hex) = @{$_};
        $node->{redis}->cmd('FLUSHALL');
        is $node->status('/', headers => ['X-Client', $address]), 200;
        my ($key) = $node->{redis}->keys_like;
        is unpack('H*', $key =~ s/^rl:test:\{(.*)\}$/$1/sr), $hex, $address;
    }
};

subtest '$ratelimit_net_A_B is the network of the client address' => sub {
    my $node = node(
        zone => 'rate=100r/d algorithm=fixed_window',
        key  => '$ratelimit_net_20_44',
        http => 'set_real_ip_from 127.0.0.1; real_ip_header X-Client; ratelimit_ipv6_prefix 60;',
    );
    for (
        ['198.51.100.7',          'c6336000'],
        ['::ffff:198.51.111.255', 'c6336000'],
        ['198.51.112.0',          'c6337000'],
        ['2001:db8:1:23ff::1',    '20010db80000' . '0' x 20],
        ['2001:db8:10::1',        '20010db80010' . '0' x 20],
    ) {
        my ($address, $hex) = @{$_};
        $node->{redis}->cmd('FLUSHALL');
        is $node->status('/', headers => ['X-Client', $address]), 200;
        my ($key) = $node->{redis}->keys_like;
        is unpack('H*', $key =~ s/^rl:test:\{(.*)\}$/$1/sr), $hex, $address;
    }
};

subtest 'many addresses of one network are limited together, in the decision on each' => sub {
    my $node = node(
        key      => '$ratelimit_net_24_48',
        zone     => 'rate=20r/d algorithm=fixed_window',
        http     => 'set_real_ip_from 127.0.0.1; real_ip_header X-Client;'
            . 'ratelimit_zone $binary_remote_addr zone=address rate=3r/d algorithm=fixed_window;',
        location => 'ratelimit zone=address;',
    );
    my $passed = sub {
        my ($network, $each) = @_;
        return scalar grep { $_ == 200 } map { $node->status('/', headers => ['X-Client', "$network.$_"]) } (1 .. 80) x $each;
    };
    is $passed->('198.51.100', 1), 20, '80 addresses of one network, each within its own limit';
    is $passed->('198.51.101', 1), 20, 'another network';
    my $single = sub { $node->status('/', headers => ['X-Client', '192.0.2.1']) };
    is_deeply [map { $single->() } 1 .. 4], [200, 200, 200, 429], 'one address has its own limit';
};

subtest 'ratelimit_retry_jitter spreads Retry-After upwards, and shows one value' => sub {
    my $node = node(
        zone     => 'rate=1r/d algorithm=fixed_window',
        http     => 'log_format retry "$ratelimit_retry_after"; ratelimit_retry_jitter 50%;',
        location => 'access_log retry.log retry;',
        server   => 'location /without/ { ratelimit zone=test; ratelimit_retry_jitter 0%; }',
    );
    is $node->status('/'), 200;
    my ($least) = map { $_->header('Retry-After') } $node->get('/without/');
    my @shown = map { $node->get('/')->header('Retry-After') } 1 .. 40;
    cmp_ok scalar(keys %{ { map { $_ => 1 } @shown } }), '>', 20, 'clients return at different times';
    is_deeply [grep { $_ < $least - 60 || $_ > $least * 1.5 + 1 } @shown], [], 'none early, none later than the share';
    my @logged;
    wait_until('the lines of the log', sub { (@logged = split /\n/, $node->file('retry.log')) == 41 });
    is_deeply [@logged[1 .. 40]], \@shown, 'the variable is the same';
};

subtest 'with clock=local the scripts do not call TIME' => sub {
    my $node = node(zone => 'rate=3r/d clock=local algorithm=gcra burst=2');
    is $node->status('/'), 200;
    my $connected = $node->{redis}->calls('time');  # a new connection calls it, too
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429];
    is $node->{redis}->calls('time'), $connected;
    my $other = node(zone => 'rate=3r/d algorithm=gcra burst=2', redis => $node->{redis});
    is $other->status('/?k=other'), 200;
    $connected = $node->{redis}->calls('time');
    is $other->status('/'), 429, 'the state is the same by either clock';
    is $node->{redis}->calls('time'), $connected + 1;
};

subtest 'a variable rate can differ by request, be empty, or be malformed' => sub {
    my $node = nginx_with_plans();
    is $node->get('/?k=a&rate=5r/d')->header('X-RateLimit-Limit'), 5;
    is $node->get('/?k=b&rate=7r/h')->header('X-RateLimit-Limit'), 7;
    is $node->get('/?k=c')->header('X-RateLimit-Limit'), undef, 'an empty rate is no limit';
    is $node->get('/?k=d&rate=lots')->status, 200, 'a malformed rate fails open';
    is $node->get('/closed/?k=d&rate=lots')->status, 503, 'or closed';
    is $node->status('/?k=d&rate=lots') , 200 for 1 .. 20;
    is $node->count_log(qr/invalid rate "lots" for zone "test"/), 1, 'one line in the log';
};

sub nginx_with_plans {
    my $redis = redis();
    my $node  = nginx(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone k$arg_k zone=test rate=$arg_rate algorithm=fixed_window;',
        server => 'location / { ratelimit zone=test; } location /closed/ { ratelimit zone=test;'
            . 'ratelimit_fail_mode closed; try_files /index.html =404; }',
    );
    $node->{redis} = $redis;
    return $node;
}

finish();

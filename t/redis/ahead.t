# ahead=n: requests that pass before Redis has counted them. At most n units of each worker pass beyond the
# limit, all that pass is counted, and no client is refused for what did not pass.

use IO::Select;
use JSON::PP qw(decode_json);
use Ratelimit::Test;

my $seen = 'add_header X-Source $ratelimit_source always; add_header X-Status $ratelimit_status always;'
    . 'location /rl/ { ratelimit_api write=on; }';

# A node with a limited location /. Redis is behind a proxy, whose replies may be late. times: timeout and
# connect_timeout of the block, and what else stands there.
sub ahead_node {
    my (%options) = @_;
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my %text  = map { $_ => $options{$_} // '' } qw(zone limit location server http);
    my $times = $options{times} // 'timeout 5s; connect_timeout 5s;';
    my $node  = nginx(
        %options,
        http => "keepalive_requests 100000; ratelimit_redis main { server @{[ $proxy->addr ]}; $times }"
            . "ratelimit_zone k\$arg_k zone=test $text{zone}; $text{http}",
        server => "$seen location / { ratelimit zone=test $text{limit}; $text{location} } $text{server}",
    );
    @{$node}{qw(redis proxy)} = ($redis, $proxy);
    # Other keys have used the scripts, so that Redis has them.
    $node->status('/?k=warm') for 1 .. 3;
    my $quota = $options{quota} // 1000;
    wait_until('the scripts are loaded', sub { left($node, 'warm') < $quota }) if $options{quota};
    return $node;
}

# What Redis has left for a key.
sub left {
    my ($node, $key, %more) = @_;
    my $rate = $more{rate} ? "&rate=$more{rate}" : '';
    my $answer = $node->get('/rl/zones/' . ($more{zone} // 'test') . "/keys?key=k$key$rate");
    return $answer->status == 200 ? decode_json($answer->body)->{remaining} : "status " . $answer->status;
}

sub is_left {
    my ($node, $key, $expected, $name, %more) = @_;
    my $got = '';
    ok eval { wait_until('the count', sub { ($got = left($node, $key, %more)) eq $expected }, 5); 1 }, $name
        or diag "left: $got, expected $expected";
    return;
}

# Sends requests one after another on one connection: their sources, or their statuses if they were refused.
sub sources {
    my ($node, $path, $times) = @_;
    my $socket = http_connect($node->port);
    my @sources;
    for (1 .. $times) {
        http_send($socket, $path);
        my $answer = http_read($socket);
        push @sources, $answer->status == 200 ? $answer->header('X-Source') : $answer->status;
    }
    return @sources;
}

# Redis stands still. That a request waits for it until it goes on, and is decided by it.
sub waits_for_redis {
    my ($node, $path, $name) = @_;
    my $socket = http_connect($node->port);
    http_send($socket, $path);
    $node->get('/rl/zones') for 1 .. 2;    # by then the worker has the request
    ok !IO::Select->new($socket)->can_read(0), $name;
    $node->{redis}->resume;
    is http_read($socket)->header('X-Source'), 'redis', 'it is decided there';
    return;
}

sub count { my ($what, @all) = @_; return scalar grep { $_ eq $what } @all }

my @algorithms = (
    ['fixed_window',           'rate=20r/d algorithm=fixed_window'],
    ['sliding_window_counter', 'rate=20r/d algorithm=sliding_window_counter'],
    ['sliding_window_log',     'rate=20r/d algorithm=sliding_window_log'],
    ['sliding_window_buckets', 'rate=20r/d algorithm=sliding_window_buckets'],
    ['token_bucket',           'rate=1r/d algorithm=token_bucket burst=20'],
    ['gcra',                   'rate=1r/d algorithm=gcra burst=19'],
    ['leaky_bucket',           'rate=1r/d algorithm=leaky_bucket burst=19', 'nodelay'],
);

for (@algorithms) {
    my ($algorithm, $zone, $limit) = @{$_};
    subtest "requests do not wait for a Redis that is far away, and all are counted: $algorithm" => sub {
        my $node = ahead_node(zone => "$zone ahead=5", limit => $limit, quota => 20);
        $node->{redis}->pause;
        is_deeply [sources($node, '/?k=1', 5)], [('ahead') x 5], 'five pass while there is no reply';
        waits_for_redis($node, '/?k=1', 'the next one waits for Redis');
        is_left($node, 1, 14, 'all six are counted');

        my @all = sources($node, '/?k=2', 30);
        is count('429', @all), 10, 'one after another, exactly the limit passes';
        cmp_ok count('ahead', @all), '>=', 10;
        is_left($node, 2, 0, 'and no more is counted');
    };
}

subtest 'headers show what this node last knew, less what it let in since' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10', quota => 100);
    is_left($node, 'warm', 97, 'before');
    $node->{proxy}->delay(1);
    my $socket = http_connect($node->port);
    for my $expected (99, 98, 97) {
        http_send($socket, '/?k=1');
        is http_read($socket)->header('X-RateLimit-Remaining'), $expected;
    }
    cmp_ok $node->get('/?k=1')->header('X-RateLimit-Reset'), '<=', 86_400;
};

subtest 'at most n units for each worker pass beyond the limit' => sub {
    my $node = ahead_node(zone => 'rate=50r/d algorithm=fixed_window ahead=10', quota => 50, workers => 2);
    $node->{proxy}->delay(0.2);
    my $passed = 0;
    for (1 .. 3) {
        $passed += grep { $_ == 200 } burst($node->port, '/?k=1', 100, 50);
    }
    cmp_ok $passed, '>=', 50, 'the whole limit passes';
    cmp_ok $passed, '<=', 70, "and at most 2 x 10 more: $passed";
    $node->{proxy}->pass;
    is_left($node, 1, 0, 'Redis knows it');
    is count('429', sources($node, '/?k=1', 5)), 5, 'nothing passes then';
};

subtest 'a key that is checked under several bursts: at most n units for each worker, as under one' => sub {
    my @bursts = reverse 12 .. 20;
    my $node = ahead_node(
        zone   => 'rate=20r/d algorithm=token_bucket ahead=5',
        quota  => 20,
        server => join '', map { "location /$_/ { ratelimit zone=test burst=$_; try_files /index.html =404; }" } @bursts,
    );
    my @known = map { sources($node, "/$_/?k=1", 1) } @bursts;
    is_deeply [grep { $_ eq 429 } @known], [], 'a key is known under every burst';
    my @rest = map { sources($node, "/$_/?k=1", 20) } @bursts;
    my @all  = map { sources($node, "/$_/?k=2", 30) } @bursts;
    cmp_ok @known + @rest - count('429', @rest), '<=', 25, 'the limit of 20, and at most 5 more';
    cmp_ok @all - count('429', @all), '<=', 25, 'also for a key that was known under one burst only';
};

subtest 'more keys than the memory of the node holds: no limit is lost' => sub {
    my $node = ahead_node(zone => 'rate=10r/d algorithm=token_bucket ahead=5', quota => 10);
    $node->configure(http => $node->{http} =~ s/zone=test /zone=test:32k /r)->reload(gone => 1);
    my $passed = 0;
    for my $round (1 .. 15) {
        my $socket = http_connect($node->port);
        for my $key (1 .. 300) {
            http_send($socket, "/?k=many$key");
            $passed++ if http_read($socket)->status == 200;
        }
    }
    my ($evicted) = $node->get('/rl/metrics')->body =~ /^ratelimit_zone_evictions_total\{zone="test"\} (\d+)/m;
    cmp_ok $evicted, '>', 1000, 'keys were evicted';
    cmp_ok $passed, '>=', 3000, 'each key gets its limit of 10';
    cmp_ok $passed, '<=', 3000 + 160, 'and hardly any gets more';
};

subtest 'costs count against n' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10', limit => 'cost=$arg_c', quota => 100);
    $node->{redis}->pause;
    is_deeply [sources($node, '/?k=1&c=6', 1)], ['ahead'];
    waits_for_redis($node, '/?k=1&c=5', 'what would be more than n waits');
    is_deeply [sources($node, '/?k=1&c=4', 1)], ['ahead'], 'behind the answer it does not';
    is_deeply [sources($node, '/?k=2&c=11', 1)], ['redis'], 'a cost above n always waits';
    is_deeply [sources($node, '/?k=3&c=0', 1)], ['ahead'], 'a cost of 0 does not';
    is_left($node, 1, 85, 'all is counted');
    is_left($node, 3, 100, 'but what costs nothing');
};

subtest 'several limits: a request passes ahead if all of them allow it, and is counted in all' => sub {
    my $node = ahead_node(
        zone  => 'rate=100r/d algorithm=fixed_window ahead=10', quota => 100,
        http  => 'ratelimit_zone k$arg_k zone=tight rate=6r/d algorithm=gcra burst=5 ahead=3;'
            . 'ratelimit_zone k$arg_k zone=exact rate=100r/d algorithm=fixed_window;',
        server => 'location /both { ratelimit zone=test; ratelimit zone=tight; try_files /index.html =404; }'
            . 'location /mixed { ratelimit zone=test; ratelimit zone=exact; try_files /index.html =404; }'
            . 'location /shadow { ratelimit zone=test; ratelimit zone=tight shadow; try_files /index.html =404; }',
    );
    my @all = sources($node, '/both?k=1', 9);
    is count('429', @all), 3, 'the tighter one decides, exactly';
    is $all[0], 'ahead';
    is_left($node, 1, 94, 'the request is counted in both');
    is_left($node, 1, 0, 'and those of both', zone => 'tight');
    is_deeply [sources($node, '/mixed?k=2', 3)], [('redis') x 3], 'a limit without ahead makes it wait';
    is_left($node, 2, 97, 'counted in the one');
    is_left($node, 2, 97, 'and in the other', zone => 'exact');
    is count('429', sources($node, '/shadow?k=3', 20)), 0, 'a shadow limit refuses nothing';
    is_left($node, 3, 80, 'counted');
    is_left($node, 3, 0, 'and in the shadow limit as far as it admits', zone => 'tight');
};

subtest 'a dry run' => sub {
    my $node = ahead_node(zone => 'rate=10r/d algorithm=fixed_window ahead=3', location => 'ratelimit_dry_run on;',
        quota => 10);
    my @all = sources($node, '/?k=1', 20);
    is count('429', @all), 0;
    is_left($node, 1, 0, 'only what would have passed is counted');
};

subtest 'variable rates, and keys that are hashed' => sub {
    my $node = ahead_node(zone => 'rate=$arg_r algorithm=fixed_window hash_key ahead=3',
        server => 'location /x { ratelimit zone=test; }');
    for my $rate (10, 7) {
        my @all = sources($node, "/?k=1$rate&r=${rate}r/d", 15);
        is count('429', @all), 15 - $rate, "$rate of $rate a day";
        is $all[0], 'ahead';
    }
    is_deeply [sources($node, '/?k=2&r=2r/d', 3)], ['redis', 'redis', 429], 'a limit below n is exact';
};

subtest 'overrides are in force for what passes ahead' => sub {
    my $redis = redis();
    my $node  = nginx(http => <<"END", server => "$seen location / { ratelimit zone=test; try_files /index.html =404; }");
        ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; }
        ratelimit_fleet;
        ratelimit_zone k\$arg_k zone=test rate=20r/d algorithm=fixed_window ahead=3;
END
    my $put = sub {
        my ($key, $body) = @_;
        my $answer = $node->get("/rl/zones/test/keys/k$key/override", method => 'PUT', body => $body);
        is $answer->status, 200, "override: $body";
        wait_until('it is in force', sub { $node->get("/rl/zones/test/keys?key=k$key")->body =~ /"override"/ });
    };
    is_deeply [sources($node, '/?k=1', 1)], ['ahead'];
    $put->(1, '{"block":true}');
    is_deeply [sources($node, '/?k=1', 2)], [429, 429], 'a block';
    $put->(2, '{"rate":"8r/d"}');
    my @all = sources($node, '/?k=2', 12);
    is count('429', @all), 4, 'a rate';
    is $all[0], 'ahead';
    $put->(3, '{"unlimited":true}');
    is count('429', sources($node, '/?k=3', 40)), 0, 'no limit';
};

for my $mode (['open', 'FAILED_OPEN'], ['closed', 'FAILED_CLOSED'], ['local', 'PASSED']) {
    my ($fail_mode, $status) = @{$mode};
    subtest "without Redis n units pass, and then fail mode $fail_mode decides" => sub {
        my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=4', quota => 100,
            times => 'timeout 200ms; connect_timeout 200ms;', location => "ratelimit_fail_mode $fail_mode;");
        $node->{redis}->stop;
        wait_until('it is noticed', sub { $node->count_log(qr/is away/) });
        my @answers = map { $node->get('/?k=1') } 1 .. 8;
        is_deeply [map { $_->header('X-Status') } @answers], [('PASSED') x 4, ($status) x 4];
        $node->{redis}->start;
        is_left($node, 1, 96, 'the four are counted when Redis is back');
    };
}

subtest 'a killed connection: its units are reported again, and the next request waits' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10', quota => 100);
    is_deeply [sources($node, '/?k=1', 1)], ['ahead'];
    is_left($node, 1, 99, 'counted');
    $node->{proxy}->lose(1, '{k1}');
    is_deeply [sources($node, '/?k=1', 1)], ['ahead'];
    wait_until('the reply is lost', sub { $node->{proxy}->lost });
    my @next = sources($node, '/?k=1', 1);
    like "@next", qr/^(?:redis|ahead)$/;
    wait_until('it is reported again', sub { left($node, 1) <= 97 });
    cmp_ok left($node, 1), '>=', 96, 'at worst it is counted twice';
};

subtest 'a Redis that stands still: nothing is counted twice' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=5', quota => 100,
        times => 'timeout 200ms; connect_timeout 1s; breaker failures=100 open=10s;',
        location => 'ratelimit_fail_mode closed;');
    is_left($node, 'warm', 97, 'before');
    $node->{redis}->pause;
    my @all = map { $node->get('/?k=1')->header('X-Status') } 1 .. 8;
    is_deeply \@all, [('PASSED') x 5, ('FAILED_CLOSED') x 3];
    $node->{redis}->resume;
    is_left($node, 1, 95, 'what passed is counted once, and what was refused is not');
    is_deeply [sources($node, '/?k=1', 1)], ['ahead'], 'the late answers are answers';
};

for my $end (['reload', sub { $_[0]->reload(gone => 1) }], ['TERM', sub { $_[0]->stop; $_[0]->start }]) {
    my ($name, $how) = @{$end};
    subtest "what passed is counted when the worker exits: $name" => sub {
        my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=20', quota => 100);
        $node->{proxy}->delay(0.3);
        is count('ahead', sources($node, '/?k=1', 15)), 15;
        $how->($node);
        $node->{proxy}->pass;
        is_left($node, 1, 85, 'all of it, once');
    };
}

subtest 'what is known survives a reload' => sub {
    my $node = ahead_node(zone => 'rate=10r/d algorithm=fixed_window ahead=3 cache=off', quota => 10);
    is count('429', sources($node, '/?k=1', 12)), 2;
    $node->reload(gone => 1);
    is_deeply [sources($node, '/?k=1', 2)], [429, 429], 'nothing passes ahead of a refusal';
};

for my $case (['another n', 'rate=10r/d ahead=3', 'rate=10r/d ahead=5', 10], ['a smaller rate', 'rate=10r/d ahead=3', 'rate=6r/d ahead=3', 6],
    ['a larger rate', 'rate=10r/d ahead=3', 'rate=14r/d ahead=3', 14], ['no n', 'rate=10r/d ahead=3', 'rate=10r/d', 10]) {
    my ($what, $before, $after, $limit) = @{$case};
    subtest "a reload with $what: what passed is counted, and the new limit holds" => sub {
        my $node = ahead_node(zone => "$before algorithm=fixed_window", quota => 10, server => '');
        $node->{proxy}->delay(0.2);
        is count('ahead', sources($node, '/?k=1', 3)), 3;
        my $conf = $node->{http};
        $node->configure(http => $conf =~ s/zone=test \Q$before\E/zone=test $after/r);
        $node->reload(gone => 1);
        $node->{proxy}->pass;
        is_left($node, 1, $limit - 3, 'what passed before the reload is counted');
        is_left($node, 'warm', $limit - 3, 'so is what was known');
        my @all = sources($node, '/?k=1', $limit + 5);
        is @all - count('429', @all), $limit - 3, 'one worker alone keeps to the limit' or diag "@all";
        is count('ahead', @all), 0, 'nothing passes ahead' if $after !~ /ahead/;
    };
}

subtest 'a worker that is killed may add n, once' => sub {
    my $node = ahead_node(zone => 'rate=30r/d algorithm=fixed_window ahead=5', quota => 30,
        expected => qr/exited on signal 9/);
    $node->{proxy}->delay(1);
    is count('ahead', sources($node, '/?k=1', 5)), 5;
    my ($worker) = $node->workers;
    kill KILL => $worker;
    wait_until('another worker', sub { grep { $_ != $worker } $node->workers });
    $node->{proxy}->pass;
    my @all = sources($node, '/?k=1', 40);
    cmp_ok 5 + @all - count('429', @all), '<=', 35;
    cmp_ok @all - count('429', @all), '>=', 25, 'no client is refused for the worker that died';
};

subtest 'what a request cost in the end is counted (charge=)' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10', limit => 'cost=5 charge=$arg_c',
        quota => 100);
    for my $case ([1, 0, 100], [2, 2, 98], [3, 5, 95], [4, 30, 70], [5, 400, 0]) {
        my ($key, $charge, $left) = @{$case};
        is_deeply [sources($node, "/?k=$key&c=$charge", 1)], ['ahead'];
        is_left($node, $key, $left, "a charge of $charge");
    }
    is_deeply [sources($node, '/?k=5&c=0', 1)], [429], 'a key in debt is refused';
    $node->{proxy}->delay(0.3);
    is_deeply [sources($node, '/?k=6&c=1', 2)], [qw(ahead ahead)], 'settled before they are counted';
    $node->{proxy}->pass;
    is_left($node, 6, 98, 'so is each of them');
};

subtest 'metrics and the API name what passed ahead' => sub {
    my $node = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10', quota => 100);
    sources($node, '/?k=1', 7);
    my $metrics = $node->get('/rl/metrics')->body;
    like $metrics, qr/^ratelimit_requests_total\{zone="test",result="passed",source="ahead"\} (?:[7-9]|10)$/m;
    my $zone = decode_json($node->get('/rl/zones/test')->body);
    is $zone->{ahead}, 10;
    cmp_ok $zone->{counters}{passed}{ahead}, '>=', 7;
    like $metrics, qr/^ratelimit_ahead_beyond_total\{zone="test"\} 0$/m;
    my $other = ahead_node(zone => 'rate=100r/d algorithm=fixed_window ahead=10');
    $other->stop;
    $other->configure(http => $other->{http} =~ s/server [\d.:]+;/server @{[ $node->{redis}->addr ]};/r);
    $other->start;
    is count('429', sources($other, '/?k=3', 100)), 0;
    is_left($other, 3, 0, 'another node has used the limit');
    is_deeply [sources($node, '/?k=3', 1)], ['ahead'];
    wait_until('it is counted as beyond the limit',
        sub { $node->get('/rl/metrics')->body =~ /^ratelimit_ahead_beyond_total\{zone="test"\} 1$/m });
    is_deeply [sources($node, '/?k=3', 1)], [429];
};

subtest 'a key that is deleted is forgotten' => sub {
    my $node = ahead_node(zone => 'rate=10r/d algorithm=fixed_window ahead=3', quota => 10);
    is count('429', sources($node, '/?k=1', 12)), 2;
    is $node->get('/rl/zones/test/keys?key=k1', method => 'DELETE')->status, 204;
    is_deeply [sources($node, '/?k=1', 1)], ['ahead'];
};

finish();

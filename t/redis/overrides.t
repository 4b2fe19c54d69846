# Overrides: limits changed at run time by the API of one node, in force on all nodes of the fleet.
# needs: gcc libc6-dev

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

my %rates = (gcra => 'rate=2r/d burst=1', leaky_bucket => 'rate=2r/d burst=1',
    map { $_ => 'rate=2r/d' } qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
        token_bucket));

sub passed {
    my ($node, $path, $times) = @_;
    return scalar grep { $_ == 200 } map { $node->status($path) } 1 .. $times;
}

subtest 'an override that one node sets is in force on another within two seconds' => sub {
    my $redis = redis();
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=2r/d', workers => 2) } 1 .. 2;
    is passed($_, '/?k=a', 3), $_ == $first ? 2 : 0, 'the zone\'s limit' for $first, $second;
    my $watch = stopwatch();
    my $set = override($first, 'kb', { rate => '5r/d' });
    is_deeply [@{$set}{qw(zone key rate until for_seconds_left)}], ['test', 'kb', '5r/d', undef, undef];
    like $set->{by}, qr/ 127\.0\.0\.1$/, 'the answer names the client';
    in_force($_, 'kb', 5) for $second, $first;
    $watch->within(2.5, 'in time');
    is passed($second, '/?k=b', 4) + passed($first, '/?k=b', 4), 5, 'both nodes count by it';
    is $second->get('/?k=b')->header('X-RateLimit-Limit'), 5, 'headers say so';
    is_deeply [map { $_->{key} } @{ overrides($second)->{overrides} }], ['kb'], 'it is listed on each node';
    is take_back($second, 'kb'), 204;
    in_force($first, 'kb', 2);
    is take_back($second, 'kb'), 404, 'there is none any more';
};

subtest 'an override ends at its time, also while Redis is away' => sub {
    my $redis = redis();
    my $clock = Chaos::Clock->new(passes => 1);
    my $node = member(redis => $redis, zone => 'rate=1000r/d', environment => $clock->environment);
    override($node, 'kb', { block => \1, for => '1h' });
    wait_until('it is in force', sub { $node->status('/?k=b') == 429 }, 2);
    $redis->stop('KILL');
    is $node->status('/?k=b'), 429, 'it stays in force';
    $clock->step(3500);
    is $node->status('/?k=b'), 429, 'until its time';
    $clock->step(100);
    wait_until('it has ended', sub { $node->status('/?k=b') == 200 }, 1);
};

for my $algorithm (sort keys %rates) {
    subtest "$algorithm: rate and burst, a block, no limit, the whole zone" => sub {
        my $limit = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my $node = member(zone => "$rates{$algorithm} algorithm=$algorithm", limit => $limit);
        is passed($node, '/?k=own', 4), 2, 'the zone\'s limit';
        my $burst = $algorithm =~ /gcra|leaky/;
        override($node, 'kmore', $burst ? { rate => '2r/d', burst => 4 } : { rate => '5r/d' });
        override($node, 'kdays', $burst ? { rate => '3r/2d', burst => 2 } : { rate => '3r/2d' });
        my $watch = stopwatch();
        override($node, 'kblock', { block => \1, for => '1h' });
        override($node, 'kfree', { unlimited => \1 });
        in_force($node, 'kmore', 5);
        in_force($node, 'kdays', 3);
        wait_until('no limit', sub { passed($node, '/?k=free', 3) == 3 });
        is passed($node, '/?k=more', 8), 5, 'more than the zone\'s limit';
        is passed($node, '/?k=days', 8), 3, 'another window';
        is passed($node, '/?k=free', 8), 8, 'no limit';
        my $refused = $node->get('/?k=block');
        is $refused->status, 429, 'a block';
        cmp_ok $refused->header('Retry-After'), '>', 3590 - $watch->elapsed;
        override($node, 'override', $burst ? { rate => '1r/d', burst => 0 } : { rate => '1r/d' });
        in_force($node, 'kelse', 1);
        is passed($node, '/?k=else', 3), 1, 'the whole zone is tighter';
        is passed($node, '/?k=free', 3), 3, 'but the key\'s own override goes first';
        is take_back($node, 'override'), 204;
        in_force($node, 'kthird', 2);
        is passed($node, '/?k=third', 3), 2, 'and is not any more';
    };
}

subtest 'overrides survive restarts of all nodes, and a node knows them before its first decision' => sub {
    my $redis = redis();
    {
        my $node = member(redis => $redis, zone => 'rate=100r/d');
        override($node, 'ka', { block => \1 });
        override($node, 'kb', { rate => '1r/d' });
        $node->stop('QUIT');
    }
    for my $round (1 .. 3) {
        my $node = member(redis => $redis, zone => 'rate=100r/d', workers => 2);
        is $node->status('/?k=a'), 429, 'the first decision of a new node';
        is $node->get('/?k=b')->header('X-RateLimit-Limit'), 1;
        is metric($node, 'ratelimit_overrides{zone="test"}'), 2;
        $node->stop('QUIT');
    }
};

subtest 'a node whose Redis does not answer starts, says so once as a notice, and loads later' => sub {
    my $redis = redis();
    override(member(redis => $redis, zone => 'rate=100r/d'), 'ka', { block => \1 });
    $redis->pause;
    my $watch = stopwatch();
    my $node = member(redis => $redis, zone => 'rate=100r/d redis=main', fleet => 'redis=quick',
        http => "ratelimit_redis quick { server @{[ $redis->addr ]}; }");
    $node->wait_for_log(qr/the overrides follow when redis "quick" answers/);
    wait_until('a worker', sub { scalar $node->workers });
    $watch->within(2.5, 'it starts');
    $redis->resume;
    wait_until('the override', sub { $node->status('/?k=a') == 429 });
    is $node->count_log(qr/\[notice\] .*the overrides follow/), 1, 'one line, which is not shown at the terminal';
    is $node->count_log(qr/the overrides follow/), 1, 'and no other';
};

subtest 'a reload keeps what is known, and waits for nothing' => sub {
    my $node = member(zone => 'rate=100r/d', workers => 2);
    override($node, 'ka', { block => \1 });
    wait_until('the override', sub { $node->status('/?k=a') == 429 });
    $node->{redis}->pause;
    $node->reload;
    is $node->status('/?k=a'), 429, 'the override is known';
    $node->{redis}->resume;
    override($node, 'kb', { rate => '3r/d' });
    in_force($node, 'kb', 3);
};

sub time_of { my ($seconds, $micros) = @{ $_[0]->cmd('TIME') }; return $seconds + $micros / 1e6 }

subtest 'an override ends at its time, on every node' => sub {
    my $clock = Chaos::Clock->new;
    my $redis = redis(environment => $clock->environment);
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    my $set = override($first, 'ka', { block => \1, for => '1h' });
    cmp_ok abs($set->{until} - $set->{at} - 3600), '<', 0.001;
    wait_until('the block', sub { $second->status('/?k=a') == 429 });
    cmp_ok $second->get('/?k=a')->header('Retry-After'), '<=', 3600;
    $clock->step(3597);
    wait_until('its end', sub { $second->status('/?k=a') == 200 });
    cmp_ok time_of($redis), '>=', $set->{until} - 0.01, 'not before its time';
    wait_until('it is removed in Redis', sub { $redis->cmd('ZCOUNT', 'rl:{fleet}:changes', 0, 'inf') == 0 });
    is $redis->cmd($_->[0], "rl:{fleet}:$_->[1]"), 1, "$_->[1] has its empty member" for ['HLEN', 'overrides'], ['ZCARD', 'ends'];
    wait_until('it is removed here', sub { metric($second, 'ratelimit_overrides{zone="test"}') == 0 });
};

subtest 'a refusal under an override ends with it' => sub {
    my $clock = Chaos::Clock->new;
    my $redis = redis(environment => $clock->environment);
    my $node = member(redis => $redis, zone => 'rate=1000000r/d algorithm=gcra', limit => 'burst=1000',
        location => 'ratelimit_headers x-ratelimit draft;');
    my $refused = sub {
        my ($key) = @_;
        my $answer;
        wait_until('a refusal', sub { $answer = $node->get("/?k=$key"); $answer->status == 429 });
        return $answer;
    };
    override($node, 'kb', { rate => '1r/d', burst => 0 });
    cmp_ok $refused->('b')->header('Retry-After'), '>', 86_000, 'one without an end';
    my $set = override($node, 'ka', { rate => '1r/d', burst => 0, for => '1h' });
    my $answer = $refused->('a');
    cmp_ok $answer->header($_), '<=', 3600, $_ for 'Retry-After', 'X-RateLimit-Reset';
    my ($until) = $answer->header('RateLimit') =~ /;t=(\d+)$/;
    cmp_ok $until, '<=', 3600, 'RateLimit';
    is $answer->header('RateLimit-Policy'), '"test";q=1;w=86400';
    $clock->step(3597);
    wait_until('its end', sub { $node->status('/?k=a') == 200 });
    cmp_ok time_of($redis), '>=', $set->{until} - 0.01, 'not before its time';
};

subtest 'what a key has counted does not end with an override that lifts its limit' => sub {
    my $node = member(zone => 'rate=1r/d algorithm=gcra');
    wait_until('a refusal', sub { $node->status('/?k=a') == 429 });
    override($node, 'ka', { unlimited => \1, for => '1h' });
    wait_until('no limit', sub { $node->status('/?k=a') == 200 });
    my $state = decode_json($node->get('/ops/zones/test/keys/ka')->body);
    is $state->{override}, 'unlimited';
    cmp_ok $state->{retry_after}, '>', 80_000, 'the API shows the count';
};

subtest 'a block is decided without Redis, and reported as one' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=100r/d', limit => '',
        location => 'ratelimit_problem_details on; ratelimit_headers draft x-ratelimit;'
            . 'add_header Source $ratelimit_source always; add_header Status $ratelimit_status always;');
    override($node, 'ka', { block => \1 });
    wait_until('the block', sub { $node->status('/?k=a') == 429 });
    $redis->cmd('DEL', 'rl:test:{ka}');    # requests that came before the block
    my $answer = $node->get('/?k=a');
    is $answer->status, 429;
    is $answer->header('Source'), 'override';
    is $answer->header('Status'), 'REJECTED';
    is $answer->header('Retry-After'), 86_400, 'a block without an end';
    is $answer->header('X-RateLimit-Remaining'), 0;
    like decode_json($answer->body)->{type}, qr/#abnormal-usage-detected$/;
    is $redis->cmd('EXISTS', 'rl:test:{ka}'), 0, 'nothing is counted in Redis';
    cmp_ok metric($node, 'ratelimit_requests_total{zone="test",result="rejected",source="override"}'), '>=', 2;
    is decode_json($node->get('/ops/zones/test/keys/ka')->body)->{override}, 'block';
    $node->{redis}->pause;
    is $node->status('/?k=a'), 429, 'also while Redis is away';
    $node->{redis}->resume;
    is take_back($node, 'ka'), 204;
    wait_until('no block', sub { $node->status('/?k=a') == 200 });
    cmp_ok $node->get('/?k=a')->header('X-RateLimit-Remaining'), '>', 95, 'no refusal was counted or remembered';
};

subtest 'shadow limits, dry runs, several limits' => sub {
    my $node = member(zone => 'rate=100r/d', http => 'ratelimit_zone all zone=all rate=50r/d;',
        location => 'ratelimit zone=all;', server => 'location /shadow { ratelimit zone=test shadow; '
            . 'ratelimit zone=all; try_files /index.html =404; } location /dry { ratelimit zone=test; '
            . 'ratelimit_dry_run on; add_header Status $ratelimit_status always; try_files /index.html =404; }');
    override($node, 'ka', { block => \1 });
    wait_until('the block', sub { $node->status('/?k=a') == 429 });
    my $left = sub { decode_json($node->get('/ops/zones/all/keys/all')->body)->{remaining} };
    my $before = $left->();
    is passed($node, '/?k=a', 5), 0;
    is $node->get('/?k=b')->status, 200;
    is $left->(), $before - 1, 'a blocked request is counted in no other limit';
    is passed($node, '/shadow?k=a', 3), 3, 'a shadow limit does not refuse';
    is $left->(), $before - 4;
    is $node->get('/dry?k=a')->header('Status'), 'REJECTED_DRY_RUN';
    cmp_ok metric($node, 'ratelimit_requests_total{zone="test",result="rejected_shadow",source="override"}'), '==', 3;
};

subtest 'concurrency, hash_key, binary keys, variable rates, zones without Redis' => sub {
    my $node = member(zone => 'rate=$arg_r', key => '$arg_k', http => 'ratelimit_zone $arg_k zone=atonce concurrency=5;'
            . 'ratelimit_zone $http_x_key zone=secret rate=9r/d hash_key;'
            . 'ratelimit_zone $binary_remote_addr zone=addr rate=9r/d;',
        server => join '', map { "location /$_ { ratelimit zone=$_; try_files /index.html =404; }" } qw(atonce secret addr));
    my $put = sub {
        my ($path, $body) = @_;
        return $node->get("/ops/zones/$path", method => 'PUT', body => $body)->status;
    };
    is $put->('atonce/keys/a/override', '{"concurrency":2}'), 200;
    is $put->('atonce/keys/a/override', '{"rate":"2r/s"}'), 400, 'no rate for requests at one time';
    is $put->('test/keys/a/override', '{"concurrency":2}'), 400, 'no concurrency for a rate';
    is $put->('secret/keys/plain/override', '{"rate":"3r/d"}'), 200;
    is $put->('addr/keys?key=127.0.0.1', '{"rate":"4r/d"}'), 405, 'a key itself cannot be put';
    is $put->('addr/keys/127.0.0.1/override', '{"rate":"4r/d"}'), 200;
    is $put->('addr/keys/override?key=%7F%00%00%01', '{"rate":"4r/d"}'), 400, 'no address';
    is $put->('test/override?key=a', '{"rate":"6r/d"}'), 200, 'key= is a key\'s override';
    my $limit = sub { $node->get($_[0], headers => ['X-Key' => 'plain'])->header('X-RateLimit-Limit') };
    wait_until('atonce', sub { $limit->('/atonce?k=a') == 2 });
    is $limit->('/atonce?k=b'), 5;
    wait_until('secret', sub { $limit->('/secret') == 3 });
    wait_until('addr', sub { $limit->('/addr') == 4 });
    wait_until('test', sub { ($limit->('/?k=a&r=100r/m') // 0) == 6 });
    is $limit->('/?k=a'), 6, 'an empty rate, too';
    is $limit->('/?k=a&r=broken'), 6, 'and a malformed one';
    is $limit->('/?k=b&r=100r/m'), 100, 'no other key';
    is scalar(grep { /plain/ } @{ $node->{redis}->cmd('HKEYS', 'rl:{fleet}:overrides') }), 0, 'a secret key is stored hashed';
    my ($listed) = @{ decode_json($node->get('/ops/zones/addr/overrides')->body)->{overrides} };
    is_deeply [@{$listed}{qw(key id)}], ['127.0.0.1', '%7F%00%00%01'], 'an address is listed as one';
    $node->wait_for_log(qr/override set, zone "addr", key "127\.0\.0\.1", by/);
    my $local = nginx(http => "ratelimit_redis main { server @{[ $node->{redis}->addr ]}; prefix other:; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_redis unused { server 127.0.0.1:1; } ratelimit_fleet redis=main;'
            . 'ratelimit_zone $arg_k zone=test rate=2r/d redis=unused;',
        server => 'location /ops/ { ratelimit_api write=on; } ratelimit_fail_mode local; location / { ratelimit zone=test; }');
    override($local, 'a', { rate => '4r/d' });
    wait_until('the limit', sub { $local->get('/?k=a')->header('X-RateLimit-Limit') == 4 });
    is $local->get('/?k=b')->header('X-RateLimit-Limit'), 2, 'fail mode local';
};

subtest 'leases and remembered refusals of the old limit do not count under the new one' => sub {
    # A lease of a fixed window lasts as long as the window, and a renewal may be answered after the request.
    my $node = member(zone => 'rate=3r/d lease=10 algorithm=fixed_window', workers => 2);
    my $pass_all = sub {
        my ($limit) = @_;
        my $passed = 0;
        wait_until("$limit pass", sub { ($passed += passed($node, '/?k=a', 1)) == $limit });
        is passed($node, '/?k=a', 6), 0, "no more than $limit pass";
    };
    $pass_all->(3);
    override($node, 'ka', { rate => '10r/d' });
    in_force($node, 'ka', 10);
    $pass_all->(10);    # what was counted before is not known to it
    is take_back($node, 'ka'), 204;
    in_force($node, 'ka', 2 + 1);
    is passed($node, '/?k=a', 3), 0;
};

subtest 'a key that one node frees is free on all' => sub {
    my $redis = redis();
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=1r/d', workers => 2) } 1 .. 2;
    is_deeply [map { $second->status('/?k=a') } 1 .. 3], [200, 429, 429];
    is $first->status('/ops/zones/test/keys/ka', method => 'DELETE'), 204;
    my $watch = stopwatch();
    wait_until('free', sub { $second->status('/?k=a') == 200 });
    $watch->within(2.5);
};

subtest 'freeing a key with the rate of an earlier override frees what that has left' => sub {
    for my $algorithm (qw(gcra fixed_window)) {
        my $node = member(zone => "rate=5r/d algorithm=$algorithm");
        my $rate = $algorithm eq 'gcra' ? { rate => '1r/d', burst => 0 } : { rate => '1r/2d' };
        my $spent = sub {
            override($node, 'ka', $rate);
            in_force($node, 'ka', 1);
            my $passed = passed($node, '/?k=a', 2);
            take_back($node, 'ka');
            wait_until('the zone\'s limit', sub { metric($node, 'ratelimit_overrides{zone="test"}') == 0 });
            return $passed;
        };
        is $spent->(), 1, $algorithm;
        is $node->status('/ops/zones/test/keys/ka', method => 'DELETE'), 200, 'nothing was counted by the zone\'s own limit';
        is $spent->(), 0, 'what another rate left is still there';
        my $arguments = "rate=$rate->{rate}" . (defined $rate->{burst} ? "&burst=$rate->{burst}" : '');
        is $node->status("/ops/zones/test/keys/ka?$arguments", method => 'DELETE'), 204;
        is $spent->(), 1, 'and is free with that rate and burst';
    }
};

finish();

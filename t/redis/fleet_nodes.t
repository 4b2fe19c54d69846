# ratelimit_fleet: nodes that come and go, workers that die, Redis that is away, and what the API refuses.

use Ratelimit::Fleet;
use Ratelimit::Http qw(http_connect http_read);
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(time);

sub nodes_are {
    my ($node, $count) = @_;
    return wait_until("$count nodes", sub { metric($node, 'ratelimit_fleet_nodes') == $count }, 20);
}

sub is_refused {
    my ($node, $path, %options) = @_;
    my ($status, $text, $name) = delete @options{qw(status text name)};
    my $answer = $node->get($path, method => 'PUT', body => '{"block":true}', %options);
    is $answer->status, $status, $name // $text;
    like $answer->body, $text, 'with a reason';
    return $answer;
}

subtest 'each bad parameter of ratelimit_fleet stops nginx -t with one line' => sub {
    my $redis = 'ratelimit_redis main { server 127.0.0.1:1; }';
    my $two   = "$redis ratelimit_redis more { server 127.0.0.1:2; }";
    for (
        ["$redis ratelimit_fleet name=x;", qr/"ratelimit_fleet": invalid "name=x", expected redis=, node= or size=/],
        ["$redis ratelimit_fleet node=a node=b;",  qr/invalid "node=b", expected .* at most once/],
        ["$redis ratelimit_fleet node=a/b;",       qr/invalid "node=a\/b", expected node=name/],
        ["$redis ratelimit_fleet node=;",          qr/invalid "node=", expected node=name/],
        ["$redis ratelimit_fleet size=1k;",        qr/invalid "size=1k", expected a size such as 8m/],
        ["$redis ratelimit_fleet size=much;",      qr/invalid "size=much"/],
        ["$redis ratelimit_fleet redis=none;",     qr/"ratelimit_fleet": invalid "redis=none", expected the name/],
        ["$two ratelimit_fleet;",                  qr/"ratelimit_fleet": several "ratelimit_redis" blocks/],
        ['ratelimit_fleet;',                       qr/"ratelimit_fleet": no "ratelimit_redis" block/],
        ["$redis ratelimit_fleet; ratelimit_fleet;", qr/"ratelimit_fleet" directive is duplicate/],
        ["$redis ratelimit_zone a zone=a rate=1r/s nodes=auto;", qr/invalid "nodes=auto", expected only with "ratelimit_fleet"/],
    ) {
        my ($http, $expected) = @{$_};
        my ($status, @lines) = conf_test(http => $http);
        is $status, 1, $http;
        is scalar(@lines), 1, 'one line' or diag "@lines";
        like "@lines", $expected;
    }
    for my $http ("$two ratelimit_fleet redis=more node=edge-1 size=1m;", "$redis ratelimit_fleet;") {
        is_deeply [conf_test(http => $http)], [0], $http;
    }
};

# A node that is gone counts for ten seconds: several tests wait for that together.
my @gone;    # [what, the nodes that are left, code that makes the number of nodes smaller by one]

subtest 'nodes know how many they are, also those of one name' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=9r/d', fleet => 'node=same') } 1 .. 3;
    nodes_are($_, 3) for @nodes;
    is metric($nodes[0], 'ratelimit_fleet_up'), 1;
    is $redis->cmd('HLEN', 'rl:{fleet}:nodes'), 3, 'each has a state';
    my %states = @{ $redis->cmd('HGETALL', 'rl:{fleet}:nodes') };
    is decode_json($_)->{name}, 'same' for values %states;
    $nodes[0]->reload(gone => 1);
    nodes_are($nodes[1], 3);
    is $redis->cmd('HLEN', 'rl:{fleet}:nodes'), 3, 'a node that is reloaded stays the same';
    push @gone, ['one of a name', [$nodes[1]], sub { $nodes[2]->stop('KILL') }];
};

subtest 'with nodes=auto each node allows its share while Redis is away' => sub {
    my $redis = redis();
    my @nodes = map {
        member(redis => $redis, zone => 'rate=12r/d nodes=auto algorithm=fixed_window',
            block => 'breaker failures=1 open=1h;', server => 'ratelimit_fail_mode local;')
    } 1 .. 3;
    nodes_are($_, 3) for @nodes;
    is decode_json($nodes[0]->get('/ops/zones/test')->body)->{nodes}, 3;
    $redis->stop('KILL');
    for my $node (@nodes) {
        wait_until('no connection', sub { $node->get('/peek?k=x')->status == 200
            && $node->count_log(qr/redis "main" at \S+ is away/) });
        my $passed = grep { $_ == 200 } map { $node->status('/?k=a') } 1 .. 12;
        is $passed, 4, 'a third';
    }
};

subtest 'a Redis that lost its data and dies again does not make the fleet smaller' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=12r/d nodes=auto', block => 'breaker failures=1 open=300ms;') } 1 .. 3;
    nodes_are($_, 3) for @nodes;
    for my $round (1 .. 3) {
        $redis->stop('KILL');
        $redis->start;
        wait_until('each node has called', sub { ($redis->cmd('ZCARD', 'rl:{fleet}:alive') // 0) >= 3 });
    }
    $redis->stop('KILL');
    is metric($_, 'ratelimit_fleet_nodes'), 3, 'as many as before' for @nodes;
    $redis->start;
    nodes_are($_, 3) for @nodes;
    push @gone, ['after a Redis that lost its data', [@nodes[0, 1]], sub { $nodes[2]->stop('QUIT') }];
};

subtest 'nor does one that is started again and again, and never lists them all' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=12r/d nodes=auto', block => 'breaker failures=1 open=300ms;') } 1 .. 3;
    nodes_are($_, 3) for @nodes;
    my $began = time;
    while (time - $began < 8) {
        $redis->stop('KILL');
        $redis->start;
        wait_until('a node has called', sub { ($redis->cmd('ZCARD', 'rl:{fleet}:alive') // 0) >= 1 });
        is metric($_, 'ratelimit_fleet_nodes'), 3, 'as many as before' for @nodes;
    }
    push @gone, ['after one that was started again and again', [@nodes[0, 1]], sub { $nodes[2]->stop('QUIT') }];
};

subtest 'a node that is gone no longer counts' => sub {
    $_->[2]->() for @gone;
    for (@gone) {
        my ($what, $left) = @{$_};
        nodes_are($_, 2) for @{$left};
        pass $what;
    }
};

subtest 'another worker takes over from one that is killed or hangs' => sub {
    my $redis = redis();
    my ($node, $other) = map { member(redis => $redis, zone => 'rate=100r/d', workers => 2,
        expected => qr/exited on signal 9/) } 1 .. 2;
    $node->wait_for_workers($node->pid);
    my $quota = 1;
    # One of the two workers is the one that talks to Redis.
    for my $victim ($node->workers) {
        kill KILL => $victim;
        my $watch = stopwatch();
        override($other, 'ka', { rate => ++$quota . 'r/d' });
        wait_until('another worker', sub { $node->workers == 2 && !grep { $_ == $victim } $node->workers });
        in_force($node, 'ka', $quota);
        $watch->within(4, 'in force in time after a kill');
    }
    my $id = sub { return $redis->cmd('ZRANGE', 'rl:{fleet}:alive', 0, -1, 'WITHSCORES') };
    for my $victim ($node->workers) {
        pause_processes($victim);
        my %before = @{ $id->() };
        wait_until('both nodes are heard', sub {
            my %now = @{ $id->() };
            return !grep { $now{$_} < $before{$_} + 2_500_000 } keys %before;
        });
        nodes_are($other, 2);
        override($other, 'ka', { rate => ++$quota . 'r/d' });
        kill CONT => $victim;
        in_force($node, 'ka', $quota);
    }
};

subtest 'while Redis is away overrides stay as last known; one that lost them has none' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    override($nodes[0], 'ka', { block => \1 });
    for my $node (@nodes) {
        wait_until('the block', sub { $node->status('/?k=a') == 429 });
    }
    $redis->stop('KILL');
    $_->wait_for_log(qr/fleet: redis "main" does not answer, overrides stay as last known/) for @nodes;
    wait_until('down', sub { metric($nodes[0], 'ratelimit_fleet_up') == 0 });
    is $_->status('/?k=a'), 429, 'still blocked' for @nodes;
    is $nodes[0]->get('/ops/zones/test/keys/kb/override', method => 'PUT', body => '{"block":true}')->status, 503;
    is $nodes[0]->get('/ops/zones/test/overrides')->status, 503;
    $redis->start;
    for my $node (@nodes) {
        wait_until('no block', sub { $node->status('/?k=a') == 200 });
        is $node->count_log(qr/does not answer, overrides stay/), 1, 'one line';
        $node->wait_for_log(qr/fleet: redis "main" answers/, 1);
    }
    override($nodes[1], 'kb', { rate => '3r/d' });
    in_force($_, 'kb', 3) for @nodes;
    $redis->cmd('FLUSHALL');
    in_force($_, 'kb', 100) for @nodes;
};

subtest 'the API refuses what is wrong, with a reason' => sub {
    my $node = member(zone => 'rate=9r/d');
    my $key = '/ops/zones/test/keys/ka/override';
    is_refused($node, '/seen/zones/test/keys/ka/override', status => 405, text => qr/method not allowed/);
    is_refused($node, '/ops/zones/none/keys/ka/override', status => 404, text => qr/no such zone/);
    is_refused($node, $key, status => 400, body => $_->[0], text => $_->[1]) for
        ['{"block":true', qr/expected a JSON object/], ['', qr/expected a JSON object/],
        ['{"later":1}', qr/unknown member/], ['{"rate":"fast"}', qr/invalid \\"rate\\"/],
        ['{"rate":"1r/s","burst":1}', qr/invalid \\"burst\\", which only/],
        ['{"concurrency":2}', qr/expected \\"rate\\" instead/];
    is_refused($node, $key, status => 413, body => ' ' x 5000, text => qr/larger than 4096/);
    is_refused($node, $key, status => 413, body => ' ' x 1_000_000, text => qr/larger than 4096/);
    my $socket = http_connect($node->port);
    print {$socket} "PUT $key HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        map({ sprintf "%x\r\n%s\r\n", 1000, ' ' x 1000 } 1 .. 30), "0\r\n\r\n";
    is http_read($socket)->status, 413, 'a chunked body, too';
    print {$socket} "PUT $key HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        "e\r\n{\"block\":true}\r\n0\r\n\r\n";
    is http_read($socket)->status, 200, 'a small one is taken';
    is take_back($node, 'ka'), 204;
    $socket = http_connect($node->port);
    print {$socket} "PUT $key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"blo";
    is $node->status('/?k=slow'), 200, 'the worker serves while it waits for a body';
    print {$socket} 'ck":true}';
    is http_read($socket)->status, 200, 'a body in two parts';
    is take_back($node, 'ka'), 204;
    my $leaves = http_connect($node->port);
    print {$leaves} "PUT $key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"blo";
    close $leaves;
    for my $foreign (['Origin', 'http://evil.example'], ['Origin', 'null'], ['Sec-Fetch-Site', 'cross-site'],
        ['Sec-Fetch-Site', 'same-site']) {
        is_refused($node, $key, status => 403, headers => $foreign, text => qr/another origin/);
        is $node->status('/ops/zones/test/keys/ka', method => 'DELETE', headers => $foreign), 403;
    }
    is_refused($node, $key, status => 200, headers => $_, text => qr/block/) for
        ['Origin', 'http://localhost'], ['Sec-Fetch-Site', 'same-origin'], ['Sec-Fetch-Site', 'none'];
    is $node->get($key, method => 'POST')->header('Allow'), 'GET, HEAD, PUT, DELETE';
    is $node->get($key, method => 'POST')->status, 405;
    is $node->status("/ops/zones/test/overrides?$_"), 400, $_ for 'limit=0', 'limit=x', 'after=-1', 'limit=1001';
    my $plain = node(zone => 'rate=9r/d', server => 'location /ops/ { ratelimit_api write=on; }');
    is_refused($plain, $key, status => 404, text => qr/need the directive ratelimit_fleet/);
    is $plain->status('/ops/zones/test/overrides'), 404;
    is_deeply [fleet_keys($plain->{redis})], [], 'without the directive there are no keys of a fleet';
};

subtest 'overrides are listed in pages, with who set them and when' => sub {
    my $node = member(zone => 'rate=9r/d', fleet => 'node=edge');
    override($node, "k$_", { rate => "${_}r/d", for => '1h' }) for 1 .. 5;
    override($node, 'override', { rate => '7r/d' });
    wait_until('all', sub { overrides($node)->{count} == 6 });
    my $first = overrides($node, '?limit=4');
    is_deeply [map { $_->{key} } @{ $first->{overrides} }], [qw(k1 k2 k3 k4)];
    my $second = overrides($node, "?limit=4&after=$first->{next}");
    is_deeply [map { $_->{key} } @{ $second->{overrides} }], ['k5', undef], 'the whole zone has no key';
    is $second->{next}, undef;
    my $one = $first->{overrides}[0];
    is $one->{by}, 'edge 127.0.0.1';
    is $one->{rate}, '1r/d';
    cmp_ok abs($one->{at} - time), '<', 60;
    cmp_ok $one->{for_seconds_left}, '>', 3590;
};

subtest 'the overrides of all zones are listed, the newest first, and searched' => sub {
    my $node = member(zone => 'rate=3r/d', http => 'ratelimit_zone $remote_addr zone=addr rate=9r/d;'
            . 'ratelimit_zone $arg_k zone=smooth rate=9r/d algorithm=gcra; ratelimit_zone $arg_k zone=few concurrency=9;');
    override($node, "k$_", { rate => "${_}r/d", reason => "Ticket $_" }) for 1 .. 4;
    is $node->get('/ops/zones/addr/keys/2001:db8::7/override', method => 'PUT', body => '{"block":true}')->status, 200;
    override($node, 'override', { unlimited => \1 });
    my $list = sub {
        my $answer = $node->get("/ops/overrides$_[0]");
        is $answer->status, 200, $_[0];
        return decode_json($answer->body);
    };
    my $names = sub { [map { "$_->{zone} " . ($_->{key} // 'all') } @{ $_[0]{overrides} }] };
    my $first = $list->('?limit=4');
    is_deeply $names->($first), ['test all', 'addr 2001:db8::7', 'test k4', 'test k3'];
    my $second = $list->("?limit=4&after=$first->{next}");
    is_deeply $names->($second), ['test k2', 'test k1'];
    is $second->{next}, undef;
    is_deeply $names->($list->('?search=ticket%202')), ['test k2'];
    is_deeply $names->($list->('?search=DB8')), ['addr 2001:db8::7'];
    is_deeply $names->($list->('?search=none')), [];
    is_deeply $names->($list->('?search=Blocked')), ['addr 2001:db8::7'];
    is_deeply $names->($list->("?search=$_")), ['test all'], $_ for 'no%20limit', 'unlimited';
    is_deeply $names->($list->('?search=addr')), ['addr 2001:db8::7'], 'a zone';
    is_deeply $names->($list->('?search=4r/d')), ['test k4'], 'a rate';
    is @{ $list->('?search=127.0.0.1')->{overrides} }, 6, 'an author';
    for (['smooth', '{"rate":"5r/d","burst":17}', '5r/d,%20burst%2017'], ['few', '{"concurrency":4}', '4%20at%20one%20time']) {
        my ($zone, $body, $words) = @$_;
        is $node->get("/ops/zones/$zone/keys/x/override", method => 'PUT', body => $body)->status, 200;
        is_deeply $names->($list->("?search=$words")), ["$zone x"], $words;
    }
    is $node->status("/ops/overrides?$_"), 400, $_ for 'limit=0', 'after=x', 'search=%';
    wait_until('the state in force', sub { decode_json($node->get('/ops/zones/test')->body)->{override} });
    my $zone = decode_json($node->get('/ops/zones/test')->body);
    is_deeply $zone->{override}, { unlimited => JSON::PP::true, until => undef, for_seconds_left => undef };
    is $zone->{overrides}, 5;
    my ($shown) = grep { $_->{name} eq 'test' } @{ decode_json($node->get('/ops/fleet')->body)->{zones} };
    is_deeply $shown->{override}, $zone->{override}, 'the same in the fleet';
    override($node, 'override', { rate => '90r/15m', for => '1h' });
    wait_until('a rate', sub { (decode_json($node->get('/ops/zones/test')->body)->{override}{rate} // '') eq '90r/15m' });
    my $changed = decode_json($node->get('/ops/zones/test')->body)->{override};
    cmp_ok abs($changed->{until} - time - 3600), '<', 5;
    cmp_ok $changed->{for_seconds_left}, '>', 3590;
    take_back($node, 'override');
    wait_until('as configured', sub { !decode_json($node->get('/ops/zones/test')->body)->{override} });
};

subtest 'memory that is full refuses more overrides, and says so' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=9r/d', fleet => 'size=256k');
    my $large = member(redis => $redis, zone => 'rate=9r/d');
    my $set = 0;
    my $status = 200;
    while ($status == 200 && $set < 4000) {
        $status = $large->status('/ops/zones/test/keys/' . 'x' x 100 . ++$set . '/override', method => 'PUT',
            body => '{"block":true}');
        last if $set % 200 == 0 && metric($node, 'ratelimit_overrides_left_out') > 0;
    }
    $node->wait_for_log(qr/overrides have no room, expected a larger size=/);
    is_refused($node, '/ops/zones/test/keys/' . 'x' x 100 . 'more/override', status => 409, text => qr/larger size=/)
        if metric($node, 'ratelimit_overrides_left_out') > 1;
    is $large->status("/?k=$_"), 200, 'the other node goes on' for 1 .. 2;
    is $node->count_log(qr/have no room/), 1, 'one line';
};

subtest 'a Redis that forbids the commands of a fleet is reported, and harms no decision' => sub {
    my $redis = redis();
    $redis->cmd(qw(ACL SETUSER limits on >secret ~rl:test:* ~rl:time +evalsha +@string +pexpire +time +ping +client +hello
        +auth +eval +select +info +role +expire));
    my $node = member(redis => $redis, zone => 'rate=2r/d', block => 'username limits; password secret;');
    $node->wait_for_log(qr/redis "main" at \S+ answered: NOPERM/);
    is_deeply [map { $node->status('/?k=a') } 1 .. 3], [200, 200, 429], 'limits are decided';
    is $node->get('/ops/zones/test/keys/ka/override', method => 'PUT', body => '{"block":true}')->status, 503;
    is metric($node, 'ratelimit_fleet_up'), 0;
};

finish();

# A fleet whose Redis is full, refuses to write, stalls or is not reached by one worker, or has much to remove: what the
# API answered as done is in force on every node in time.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(sleep time);

sub fleet_of {
    my ($node) = @_;
    return decode_json($node->get('/ops/fleet')->body)->{fleet};
}

# Waits until the node's limit of the key is a block, or none; returns the seconds on the stopwatch.
sub blocked_after {
    my ($node, $key, $status, $watch) = @_;
    wait_until("$key: $status", sub { $node->status("/?k=$key") == $status });
    return $watch->net;
}

# Waits until the node has just called Redis.
sub just_called {
    my ($redis, $node) = @_;
    my $id = (grep { $_->{self} } @{ decode_json($node->get('/ops/fleet')->body)->{nodes} })[0]{id};
    my $before = $redis->cmd('ZSCORE', 'rl:{fleet}:alive', $id);
    return wait_until('a call', sub { $redis->cmd('ZSCORE', 'rl:{fleet}:alive', $id) != $before });
}

subtest 'while Redis is full, changes are made and in force, and nodes see each other' => sub {
    my $redis = redis(conf => "maxmemory-policy noeviction\n");
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d', server => 'ratelimit_fail_mode open;') } 1 .. 2;
    override($nodes[0], 'kold', { block => \1 });
    blocked_after($_, 'old', 429, stopwatch()) for @nodes;
    $redis->cmd('CONFIG', 'SET', 'maxmemory', 1);
    my $watch = stopwatch();
    is take_back($nodes[0], 'kold'), 204;
    override($nodes[0], 'knew',  { block => \1 });
    override($nodes[0], 'khour', { block => \1, for => '1h' });
    for my $node (@nodes) {
        cmp_ok blocked_after($node, 'old', 200, $watch), '<', 2.5, 'taken back';
        cmp_ok blocked_after($node, $_, 429, $watch), '<', 2.5, $_ for qw(new hour);
    }
    my $end = time + 6;
    wait_until('longer than a node counts without a report', sub { time > $end });
    for my $node (@nodes) {
        my $fleet = fleet_of($node);
        is_deeply [@{$fleet}{qw(nodes connected)}], [2, JSON::PP::true];
        is metric($node, 'ratelimit_fleet_up'), 1;
    }
};

subtest 'while Redis refuses to write, no change is answered as done, and overrides are read' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    wait_until('up', sub { metric($_, 'ratelimit_fleet_up') == 1 }) for @nodes;
    $redis->cmd('CONFIG', 'SET', 'min-replicas-to-write', 1);
    is $nodes[0]->get('/ops/zones/test/keys/ka/override', method => 'PUT', body => '{"block":true}')->status, 503;
    wait_until('not up', sub { metric($nodes[0], 'ratelimit_fleet_up') == 0 });
    is fleet_of($nodes[0])->{connected}, JSON::PP::false, 'and says so';
    is $nodes[0]->count_log(qr/overrides stay as last known/), 0, 'but reads';
    $redis->cmd('CONFIG', 'SET', 'min-replicas-to-write', 0);
    wait_until('up', sub { metric($_, 'ratelimit_fleet_up') == 1 }) for @nodes;

    for my $key (qw(alive nodes ends)) {
        $redis->cmd('DEL', "rl:{fleet}:$key");
        $redis->cmd('SET', "rl:{fleet}:$key", 'text');
        my $answer = $nodes[0]->get("/ops/zones/test/keys/k$key/override", method => 'PUT', body => '{"block":true}')->status;
        is $answer, $key eq 'ends' ? 503 : 200, $key;
        blocked_after($_, $key, $answer == 200 ? 429 : 200, stopwatch()) for @nodes;
        $redis->cmd('DEL', "rl:{fleet}:$key");
    }
};

subtest 'one failed call costs no change its two seconds' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $block = 'timeout 100ms; connect_timeout 1s; breaker open=1s;';
    my $http = sub {
        my ($addr, $times) = @_;
        return "ratelimit_redis main { server $addr; @{[ $times // $block ]} } ratelimit_fleet; ratelimit_zone k\$arg_k zone=test rate=100r/d"
            . ' cache=off;';
    };
    my $server = 'location /ops/ { ratelimit_api write=on; } location / { ratelimit zone=test; try_files /index.html =404; }';
    my $setter = nginx(http => $http->($redis->addr, 'timeout 5s; connect_timeout 5s;'), server => $server);
    my $node = nginx(http => $http->($proxy->addr), server => $server, workers => 2);
    my $alone = nginx(http => $http->($redis->addr), server => $server);
    wait_until('up', sub { metric($_, 'ratelimit_fleet_up') == 1 }) for $setter, $node, $alone;
    my (%late, %longest);
    for my $round (1 .. 5) {
        my %fault = (
            'the link of the worker that calls goes dead' => [$node, sub { $proxy->deafen('{fleet}:alive') }],
            'Redis stalls for a quarter of a second'      => [$alone, sub {
                my $at = time + 0.9;
                wait_until('the next call', sub { time > $at });
                $redis->pause;
                sleep 0.35;
                $redis->resume;
            }],
        );
        for my $name (sort keys %fault) {
            my ($of, $fault) = @{ $fault{$name} };
            just_called($redis, $of);
            my $watch = stopwatch();
            override($setter, "k$round", { block => \1 });
            $fault->();
            my $took = blocked_after($of, $round, 429, $watch);
            $longest{$name} = $took if $took > ($longest{$name} // 0);
            $late{$name} += $took > 1.85;
            is take_back($setter, "k$round"), 204;
            blocked_after($of, $round, 200, stopwatch());
        }
    }
    cmp_ok $late{$_}, '<=', 1, sprintf '%s: %.2f seconds at most', $_, $longest{$_} for sort keys %late;
};

subtest 'overrides that end together are gone in time, in Redis and on the nodes' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    my ($ends, $lasts, $known) = (0, 4);
    until ($known) {    # longer, if the machine is too slow for that
        $ends = int((time + $lasts) * 1000);
        $redis->cmd('EVAL', <<'END', 4, map({ "rl:{fleet}:$_" } qw(changes overrides ends state)), $ends);
        local now = redis.call('TIME')
        local version = now[1] * 1000000 + now[2]
        local sum = tonumber(redis.call('HGET', KEYS[4], 'sum'))
        for i = 1, 5000 do
            local id = 'ktest\0k' .. i
            version = version + 1
            sum = (sum + version) % 2 ^ 52
            redis.call('ZADD', KEYS[1], string.format('%.0f', version), id)
            redis.call('HSET', KEYS[2], id, '{"block":true,"at":1,"until":' .. ARGV[1] .. '}')
            redis.call('ZADD', KEYS[3], ARGV[1], id)
        end
        redis.call('HSET', KEYS[4], 'version', string.format('%.0f', version), 'sum', string.format('%.0f', sum))
END
        my $all = sub { 2 == grep { metric($_, 'ratelimit_overrides{zone="test"}') == 5000 } @nodes };
        wait_until('all are known', sub { $all->() || time * 1000 > $ends }, 2 * $lasts);
        $known = $all->() && $nodes[1]->status('/?k=5000') == 429 || ($lasts *= 2) > 64;
    }
    cmp_ok $lasts, '<=', 64, 'all are known';
    wait_until('their end', sub { time * 1000 > $ends });
    my $watch = stopwatch();
    wait_until('they are gone', sub { metric($_, 'ratelimit_overrides{zone="test"}') == 0 }) for @nodes;
    ok wait_until('it', sub { $redis->cmd('ZCARD', 'rl:{fleet}:ends') == 1 }), 'in Redis, too';
    $watch->within(4, 'in time');
};

finish();

# A fleet whose Redis has values that no node wrote, that is another one after a reload, that does not answer a
# change; and overrides without room.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(time);

my $blocked = '{"block":true';

# Waits until the node's worker has called Redis $times times.
sub wait_for_calls {
    my ($redis, $times) = @_;
    my $before = $redis->calls('evalsha');
    return wait_until("$times calls", sub { $redis->calls('evalsha') >= $before + $times });
}

# Runs Lua in Redis for i = 1 to $count.
sub repeat {
    my ($redis, $count, $lua, @keys) = @_;
    return $redis->cmd('EVAL', "for i = 1, $count do $lua end", scalar @keys, @keys);
}

# A fleet in one Redis, with a patient master process; counts in another.
sub two_redis {
    my ($fleet, $counts, $times) = @_;
    $times //= 'connect_timeout 5s; timeout 5s;';
    return 'ratelimit_redis main { server ' . $fleet->addr . "; $times } ratelimit_fleet redis=main;"
        . 'ratelimit_redis counts { server ' . $counts->addr . '; } ratelimit_zone k$arg_k zone=test rate=99r/d redis=counts;';
}
my $locations = 'location / { ratelimit zone=test; } location = /slow { limit_rate 1; try_files /index.html =404; }';

subtest 'hostile and broken values in the fleet\'s keys harm no node' => sub {
    my $redis = redis();
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    override($first, 'kbefore', { rate => '7r/d' });
    in_force($second, 'kbefore', 7);
    my %lua = (
        'fractions'       => q{redis.call('ZADD', KEYS[1], string.format('%.17g', 5000 + i / 10000), 'ktest\0kx' .. i)},
        'halves'          => q{redis.call('ZADD', KEYS[1], redis.call('TIME')[1] - 5 .. '000000.5', 'ktest\0ky' .. i)},
        'negative'        => q{redis.call('ZADD', KEYS[1], -i / 2, 'ktest\0kn' .. i)},
        'no end'          => q{redis.call('ZADD', KEYS[1], 'inf', 'ktest\0ki' .. i)},
        'ahead'           => q{redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + 600 .. '000000', 'ktest\0ka' .. i)},
        'of no meaning'   => q{redis.call('ZADD', KEYS[1], i, string.char(i % 256) .. i)},
        'of later zones'  => q{redis.call('ZADD', KEYS[1], 1e9 + i, 'kzone' .. i .. '\0k')},
    );
    for my $name (sort keys %lua) {
        repeat($redis, 1500, $lua{$name}, "rl:{fleet}:$_") for qw(changes events);
    }
    $redis->cmd('HSET', 'rl:{fleet}:state', 'sum', '1.5');
    my $quota = 10;
    for my $node ($first, $second) {
        my $other = $node == $first ? $second : $first;
        override($node, 'kafter', { rate => ++$quota . 'r/d' });
        my $watch = stopwatch();
        in_force($other, 'kafter', $quota);
        $watch->within(2.5, 'in force in time');
        is $other->status('/?k=z'), 200;
    }
    is take_back($first, 'kafter'), 204;
    in_force($_, 'kafter', 100) for $first, $second;
    in_force($_, 'kbefore', 7) for $first, $second;
    my $before = $redis->calls('evalsha');
    my $began = time;
    wait_until('three seconds', sub { time - $began > 3 });
    my $calls = $redis->calls('evalsha') - $before;
    cmp_ok $calls, '<=', 2 * (time - $began + 2), 'a call a second from each node';
    for my $node ($first, $second) {
        is $node->count_log(qr/malformed|is away/), 0, 'no connection was lost';
        is metric($node, 'ratelimit_fleet_up'), 1;
    }
};

subtest 'a key of the fleet with a wrong type is reported, harms no decision, and can be deleted' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=2r/d');
    override($node, 'ka', { block => \1 });
    wait_until('the block', sub { $node->status('/?k=a') == 429 });
    my $began = time;
    for my $key (qw(alive changes)) {
        $redis->cmd('RENAME', "rl:{fleet}:$key", 'saved');
        $redis->cmd('SET', "rl:{fleet}:$key", 'text');
        $node->wait_for_log(qr/redis "main" at \S+ answered: WRONGTYPE/);
        wait_until('not up', sub { metric($node, 'ratelimit_fleet_up') == 0 });
        is $node->status('/?k=a'), 429, 'overrides stay as last known';
        is_deeply [map { $node->status("/?k=$key") } 1 .. 3], [200, 200, 429], 'limits are decided';
        is $node->get('/ops/zones/test/keys/kb/override', method => 'PUT', body => '{"block":true}')->status,
            $key eq 'changes' ? 503 : 200, 'a change';
        $redis->cmd('DEL', "rl:{fleet}:$key");
        $redis->cmd('RENAME', 'saved', "rl:{fleet}:$key");
        wait_until('up', sub { metric($node, 'ratelimit_fleet_up') == 1 });
        override($node, 'kb', { rate => '5r/d' });
        in_force($node, 'kb', 5);
        is $node->status('/?k=a'), 429;
    }
    cmp_ok $node->count_log(qr/WRONGTYPE/), '<=', 2 + (time - $began) / 10, 'not one line a second';
};

subtest 'after a reload to another Redis, workers of the earlier one change nothing' => sub {
    my ($first, $second) = map { redis() } 1 .. 2;
    change($first,  'set', "ktest\0ka", $blocked);
    change($second, 'set', "ktest\0kb", $blocked);
    my $node = nginx(http => two_redis($first, $first), server => $locations);
    is $node->status('/?k=a'), 429, 'the first Redis';
    my @old = $node->workers;
    my $slow = http_connect($node->port);
    print {$slow} "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";

    # While the master process waits for the second Redis, the worker that serves has its second to call.
    $second->pause;
    $node->configure(http => two_redis($second, $first));
    kill HUP => $node->pid;
    my $began = time;
    wait_until('more than a second', sub { time - $began > 1.3 });
    is_deeply [$node->workers], \@old, 'the earlier worker still serves';
    $second->resume;
    wait_until('the new worker alone', sub { my @now = $node->workers; @now == 1 && $now[0] != $old[0] });
    is_deeply [map { $node->status("/?k=$_") } qw(a b)], [200, 429], 'the first decisions know the second Redis';
    is_deeply [$node->workers(1)], \@old, 'the earlier worker still lives';
    change($first, 'set', "ktest\0kc", $blocked);
    change($second, 'set', "ktest\0kd", $blocked);
    wait_until('a change', sub { $node->status('/?k=d') == 429 });
    wait_for_calls($second, 2);
    is_deeply [map { $node->status("/?k=$_") } qw(a b c)], [200, 429, 200], 'and stay so';

    $second->pause;
    $node->configure(http => two_redis($first, $first));
    $node->reload;
    is_deeply [map { $node->status("/?k=$_") } qw(a b c d)], [429, 200, 429, 200], 'back at the first one';
    $second->resume;
};

subtest 'a reload to a Redis that is away keeps what is known until that Redis answers' => sub {
    my ($first, $second) = map { redis() } 1 .. 2;
    change($first, 'set', "ktest\0ka", $blocked);
    my $short = 'connect_timeout 1s; timeout 1s;';
    my $node = nginx(http => two_redis($first, $first), workers => 2, server => $locations);
    is $node->status('/?k=a'), 429;
    $second->pause;
    $node->configure(http => two_redis($second, $first, $short));
    my $unread = $second->unread;
    kill HUP => $node->pid;
    my $watch = stopwatch();
    wait_until('the master process waits', sub { $second->unread > $unread });
    change($first, 'set', "ktest\0kb", $blocked);
    $node->wait_for_log(qr/the overrides follow when redis "main" answers/);
    $watch->within(4, 'the master process waits for two seconds');
    wait_until('new workers', sub { $node->count_log(qr/gracefully shutting down/) >= 2 && $node->workers == 2 });
    is_deeply [map { $node->status("/?k=$_") } qw(a b)], [429, 200], 'as last known at the reload';
    $second->resume;
    wait_until('the second Redis', sub { $node->status('/?k=a') == 200 });
};

subtest 'a reload with another size= keeps what is known, also while Redis is away' => sub {
    my $redis = redis(conf => "appendonly yes\nappendfsync always\n");
    my $node = member(redis => $redis, zone => 'rate=99r/d', fleet => 'size=1m', workers => 2);
    override($node, 'ka', { block => \1 });
    override($node, 'k' . 'b' x 100, { rate => '7r/d' });
    override($node, 'override', { rate => '50r/d', for => '1h' });
    in_force($node, 'k' . 'b' x 100, 7);
    in_force($node, 'kx', 50);
    my $of = sub { decode_json($node->get('/ops/fleet')->body) };
    wait_until('a report', sub { $of->()->{fleet}{connected} });
    my $id = $of->()->{nodes}[0]{id};
    $redis->stop('KILL');
    for my $size (qw(2m 512k)) {
        my @old = $node->workers;
        $node->configure(http => $node->{http} =~ s/size=\w+/size=$size/r);
        kill HUP => $node->pid;
        wait_until('new workers', sub { my %old = map { $_ => 1 } @old; my @now = $node->workers;
            @now == 2 && !grep { $old{$_} } @now }, 20);
        is $node->count_log(qr/the overrides follow/), 0, 'nothing is waited for';
        is $node->status('/?k=a'), 429, "size=$size: the block";
        is metric($node, 'ratelimit_overrides{zone="test"}'), 3;
    }
    $redis->start;
    wait_until('up', sub { metric($node, 'ratelimit_fleet_up') == 1 });
    in_force($node, 'k' . 'b' x 100, 7);
    in_force($node, 'kx', 50);
    is $node->status('/?k=a'), 429;
    is_deeply [map { $_->{id} } @{ $of->()->{nodes} }], [$id], 'the node stays the same';
    is take_back($node, 'ka'), 204;
    wait_until('the end of the block', sub { $node->status('/?k=a') == 200 });
};

subtest 'a change without a reply has an unknown outcome, and is not repeated' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=100r/d', block => 'breaker failures=100 open=1s;');
    wait_until('a connection', sub { metric($node, 'ratelimit_fleet_up') == 1 });
    # A script that the connection has not loaded yet is not executed when its caller has gone.
    my $first = '/ops/zones/test/keys/first/override';
    is $node->get($first, method => 'PUT', body => '{"rate":"3r/d"}')->status, 200;
    is $node->get($first, method => 'DELETE')->status, 204;
    my $path = '/ops/zones/test/keys/ka/override';
    for (['PUT', 200], ['DELETE', 204]) {
        my ($method, $good) = @{$_};
        $redis->pause;
        my $answer = $node->get($path, method => $method, body => $method eq 'PUT' ? '{"rate":"3r/d"}' : '');
        is $answer->status, 504, "$method: neither made nor refused";
        like decode_json($answer->body)->{error}, qr/may be made or not/;
        $redis->resume;
        in_force($node, 'ka', $method eq 'PUT' ? 3 : 100);
    }
    $redis->stop('KILL');
    wait_until('away', sub { $node->count_log(qr/redis "main" at \S+ is away/) });
    my $answer = $node->get($path, method => 'PUT', body => '{"rate":"3r/d"}');
    is $answer->status, 503, 'a change that was not sent';
};

subtest 'overrides without room are counted, and come into force with a larger size' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=9r/d', fleet => 'size=256k');
    change($redis, 'set', "ktest\0k" . 'x' x 100 . $_, $blocked) for 1 .. 1000;
    wait_until('some have no room', sub { metric($node, 'ratelimit_overrides_left_out') > 0 });
    my $known = sub { metric($node, 'ratelimit_overrides{zone="test"}') };
    wait_until('all are counted', sub { $known->() + metric($node, 'ratelimit_overrides_left_out') == 1000 });
    is $node->status('/?k=' . 'x' x 100 . 1000), 200, 'the last has no room';
    change($redis, 'remove', "ktest\0k" . 'x' x 100 . 1000);
    wait_until('one less', sub { $known->() + metric($node, 'ratelimit_overrides_left_out') == 999 });
    $node->configure(http => $node->{http} =~ s/size=256k/size=1m/r);
    $node->reload(gone => 1);
    is metric($node, 'ratelimit_overrides_left_out'), 0;
    is $known->(), 999;
    is $node->status('/?k=' . 'x' x 100 . 999), 429, 'in force';
};

subtest 'overrides of zones that this node does not have take no room from zones that a reload adds' => sub {
    my $node = member(zone => 'rate=9r/d');
    change($node->{redis}, 'set', "kzone$_\0ka", $blocked) for 1 .. 1100;
    override($node, 'kx', { block => \1 });
    wait_until('all is known', sub { $node->status('/?k=x') == 429 });
    is metric($node, 'ratelimit_overrides{zone="test"}'), 1;
    $node->configure(http => $node->{http} . 'ratelimit_zone k$arg_k zone=later rate=9r/d; ratelimit_zone k$arg_k zone=zone7 rate=9r/d;',
        server => $node->{server} . join '', map { "location /$_ { ratelimit zone=$_; try_files /index.html =404; }" } qw(later zone7));
    $node->reload(gone => 1);
    is $node->status('/zone7?k=b'), 200;
    is $node->get('/ops/zones/later/keys/kb/override', method => 'PUT', body => '{"block":true}')->status, 200;
    wait_until('the block', sub { $node->status('/later?k=b') == 429 });
    is metric($node, 'ratelimit_overrides{zone="later"}'), 1;
    is metric($node, 'ratelimit_overrides{zone="zone7"}'), 1;
};

subtest 'a zone beyond those that can have overrides is named in the log' => sub {
    my $zones = join ' ', map { "ratelimit_zone k\$arg_k zone=more$_:32k rate=9r/d;" } 1 .. 1024;
    my $node = member(zone => 'rate=9r/d', http => $zones);
    $node->wait_for_log(qr/fleet: overrides of zone "\w+" do not apply until nginx is restarted, expected at most 1024 zones/);
    my ($named) = $node->log =~ /overrides of zone "(\w+)"/;
    is $node->count_log(qr/do not apply/), 1;
    my $answer = $node->get("/ops/zones/$named/override", method => 'PUT', body => '{"block":true}');
    is $answer->status, 409;
    like $answer->body, qr/do not apply until nginx is restarted/;
    my $other = $named eq 'more1' ? 'more2' : 'more1';
    is $node->get("/ops/zones/$other/override", method => 'PUT', body => '{"block":true}')->status, 200, 'another zone';
};

finish();

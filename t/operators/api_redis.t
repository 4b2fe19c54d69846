# ratelimit_api: the Redis servers of a node.
# needs: redis-sentinel

use Ratelimit::Test;
use JSON::PP qw(decode_json);

my $api = 'location /ops/ { ratelimit_api; }';

sub blocks_of { my ($node) = @_; return @{ decode_json($node->get('/ops/redis')->body)->{redis} } }
sub server_of { my ($node) = @_; return (blocks_of($node))[0]{servers}[0] }

subtest 'the API shows a server that is up, its calls and its latency' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api, workers => 2);
    $node->status("/?k=$_") for 1 .. 20;
    my ($block) = blocks_of($node);
    is_deeply [@{$block}{qw(name topology)}], ['main', 'standalone'];
    my @nodes = map { decode_json($node->get("/ops/$_")->body)->{node} } qw(redis zones);
    is $nodes[0], $nodes[1], 'both pages name the same node';
    wait_until('both workers have reported', sub {
        my $server = server_of($node);
        return $server->{workers_up} == 2 && $server->{calls} >= 20;
    });
    my $server = server_of($node);
    is_deeply [@{$server}{qw(server role state workers reconnects errors)}],
        [$node->{redis}->addr, undef, 'up', 2, 0, { timeout => 0, connection => 0, error_reply => 0 }];
    my ($p50, $p99) = @{ $server->{latency} }{qw(p50 p99)};
    ok $p50 > 0 && $p50 <= $p99 && $p99 < 5, 'latency in seconds' or diag "$p50 $p99";
};

subtest 'the API shows a server that hangs, replies errors, stops, and restarts' => sub {
    my $redis = redis();
    my $node = nginx(http => "ratelimit_redis main { server @{[ $redis->addr ]}; breaker failures=2 open=300ms;"
            . ' timeout 1s; connect_timeout 5s; } ratelimit_zone k$arg_k zone=test rate=1000r/d;',
        server => "$api location / { ratelimit zone=test; ratelimit_fail_mode closed; try_files /index.html =404; }");
    is $node->status('/'), 200;
    is server_of($node)->{state}, 'up';

    $redis->pause;
    wait_until('the API shows that it hangs', sub {
        $node->status('/');
        return server_of($node)->{state} eq 'breaker_open';
    });
    cmp_ok server_of($node)->{errors}{timeout}, '>=', 2;
    $redis->resume;
    wait_until('the server is up again', sub { $node->status('/'); return server_of($node)->{state} eq 'up' });

    $redis->cmd('CONFIG', 'SET', 'maxmemory', 1);
    $node->status('/?k=full');
    cmp_ok server_of($node)->{errors}{error_reply}, '>=', 1, 'refunds that the stall left get it, too';
    $redis->cmd('CONFIG', 'SET', 'maxmemory', 0);
    wait_until('Redis decides again', sub { $node->status('/?k=full') == 200 });

    $redis->stop('KILL');
    wait_until('the API shows that it is unavailable', sub { server_of($node)->{state} =~ /away|breaker_open/ });
    $redis->start;
    wait_until('the server is up again', sub { $node->status('/'); return server_of($node)->{state} eq 'up' });
    cmp_ok server_of($node)->{errors}{connection}, '>', 0;
    cmp_ok server_of($node)->{reconnects}, '>', 0;
};

subtest 'a look-up of a key without an answer leaves nothing behind' => sub {
    my $redis = redis(conf => "slowlog-log-slower-than 0\nslowlog-max-len 10000\n");
    my $node = nginx(http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 500ms; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=test rate=5r/h block=10m;',
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
    is $node->status('/?k=before'), 200;
    $redis->pause;
    is $node->status('/ops/zones/test/keys/looked-up'), 503, 'Redis hangs';
    $redis->stop('KILL');
    $redis->start;
    wait_until('Redis decides again', sub { $node->status('/?k=after'); server_of($node)->{state} eq 'up' });
    wait_until('a key is blocked', sub { $node->status('/?k=after'); $redis->keys_like('*after*') == 2 });
    my @commands = map { join ' ', @{ $_->[3] } } @{ $redis->cmd(qw(SLOWLOG GET), -1) };
    cmp_ok scalar(grep { /after/ } @commands), '>', 1, 'Redis has logged its commands';
    is_deeply [grep { /looked-up/ } @commands], [], 'none of them is about the key';
};

subtest 'workers without requests notice that Redis hangs, and that it is back' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api, workers => 2);
    wait_until('the server is up', sub { (server_of($node) // {})->{workers_up} });
    my $redis = $node->{redis};
    $node->configure(http => "ratelimit_redis main { server @{[ $redis->addr ]}; breaker failures=2 open=300ms;"
            . ' timeout 2s; connect_timeout 5s; } ratelimit_zone k$arg_k zone=test rate=1000r/d;');
    $node->reload(gone => 1);
    my $up = sub { my $server = server_of($node); return $server && $server->{workers_up} };
    wait_until('both workers are connected', sub { $up->() == 2 });
    $redis->pause;
    # Not by the API: a worker that answers there checks its servers too.
    wait_until('both workers log it', sub { $node->count_log(qr/is away, the fail mode decides: no reply/) == 2 }, 30);
    wait_until('the API shows it', sub { !$up->() });
    $redis->resume;
    wait_until('both workers are connected again', sub { $up->() == 2 });
    is $node->count_log(qr/is away/), 2, 'one line for each worker';
};

subtest 'the counters of a server survive a reload' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api);
    $node->status('/') for 1 .. 10;
    my $calls = server_of($node)->{calls};
    cmp_ok $calls, '>=', 10;
    $node->reload;
    wait_until('the new worker has reported', sub { server_of($node) && server_of($node)->{workers_up} == 1 });
    cmp_ok server_of($node)->{calls}, '>=', $calls;
};

subtest 'the API shows each server of a ring, each master of a cluster, the master of sentinels' => sub {
    my @ring = map { redis() } 1 .. 2;
    my $cluster = cluster(replicas => 0);
    my $sentinels = sentinels();
    my @cases = (
        ['ring', join('', map { 'server ' . $_->addr . ';' } @ring), map { $_->addr } @ring],
        ['cluster', 'topology cluster; server ' . ($cluster->addrs)[0] . ';', $cluster->addrs],
        ['sentinel', 'topology sentinel master=main; ' . join('', map { "server $_;" } $sentinels->addrs),
            $sentinels->master->addr],
    );
    for my $case (@cases) {
        my ($topology, $block, @servers) = @{$case};
        my $node = nginx(http => "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; }"
                . 'ratelimit_zone $arg_k zone=test rate=1r/d;',
            server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
        is $node->status("/?k=$_"), 200 for 'a' .. 'f';
        my ($shown) = blocks_of($node);
        is $shown->{topology}, $topology;
        is_deeply [map { $_->{server} } @{ $shown->{servers} }], [sort @servers];
        wait_until('all servers are up', sub {
            return !grep { $_->{state} ne 'up' } @{ (blocks_of($node))[0]{servers} };
        });
    }
};

subtest 'sentinels and clusters without a running server are not up' => sub {
    for my $topology ('sentinel master=main', 'cluster') {
        my $port = free_port();
        my $node = nginx(http => "ratelimit_redis main { topology $topology; server 127.0.0.1:$port; }"
                . 'ratelimit_zone $arg_k zone=test rate=1r/d;',
            server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
        is $node->status('/'), 200;
        is_deeply [map { [@{$_}{qw(name servers)}] } blocks_of($node)], [['main', []]];
        like $node->get('/ops/metrics')->body, qr/^ratelimit_redis_up\{redis="main",server=""\} 0$/m, $topology;
    }
};

subtest 'a server that hung is shown as up again without a request' => sub {
    my $redis = redis();
    my $node = nginx(http => "ratelimit_redis main { server @{[ $redis->addr ]}; breaker failures=2 open=300ms;"
            . ' timeout 2s; connect_timeout 5s; }'
            . 'ratelimit_zone k$arg_k zone=test rate=1000r/d;',
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
    $node->status('/');
    $redis->pause;
    wait_until('the API shows that it hangs', sub { $node->status('/'); return server_of($node)->{state} eq 'breaker_open' });
    $redis->resume;
    wait_until('the server is up', sub { server_of($node)->{state} eq 'up' });
    is $node->count_log(qr/is away/), 1;
    $redis->cmd('CONFIG', 'SET', 'maxmemory', 1);
    $node->status("/?k=full$_") for 1 .. 5;
    is server_of($node)->{state}, 'up', 'a server that replies with errors is up';
    is $node->count_log(qr/is away/), 1;
};

subtest 'without Redis the API shows no servers' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=test rate=1r/d;', server => $api);
    is_deeply [blocks_of($node)], [];
};

finish();

# concurrency= when workers, nodes and Redis fail: what no request holds is free after `hold`, what is held
# stays counted, and never more than n requests run at one time.

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Backend;
use Ratelimit::Process qw(alive);
use Ratelimit::Redis;
use Ratelimit::Remaining qw(remaining remains);
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my $backend = Ratelimit::Backend->new;

# As in concurrency.t: / passes requests to the backend, /peek reports the state.
sub limited_node {
    my (%options) = @_;
    my $zone = $options{zone} // 'concurrency=2 hold=1h';
    return node(
        key      => 'k$arg_k',
        %options,
        zone     => $zone,
        location => "proxy_pass http://@{[ $backend->addr ]}; " . ($options{location} // ''),
        server   => 'location /ops/ { ratelimit_api; }' . ($options{server} // ''),
    );
}

# A node whose Redis is behind a proxy, with a short timeout; and one that asks Redis itself.
sub node_behind {
    my ($proxy, $redis, %options) = @_;
    my $zone = $options{zone} // 'concurrency=2 hold=1h';
    my $timeout = $options{timeout} // '500ms';
    my $node = nginx(
        http => "ratelimit_redis main { server @{[ $proxy->addr ]}; timeout $timeout; connect_timeout 200ms; }"
            . "ratelimit_zone k\$arg_k zone=test $zone;",
        server => "location / { ratelimit zone=test; add_header X-Result \$ratelimit_status always;"
            . " proxy_pass http://@{[ $backend->addr ]}; @{[ $options{location} // '' ]} }",
    );
    return ($node, limited_node(redis => $redis, zone => $zone));
}

# That the state stays as it is for this time.
sub stays {
    my ($node, $expected, $what, $seconds) = @_;
    my %seen;
    my $end = time + $seconds;
    do { $seen{ remaining($node) }++; sleep 0.02 } while time < $end;
    is_deeply [keys %seen], [$expected], $what;
    return;
}

sub in_flight {
    my ($node) = @_;
    my ($count) = $node->get('/ops/metrics')->body =~ /^ratelimit_in_flight\{zone="test"\} (\d+)$/m;
    return $count;
}

for my $place ('Redis', 'memory') {
    subtest "workers that are killed under load: $place" => sub {
        my $zone = 'concurrency=5 hold=2s';
        my $path = "/?k=$place&for=0.02";
        my %options = (zone => $zone, workers => 2, expected => qr/exited on signal 9|worker process \d+ exited/);
        my $one = $place eq 'Redis' ? limited_node(%options) : memory_node(%options);
        my @nodes = ($one, $place eq 'Redis' ? limited_node(%options, redis => $one->{redis}) : ());
        my @loads = map { load(port => $_->port, path => $path, clients => 16) } @nodes;
        $_->wait_for_more(100) for @loads;
        for my $kill (1 .. 4) {
            my $node = $nodes[$kill % @nodes];
            my ($victim) = $node->workers;
            kill KILL => $victim;
            wait_until('another worker', sub { 2 == grep { $_ != $victim } $node->workers });
            $_->wait_for_more(100) for @loads;
        }
        $_->stop for @loads;
        my $watch = stopwatch();
        remains($one, 5, 'all units are free again', "?k=$place");
        $watch->within(2 + 2 / 8 + 0.5, 'after hold and a bucket');
        is $backend->most($place), 5, 'never more than five requests ran at one time';
        wait_until('nothing is in flight', sub { !grep { in_flight($_) } @nodes });
        is $_->count_log(qr/exited on signal (?!9)/), 0, 'no other worker died' for @nodes;
    };
}

# A node without Redis.
sub memory_node {
    my (%options) = @_;
    return nginx(
        %options,
        http   => "ratelimit_zone k\$arg_k zone=test $options{zone};",
        server => "location / { ratelimit zone=test; proxy_pass http://@{[ $backend->addr ]}; }"
            . 'location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }'
            . 'location /ops/ { ratelimit_api; }',
    );
}

subtest 'a node that is killed' => sub {
    my $zone  = 'concurrency=2 hold=1h';
    my $clock = Chaos::Clock->new;
    my $redis = Ratelimit::Redis->new(environment => $clock->environment);
    my ($one, $two) = map { limited_node(zone => $zone, redis => $redis) } 1 .. 2;
    my @held = $backend->hold($one, ('/') x 2);
    my ($worker) = $one->workers;
    $one->stop('KILL');
    kill KILL => $worker;
    is remaining($two), 0, 'what it held is counted at first';
    $clock->step(3600 - 120);
    is remaining($two), 0, 'not free before hold has passed, as it was not renewed';
    $clock->step(120 + 3600 / 8);
    remains($two, 2, 'then it is free');
};

subtest 'a node of a shorter hold= that is killed: what it held is free after its own' => sub {
    my $long  = limited_node(zone => 'concurrency=2 hold=1d');
    my $short = limited_node(zone => 'concurrency=2 hold=2s', redis => $long->{redis});
    my @own   = $backend->hold($long, '/');
    my @other = $backend->hold($short, '/');
    is $long->status('/?for=0'), 429, 'the key is used up';
    my ($worker) = $short->workers;
    my $watch = stopwatch();
    $short->stop('KILL');
    kill KILL => $worker;
    wait_until('a request of the other node passes', sub { $long->status('/?for=0') == 200 });
    $watch->within(2 + 2 / 8 + 0.5, 'after the shorter hold and an eighth of it');
    $backend->finish;
    is http_read($own[0])->status, 200;
};

subtest 'a worker that is killed: the node does not count what it held' => sub {
    my $node = limited_node(expected => qr/exited on signal 9/);
    my @held = $backend->hold($node, ('/') x 2);
    is in_flight($node), 2;
    my ($worker) = $node->workers;
    kill KILL => $worker;
    wait_until('another worker', sub { my ($other) = $node->workers; $other && $other != $worker });
    is in_flight($node), 0, 'no request of this node holds anything';
};

for my $signal ('TERM', 'QUIT') {
    subtest "a node that exits by $signal releases what it holds" => sub {
        my $one = limited_node();
        my $two = limited_node(redis => $one->{redis});
        my @held = $backend->hold($one, ('/') x 2);
        is remaining($two), 0;
        if ($signal eq 'QUIT') {
            kill QUIT => $one->pid;
            stays($two, 0, 'while its requests run', 0.5);
            $backend->finish;
        }
        $one->stop($signal);
        remains($two, 2, 'afterwards');
    };
}

subtest 'a worker that is stopped' => sub {
    my $zone = 'concurrency=2 hold=1s';
    my $one  = limited_node(zone => $zone);
    my $two  = limited_node(zone => $zone, redis => $one->{redis});
    my @held = $backend->hold($one, ('/') x 2);
    my ($worker) = $one->workers;
    pause_processes($worker);
    remains($two, 2, 'beyond hold its units are free');
    kill CONT => $worker;
    remains($two, 0, 'when it runs again, they are counted again');
    $backend->finish;
    is http_read($_)->status, 200 for @held;
    remains($two, 2, 'and released');
};

subtest 'a reload while a response lasts' => sub {
    my $node = limited_node(zone => 'concurrency=2 hold=2s');
    my @held = $backend->hold($node, '/');
    $node->reload;
    stays($node, 1, 'the old worker renews what is held', 3);
    $backend->finish;
    is http_read($held[0])->status, 200;
    remains($node, 2, 'and releases it');
};

subtest 'a worker that leaves repeats that it holds nothing when Redis comes back with an earlier state' => sub {
    my $node = limited_node(server => "location /long { proxy_pass http://@{[ $backend->addr ]}; }");
    my ($held, $long) = $backend->hold($node, '/', '/long');
    $node->reload;
    is remaining($node), 1, 'held';
    my ($key)   = @{ $node->{redis}->cmd('KEYS', '*{k}*') };
    my $earlier = $node->{redis}->cmd('DUMP', $key);
    close $held;
    remains($node, 2, 'released');
    sleep 2.2;    # each second, a worker that leaves closes the connections that it does not need
    $node->{redis}->cmd('RESTORE', $key, 0, $earlier, 'REPLACE');
    $node->{redis}->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    remains($node, 2, 'released again');
};

subtest 'another hold after a reload' => sub {
    my $node = limited_node(zone => 'concurrency=2 hold=1h');
    my @old  = $backend->hold($node, '/');
    $node->configure(http => $node->{http} =~ s/hold=1h/hold=2s/r);
    $node->reload;
    my @new = $backend->hold($node, '/');
    is remaining($node), 0, 'both are counted';
    $backend->finish;
    remains($node, 2, 'and free: at once or after the new hold');
};

subtest 'Redis loses its data: what is held is counted again' => sub {
    my $node = limited_node(zone => 'concurrency=2 hold=1s');
    my @held = $backend->hold($node, ('/') x 2);
    $node->{redis}->cmd('FLUSHALL');
    remains($node, 0, 'after half of hold');
    $backend->finish;
    remains($node, 2, 'released');
};

subtest 'Redis loses its data and its scripts while each reply is late: what is held is counted again' => sub {
    my @keys  = map { "k=$_" } 1 .. 24;
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my ($node, $direct) = node_behind($proxy, $redis, zone => 'concurrency=1 hold=6s', timeout => '300ms');
    my @held = $backend->hold($node, map { "/?$_" } @keys);
    $proxy->delay(0.6);
    $redis->cmd('SCRIPT', 'FLUSH');
    $redis->cmd('FLUSHALL');
    # A check would load the script.
    wait_until('the node states all that it holds', sub { $redis->cmd('DBSIZE') == @keys }, 20);
    remains($direct, 0, $_, "?$_") for @keys;
    $proxy->pass;
    $backend->finish;
    remains($direct, 1, "$_ is released", "?$_") for @keys;
};

subtest 'a release while there is no connection is sent later' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my ($node, $direct) = node_behind($proxy, $redis);
    my @held = $backend->hold($node, ('/') x 2);
    $proxy->stop;
    $backend->finish;
    is http_read($_)->status, 200 for @held;
    sleep 0.5;
    is remaining($direct), 0, 'they are still counted';
    $node->{proxy} = proxy(to => $redis->addr, port => $proxy->port);    # until nginx has ended
    remains($direct, 2, 'and free when Redis can be reached');
};

subtest 'a release without a reply is not sent again' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my ($node, $direct) = node_behind($proxy, $redis, zone => 'concurrency=3 hold=1h', timeout => '5s');
    my @other = $backend->hold($direct, ('/') x 2);
    my @held  = $backend->hold($node, '/');
    $proxy->delay(10);
    close $held[0];
    remains($direct, 1, 'Redis has executed it');
    $proxy->cut;
    $proxy->pass;
    # Another key: a check whose connection is lost may be counted twice.
    wait_until('Redis decides again', sub { $node->get('/?for=0&k=other')->header('X-Result') eq 'PASSED' });
    stays($direct, 1, 'the units of others are not freed', 1);
    $backend->finish;
    remains($direct, 3, 'until they end');
};

for my $mode ('open', 'closed') {
    subtest "a check whose reply comes late, by fail mode $mode" => sub {
        my $redis = redis();
        my $proxy = proxy(to => $redis->addr);
        my ($node, $direct) = node_behind($proxy, $redis, zone => 'concurrency=20 hold=1h',
            location => "ratelimit_fail_mode $mode;");
        wait_until('Redis decides', sub { $node->get('/?for=0')->header('X-Result') eq 'PASSED' });
        remains($direct, 20, 'nothing is held');
        $proxy->delay(2);
        my $executed = $redis->calls('evalsha');
        my @sockets = map { my $socket = http_connect($node->port); http_send($socket, '/?for=0'); $socket } 1 .. 5;
        wait_until('Redis has counted some', sub { $redis->calls('evalsha') > $executed });
        my @results = map { http_read($_)->header('X-Result') } @sockets;
        is_deeply \@results, [('FAILED_' . uc $mode) x 5], 'the fail mode decides all the same';
        remains($direct, 20, 'what was counted is released when the replies come');
        $proxy->pass;
        wait_until('Redis decides again', sub { $node->get('/?for=0')->header('X-Result') eq 'PASSED' });
        my @held = $backend->hold($node, ('/') x 3);
        is remaining($direct), 17, 'the next requests are counted';
        $backend->finish;
        remains($direct, 20, 'and released');
    };
}

subtest 'sixty thousand keys are stated again after a fault, and Redis decides meanwhile' => sub {
    my $redis = redis();
    my $node  = nginx(
        workers => 2,
        http    => "ratelimit_redis main { server @{[ $redis->addr ]}; }"
            . 'map $request_id $each { default $request_id; }'
            . 'ratelimit_zone $each zone=held:2m concurrency=3; ratelimit_zone $arg_k zone=test rate=1000r/s;',
        server => <<'END',
        add_header X-Result $ratelimit_status always;
        location = /held { ratelimit zone=held; try_files /index.html =404; }
        location = / { ratelimit zone=test; try_files /index.html =404; }
END
    );
    is $node->status('/?k=first'), 200;
    burst($node->port, '/held', 60_000, 300);
    $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    my $decided = sub { $node->get('/?k=1')->header('X-Result') eq 'PASSED' };
    ok eval { wait_until('Redis decides', sub { !grep { !$decided->() } 1 .. 50 }, 8); 1 }, 'fifty requests in sequence';
    my $master = $node->pid;
    kill QUIT => $master;
    ok eval { wait_until('nginx ends', sub { !alive($master) }, 8); 1 }, 'and nginx exits';
};

subtest 'fail mode local counts in the memory of the node, by its share' => sub {
    my $redis = redis();
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = limited_node(redis => $redis, zone => 'concurrency=4 nodes=2 hold=1h', environment => $clock->environment,
        location => 'ratelimit_fail_mode local; proxy_read_timeout 1d;');
    my @before = $backend->hold($node, '/');
    $redis->stop;
    my @held = $backend->hold($node, ('/') x 2);
    is $node->status('/'), 429, 'two of four, by each of two nodes';
    my %seen;
    for (1 .. 6) {
        $clock->step(900);
        $seen{ $node->status('/') }++ for 1 .. 2;
    }
    is_deeply [keys %seen], [429], 'they are renewed there, each before its hold ends';
    $backend->finish;
    is http_read($_)->status, 200 for @before, @held;
    wait_until('they are released', sub { in_flight($node) == 0 });
    @held = $backend->hold($node, ('/') x 2);
    is $node->status('/'), 429;
    $redis->start;
    $backend->finish;
    remains($node, 4, 'when Redis is back it has no units of this time');
};

subtest 'what a killed worker held refuses none of the requests that share a call' => sub {
    my $redis = redis();
    my ($node, $other) = map { limited_node(redis => $redis, zone => 'concurrency=6 hold=2s', expected => qr/exited on signal 9/) } 1 .. 2;
    my @queries = map { "?k=$_" } 1 .. 5;
    my @held = map { $backend->hold($_, map { ("/$_") x 2 } @queries) } $node, $other;
    $other->stop('KILL');
    kill KILL => $_ for $other->workers;
    my ($worker) = $node->workers;
    remains($node, 4, 'behind its hold', $_) for @queries;
    for my $query (@queries) {
        pause_processes($worker);    # so that the requests arrive in one turn
        my @sockets = map { http_connect($node->port) } 1 .. 4;
        http_send($_, "/$query&for=0.3") for @sockets;
        kill CONT => $worker;
        is_deeply [map { http_read($_)->status } @sockets], [(200) x 4], $query;
    }
    $backend->finish;
};

finish();

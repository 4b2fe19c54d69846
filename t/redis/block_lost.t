# A message is lost with its connection, so that a key counts what no request used. The next requests may be refused
# because of that, but no block (block=) begins.

use Ratelimit::Http qw(http_connect http_send http_read);
use Ratelimit::Test;

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket burst=2', 'gcra burst=1', 'leaky_bucket burst=1',
);
my $block  = 5 * 86_400;    # longer than any algorithm refuses with rate=2r/d
my $refund = '$64';         # in RESP: the numbers of a refund

# A node with two units for each key, and what charges them, that reaches Redis at this address.
sub blocking_node {
    my ($addr, $zone, %options) = @_;
    my $now = $zone =~ /leaky/ ? 'nodelay' : '';
    return nginx(
        %options,
        http   => "ratelimit_redis main { server $addr; @{[ $options{times} // 'timeout 5s; connect_timeout 5s;' ]} }"
            . "ratelimit_zone \$arg_k zone=z rate=2r/d block=5d cache=off $zone;",
        server => <<"END",
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z $now; try_files /index.html =404; }
        location = /charged { ratelimit zone=z $now charge=\$arg_charge; try_files /index.html =404; }
        location = /closed { ratelimit zone=z $now; ratelimit_fail_mode closed; try_files /index.html =404; }
        location = /peek { ratelimit zone=z $now cost=0; try_files /index.html =404; }
END
    );
}

sub left { return $_[0]->get("/peek?k=$_[1]")->header('X-RateLimit-Remaining') }

# Waits until this number of units is left of a key.
sub is_left {
    my ($node, $key, $left, $what) = @_;
    my $seen = '';
    ok eval { wait_until('the count', sub { ($seen = left($node, $key) // '') eq $left }, 10); 1 }, $what or diag "left: $seen";
    return;
}

# Of a key with no units left: it is refused until the algorithm admits it, and not blocked.
sub is_spared {
    my ($node, $key) = @_;
    for my $time ('first', 'second') {
        my $answer = $node->get("/?k=$key");
        is $answer->status, 429, "the $time request without a unit is refused";
        cmp_ok $answer->header('Retry-After'), '<=', 2 * 86_400, 'but the key is not blocked';
        select undef, undef, undef, 0.3;    # a block begins behind the decision
    }
    return;
}

# Waits until a worker has stated of a key, which nothing has refused yet, that it counts too much.
sub is_stated {
    my ($redis, $key) = @_;
    ok eval { wait_until('it is stated', sub { length($redis->cmd('GET', "rl:z:{$key}:block") // '') > 0 }); 1 }, 'it is stated';
    return;
}

# Sends a request, and waits until its check has come to the Redis, which stands still. Returns the request's socket.
sub sent_to {
    my ($redis, $node, $path) = @_;
    my ($socket, $unread) = (http_connect($node->port), $redis->unread);
    http_send($socket, $path);
    wait_until('the check is sent', sub { $redis->unread > $unread });
    return $socket;
}

# A key of which nothing was lost is blocked.
sub is_blocked {
    my ($node, $key) = @_;
    is $node->status("/?k=$key"), $_, 'another key' for 200, 200, 429;
    ok eval { wait_until('a block', sub { $node->get("/?k=$key")->header('Retry-After') > $block - 300 }); 1 }, 'is blocked';
    return;
}

for my $clock ('', ' clock=local') {
    for my $algorithm (@algorithms) {
        subtest "a refund that is lost, and a check that is counted twice, begin no block: $algorithm$clock" => sub {
            my $redis  = redis();
            my $proxy  = proxy(to => $redis->addr);
            my $zone   = "algorithm=$algorithm$clock";
            my $node   = blocking_node($proxy->addr, $zone);
            my $direct = blocking_node($redis->addr, $zone);
            is $node->status('/charged?k=warm&charge=0'), 200;
            is_left($node, 'warm', 2, 'a refund');

            $proxy->sever($refund);
            is $node->status('/charged?k=lost&charge=0'), 200, 'a request that costs nothing';
            wait_until('the loss', sub { $proxy->severed });
            is_left($node, 'lost', 1, 'it stays counted');
            is $node->status('/?k=lost'), 200;
            is_spared($node, 'lost');
            is_stated($redis, 'lost');
            is_spared($direct, 'lost');
            left($node, 'lost');    # so the reply to that has come, too

            $proxy->lose(1, '{twice}');
            is $node->status('/?k=twice'), 200, 'a request whose reply is lost';
            ok $proxy->lost, 'it was';
            is left($direct, 'twice'), 0, 'it was counted twice';
            is_stated($redis, 'twice');
            is_spared($_, 'twice') for $direct, $node;

            is_blocked($node, 'other');
        };
    }
}

subtest 'a block that begins before the node is back is lifted then' => sub {
    my $redis  = redis();
    my $proxy  = proxy(to => $redis->addr);
    my $node   = blocking_node($proxy->addr, 'algorithm=fixed_window', times => 'timeout 300ms; connect_timeout 300ms;');
    my $direct = blocking_node($redis->addr, 'algorithm=fixed_window');
    is $node->status('/charged?k=warm&charge=0'), 200;
    is_left($node, 'warm', 2, 'a refund');
    is $direct->status('/?k=before'), 200;
    $proxy->sever($refund, 'drop');
    is $node->status('/charged?k=lost&charge=0'), 200;
    wait_until('the loss', sub { $proxy->severed });
    is $direct->status('/?k=lost'), 200;
    is $direct->status('/?k=lost'), 429;
    ok eval { wait_until('a block', sub { $direct->get('/?k=lost')->header('Retry-After') > $block - 300 }); 1 }, 'the key is blocked';
    is_blocked($direct, 'other');
    $proxy->pass;
    ok eval { wait_until('its end', sub { $direct->get('/?k=lost')->header('Retry-After') < 2 * 86_400 }, 20); 1 },
        'until the node that lost its refund has said so';
    is_spared($direct, 'lost');
    cmp_ok $direct->get('/?k=other')->header('Retry-After'), '>', $block - 300, 'the other block stands';
};

subtest 'a block that begins before a lost check is sent again is lifted by that' => sub {
    my $redis  = redis();
    my $proxy  = proxy(to => $redis->addr);
    my $node   = blocking_node($proxy->addr, 'algorithm=fixed_window');
    my $direct = blocking_node($redis->addr, 'algorithm=fixed_window');
    is $_->status('/?k=warm'), 200 for $node, $direct;
    is $direct->status('/?k=lost'), 200;
    my ($worker) = $node->workers;
    $redis->pause;
    my $sent   = $proxy->seen->{requests};
    my $socket = http_connect($node->port);
    http_send($socket, '/?k=lost');
    wait_until('the check is sent', sub { $proxy->seen->{requests} > $sent });
    pause_processes($worker);    # it does not see yet that its reply is lost
    $proxy->lose;
    $redis->resume;
    wait_until('the loss', sub { $proxy->lost });
    is $direct->status('/?k=lost'), 429, 'the check was executed';
    my $rest = sub { $direct->get('/?k=lost')->header('Retry-After') };
    ok eval { wait_until('a block', sub { $rest->() > $block - 300 }); 1 }, 'another node begins a block because of it';
    kill CONT => $worker;
    is http_read($socket)->status, 200, 'the block does not refuse the check that is sent again';
    ok eval { wait_until('its end', sub { $rest->() < 2 * 86_400 }, 20); 1 }, 'the check that is sent again lifts the block';
    is_spared($direct, 'lost');
    is_blocked($direct, 'other');
};

subtest 'what the fail mode let in, and Redis counted later and twice, begins no block' => sub {
    my $redis  = redis();
    my $proxy  = proxy(to => $redis->addr);
    my $direct = blocking_node($redis->addr, 'algorithm=fixed_window');
    my $node   = blocking_node($proxy->addr, 'algorithm=fixed_window',
        times => 'timeout 5s; connect_timeout 2s; breaker failures=100 open=10s;');
    is $node->status('/closed?k=warm'), 200;
    $redis->pause;
    my $socket = sent_to($redis, $node, '/?k=cut');
    my $sent   = $proxy->seen->{requests};
    $proxy->cut;
    wait_until('it is sent again, once', sub { $proxy->seen->{requests} > $sent });
    $proxy->cut;
    is http_read($socket)->header('X-Status'), 'FAILED_OPEN', 'it passes without an answer';
    $redis->resume;
    wait_until('the node is back', sub { $node->get('/closed?k=warm')->header('X-Status') ne 'FAILED_CLOSED' });
    my $left = left($direct, 'cut');
    cmp_ok $left, '<', 2, "it is counted: $left left";
    is_stated($redis, 'cut');
    is $direct->status('/?k=cut'), 200 for 1 .. $left;
    is_spared($direct, 'cut');
    is_blocked($direct, 'other');
};

subtest 'what the fail mode refused, and Redis counted without a reply, begins no block' => sub {
    my $redis  = redis();
    my $proxy  = proxy(to => $redis->addr);
    my $direct = blocking_node($redis->addr, 'algorithm=fixed_window');
    my $node   = blocking_node($proxy->addr, 'algorithm=fixed_window',
        times => 'timeout 200ms; connect_timeout 2s; breaker failures=100 open=10s;');
    wait_until('Redis decides', sub { $node->status('/closed?k=warm') == 200 });
    for my $key ('cut', 'late') {
        $redis->pause;
        my $socket = sent_to($redis, $node, "/closed?k=$key");
        if ($key eq 'late') {
            is http_read($socket)->status, 503, 'refused without an answer';
            $proxy->cut;
        } else {
            $proxy->cut;    # sent again: the check may be executed twice
            is http_read($socket)->status, 503, 'refused without an answer';
            $proxy->cut;
        }
        $redis->resume;
        wait_until('the node is back', sub { $node->get('/closed?k=warm')->header('X-Status') ne 'FAILED_CLOSED' });
        my $left = left($direct, $key);
        cmp_ok $left, '<', 2, 'it is counted';
        is_stated($redis, $key);
        is $direct->status("/?k=$key"), 200 for 1 .. $left;
        is_spared($direct, $key);
    }
    is_blocked($direct, 'other');
};

subtest 'the replies for fifteen hundred keys are lost at once: no key is blocked' => sub {
    my $keys  = 1500;
    my $redis = redis(conf => "appendonly yes\nappendfsync always\n");    # it is killed, and keeps its data
    my $proxy = proxy(to => $redis->addr);
    my $node  = blocking_node($proxy->addr, 'algorithm=gcra burst=1', times => 'timeout 50s; connect_timeout 5s; breaker failures=10000;',
        connections => 8000, main => 'worker_rlimit_nofile 10000;');
    is $node->status('/closed?k=other'), 200;
    $proxy->delay(3600);    # until it is cut
    my @sockets = map { http_connect($node->port) } 1 .. $keys;
    http_send($sockets[$_], "/closed?k=$_", close => 1) for 0 .. $#sockets;
    wait_until('Redis has counted them', sub { $redis->keys_like('rl:z:{*}') > $keys }, 60);
    $redis->stop('KILL');
    $proxy->pass;
    $proxy->cut;
    my %seen;
    $seen{ http_read($_)->status }++ for @sockets;
    is_deeply \%seen, { 503 => $keys }, 'the fail mode refuses all';
    $redis->start;
    is_left($node, $_, 1, "key $_ has one left, as Redis counted it") for 0, $keys - 1;
    my $is_spared = sub { length($redis->cmd('GET', "rl:z:{$_[0]}:block") // '') > 0 };
    ok eval { wait_until('all are spared', sub { !grep { !$is_spared->($_) } 0 .. $keys - 1 }, 30); 1 },
        'it is stated of each that it counts too much';
};

subtest 'a refund for a request that another server refused is lost' => sub {
    my @redis = map { redis() } 1 .. 2;
    my $proxy = proxy(to => $redis[0]->addr);
    my $times = 'timeout 500ms; connect_timeout 500ms;';
    my $node  = nginx(
        http => "ratelimit_redis first { server @{[ $proxy->addr ]}; $times }"
            . "ratelimit_redis second { server @{[ $redis[1]->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=a redis=first rate=2r/d block=5d cache=off algorithm=fixed_window;'
            . 'ratelimit_zone $arg_b zone=b redis=second rate=1r/d cache=off algorithm=fixed_window;',
        server => <<'END',
        location / { ratelimit zone=a; try_files /index.html =404; }
        location = /both { ratelimit zone=a; ratelimit zone=b; try_files /index.html =404; }
        location = /peek { ratelimit zone=a cost=0; try_files /index.html =404; }
END
    );
    is $node->status('/both?k=warm&b=1'), $_ for 200, 429;
    is_left($node, 'warm', 1, 'a refund');
    $proxy->sever($refund);
    is $node->status('/both?k=lost&b=1'), 429;
    wait_until('the loss', sub { $proxy->severed });
    is_left($node, 'lost', 1, 'it stays counted');
    is $node->status('/?k=lost'), 200;
    wait_until('a refusal', sub { $node->status('/?k=lost') == 429 });
    select undef, undef, undef, 1.2;    # longer than until a block begins
    is_spared($node, 'lost');
    is_blocked($node, 'other');
};

finish();

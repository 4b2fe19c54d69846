# The fail mode refuses a request, and Redis executes its check afterwards: nothing stays counted.

use FindBin;
use IO::Select ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Http qw(http_connect http_send http_read);
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket burst=10', 'gcra burst=9', 'leaky_bucket burst=9',
);

# Locations for each fail mode of the limits, and /peek.
sub modes_node {
    my ($servers, $zones, $limits, %options) = @_;
    my $blocks = join '', map { "ratelimit_redis r$_ { server @{[ $servers->[$_]->addr ]}; $options{block} }" }
        0 .. $#{$servers};
    my @modes = map { <<"END" } qw(open closed local);
        location /$_/ { $limits ratelimit_fail_mode $_; try_files /index.html =404; }
END
    my @peeks = map { <<"END" } $zones =~ /zone=(\w+)/g;
        location = /peek/$_ { ratelimit zone=$_ cost=0; ratelimit_fail_mode closed; try_files /index.html =404; }
END
    my $environment = $options{clock} ? $options{clock}->environment : {};
    local @ENV{ keys %{$environment} } = values %{$environment};
    return nginx(http => $blocks . $zones, server => "add_header X-Status \$ratelimit_status always; @modes @peeks");
}

# Waits until so much of 10 is counted of a key in a zone.
sub is_counted {
    my ($node, $count, $zone, $key) = @_;
    $key //= 1;
    my $seen = '';
    my $peek = sub { ($seen = $node->get("/peek/$zone?k=$key")->header('X-RateLimit-Remaining') // '') eq 10 - $count };
    ok eval { wait_until('the count', $peek, 5); 1 }, "counted in zone $zone: $count" or diag "remaining: $seen";
    return;
}

# The first request of a key passes, by a decision of Redis: one that comes too late for it is refunded.
sub is_let_in {
    my ($node, $path) = @_;
    ok eval { wait_until('it passes', sub { $node->get($path)->header('X-Status') eq 'PASSED' }); 1 }, 'it passes';
    return;
}

# Sends requests, 30 ms apart, while Redis does not reply; continues it. Returns what the clients saw.
sub during_a_stall {
    my ($node, $redis, @paths) = @_;
    $redis->pause;
    my @sockets;
    for my $path (@paths) {
        push @sockets, http_connect($node->port);
        http_send($sockets[-1], $path);
        sleep 0.03;
    }
    my %seen;
    $seen{ http_read($_)->header('X-Status') }++ for @sockets;
    $redis->resume;
    return \%seen;
}

my $patient = 'timeout 200ms; connect_timeout 5s; breaker failures=100 open=10s;';

for my $clock ('', ' clock=local') {
    for my $algorithm (@algorithms) {
        subtest "requests that got 503 in a stall are not counted: $algorithm$clock" => sub {
            my $redis = redis();
            my $now   = $algorithm =~ /leaky/ ? 'nodelay' : '';
            my $node  = modes_node([$redis],
                "ratelimit_zone \$arg_k zone=z cache=off rate=10r/d algorithm=$algorithm$clock;",
                "ratelimit zone=z $now;", block => $patient);
            is_let_in($node, '/closed/?k=1');
            is_deeply during_a_stall($node, $redis, ('/closed/?k=1') x 6), { FAILED_CLOSED => 6 };
            is_counted($node, 1, 'z');
        };
    }
}

# What passes is counted if it was sent: so nginx has both requests before the connection is given up.
for my $mode (['closed', 'FAILED_CLOSED', 6, 1, '300ms'], ['open', 'FAILED_OPEN', 2, 3, '2s']) {
    my ($path, $status, $requests, $count, $open) = @{$mode};
    subtest "a stall in which nginx gives its connection up: what is $path" => sub {
        my $redis = redis();
        my $node  = modes_node([$redis], 'ratelimit_zone $arg_k zone=z cache=off rate=10r/d algorithm=fixed_window;',
            'ratelimit zone=z;', block => "timeout 200ms; connect_timeout 1s; breaker failures=100 open=$open;");
        burst($node->port, "/$path/?k=other", 20, 20);    # loads the scripts
        is_let_in($node, "/$path/?k=1");
        my $socket = http_connect($node->port);
        $redis->pause;
        print {$socket} "GET /$path/?k=1 HTTP/1.1\r\nHost: localhost\r\n\r\n" x $requests;
        is http_read($socket)->header('X-Status'), $status for 1 .. $requests;
        $node->wait_for_log(qr/is away.*no reply/);
        $redis->resume;
        is_counted($node, $count, 'z');
    };
}

# As if the network lost the replies: Redis executes what was sent, and its TCP sends the replies again later.
subtest 'replies that come long after a new connection works are waited for' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node  = modes_node([$proxy], 'ratelimit_zone $arg_k zone=z cache=off rate=10r/d algorithm=fixed_window;',
        'ratelimit zone=z;', block => 'timeout 200ms; connect_timeout 300ms; breaker failures=100 open=300ms;');
    is_let_in($node, '/closed/?k=1');
    my $lost = sub {
        my ($key, $late, $silent) = @_;
        $proxy->delay($late);
        is $node->status("/closed/?k=$key"), 503;
        sleep $silent;    # no new connection works
        $proxy->pass;
        is_counted($node, $key == 1 ? 2 : 1, 'z', $key);
    };
    $lost->(1, 5, 2);
    $lost->(2, 3, 1);     # the next connection falls silent, too
    is_counted($node, 1, 'z', 1);
    is_counted($node, 0, 'z', 2);
};

subtest 'a request that got 503 is refunded while all replies are late, though Redis does not know the script' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my ($node, $other) = map {
        modes_node([$_], 'ratelimit_zone $arg_k zone=z cache=off rate=10r/d algorithm=fixed_window;',
            'ratelimit zone=z;', block => 'timeout 200ms; connect_timeout 5s; breaker failures=100 open=10s;')
    } $proxy, $redis;
    is_let_in($node, '/closed/?k=1');
    $proxy->delay(0.5);
    is $node->status('/closed/?k=1'), 503;
    is_counted($other, 1, 'z');
};

subtest 'requests that passed by fail mode open are counted' => sub {
    my $redis = redis();
    my $node  = modes_node([$redis], 'ratelimit_zone $arg_k zone=z cache=off rate=10r/d algorithm=fixed_window;',
        'ratelimit zone=z;', block => $patient);
    burst($node->port, '/open/?k=other', 20, 20);    # loads the scripts
    # Of one key, those that wait for the check in flight may never be sent.
    is_deeply during_a_stall($node, $redis, map { "/open/?k=$_" } 1 .. 5), { FAILED_OPEN => 5 };
    is_counted($node, 1, 'z', $_) for 1 .. 5;
};

for my $mode (['open', 'FAILED_OPEN'], ['local', 'PASSED']) {
    my ($path, $status) = @{$mode};
    for my $algorithm (@algorithms) {
        subtest "requests that passed by fail mode $path are charged what they cost in the end: $algorithm" => sub {
            my $redis = redis();
            my $now   = $algorithm =~ /leaky/ ? 'nodelay' : '';
            my $node  = modes_node([$redis], "ratelimit_zone \$arg_k zone=z cache=off rate=10r/d algorithm=$algorithm;",
                "ratelimit zone=z $now charge=\$arg_c;", block => $patient);
            burst($node->port, '/open/?k=other', 20, 20);    # loads the scripts
            is_deeply during_a_stall($node, $redis, map { "/$path/?k=$_&c=" . ($_ - 1) } 1 .. 4), { $status => 4 };
            is_counted($node, $_ - 1, 'z', $_) for 1 .. 4;
        };
    }
}

# R1 and R2 share a call: the fail mode refuses R1, and Redis R2.
for my $algorithm ('fixed_window', 'sliding_window_log', 'token_bucket burst=2', 'gcra burst=1') {
    subtest "a request is not counted whose call refuses another one: $algorithm" => sub {
        my $redis = redis();
        my $node  = modes_node([$redis], "ratelimit_zone \$arg_k zone=z cache=off rate=2r/d algorithm=$algorithm;",
            'ratelimit zone=z;', block => 'timeout 300ms; connect_timeout 5s; breaker failures=100 open=10s;');
        burst($node->port, '/closed/?k=other', 20, 20);    # loads the scripts
        for my $key (1 .. 3) {
            $redis->pause;
            my @sockets;
            for my $pause (0.08, 0.15, 0.22) {
                push @sockets, http_connect($node->port);
                http_send($sockets[-1], "/closed/?k=$key");
                sleep $pause;
            }
            $redis->resume;
            my $passed = grep { http_read($_)->status == 200 } @sockets;
            my $left   = 2 - $passed;
            wait_until('what is counted', sub { $node->get("/peek/z?k=$key")->header('X-RateLimit-Remaining') == $left }, 5);
            pass "as many are counted as passed: $passed";
        }
    };
}

subtest 'a request whose check was sent again and then came too late is refunded' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node  = modes_node([$proxy], 'ratelimit_zone $arg_k zone=z cache=off rate=10r/d algorithm=fixed_window;',
        'ratelimit zone=z;', block => 'timeout 300ms; connect_timeout 5s; breaker failures=100 open=10s;');
    burst($node->port, '/open/?k=other', 20, 20);    # loads the scripts
    my $lost;
    for my $key (1 .. 5) {    # again if the machine was too slow to lose the first reply in time
        is_let_in($node, "/closed/?k=warm$key");
        $proxy->delay(1);
        $proxy->lose;
        is $node->status("/closed/?k=$key"), 503;
        $lost = $proxy->lost && $key;
        $proxy->pass;
        last if $lost;
        wait_until('it is lost later', sub { $proxy->lost });
    }
    ok $lost, 'the first reply is lost with its connection, the second one comes late';
    is_counted($node, 1, 'z', $lost);
};

for my $mode ('open', 'closed') {
    subtest "a lease in a late reply is used once: fail mode $mode" => sub {
        my $redis = redis();
        my $node  = modes_node([$redis], 'ratelimit_zone $arg_k zone=z cache=off rate=300r/d lease=50 algorithm=fixed_window;',
            'ratelimit zone=z;', block => 'timeout 300ms; connect_timeout 5s; breaker failures=100 open=10s;');
        my %seen;
        my $ask = sub { $seen{ $_[0]->header('X-Status') }++; return };
        $ask->($node->get("/$mode/?k=1")) for 1 .. 60;    # a busy key leases
        $redis->pause;
        my @waiting;
        until (@waiting == 12) {
            my $socket = http_connect($node->port);
            http_send($socket, "/$mode/?k=1");
            IO::Select->new($socket)->can_read(0.03) ? $ask->(http_read($socket)) : push @waiting, $socket;
        }
        $redis->resume;
        $ask->(http_read($_)) for @waiting;
        $ask->($node->get("/$mode/?k=1")) for 1 .. 400;
        cmp_ok $seen{PASSED}, '<=', 300, 'no more than the limit pass';
        note join ' ', map { "$_=$seen{$_}" } sort keys %seen;
    };
}

# The refusal of R2 rests on the count of R1, which is taken back.
subtest 'a refusal that a late refund undoes is not remembered' => sub {
    my $redis = redis();
    my $node  = modes_node([$redis], 'ratelimit_zone $arg_k zone=z rate=1r/h algorithm=fixed_window;',
        'ratelimit zone=z;', block => $patient);
    my $key = 0;
    wait_until('a request that Redis refuses by a late count', sub {
        my $path = '/closed/?k=' . ++$key;
        $redis->pause;
        my $first  = $node->status($path);
        my $socket = http_connect($node->port);
        http_send($socket, $path);
        sleep 0.03;
        $redis->resume;
        return http_read($socket)->status == 429 && $first == 503;
    });
    ok eval { wait_until('the key is free', sub { $node->status("/closed/?k=$key") == 200 }, 2); 1 },
        'the next request passes, sooner than refusals are forgotten';
};

subtest 'a late refund returns nothing of what others took meanwhile: clock=local' => sub {
    my $redis = redis();
    my $clock = Chaos::Clock->new;
    my $node  = modes_node([$redis], 'ratelimit_zone $arg_k zone=z cache=off rate=1r/h algorithm=gcra clock=local;',
        'ratelimit zone=z;', block => $patient =~ s/200ms/3s/r, clock => $clock);
    is_let_in($node, '/closed/?k=connects');
    for my $key (1 .. 2) {
        $redis->pause;
        is $node->status("/closed/?k=$key"), 503;
        $clock->step(3601);    # what it took drains
        my $unread = $redis->unread;
        my $socket = http_connect($node->port);
        http_send($socket, "/closed/?k=$key");
        wait_until('the request is sent', sub { $redis->unread > $unread });
        $redis->resume;
        is http_read($socket)->status, 200;
        is $node->status("/closed/?k=$key"), 429, 'not two requests in an hour';
    }
};

subtest 'a request over two servers that got 503 is counted on none' => sub {
    my @redis = map { redis() } 1 .. 2;
    my $node  = modes_node(
        \@redis,
        'ratelimit_zone $arg_k zone=a redis=r0 cache=off rate=10r/d algorithm=fixed_window;'
            . 'ratelimit_zone $arg_k zone=b redis=r1 cache=off rate=10r/d algorithm=gcra burst=9;',
        'ratelimit zone=a; ratelimit zone=b;',
        block => $patient,
    );
    for my $stalled (@redis) {
        is_deeply during_a_stall($node, $stalled, ('/closed/?k=1') x 4), { FAILED_CLOSED => 4 };
        is_counted($node, 0, $_) for 'a', 'b';
    }
};

subtest 'a request that the memory of the node refuses is not counted' => sub {
    my $redis = redis();
    my $node  = modes_node([$redis],
        'ratelimit_zone $arg_k zone=z cache=off nodes=5 rate=10r/d algorithm=fixed_window;',
        'ratelimit zone=z;', block => $patient);
    is_deeply during_a_stall($node, $redis, ('/local/?k=1') x 6), { PASSED => 2, REJECTED => 4 };
    wait_until('the count', sub { ($node->get('/peek/z?k=1')->header('X-RateLimit-Remaining') // 0) >= 8 }, 5);
    pass 'at most those that passed are counted';
};

finish();

# charge=: what a request really cost is known when its response is complete.

use Ratelimit::Http qw(http_connect http_send burst);
use Ratelimit::Http2 qw(http2);
use Ratelimit::Process qw(wait_until);
use Ratelimit::Remaining qw(remaining remains);
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

# Limits by $arg_charge; /free has the same limit without a charge, /peek reports what remains.
sub charging_node {
    my (%options) = @_;
    my $zone = $options{zone} // 'algorithm=fixed_window';
    my $node = node(
        %options,
        zone   => "rate=10r/d $zone",
        limit  => $options{limit} // 'charge=$arg_charge',
        server => 'location = /free { ratelimit zone=test; try_files /index.html =404; }' . ($options{server} // ''),
    );
    return $node;
}

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket burst=10', 'gcra burst=9', 'leaky_bucket burst=9',
);

for my $place ('Redis', 'Redis, by the clock of the node', 'memory') {
    for my $algorithm (map { "algorithm=$_" } @algorithms) {
        subtest "a request is counted by what it cost, in $place, $algorithm" => sub {
            my $clock = $place =~ /clock/ ? 'clock=local' : '';
            my $node =
                $place eq 'memory'
                ? nginx(
                    http   => "ratelimit_zone k\$arg_k zone=test rate=10r/d $algorithm;",
                    server => 'location / { ratelimit zone=test charge=$arg_charge nodelay; }
                        location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }'
                        =~ s/nodelay/$algorithm =~ m{leaky} ? 'nodelay' : ''/er,
                )
                : charging_node(
                    zone  => "$algorithm $clock",
                    limit => 'charge=$arg_charge' . ($algorithm =~ /leaky/ ? ' nodelay' : ''),
                );
            for my $time (1 .. 12) {
                is $node->status('/?charge=0'), 200, "request $time that costs nothing";
                remains($node, 10, 'it is not counted');
            }
            is $node->status('/?charge='), 200, 'an empty charge';
            remains($node, 9, 'the cost stays');
            is $node->status('/?charge=4'), 200, 'a request that costs 4';
            remains($node, 5, 'all of it is counted');
            is $node->status('/?charge=35'), 200, 'a request that costs more than there is';
            remains($node, 0, 'the key owes it');
            my $refused = $node->get('/?charge=0');
            is $refused->status, 429, 'the next request is refused';
            remains($node, 0, 'a refused request is not settled');
            is $node->status('/?charge=0&k=another'), 200, 'other keys are not concerned';

            # With an arrival time 30 units of debt have to drain, and one more: 31/10 of a day.
            my $days = $refused->header('Retry-After') / 86_400;
            if ($algorithm =~ /bucket\b|gcra/ && $algorithm !~ /window/) {
                cmp_ok $days, '>', 3, 'until the debt is paid';
                cmp_ok $days, '<=', 3.1, 'and no longer';
            } else {
                cmp_ok $days, '<=', 2, 'until the window has passed';
            }
        };
    }
}

subtest 'a cost is reserved before the response and refunded after it' => sub {
    my $node = charging_node(limit => 'cost=5 charge=$arg_charge');
    is $node->status('/?charge=2'), 200;
    remains($node, 8, 'two of five');
    is $node->status('/?charge=5'), 200;
    remains($node, 3, 'five of five');
    is $node->status('/?charge=0'), 429, 'five do not fit, though the request would have cost nothing';
};

subtest 'a malformed charge keeps the cost and is logged once' => sub {
    my $node = charging_node();
    $node->status("/?charge=$_") for qw(x -1 1.5 99999999999999999999 1000000001 %00);
    remains($node, 4, 'each cost 1');
    is $node->count_log(qr/invalid charge "x" for zone "test"/), 1;
    is $node->count_log(qr/invalid charge/), 1;
};

subtest 'nginx -t refuses a charge without a variable' => sub {
    my ($status, $complaints) = conf_test(
        http   => 'ratelimit_zone $arg_k zone=test rate=1r/s;',
        server => 'location / { ratelimit zone=test charge=3; }',
    );
    isnt $status, 0;
    like $complaints, qr/"ratelimit": invalid "charge=3", expected charge= with a variable/;
};


subtest 'the charge is of the response: its status, its length, a header of the backend' => sub {
    my $node = charging_node(
        http => 'map $status $tries { 401 1; 403 1; default 0; }',
        server => <<'END',
        location = /login { ratelimit zone=test charge=$tries; proxy_pass http://127.0.0.1:$server_port/back$is_args$args; }
        location = /bytes { ratelimit zone=test charge=$body_bytes_sent; proxy_pass http://127.0.0.1:$server_port/back$is_args$args; }
        location = /tokens {
            ratelimit zone=test charge=$upstream_http_x_tokens;
            proxy_pass http://127.0.0.1:$server_port/back$is_args$args;
        }
        location = /back { add_header X-Tokens 3 always; if ($arg_bad) { return 401 "no"; } return 200 "fine"; }
END
    );
    is $node->status('/login'), 200, 'a login' for 1 .. 20;
    remains($node, 10, 'successes are not counted');
    is $node->status('/login?bad=1'), 401, 'a failed login' for 1 .. 2;
    remains($node, 8, 'failures are counted');
    is $node->status('/tokens'), 200;
    remains($node, 5, 'the three units that the backend names');
    is $node->get('/bytes')->body, 'fine';
    remains($node, 1, 'the four bytes of the body');
};

subtest 'a request is settled once, by the limits that decided it' => sub {
    my $node = charging_node(
        http   => 'ratelimit_zone $arg_k zone=other rate=10r/d algorithm=fixed_window;',
        server => <<'END',
        location = /redirected { ratelimit zone=test charge=$arg_charge; error_page 404 = /after?charge=3&k=once; try_files /none =404; }
        location = /after { ratelimit zone=other charge=$arg_charge; try_files /index.html =404; }
        location = /both {
            ratelimit zone=test charge=$arg_charge; ratelimit zone=other; try_files /index.html =404;
        }
        location = /shadow { ratelimit zone=test charge=$arg_charge shadow; try_files /index.html =404; }
        location = /dry { ratelimit zone=test charge=$arg_charge; ratelimit_dry_run on; try_files /index.html =404; }
        location = /peek_other { ratelimit zone=other cost=0; try_files /index.html =404; }
END
    );
    is $node->status('/redirected?charge=5&k=once'), 200;
    remains($node, 7, 'after an internal redirect it is charged once', '?k=once');
    is $node->get('/peek_other?k=once')->header('X-RateLimit-Remaining'), 10, 'by the limit that decided it';
    is $node->status('/both?charge=3&k=two'), 200, 'one limit of two has a charge';
    remains($node, 7, 'it is charged', '?k=two');
    is $node->get('/peek_other?k=two')->header('X-RateLimit-Remaining'), 9, 'the other is not';
    is $node->status('/shadow?charge=12&k=shadow'), 200;
    remains($node, 0, 'a shadow limit is charged', '?k=shadow');
    is $node->status('/shadow?charge=0&k=shadow'), 200, 'it refuses nothing';
    is $node->status('/dry?charge=11&k=dry'), 200;
    remains($node, 0, 'a dry run is charged', '?k=dry');
    is $node->status('/dry?charge=0&k=dry'), 200, 'what it would refuse takes nothing';
    remains($node, 0, 'and refunds nothing', '?k=dry');
};

# /slow takes long, and costs 7 if its client leaves.
sub node_with_slow_location {
    return charging_node(
        http   => 'map $status $left { 499 7; default 0; }',
        server => <<'END',
        location = /slow { ratelimit zone=test charge=$left; proxy_pass http://127.0.0.1:$server_port/rated; }
        location = /rated { limit_rate 1; try_files /big.bin =404; }
END
    );
}

subtest 'a client that leaves is settled by the status that nginx logs' => sub {
    my $node = node_with_slow_location();
    my $socket = http_connect($node->port);
    http_send($socket, '/slow');
    wait_until('the request is counted', sub { remaining($node) == 9 });
    close $socket;
    remains($node, 3, 'seven are charged');
};

subtest 'requests of HTTP/2 streams and of a busy key are settled, and share calls' => sub {
    my $node    = charging_node(zone => 'algorithm=gcra burst=999');
    my $streams = charging_node(zone => 'algorithm=gcra burst=999', redis => $node->{redis}, listen => 'http2');
    is_deeply [map { $_->status } http2($streams->port, [('/?charge=0') x 50])], [(200) x 50], '50 streams';
    remains($node, 1000, 'none is counted');
    is scalar(grep { $_ == 200 } burst($node->port, '/?charge=2', 100, 20)), 100, '100 requests of 20 clients';
    remains($node, 800, 'each cost 2');
    $node->{redis}->cmd('CONFIG', 'RESETSTAT');
    is scalar(grep { $_ == 200 } burst($node->port, '/?charge=0', 400, 100)), 400, '400 requests of 100 clients';
    remains($node, 800, 'none is counted');
    my ($calls) = $node->{redis}->cmd('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/;
    cmp_ok $calls, '<', 400, 'checks and refunds take less than a call for each request';
};

# Two nodes whose clocks differ, or two workers whose checks overtake each other.
for my $algorithm ('sliding_window_log', 'sliding_window_buckets precision=1s') {
    subtest "a request that a slower clock counted at the newest entry's time is settled, $algorithm" => sub {
        my $node = charging_node(zone => "algorithm=$algorithm clock=local");
        is $node->status('/free'), 200, 'a request that stays counted';
        my ($key) = $node->{redis}->keys_like('rl:test:*');
        my $state = $node->{redis}->cmd('GET', $key);
        my @times = $algorithm =~ /log/ ? (0, 15) : (0, 21);    # of the entry, and of the oldest live one
        for my $at (@times) {
            my $time = unpack('Q>', "\0" . substr $state, $at, 7) + 20_000_000;
            substr $state, $at, 7, substr pack('Q>', $time), 1;
        }
        $node->{redis}->cmd('SET', $key, $state, 'KEEPTTL');
        for my $time (1 .. 12) {
            is $node->status('/?charge=0'), 200, "request $time that costs nothing";
            remains($node, 9, 'it is not counted');
        }
        is $node->status('/?charge=4'), 200, 'a request that costs 4';
        remains($node, 5, 'all of it is counted');
    };
}

subtest 'metrics and API count costs as settled' => sub {
    my $node = charging_node(limit => 'cost=2 charge=$arg_charge', server => 'location /ops/ { ratelimit_api; }');
    is $node->status("/?charge=$_"), 200, "charge $_" for 0, '', 5, 1;
    is $node->status('/?charge=0'), 200;
    is $node->status('/free'), 200;
    is $node->status('/?charge=0'), 429, 'a refused request costs nothing';
    my $metrics = $node->get('/ops/metrics')->body;
    my %expected = (cost => 9, charged => 3, refunded => 5);
    like $metrics, qr/^ratelimit_${_}_total\{zone="test"\} $expected{$_}$/m, "metric $_" for sort keys %expected;
    my $zone = $node->get('/ops/zones/test')->body;
    like $zone, qr/"$_":$expected{$_}\b/, "API $_" for sort keys %expected;
};

subtest 'a zone with leases counts what requests cost' => sub {
    my $node = charging_node(zone => 'algorithm=gcra burst=999 lease=50');
    $node->status('/free') for 1 .. 30;
    is scalar(grep { $_ == 200 } burst($node->port, '/?charge=0', 100, 10)), 100;
    cmp_ok remaining($node), '>=', 970 - 60, 'only what the other location took or leased is counted';
    is $node->status('/?charge=2000'), 200;
    remains($node, 0, 'the key owes it');
    is $node->status('/'), 429;
};

subtest 'without Redis the fail mode local settles in the memory of the node' => sub {
    my $redis = redis();
    my $node  = charging_node(redis => $redis, location => 'ratelimit_fail_mode local;');
    $redis->stop;
    is $node->status('/?charge=0'), 200, "request $_" for 1 .. 12;
    is $node->status('/?charge=11'), 200;
    is $node->status('/?charge=0'), 429, 'the key owes what was charged';
};

subtest 'a settlement that Redis did not execute is tried again, and counted when it is given up' => sub {
    my $redis = redis();
    my $node  = charging_node(
        redis  => $redis,
        server => <<'END',
        location = /slow { ratelimit zone=test charge=0$arg_none; proxy_pass http://127.0.0.1:$server_port/rated; }
        location = /rated { limit_rate 1; try_files /big.bin =404; }
        location /ops/ { ratelimit_api; }
END
    );
    my $failed = sub { ($node->get('/ops/metrics')->body =~ /^ratelimit_settlements_failed_total\{.*\} (\d+)/m)[0] };
    my $errors = sub { $redis->cmd('INFO', 'errorstats') =~ /errorstat_$_[0]:count=(\d+)/ ? $1 : 0 };
    my $slow = sub {
        my $socket = http_connect($node->port);
        http_send($socket, '/slow');
        wait_until('the request is counted', sub { remaining($node) == 9 });
        return $socket;
    };
    my $socket;
    for my $refusal (
        ['OOM',    [qw(CONFIG SET maxmemory 1)],           [qw(CONFIG SET maxmemory 0)]],
        ['NOPERM', [qw(ACL SETUSER default -evalsha)],     [qw(ACL SETUSER default +evalsha)]],
        ['NOPERM', [qw(ACL SETUSER default resetkeys ~x)], [qw(ACL SETUSER default allkeys)]],
        )
    {
        my ($error, $refuse, $admit) = @{$refusal};
        $socket = $slow->();
        my $before = $errors->($error);
        $redis->cmd(@{$refuse});
        close $socket;
        wait_until('the refund is refused', sub { $errors->($error) >= $before + 2 });
        $redis->cmd(@{$admit});
        remains($node, 10, "the request is refunded behind $error");
    }
    is $failed->(), 0, 'and no settlement has failed';

    $socket = $slow->();
    $redis->stop;
    wait_until('the connection is lost', sub { $node->count_log(qr/is away/) });
    close $socket;
    ok eval { wait_until('the failure', sub { $failed->() == 1 }, 30) }, 'without a connection it is given up';
};

subtest 'Redis is read-only while many requests end: each is settled when it is writable again' => sub {
    my $redis = redis();
    my $node  = charging_node(
        redis   => $redis,
        timeout => '5s',
        server  => <<'END',
        location = /slow { ratelimit zone=test charge=0$arg_none; proxy_pass http://127.0.0.1:$server_port/rated; }
        location = /rated { limit_rate 1; try_files /big.bin =404; }
END
    );
    my $slow = sub {
        my ($count) = @_;
        my @sockets = map { http_connect($node->port) } 1 .. $count;
        http_send($_, '/slow') for @sockets;
        remains($node, 10 - $count, 'the requests are counted');
        return @sockets;
    };
    close $_ for $slow->(1);    # loads the scripts
    remains($node, 10, 'one is refunded');
    my @sockets = $slow->(9);
    $redis->cmd('REPLICAOF', '127.0.0.1', 1);
    $redis->pause;
    while (my $socket = shift @sockets) {
        close $socket;
        sleep 0.02;    # so that each refund is a command of its own
    }
    $redis->resume;
    wait_until('the refunds are refused', sub { $redis->cmd('INFO', 'errorstats') =~ /errorstat_READONLY:count=([2-9]|\d{2,})/ });
    $redis->cmd('REPLICAOF', 'NO', 'ONE');
    remains($node, 10, 'all nine are refunded');
};

subtest 'a settlement whose reply is lost with its connection is not sent again' => sub {
    my $redis  = redis();
    my $proxy  = proxy(to => $redis->addr);
    my $node   = charging_node(redis => $proxy, timeout => '5s');
    my $direct = charging_node(redis => $redis);
    is $node->status('/?charge=2'), 200;    # loads the script
    remains($node, 8, 'one is charged');    # this reply comes after that of the settlement
    $proxy->lose(2, 'rl:test:{k}');         # after that of the check
    is $node->status('/?charge=5'), 200;
    wait_until('the reply is lost', sub { $proxy->lost });
    wait_until('the connection is back', sub { $node->status('/?charge=0') == 200 });
    remains($direct, 3, 'it is charged once');
    my ($end, %seen) = time + 1;    # a settlement that is tried again waits for half a second
    do { $seen{ remaining($direct) }++ } while time < $end;
    is_deeply [keys %seen], [3], 'and not a second time';
};

subtest 'a worker that exits settles the requests that it still serves' => sub {
    my $node = node_with_slow_location();
    my $socket = http_connect($node->port);
    http_send($socket, '/slow');
    wait_until('the request is counted', sub { remaining($node) == 9 });
    my ($worker) = $node->workers;
    $node->reload(gone => 0);
    wait_until('the worker has closed its connections to Redis', sub {
        1 == grep { /name=nginx-ratelimit/ } split /\n/, $node->{redis}->cmd('CLIENT', 'LIST') });
    close $socket;
    remains($node, 3, 'seven are charged');
    wait_until('the worker has exited', sub { !kill 0 => $worker });
};

for my $stop ('TERM', 'QUIT, then TERM') {
    subtest "a download that a stop of nginx cuts off is charged for what was sent: $stop" => sub {
        my $redis = redis();
        my %options = (
            redis => $redis,
            zone  => 'rate=100000000r/d algorithm=fixed_window',
            limit => 'charge=$bytes_sent',
        );
        my $node = node(%options, location => 'limit_rate 1m; limit_rate_after 1m;',
            expected => qr/open socket|aborting/);    # nginx's own words for TERM after QUIT
        write_file("$node->{folder}/html/big", 'x' x 35_000_000);
        my $socket = http_connect($node->port);
        http_send($socket, '/big');
        my $received = 0;
        while ($received < 1_100_000) {
            $received += sysread $socket, my $bytes, 65_536;
        }
        if ($stop =~ /QUIT/) {
            my ($worker) = $node->workers;
            kill QUIT => $node->pid;
            wait_until('the worker exits', sub { $node->has_begun_to_leave($worker) });
        }
        kill TERM => $node->pid;
        while (my $got = sysread $socket, my $bytes, 65_536) {
            $received += $got;
        }
        cmp_ok $received, '<', 30_000_000, 'the download was cut off';
        my $next = node(%options);
        remains($next, 100_000_000 - $received, 'each byte was charged');
    };
}

finish();

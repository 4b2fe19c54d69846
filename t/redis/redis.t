# What clients and operators see when Redis is unavailable, slow, access-controlled or empty.

use Ratelimit::Test;
use IO::Socket::INET;

my $zone = 'rate=3r/d algorithm=fixed_window';

# An nginx with the same zone and the given lines of ratelimit_redis.
sub node_of {
    my ($block, %options) = @_;
    # Long timeouts, unless a test is about them: a busy machine must not fail tests.
    for my $timeout (qw(timeout connect_timeout)) {
        $block .= " $timeout 5s;" if $block !~ /\b$timeout /;
    }
    return nginx(
        http => "ratelimit_redis main { $block } ratelimit_zone k\$arg_k zone=test $zone; "
            . ($options{http} // ''),
        server => 'location / { ratelimit zone=test; ' . ($options{location} // '') . ' }',
        workers => $options{workers} // 1,
    );
}

subtest 'with no server running, open admits and closed refuses, both without waiting' => sub {
    my $port = free_port();
    my %status = (open => 200, closed => 503);
    for my $mode (sort keys %status) {
        my $node = node_of("server 127.0.0.1:$port;",
            location => "ratelimit_fail_mode $mode; add_header X-Status \$ratelimit_status always;");
        $node->wait_for_log(qr/is away/);
        my $watch = stopwatch();
        for (1 .. 20) {
            my $answer = $node->get('/');
            is $answer->status, $status{$mode} or last;
            is $answer->header('X-Status'), $mode eq 'open' ? 'FAILED_OPEN' : 'FAILED_CLOSED';
            is $answer->header('X-RateLimit-Limit'), undef, 'no headers without a known limit';
        }
        $watch->within(5);
        is $node->count_log(qr/is away.*Connection refused/), 1, 'one line in the log, with the reason';
    }
};

subtest 'fail mode closed replies with ratelimit_fail_status' => sub {
    my $node = node_of('server 127.0.0.1:' . free_port() . ';',
        location => 'ratelimit_fail_mode closed; ratelimit_fail_status 429;');
    is $node->status('/'), 429;
};

subtest 'dry run and shadow limits refuse nothing when Redis is unavailable either' => sub {
    my $server = 'server 127.0.0.1:' . free_port() . ';';
    is node_of($server, location => 'ratelimit_fail_mode closed; ratelimit_dry_run on;')->status('/'),
        200, 'dry run';
    my $shadow = nginx(
        http => "ratelimit_redis main { $server } ratelimit_zone k zone=test rate=\$arg_rate;",
        server => 'location / { ratelimit zone=test shadow; ratelimit_fail_mode closed; }',
    );
    is $shadow->status('/?rate=1r/s'), 200, 'a shadow limit';
    is $shadow->status('/?rate=nonsense'), 200, 'a shadow limit with a malformed rate';
};

subtest 'a Redis that stops is reported, and decides again when it is back' => sub {
    my $redis = redis();
    my $node = node_of("server @{[ $redis->addr ]};", workers => 2);
    is_deeply [map { $node->status('/') } 1 .. 4], [200, 200, 200, 429];
    $node->wait_for_log(qr/is up/, 2);    # both workers
    $redis->stop('KILL');
    $node->wait_for_log(qr/is away/, 2);
    is $node->status('/?k=other'), 200, 'fail mode open admits';
    is $node->status('/'), 429, 'but not a key whose refusal is cached';
    $redis->start;
    $node->wait_for_log(qr/is up/, 4);
    is_deeply [map { $node->status('/') } 1 .. 4], [200, 200, 200, 429], 'the restarted Redis starts counting at zero';
    is $node->count_log(qr/is away/), 2, 'one line for each worker when it stopped';
    is $node->count_log(qr/is up/), 4, 'one line for each worker each time it came up';
};

subtest 'a Redis that hangs delays a request by at most the timeout' => sub {
    my $redis = redis();
    my $node = node_of("server @{[ $redis->addr ]}; timeout 500ms;",
        location => 'ratelimit_fail_mode closed;');
    wait_until('Redis decides', sub { $node->status('/') == 200 });
    $redis->pause;
    my $watch = stopwatch();
    is $node->status('/'), 503;
    cmp_ok $watch->elapsed, '>', 0.4, 'the request waited';
    $watch->within(5, 'but not for long');
    $redis->resume;
    wait_until('Redis decides again', sub { $node->status('/?k=again') == 200 });
    my ($answer, $fresh);
    wait_until('Redis decides on a fresh key', sub { $answer = $node->get('/?k=fresh' . ++$fresh); $answer->status == 200 });
    is $answer->header('X-RateLimit-Remaining'), 2, 'a late reply is not taken for another request';
};

subtest 'a Redis that keeps hanging delays no more requests, and decides again soon after it resumes' => sub {
    my $redis = redis();
    my $node = node_of("server @{[ $redis->addr ]}; timeout 100ms; breaker failures=3 open=500ms;",
        location => 'ratelimit_fail_mode closed;');
    wait_until('Redis decides', sub { $node->status('/') == 200 });
    $redis->pause;
    my $watch = stopwatch();
    is $node->status('/'), 503 for 1 .. 3;
    # If a busy machine takes longer for them than timeout + open, the connection is silent first.
    $node->wait_for_log($watch->elapsed < 0.6 ? qr/is away.*no reply in time/ : qr/is away.*no reply/);
    $watch = stopwatch();
    my @statuses = map { $node->status('/') } 1 .. 50;
    $watch->within(2, 'fifty requests waited for a trial or two, not for fifty timeouts');
    is scalar(grep { $_ != 503 } @statuses), 0;
    $redis->resume;
    $watch = stopwatch();
    wait_until('Redis decides again', sub { $node->status('/?k=back') == 200 });
    $watch->within(3);
    $node->wait_for_log(qr/is up/, 2);
    is $node->count_log(qr/is away/), 1, 'one line in the log';
};

subtest 'nginx -t warns of a timer_resolution that is longer than a time of a redis block' => sub {
    my $zone = 'ratelimit_zone $arg_k zone=test rate=100r/d redis=a; ';
    my sub block { my ($name, $times) = @_; return "ratelimit_redis $name { server 127.0.0.1; $times } " }
    for (['1s', block('a', ''), '1000 ms is longer than the 100 ms of redis "a"'],
        ['300ms', block('a', 'timeout 1s; connect_timeout 200ms;'), '300 ms is longer than the 200 ms of redis "a"'],
        ['300ms', block('a', 'timeout 1s; connect_timeout 2s;') . block('b', 'timeout 50ms;'), '300 ms is longer than the 50 ms of redis "b"'],
        ['100ms', block('a', '')], ['1s', '']) {
        my ($resolution, $blocks, $warning) = @{$_};
        for my $level (qw(warn error)) {
            my ($exit, @complaints) = conf_test(main => "timer_resolution $resolution;", level => $level,
                http => $blocks . ($blocks eq '' ? $zone =~ s/redis=a//r : $zone), server => 'location / { ratelimit zone=test; }');
            is $exit, 0;
            like "@complaints", defined $warning ? qr/\[warn\] ratelimit: "timer_resolution" of $warning: its times end up to that much later$/ : qr/^$/,
                "$resolution, error_log at $level: $blocks";
        }
    }
};

subtest 'nginx -t warns of a timer_resolution that is too coarse to renew what requests hold' => sub {
    for ([251, 1], [250, 0]) {
        my ($resolution, $warns) = @{$_};
        my (undef, @complaints) = conf_test(main => "timer_resolution ${resolution}ms;",
            http => 'ratelimit_zone $uri zone=c concurrency=3 hold=1s; ratelimit_zone $uri zone=r rate=3r/s;', server => 'location / { ratelimit zone=c; }');
        like "@complaints", $warns ? qr/^nginx: \[warn\] ratelimit: "timer_resolution" of $resolution ms is longer than a quarter of "hold=" of zone "c": [^:]*$/ : qr/^$/;
    }
};

subtest 'with timer_resolution, a timeout ends when the next tick comes' => sub {
    my $redis = redis();
    my $node = nginx(
        main => 'timer_resolution 2s;',
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 100ms; } ratelimit_zone \$arg_k zone=test rate=100r/d;",
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
    );
    wait_until('Redis decides', sub { $node->status('/?k=a') == 200 }, 20);
    $redis->pause;
    my $watch = stopwatch();
    is $node->status('/?k=b'), 503, 'the fail mode decides';
    $watch->within(6, 'after one tick, not four');
    $redis->resume;
};

subtest 'a server that accepts connections and never replies delays requests by at most the timeouts' => sub {
    my $deaf = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100) or die $!;
    my $node = node_of('server 127.0.0.1:' . $deaf->sockport . '; connect_timeout 100ms;');
    my $watch = stopwatch();
    is $node->status('/'), 200;
    $watch->within(3);
    $node->wait_for_log(qr/is away.*timed out while connecting/);
};

subtest 'a server that is not Redis is treated as unavailable' => sub {
    my $port = free_port();
    my $pid = fork // die $!;
    if ($pid == 0) {
        my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port,
            Listen => 10, ReuseAddr => 1) or POSIX::_exit(1);
        while (my $client = $server->accept) { print {$client} "HTTP/1.1 400 Bad\r\n\r\n"; close $client }
        POSIX::_exit(0);
    }
    my $node = node_of("server 127.0.0.1:$port;");
    $node->wait_for_log(qr/is away/);
    is $node->status('/'), 200 for 1 .. 5;
    kill KILL => $pid;
    waitpid $pid, 0;
};

subtest 'flushed scripts are loaded again without a failed request' => sub {
    my $redis = redis();
    my $node = node_of("server @{[ $redis->addr ]};", location => 'ratelimit_fail_mode closed;');
    is $node->status('/'), 200;
    $redis->cmd('SCRIPT', 'FLUSH');
    $redis->cmd('CONFIG', 'RESETSTAT');
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429];
    is $redis->calls('eval'), 1, 'its text is sent once more';
};

subtest 'passwords, users, databases, unix sockets and prefixes work' => sub {
    my $redis = redis(password => 'open sesame', socket => 1);
    my $rights = read_file('doc/operations.md') =~ /^ACL SETUSER ratelimit on >password (.*)$/m ? $1 : '';
    $redis->cmd('ACL', 'SETUSER', 'limiter', 'on', '>secret', split ' ', $rights);
    my $server = 'server ' . $redis->addr . ';';
    my $folder = $redis->{folder};
    write_file("$folder/password", "open sesame\n");
    for (
        ['a password', "$server password 'open sesame';"],
        ['a password in a file', "$server password_file $folder/password;"],
        ['a user with the rights of doc/operations.md', "$server username limiter; password secret;"],
        ['a database', "$server password 'open sesame'; database 3;"],
        ['a unix socket', "server unix:$redis->{path}; password 'open sesame';"],
        ['a prefix', "$server password 'open sesame'; prefix other:;"],
    ) {
        my ($what, $block) = @{$_};
        $redis->cmd('FLUSHALL');
        my $node = node_of($block, location => 'ratelimit_fail_mode closed;');
        is_deeply [map { $node->status('/') } 1 .. 4], [200, 200, 200, 429], $what;
    }
    is_deeply [$redis->keys_like], ['other:test:{k}'], 'the prefix starts the key';

    my $node = node_of("$server password wrong;");
    $node->wait_for_log(qr/is away.*WRONGPASS/);
    is $node->status('/'), 200;
};

subtest 'every algorithm works with the rights of doc/operations.md, and every key expires' => sub {
    my $redis = redis();
    my ($rights) = read_file('doc/operations.md') =~ /^ACL SETUSER ratelimit on >password (.*)$/m;
    $redis->cmd('ACL', 'SETUSER', 'limiter', 'on', '>secret', split ' ', $rights);
    my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log
        sliding_window_buckets token_bucket leaky_bucket gcra);
    my $node = nginx(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; username limiter; password secret;"
            . " timeout 5s; connect_timeout 5s; }"
            . join('', map { "ratelimit_zone k\$arg_k zone=$_ rate=3r/s algorithm=$_;" } @algorithms),
        server => 'ratelimit_fail_mode closed;'
            . join('', map { "location /$_/ { ratelimit zone=$_; try_files /index.html =404; }" }
                @algorithms)
            . 'location /all/ { try_files /index.html =404;'
            . join('', map { "ratelimit zone=$_;" } @algorithms) . '}',
    );
    is $node->status("/$_/?k=alone"), 200, $_ for @algorithms;
    is $node->status('/all/?k=together'), 200, 'all in one call';
    wait_until('every key has expired', sub { $redis->cmd('DBSIZE') == 0 }, 15);
    my ($expired) = $redis->cmd('INFO', 'stats') =~ /^expired_keys:(\d+)/m;
    cmp_ok $expired, '>=', 2 * @algorithms, 'every key expires';

    $redis->cmd('ACL', 'SETUSER', 'limiter', '-getrange', '-mget');
    is $node->status("/$_/?k=alone"), 503, "without the right to read, $_ cannot decide" for @algorithms, 'all';
    is $node->count_log(qr/answered: .*(?:permission|can't run).*ACL LOG in Redis.*Rights in Redis/i), 1,
        'the log says so, and where to look';
};

subtest 'the log says why Redis refuses a connection' => sub {
    my $redis = redis(conf => "maxclients 1\n");    # the connection of this test
    my $node = node_of("server @{[ $redis->addr ]};");
    $node->wait_for_log(qr/is away, the fail mode decides: ERR max number of clients reached/);
    is $node->status('/'), 200;
    $redis->cmd('CONFIG', 'SET', 'maxclients', 100);
    $node->wait_for_log(qr/is up/);
};

subtest 'an error reply is logged once, not per request' => sub {
    my $redis = redis();
    my $node = node_of("server @{[ $redis->addr ]};", location => 'ratelimit_fail_mode closed;');
    is $node->status('/'), 200;
    $redis->cmd('CONFIG', 'SET', 'maxmemory', 1);
    is $node->status('/?k=full'), 503 for 1 .. 10;
    is $node->count_log(qr/answered: OOM/), 1;
    $redis->cmd('CONFIG', 'SET', 'maxmemory', 0);
    wait_until('Redis decides again', sub { $node->status('/?k=full') == 200 });
    pass 'requests pass once the error is gone';
};

subtest 'a master that becomes a replica is named once, although it answers what only reads' => sub {
    my ($redis, $master) = (redis(), redis());
    my $node = node_of("server @{[ $redis->addr ]};", http => 'ratelimit_fleet;',
        location => 'ratelimit_fail_mode closed; try_files /index.html =404; } location /peek { ratelimit zone=test cost=0; try_files /index.html =404;');
    is $node->status('/?k=1'), 200;
    $redis->cmd('REPLICAOF', split /:/, $master->addr);
    $node->wait_for_log(qr/answered: READONLY/);
    my $end = time + 3;    # the node writes what it says of itself to Redis each second
    for (my $key = 0; time < $end; $key++) {
        $node->status($_) for "/?k=a$key", "/peek?k=b$key";
    }
    $redis->cmd('REPLICAOF', 'NO', 'ONE');
    wait_until('Redis decides', sub { $node->status('/?k=again') == 200 });
    is_deeply [map { $node->count_log($_) } qr/answered: READONLY/, qr/is away/, qr/is up/], [1, 0, 1];
};

subtest 'a key that holds another type or a malformed value is overwritten' => sub {
    my $redis = redis();
    for my $algorithm (qw(fixed_window sliding_window_counter sliding_window_log
        sliding_window_buckets token_bucket leaky_bucket gcra)) {
        my $node = nginx(
            http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
                . "ratelimit_zone k\$arg_k zone=test rate=2r/d algorithm=$algorithm;",
            server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
        );
        for my $make (['HSET', 'field', 1], ['RPUSH', 'x'], ['SET', ''], (map { ['SET', 'x' x $_] } 16, 20, 28, 31, 43),
            ['SET', 'inf'], ['SET', '0x1p60'], ['SET', '1:2:3'], ['SET', '-5'], ['SET', 'nan']) {
            my ($command, @words) = @{$make};
            $redis->cmd('FLUSHALL');
            $redis->cmd($command, 'rl:test:{k}', @words);
            is $node->status('/'), 200, "$algorithm over $command @words";
        }
    }
};

subtest 'after a reload old workers exit as soon as their requests end' => sub {
    my $redis = redis();
    # No request has its deadline while nginx reloads, which takes long on a busy machine.
    my $node = node_of("server @{[ $redis->addr ]}; timeout 60s; connect_timeout 60s;", workers => 2);
    is $node->status('/'), 200;
    $redis->pause;
    my @sockets = map { http_connect($node->port) } 1 .. 4;
    my $unread = $redis->unread;
    http_send($_, '/?k=parked', close => 1) for @sockets;
    wait_until('the requests are pending', sub { $redis->unread > $unread });
    $node->reload;
    $redis->resume;
    is_deeply [sort map { http_read($_)->status } @sockets], [200, 200, 200, 429],
        'the pending requests are answered';
    wait_until('the old workers have exited', sub { !$node->workers(1) }, 5);
    pass 'the old workers have exited';
    $redis->stop('KILL');
    $node->wait_for_log(qr/is away/, 2);
    $node->reload;
    wait_until('the old workers have exited', sub { !$node->workers(1) }, 5);
    pass 'also when Redis is unavailable';
    $redis->start;
};

subtest 'a zone whose keys the user may not touch fails no request of another zone' => sub {
    my $redis = redis();
    my $node = nginx(
        http   => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . join('', map { "ratelimit_zone \$arg_k zone=$_ rate=1000r/d algorithm=fixed_window;" } qw(allowed other)),
        server => 'ratelimit_fail_mode closed;'
            . join('', map { "location = /$_ { ratelimit zone=$_; try_files /index.html =404; }" } qw(allowed other)),
    );
    is $node->status('/other?k=1'), 200;
    $redis->cmd('ACL', 'SETUSER', 'default', 'resetkeys', '~rl:allowed:*');
    my ($worker) = $node->workers;
    my %sockets = map { $_ => [map { http_connect($node->port) } 1 .. 20] } qw(allowed other);
    pause_processes($worker);    # so that all requests arrive in one turn, and share calls
    for my $i (0 .. 19) {
        http_send($sockets{$_}[$i], "/$_?k=$i") for qw(allowed other);
    }
    kill CONT => $worker;
    my %statuses = map { $_ => [map { http_read($_)->status } @{ $sockets{$_} }] } qw(allowed other);
    is_deeply $statuses{allowed}, [(200) x 20], 'the zone with the right';
    is_deeply $statuses{other}, [(503) x 20], 'the zone without';
};

finish();

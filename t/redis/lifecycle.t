# nginx's processes: reloads, upgrades of the program, crashes. Clients do not notice, and no connection,
# descriptor or memory is left behind.

use Ratelimit::Backend;
use Ratelimit::Test;
use IO::Select;
use IO::Socket::INET;

my $many = 'rate=1000000r/d algorithm=fixed_window';

# The number of connections to a node's Redis, without the test's own.
sub connections {
    my ($node) = @_;
    my @lines = split /\n/, $node->{redis}->cmd('CLIENT', 'LIST');
    return @lines - 1;
}

# The number of requests of a key that Redis has counted.
sub counted {
    my ($node, $key) = @_;
    my (undef, $count) = unpack 'd<2', $node->{redis}->cmd('GET', "rl:test:{k$key}");
    return $count;
}

# A process's number of file descriptors and shared mappings, and its kilobytes of memory.
sub held_by {
    my ($pid) = @_;
    my @fds = glob "/proc/$pid/fd/*";
    my $shared = () = read_file("/proc/$pid/maps") =~ m{ rw-s .* /dev/zero}g;
    my ($memory) = read_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+)/m;
    return { fds => scalar @fds, shared => $shared, memory => $memory };
}

# Ends a load whose requests must not fail: every request was answered, and Redis has counted each that
# passed. $exits: the number of workers that exited meanwhile, each of which may close the idle keepalive
# connections.
sub check_load {
    my ($node, $load, $key, $exits) = @_;
    my $seen = $load->stop;
    is $seen->{failed}, 0, 'no request failed' or diag $seen->{why};
    is_deeply [grep { !/^(?:200|429|retried|failed|why)$/ } sort keys %{$seen}], [], 'every response is 200 or 429';
    is counted($node, $key), $seen->{200}, 'Redis has counted the requests that passed';
    cmp_ok $seen->{retried}, '<=', $exits * 4, 'idle connections were closed with a worker only';
    return $seen;
}

subtest 'fifty reloads under load fail no request and leave nothing behind' => sub {
    my $redis = redis();
    my $addr = $redis->addr;
    my $node = node(
        redis   => $redis,
        workers => 2,
        zone    => "$many redis=main",
        http    => "ratelimit_redis second { server $addr; prefix other:; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone k$arg_k zone=few redis=second rate=3r/d algorithm=fixed_window;',
        server => 'location /few/ { ratelimit zone=few; try_files /index.html =404; }',
    );
    my @loads = map { load(port => $node->port, path => $_) } '/?k=r', '/few/?k=r';
    $node->reload(gone => 1) for 1 .. 5;    # one-time allocations are done by then
    my $before = held_by($node->pid);
    $node->reload(gone => $_ % 10 == 0) for 1 .. 50;
    my $after = held_by($node->pid);
    $_->wait_for_more(100) for @loads;
    check_load($node, $loads[0], 'r', 55 * 2);
    my $few = $loads[1]->stop;
    is $few->{failed}, 0 or diag $few->{why};
    is $few->{200}, 3, 'a limit keeps its count through all reloads';

    is $node->workers + $node->workers(1), 2, 'only the last workers run';
    wait_until('a connection for each worker and block', sub { connections($node) == 2 * 2 });
    pass 'the connections of the workers that exited are closed';
    # A leak would add one for each of the fifty. The channels to exiting workers come and go.
    cmp_ok $after->{fds}, '<=', $before->{fds} + 10, 'no file descriptors are leaked';
    is $after->{shared}, $before->{shared}, 'no shared memory is leaked';
    # 10 kB for each reload is less than a configuration with its scripts, and more than the heap's
    # variation.
    cmp_ok $after->{memory}, '<=', $before->{memory} + 50 * 10, 'the master leaks no memory';
    is $node->count_log(qr/limiting requests, by zone "few"/), 1, 'one run of refusals is one line';
};

subtest 'an old worker answers its last request, and then exits immediately' => sub {
    my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = node(zone => $many, workers => 1,
        server => 'location /slow/ { ratelimit zone=test; proxy_pass http://127.0.0.1:'
            . $backend->sockport . '; }');
    my $client = http_connect($node->port);
    http_send($client, '/slow/');
    my $upstream = $backend->accept or die $!;
    sysread $upstream, my $request, 4000;
    my ($old) = $node->workers;    # not before it serves: a worker that has just begun has no title
    $node->reload;
    wait_until('the old worker is shutting down', sub { "@{[ $node->workers(1) ]}" eq $old });
    is $node->status('/'), 200, 'the new worker serves meanwhile';
    print {$upstream} "HTTP/1.0 200 OK\r\n\r\nfinally";
    close $upstream;
    is http_read($client)->body, 'finally', 'the old worker waits for its last request';
    my $watch = stopwatch();
    wait_until('the old worker has exited', sub { !$node->workers(1) });
    $watch->within(3, 'neither Redis nor a timer of the module delays its exit');
    wait_until('one connection is left', sub { connections($node) == 1 });
};

subtest 'with concurrency=, an old worker closes its connection when hold has passed' => sub {
    my $backend = Ratelimit::Backend->new;
    my $node = node(zone => 'concurrency=5 hold=1s', workers => 1,
        server => "location /long/ { proxy_pass http://@{[ $backend->addr ]}; }");
    my ($long) = $backend->hold($node, '/long/');
    is $node->status('/'), 200;
    $node->reload;
    is $node->status('/'), 200;
    wait_until('only the new worker is connected', sub { connections($node) == 1 });
    is scalar $node->workers(1), 1, 'the old worker runs';
    $backend->finish;
    is http_read($long)->status, 200;
};

subtest 'old workers kept alive by a long response close their connections to Redis, and still decide' => sub {
    my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = node(zone => $many, workers => 1,
        server => 'location /long/ { proxy_pass http://127.0.0.1:' . $backend->sockport . '; }');
    my (@kept, $late);
    for my $time (1 .. 3) {
        my $client = http_connect($node->port);
        http_send($client, '/long/');
        my $upstream = $backend->accept or die $!;
        sysread $upstream, my $request, 4000;
        push @kept, [$client, $upstream];
        $late //= http_connect($node->port);
        print {$late} "GET /?k=late HTTP/1.1\r\n" if $time == 1;
        is $node->status('/?k=first'), 200;
        $node->reload;
        # A worker may accept connections until it has seen the signal.
        wait_until('the old worker waits for its response', sub { $node->workers(1) == $time });
    }
    wait_until('only the new worker is connected', sub { connections($node) == 1 });
    print {$late} "Host: localhost\r\n\r\n";
    is http_read($late)->status, 200, 'a request of an old worker is answered';
    is counted($node, 'late'), 1, 'the request is counted';
    wait_until('the old worker has closed its connection again', sub { connections($node) == 1 });
    for my $pair (@kept) {
        print { $pair->[1] } "HTTP/1.0 200 OK\r\n\r\nfinally";
        close $pair->[1];
        is http_read($pair->[0])->body, 'finally';
    }
};

subtest 'a delayed request is answered by its old worker after a reload' => sub {
    my $node = node(zone => 'rate=30r/m algorithm=leaky_bucket burst=5');
    is $node->status('/'), 200;
    my $client = http_connect($node->port);
    http_send($client, '/');
    $node->wait_for_log(qr/delaying requests/);
    $node->reload;
    is http_read($client)->status, 200;
    wait_until('the old worker has exited', sub { !$node->workers(1) }, 3);
    pass 'the old worker then exits';
};

subtest 'an upgrade of nginx under load fails no request, and limits keep their counts' => sub {
    my $node = node(zone => $many, workers => 2, daemon => 1,
        http   => 'ratelimit_zone k$arg_k zone=few rate=3r/d algorithm=fixed_window;',
        server => 'location /few/ { ratelimit zone=few; try_files /index.html =404; }');
    my $old = $node->pid;
    is_deeply [map { $node->status('/few/') } 1 .. 2], [200, 200];
    my $load = load(port => $node->port, path => '/?k=u');
    $load->wait_for_more(100);
    my $new = $node->upgrade;
    isnt $new, $old, 'there is a second master';
    $load->wait_for_more(100);
    wait_until('the workers of both are connected', sub { connections($node) == 2 * 2 });
    kill WINCH => $old;
    wait_until('the old workers have exited', sub { !$node->workers && !$node->workers(1) });
    $load->wait_for_more(100);
    $node->leave_to($new);
    is $node->file('nginx.pid'), "$new\n";
    is_deeply [map { $node->status('/few/') } 1 .. 2], [200, 429], 'the counts survive the upgrade';
    check_load($node, $load, 'u', 2);
    wait_until('only the new workers are connected', sub { connections($node) == 2 });
    is $node->stop('QUIT'), undef, 'the new master exits without an error';
};

subtest 'an upgrade is rolled back under load' => sub {
    my $node = node(zone => $many, workers => 2, daemon => 1);
    my $load = load(port => $node->port, path => '/?k=u');
    my $old = $node->pid;
    my $new = $node->upgrade;
    kill WINCH => $old;
    wait_until('the old workers have exited', sub { !$node->workers && !$node->workers(1) });
    $load->wait_for_more(100);
    kill HUP => $old;
    $node->wait_for_workers($old);
    $node->{pid} = $new;
    $node->leave_to($old);
    wait_until('the old master is in charge', sub { $node->file('nginx.pid') eq "$old\n" });
    $load->wait_for_more(100);
    check_load($node, $load, 'u', 4);
    wait_until('only its workers are connected', sub { connections($node) == 2 });
};

subtest 'workers that crash under load are replaced, and their shared memory stays valid' => sub {
    my $node = node(zone => 'rate=50r/d algorithm=fixed_window', workers => 2,
        expected => qr/worker process \d+ exited on signal 9|was locked by/);
    my $load = load(port => $node->port, path => '/?k=flood');
    $node->wait_for_log(qr/limiting requests.*"kflood"/);
    for my $crash (1 .. 10) {
        my ($victim) = $node->workers;
        kill KILL => $victim;
        wait_until('the worker is dead', sub { !readlink "/proc/$victim/exe" });
        my @statuses = burst($node->port, "/?k=$crash", 80, 8);
        is scalar(grep { $_ == 200 } @statuses), 50, "crash $crash: requests are decided";
        is scalar(grep { $_ == 429 } @statuses), 30;
        wait_until('another worker', sub {
            my @workers = $node->workers;
            return @workers == 2 && !grep { $_ == $victim } @workers;
        });
        $load->wait_for_more(20);
    }
    my $seen = $load->stop;
    is $seen->{200}, 50;
    cmp_ok $seen->{failed}, '<=', 10 * 8, 'no request failed but those of a killed worker';
    cmp_ok $seen->{failed} + $seen->{retried}, '>', 0, 'the load noticed the kills';
    is $node->count_log(qr/exited on signal 9/), 10;
    # If a worker was killed while it held the lock, the zone was reinitialised.
    is $node->count_log(qr/limiting requests.*key "kflood"/), 1 + $node->count_log(qr/the zone is reinitialised/),
        'a run of refusals is still one line';
    is $node->count_log(qr/limiting requests.*key "k$_"/), 1 for 1 .. 10;
    wait_until('a connection for each worker', sub { connections($node) == 2 });
};

for (['without a master', single => 1], ['as a daemon', daemon => 1]) {
    my ($how, @options) = @{$_};
    for my $signal (qw(QUIT TERM)) {
        subtest "nginx $how starts, limits, and exits on $signal" => sub {
            my $node = node(zone => 'rate=2r/d algorithm=fixed_window', @options);
            is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429];
            is connections($node), 1;
            is $node->stop($signal) // 0, 0, 'without an error';
            wait_until('no connection is left', sub { connections($node) == 0 });
            is $node->file('nginx.pid'), '', 'its pid file is gone';
        };
    }
}

finish();

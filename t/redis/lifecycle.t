# What nginx's processes go through: reloads, upgrades of the program, crashes. Requests do not notice,
# and nothing is left behind.

use Ratelimit::Test;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

my $many = 'rate=1000000r/d algorithm=fixed_window';

# How many connections the redis of a node has, besides ours.
sub connections {
    my ($node) = @_;
    my @lines = split /\n/, $node->{redis}->cmd('CLIENT', 'LIST');
    return @lines - 1;
}

# How many requests of a key Redis has counted.
sub counted {
    my ($node, $key) = @_;
    my (undef, $count) = unpack 'd<2', $node->{redis}->cmd('GET', "rl:test:{k$key}");
    return $count;
}

# What a process holds: how many file descriptors, shared mappings, and kilobytes of memory.
sub held_by {
    my ($pid) = @_;
    my @fds = glob "/proc/$pid/fd/*";
    my $shared = () = read_file("/proc/$pid/maps") =~ m{ rw-s .* /dev/zero}g;
    my ($memory) = read_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+)/m;
    return { fds => scalar @fds, shared => $shared, memory => $memory };
}

# Ends a load under which no connection was to break: every request was answered, and Redis has counted
# each that passed. $leavings: how many workers have left meanwhile, each of which may close what waits
# for another request.
sub check_load {
    my ($node, $load, $key, $leavings) = @_;
    my $seen = $load->stop;
    is $seen->{failed}, 0, 'no request failed' or diag $seen->{why};
    is_deeply [grep { !/^(?:200|429|retried|failed|why)$/ } sort keys %{$seen}], [], 'all passed or refused';
    is counted($node, $key), $seen->{200}, 'what passed is what Redis has counted';
    cmp_ok $seen->{retried}, '<=', $leavings * 4, 'idle connections were closed with a worker only';
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
    $node->reload(gone => 1) for 1 .. 5;    # what is allocated once is there now
    my $before = held_by($node->pid);
    $node->reload(gone => $_ % 10 == 0) for 1 .. 50;
    my $after = held_by($node->pid);
    $_->wait_for_more(100) for @loads;
    check_load($node, $loads[0], 'r', 55 * 2);
    my $few = $loads[1]->stop;
    is $few->{failed}, 0 or diag $few->{why};
    is $few->{200}, 3, 'a limit is one limit through all reloads';

    is $node->workers + $node->workers(1), 2, 'only the last workers live';
    wait_until('a connection for each worker and block', sub { connections($node) == 2 * 2 });
    pass 'Redis has lost the connections of those that left';
    # A leak would come with each of the fifty. Channels to workers that leave come and go.
    cmp_ok $after->{fds}, '<=', $before->{fds} + 10, 'no file descriptors are leaked';
    is $after->{shared}, $before->{shared}, 'nor shared memory';
    # 10 kB each is below a configuration with its scripts, and above the heap's own scatter.
    cmp_ok $after->{memory}, '<=', $before->{memory} + 50 * 10, 'nor the master\'s memory';
    is $node->count_log(qr/limiting requests, by zone "few"/), 1, 'one run of refusals is one line';
};

subtest 'an old worker answers what it has begun, and leaves at once then' => sub {
    my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = node(zone => $many, workers => 1,
        server => 'location /slow/ { ratelimit zone=test; proxy_pass http://127.0.0.1:'
            . $backend->sockport . '; }');
    my ($old) = $node->workers;
    my $client = http_connect($node->port);
    http_send($client, '/slow/');
    my $asked = $backend->accept or die $!;
    sysread $asked, my $request, 4000;
    $node->reload;
    wait_until('the old worker knows', sub { "@{[ $node->workers(1) ]}" eq $old });
    is $node->status('/'), 200, 'the new one serves meanwhile';
    print {$asked} "HTTP/1.0 200 OK\r\n\r\nfinally";
    close $asked;
    is http_read($client)->body, 'finally', 'the old one waits for its last request';
    my $began = time;
    wait_until('the old worker is gone', sub { !$node->workers(1) });
    cmp_ok time - $began, '<', 3, 'neither Redis nor a timer of ours keeps it';
    wait_until('one connection is left', sub { connections($node) == 1 });
};

subtest 'workers that a long response keeps have no connection to Redis, and decide all the same' => sub {
    my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = node(zone => $many, workers => 1,
        server => 'location /long/ { proxy_pass http://127.0.0.1:' . $backend->sockport . '; }');
    my (@kept, $late);
    for my $time (1 .. 3) {
        my $client = http_connect($node->port);
        http_send($client, '/long/');
        my $asked = $backend->accept or die $!;
        sysread $asked, my $request, 4000;
        push @kept, [$client, $asked];
        $late //= http_connect($node->port);
        print {$late} "GET /?k=late HTTP/1.1\r\n" if $time == 1;
        is $node->status('/?k=first'), 200;
        $node->reload;
        # It may still accept connections until it knows.
        wait_until('the old worker stays for its response', sub { $node->workers(1) == $time });
    }
    wait_until('only the new worker is connected', sub { connections($node) == 1 });
    print {$late} "Host: localhost\r\n\r\n";
    is http_read($late)->status, 200, 'a request of an old worker is answered';
    is counted($node, 'late'), 1, 'and counted';
    wait_until('the old worker has closed its connection again', sub { connections($node) == 1 });
    for my $pair (@kept) {
        print { $pair->[1] } "HTTP/1.0 200 OK\r\n\r\nfinally";
        close $pair->[1];
        is http_read($pair->[0])->body, 'finally';
    }
};

subtest 'a request that is being delayed is answered by its old worker' => sub {
    my $node = node(zone => 'rate=30r/m algorithm=leaky_bucket burst=5');
    is $node->status('/'), 200;
    my $client = http_connect($node->port);
    http_send($client, '/');
    $node->wait_for_log(qr/delaying requests/);
    $node->reload;
    is http_read($client)->status, 200;
    wait_until('the old worker is gone', sub { !$node->workers(1) }, 3);
    pass 'which then leaves';
};

subtest 'the program is upgraded under load, and limits go on counting' => sub {
    my $node = node(zone => $many, workers => 2, daemon => 1,
        http   => 'ratelimit_zone k$arg_k zone=few rate=3r/d algorithm=fixed_window;',
        server => 'location /few/ { ratelimit zone=few; try_files /index.html =404; }');
    my $old = $node->pid;
    is_deeply [map { $node->status('/few/') } 1 .. 2], [200, 200];
    my $load = load(port => $node->port, path => '/?k=u');
    $load->wait_for_more(100);
    my $new = $node->upgrade;
    isnt $new, $old, 'another master is there';
    $load->wait_for_more(100);
    wait_until('both have connections', sub { connections($node) == 2 * 2 });
    kill WINCH => $old;
    wait_until('the old workers are gone', sub { !$node->workers && !$node->workers(1) });
    $load->wait_for_more(100);
    $node->leave_to($new);
    is $node->file('nginx.pid'), "$new\n";
    is_deeply [map { $node->status('/few/') } 1 .. 2], [200, 429], 'with the counts of before';
    check_load($node, $load, 'u', 2);
    wait_until('connections of the new workers only', sub { connections($node) == 2 });
    is $node->stop('QUIT'), undef, 'the new master ends like any';
};

subtest 'an upgrade is taken back under load' => sub {
    my $node = node(zone => $many, workers => 2, daemon => 1);
    my $load = load(port => $node->port, path => '/?k=u');
    my $old = $node->pid;
    my $new = $node->upgrade;
    kill WINCH => $old;
    wait_until('the old workers are gone', sub { !$node->workers && !$node->workers(1) });
    $load->wait_for_more(100);
    kill HUP => $old;
    $node->wait_for_workers($old);
    $node->{pid} = $new;
    $node->leave_to($old);
    wait_until('the old one is the master', sub { $node->file('nginx.pid') eq "$old\n" });
    $load->wait_for_more(100);
    check_load($node, $load, 'u', 4);
    wait_until('connections of its workers only', sub { connections($node) == 2 });
};

subtest 'workers that crash under load are replaced, and what they share stays' => sub {
    my $node = node(zone => 'rate=50r/d algorithm=fixed_window', workers => 2,
        expected => qr/worker process \d+ exited on signal 9|was locked by/);
    my $load = load(port => $node->port, path => '/?k=flood');
    $node->wait_for_log(qr/limiting requests.*"kflood"/);
    for my $crash (1 .. 10) {
        my ($victim) = $node->workers;
        kill KILL => $victim;
        wait_until('it is gone', sub { !readlink "/proc/$victim/exe" });
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
    cmp_ok $seen->{failed}, '<=', 10 * 8, 'requests failed only with their worker';
    cmp_ok $seen->{failed} + $seen->{retried}, '>', 0, 'the load would notice';
    is $node->count_log(qr/exited on signal 9/), 10;
    # If one was killed while it held the lock, the zone was reinitialised.
    is $node->count_log(qr/limiting requests.*key "kflood"/), 1 + $node->count_log(qr/the zone is reinitialised/),
        'a run of refusals is one line still';
    is $node->count_log(qr/limiting requests.*key "k$_"/), 1 for 1 .. 10;
    wait_until('a connection for each worker', sub { connections($node) == 2 });
};

for (['without a master', single => 1], ['as a daemon', daemon => 1]) {
    my ($how, @options) = @{$_};
    for my $signal (qw(QUIT TERM)) {
        subtest "nginx $how starts, limits, and ends on $signal" => sub {
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

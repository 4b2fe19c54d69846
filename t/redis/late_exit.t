# A worker leaves while Redis stands still and has checks to execute: it waits for their replies, so that what the fail
# mode refused is not counted, and begins no block.

use Ratelimit::Http qw(http_connect http_send);
use Ratelimit::Process qw(alive wait_until);
use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;
use Time::HiRes qw(sleep);

my $redis = redis();
my $node  = nginx(
    http => <<"END", server => <<'SERVER');
        ratelimit_redis main { server @{[ $redis->addr ]}; }
        ratelimit_zone \$arg_k zone=z rate=5r/h block=1h algorithm=sliding_window_log;
        ratelimit_zone all zone=open rate=100r/m;
        ratelimit_zone all zone=held concurrency=3 hold=1s;
        ratelimit_zone all zone=paid rate=10r/d algorithm=fixed_window;
        ratelimit_zone all zone=ahead rate=100r/d algorithm=fixed_window ahead=10;
END
        location / { ratelimit zone=z; ratelimit_fail_mode closed; try_files /index.html =404; }
        location = /open { ratelimit zone=open; try_files /index.html =404; }
        location = /held { ratelimit zone=held; ratelimit_fail_mode closed; try_files /index.html =404; }
        location = /paid { ratelimit zone=paid cost=3 charge=0$arg_none; proxy_pass http://127.0.0.1:$server_port/rated; }
        location = /ahead { ratelimit zone=ahead; try_files /index.html =404; }
        location = /counted { ratelimit zone=ahead cost=0; try_files /index.html =404; }
        location = /rated { limit_rate 1; try_files /index.html =404; }
        location = /peek { ratelimit zone=paid cost=0; try_files /index.html =404; }
        location = /free { ratelimit zone=held cost=0; try_files /index.html =404; }
SERVER

# Another node, which has no fail mode to use on a slow machine: a request that this refuses counts until its refund comes.
my $other = nginx(
    http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
        . 'ratelimit_zone $arg_k zone=z rate=5r/h block=1h algorithm=sliding_window_log;',
    server => 'location / { ratelimit zone=z; ratelimit_fail_mode closed; try_files /index.html =404; }',
);

# Of each key, one request is refused by the fail mode in the stall; then exactly its five must pass.
sub passes_its_five {
    my ($name, @keys) = @_;
    my %passed = map {
        my $key = $_;
        $key => scalar grep { $other->status("/?k=$key") == 200 } 1 .. 5
    } @keys;
    is_deeply \%passed, { map { $_ => 5 } @keys }, "five of each key pass $name";
    is $other->status("/?k=$keys[0]"), 429, 'and no more';
    return;
}

sub refused_in_a_stall {
    my (@keys) = @_;
    $node->status('/?k=other');    # loads the script
    $redis->pause;
    is $node->status("/?k=$_"), 503, "$_ is refused by the fail mode" for @keys;
    return;
}

# QUIT: nginx waits until Redis does this.
sub quits_after {
    my ($settle) = @_;
    my $master = $node->pid;
    kill QUIT => $master;
    sleep 1;    # longer than connect_timeout + timeout, for which each worker tries at its end
    ok alive($master), 'nginx waits';
    $settle->();
    wait_until('it exits', sub { !alive($master) });
    $node->start;
    return;
}

subtest 'reload' => sub {
    my @keys = map { "reload$_" } 1 .. 3;
    refused_in_a_stall(@keys);
    $node->reload;
    sleep 4;    # longer than `timeout` + `open`, after which a worker gives the connection up
    is scalar $node->workers(1), 1, 'the old worker waits';
    $redis->resume;
    wait_until('it exits', sub { !$node->workers(1) });
    passes_its_five('after the reload', @keys);
};

subtest 'QUIT' => sub {
    my @keys = map { "quit$_" } 1 .. 3;
    refused_in_a_stall(@keys);
    quits_after(sub { $redis->resume });
    passes_its_five('after the start', @keys);
};

subtest 'what passed ahead in a stall is counted behind a reload' => sub {
    my $left = sub { $node->get('/counted')->header('X-RateLimit-Remaining') };
    is $node->status('/ahead'), 200, 'one passes';
    wait_until('it is counted', sub { $left->() == 99 });
    $redis->pause;
    is $node->status('/ahead'), 200, 'passes ahead' for 1 .. 8;
    $node->reload;
    sleep 1;    # longer than connect_timeout + timeout, for which each worker tries at its end
    $redis->resume;
    wait_until('all are counted', sub { $left->() == 91 });
    wait_until('the old worker exits', sub { !$node->workers(1) });
};

subtest 'QUIT while Redis is out of memory and a charge waits for another try' => sub {
    my $socket = http_connect($node->port);
    http_send($socket, '/paid');
    remains($node, 7, 'the request is counted');
    $redis->cmd('CONFIG', 'SET', 'maxmemory', '1');
    close $socket;
    wait_until('the refund is refused', sub { $redis->cmd('INFO', 'errorstats') =~ /errorstat_OOM/ });
    quits_after(sub { $redis->cmd('CONFIG', 'SET', 'maxmemory', '0') });
    remains($node, 10, 'the request is refunded');
};

subtest 'QUIT while a refund waits for the reply that Redis has lost its scripts' => sub {
    my $socket = http_connect($node->port);
    http_send($socket, '/paid');
    remains($node, 7, 'the request is counted');
    $redis->cmd('SCRIPT', 'FLUSH');
    $redis->pause;
    my $unread = $redis->unread;
    close $socket;
    wait_until('the refund is sent', sub { $redis->unread > $unread });
    quits_after(sub { $redis->resume });
    remains($node, 10, 'the request is refunded');
};

subtest 'what passed by fail mode open, and what is not counted, keeps no worker' => sub {
    for my $path (qw(open held)) {
        wait_until("$path loads its script", sub { $node->status("/$path") == 200 });
    }
    remains($node, 3, 'nothing is held', '/free');
    $redis->pause;
    is $node->status('/open'), 200, 'passes';
    is $node->status('/held'), 503, 'holds nothing';
    kill QUIT => $node->pid;
    wait_until('nginx exits', sub { !alive($node->pid) }, 5);
    $redis->resume;
    pass 'nginx has exited';
};

subtest 'TERM with a Redis far away: all charges of requests that last are counted' => sub {
    my ($link, $count) = (proxy(to => $redis->addr), 300);
    my $seen;
    for (1 .. 3) {    # again if the machine stood still: nginx kills a worker that does not end within 1.5 seconds
        $redis->cmd('FLUSHALL');
        my $far = nginx(
            http => "ratelimit_redis main { server @{[ $link->addr ]}; timeout 4s; connect_timeout 1s; }"
                . 'ratelimit_zone all zone=z rate=100000r/d algorithm=fixed_window;',
            server => 'location = /paid { ratelimit zone=z charge=$arg_c; limit_rate 1; try_files /index.html =404; }'
                . 'location = /left { ratelimit zone=z cost=0; try_files /index.html =404; }',
            workers  => 1,
            expected => qr/exited on signal 9/,
        );
        my $left = sub { return $far->get('/left')->header('X-RateLimit-Remaining') // '' };
        wait_until('Redis decides', sub { $left->() ne '' });
        my @sockets = map { http_connect($far->port) } 1 .. $count;
        http_send($_, '/paid?c=11') for @sockets;
        wait_until('all are counted', sub { $left->() eq 100_000 - $count });
        $link->delay(0.15);
        my $master = $far->pid;
        kill TERM => $master;
        wait_until('nginx exits', sub { !alive($master) });
        $link->delay(0);
        $far->start;
        wait_until('Redis decides', sub { ($seen = $left->()) ne '' });
        last if $seen eq 100_000 - 11 * $count;
    }
    is $seen, 100_000 - 11 * $count, 'all';
};

subtest 'TERM while Redis is gone and what passed ahead waits for another try' => sub {
    $node->start;
    $node->status('/ahead');
    $redis->stop;
    is $node->status('/ahead'), 200, 'passes ahead' for 1 .. 3;
    sleep 0.5;    # reports have failed
    my $master = $node->pid;
    kill TERM => $master;
    wait_until('nginx exits', sub { !alive($master) }, 5);
    pass 'nginx has exited';
};

finish();

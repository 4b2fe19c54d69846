# What clients see when Redis gives no decision: each way for it to fail, in each fail mode.

use Ratelimit::Test;
use File::Temp qw(tempdir);
use IO::Socket::INET;
use Time::HiRes qw(time);

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);
my $headers = join '', map { "add_header X-$_ \$ratelimit_\L$_ always;" } qw(Status Source Zone Time);

# An nginx with a Redis at $addr, a zone "test" of 3r/d, and a location for each fail mode.
sub modes_node {
    my ($addr, %options) = @_;
    my $block = $options{block} // 'timeout 5s; connect_timeout 5s;';
    return nginx(%options,
        http => "ratelimit_redis main { server $addr; $block }"
            . 'ratelimit_zone k$arg_k zone=test rate=3r/d algorithm=fixed_window;' . ($options{http} // ''),
        server => $headers . join('', map { <<"END" } qw(open closed local)) . ($options{server} // ''));
        location /$_/ { ratelimit zone=test; ratelimit_fail_mode $_; try_files /index.html =404; }
END
}

# Status, $ratelimit_status and $ratelimit_source of a response, as text.
sub seen {
    my ($answer) = @_;
    return join ' ', $answer->status, map { $answer->header("X-$_") // '-' } qw(Status Source);
}

# Sends four requests of a new key in each mode while Redis decides none.
my $key = 0;
sub check_modes {
    my ($node, $what) = @_;
    $key++;
    is_deeply [map { seen($node->get("/open/?k=$key")) } 1 .. 4], [('200 FAILED_OPEN -') x 4], "$what: open";
    is_deeply [map { seen($node->get("/closed/?k=$key")) } 1 .. 4], [('503 FAILED_CLOSED -') x 4], "$what: closed";
    is_deeply [map { seen($node->get("/local/?k=$key")) } 1 .. 4],
        [('200 PASSED local') x 3, '429 REJECTED local'], "$what: local";
    return;
}

sub wait_for_redis {
    my ($node) = @_;
    $key++;
    wait_until('redis decides again', sub { ($node->get("/local/?k=$key")->header('X-Source') // '') eq 'redis' }, 30);
    return;
}

subtest 'a Redis that never runs' => sub {
    my $node = modes_node('127.0.0.1:' . free_port(), workers => 2);
    check_modes($node, 'not running');
    my @statuses = burst($node->port, '/local/?k=many', 500, 50);
    is scalar(grep { $_ == 200 } @statuses), 3, 'one limit for all workers of the node';
    $node->wait_for_log(qr/is away/, 2);
    is $node->count_log(qr/is away/), 2, 'one line for each worker';
};

my $gone = tempdir();

# Errors that Redis replies with: how to cause each, how to end it, and the options of that Redis.
my @errors = (
    ['OOM', sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 1) }, sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 0) }],
    ['BUSY', sub {
        my ($redis) = @_;
        $redis->cmd('CONFIG', 'SET', 'lua-time-limit', 10);
        my $other = IO::Socket::INET->new(PeerAddr => $redis->addr) or die $!;
        print {$other} "EVAL 'while true do end' 0\r\n";
        wait_until('Redis is busy', sub { !eval { $redis->cmd('GET', 'x'); 1 } && $@ =~ /BUSY/ });
        $redis->{busy} = $other;
    }, sub { $_[0]->cmd('SCRIPT', 'KILL') }],
    ['MISCONF', sub {
        my ($redis) = @_;
        $redis->cmd('CONFIG', 'SET', 'save', '3600 100');
        rmdir $gone;
        $redis->cmd('SET', 'x', 1);
        eval { $redis->cmd('BGSAVE') };
        wait_until('Redis cannot save', sub { $redis->cmd('INFO', 'persistence') =~ /bgsave_status:err/ });
    }, sub { $_[0]->cmd('CONFIG', 'SET', 'save', '') }, conf => "dir $gone\n"],
    ['NOPERM', sub { $_[0]->cmd('ACL', 'SETUSER', 'default', '-evalsha') },
        sub { $_[0]->cmd('ACL', 'SETUSER', 'default', '+evalsha') }],
    ['NOAUTH', sub {
        my ($redis) = @_;
        $redis->cmd('CONFIG', 'SET', 'requirepass', 'secret');
        $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    }, sub { $_[0]->cmd('CONFIG', 'SET', 'requirepass', '') }],
    ['READONLY', sub { $_[0]->cmd('REPLICAOF', '127.0.0.1', 1) }, sub { $_[0]->cmd('REPLICAOF', 'NO', 'ONE') }],
    ['MASTERDOWN', sub {
        $_[0]->cmd('CONFIG', 'SET', 'replica-serve-stale-data', 'no');
        $_[0]->cmd('REPLICAOF', '127.0.0.1', 1);
    }, sub { $_[0]->cmd('REPLICAOF', 'NO', 'ONE') }],
    ['CLUSTERDOWN', sub { $_[0]->cmd('CLUSTER', 'DELSLOTS', 0 .. 16_383) },
        sub {
            my ($redis) = @_;
            $redis->cmd('CLUSTER', 'ADDSLOTS', 0 .. 16_383);
            wait_until('the cluster is ok', sub { $redis->cmd('CLUSTER', 'INFO') =~ /cluster_state:ok/ });
        },
        cluster => 1, conf => "cluster-require-full-coverage no\n"],
    ['LOADING', sub {
        my ($redis) = @_;
        $redis->cmd('SET', "filler$_", 'x' x 100) for 1 .. 500;
        $redis->cmd('SAVE');
        $redis->stop('KILL');
        $redis->{conf} = "key-load-delay 10000\nloading-process-events-interval-bytes 1024\n";
        $redis->configure;
        $redis->{pid} = Ratelimit::Process::start_process('redis', "$redis->{folder}/redis.log",
            $ENV{REDIS_SERVER} // 'redis-server', "$redis->{folder}/redis.conf");
        wait_until('Redis is loading', sub { !eval { $redis->cmd('PING') } && $@ =~ /LOADING/ });
    }, sub { }],
);

for (@errors) {
    my ($kind, $cause, $cure, %options) = @{$_};
    subtest "a Redis that replies $kind" => sub {
        my $redis = redis(%options);
        plan skip_all => 'Redis 6.2 sends no reply while it loads so little'
            if $kind eq 'LOADING' && !$redis->has_setting('loading-process-events-interval-bytes');
        $cure->($redis) if %options;
        my $node = modes_node($redis->addr, block => 'timeout 5s; connect_timeout 5s; breaker open=200ms;');
        wait_for_redis($node);
        $cause->($redis);
        check_modes($node, $kind);
        my $away = $kind =~ /^(?:NOAUTH|MASTERDOWN|LOADING)$/ ? 1 : 0;    # it answers nothing
        $node->wait_for_log(qr/is away/) if $away;
        check_modes($node, "$kind, later");
        is $node->count_log(qr/redis .*$kind/), $node->count_log(qr/answered: $kind/) + $node->count_log(qr/is away.*$kind/),
            'each line about Redis that names the error is of one of these two kinds';
        cmp_ok $node->count_log(qr/answered: $kind/), '<=', 1, 'the error is logged once';
        is $node->count_log(qr/is away/), $away;
        $cure->($redis);
        wait_for_redis($node);
        $node->wait_for_log(qr/is up/, 1 + $away);
        is $node->count_log(qr/is away/), $away;
        is_deeply [map { $node->status("/$_/?k=after") } qw(open closed local open)], [200, 200, 200, 429];
    };
}

subtest 'a Redis that is killed under load and restarts' => sub {
    my $redis = redis();
    my $node = modes_node($redis->addr, workers => 2, block => 'timeout 5s; connect_timeout 5s; breaker open=500ms;',
        http => 'ratelimit_zone k zone=many rate=1000000r/d algorithm=token_bucket;',
        server => 'location /many/ { ratelimit zone=many; ratelimit_fail_mode local; try_files /index.html =404; }');
    wait_for_redis($node);
    my $load = load(port => $node->port, path => '/many/');
    my $source = sub { $node->get('/many/')->header('X-Source') };
    for my $time (1 .. 3) {
        $load->wait_for_more(200);
        $redis->stop('KILL');
        wait_until('the node decides by itself', sub { $source->() eq 'local' });
        $load->wait_for_more(200);
        $redis->start;
        my $watch = stopwatch();
        wait_until('Redis decides again', sub { $source->() eq 'redis' });
        $watch->within(4, 'within seconds');
    }
    my $seen = $load->stop;
    is $seen->{failed}, 0, 'no request fails' or diag $seen->{why};
    is_deeply [grep { /^\d/ } sort keys %{$seen}], [200], 'no request is refused';
};

subtest 'a Redis that hangs: no request waits longer than both timeouts, and soon none waits' => sub {
    my $redis = redis();
    my $node = modes_node($redis->addr, block => 'timeout 200ms; connect_timeout 300ms; breaker failures=5 open=1s;');
    wait_for_redis($node);
    $redis->pause;
    my $watch = stopwatch();
    my @sockets = map { http_connect($node->port) } 1 .. 30;
    http_send($_, '/local/?k=hangs', close => 1) for @sockets;
    my @answers = map { http_read($_) } @sockets;
    my $busy = $watch->elapsed - $watch->net;
    my @times = sort { $b <=> $a } map { $_->header('X-Time') } @answers;
    cmp_ok $times[0] - $busy, '<', 1.8, 'the longest wait';
    cmp_ok $times[0], '>', 0.1, 'the requests have waited';
    is scalar(grep { seen($_) eq '200 PASSED local' } @answers), 3, 'the node decides: three pass';
    is scalar(grep { seen($_) eq '429 REJECTED local' } @answers), 27;

    $node->wait_for_log(qr/is away/);
    $watch = stopwatch();
    @times = sort { $b <=> $a } map { $node->get("/local/?k=w$_")->header('X-Time') } 1 .. 300;
    cmp_ok scalar(grep { $_ > 0.02 } @times), '<', 3 + ($watch->elapsed) * 2, 'only the breaker\'s trials wait';
    cmp_ok $times[0] - ($watch->elapsed - $watch->net), '<', 1.8;
    $redis->resume;
    $watch = stopwatch();
    wait_for_redis($node);
    $watch->within(4);
    is $node->count_log(qr/is away/), 1, 'one line in the log';
};

subtest 'without Redis, each of four nodes enforces a quarter of the limit' => sub {
    # Parameters of the zone, the node's limit, the most seconds until a refused request passes.
    my @zones = (
        (map { ["rate=8r/d algorithm=$_", 2, 43_200] } @algorithms[0 .. 3]),
        ['rate=8r/d algorithm=token_bucket', 2, 43_200],
        ['rate=8r/d algorithm=token_bucket burst=21', 5, 43_200],
        ['rate=8r/d algorithm=leaky_bucket burst=11', 3, 43_200],
        ['rate=8r/d algorithm=gcra burst=11', 3, 43_200],
        ['rate=8r/d algorithm=gcra', 1, 43_200],
        ['rate=3r/d algorithm=fixed_window', 1, 115_200],
        ['rate=1r/h algorithm=sliding_window_log', 1, 14_400],
    );
    my ($http, $server) = ('ratelimit_redis main { server 127.0.0.1:' . free_port() . '; }', $headers);
    for my $i (0 .. $#zones) {
        my $nodelay = $zones[$i][0] =~ /leaky/ ? 'nodelay' : '';
        $http .= "ratelimit_zone k zone=z$i nodes=4 $zones[$i][0];";
        $server .= "location /$i/ { ratelimit zone=z$i $nodelay; try_files /index.html =404; }";
    }
    my $node = nginx(workers => 2, http => "$http ratelimit_fail_mode local;", server => $server);
    for my $i (0 .. $#zones) {
        my ($zone, $limit, $retry) = @{ $zones[$i] };
        my @answers = map { $node->get("/$i/") } 1 .. $limit + 1;
        is_deeply [map { seen($_) } @answers], [('200 PASSED local') x $limit, '429 REJECTED local'], $zone;
        is $answers[0]->header('X-RateLimit-Limit'), $limit, 'the header has the node\'s own limit';
        is $answers[0]->header('X-RateLimit-Remaining'), $limit - 1;
        my $after = $answers[-1]->header('Retry-After');
        ok $after <= $retry && $after > $retry - 30, "Retry-After is $after";
    }
};

subtest 'leaky_bucket delays requests without Redis too' => sub {
    my $node = nginx(http => 'ratelimit_redis main { server 127.0.0.1:' . free_port() . '; }'
            . 'ratelimit_zone k zone=z rate=2r/s algorithm=leaky_bucket burst=2; ratelimit_fail_mode local;',
        server => "$headers location / { ratelimit zone=z; }");
    $node->wait_for_workers($node->pid);
    my ($worker) = $node->workers;
    pause_processes($worker);    # it gets the requests together
    my @sockets = map { http_connect($node->port) } 1 .. 4;
    http_send($_, '/', close => 1) for @sockets;
    my $began = time;
    kill CONT => $worker;
    is_deeply [sort map { seen(http_read($_)) } @sockets],
        [('200 DELAYED local') x 2, '200 PASSED local', '429 REJECTED local'];
    cmp_ok time - $began, '>', 0.95;
};

# Three limits: one in a Redis that runs, one in a Redis that does not, one whose rate may be malformed.
sub several_node {
    my ($mode, %rates) = @_;
    my $redis = redis();
    my $node = nginx(workers => 2,
        http => "ratelimit_redis here { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_redis away { server 127.0.0.1:' . free_port() . '; }'
            . "ratelimit_zone k zone=here rate=$rates{here} redis=here algorithm=sliding_window_log;"
            . "ratelimit_zone k zone=away rate=$rates{away} redis=away algorithm=sliding_window_log;"
            . 'ratelimit_zone k zone=any rate=$arg_r redis=here algorithm=sliding_window_log;'
            . "ratelimit_fail_mode $mode;",
        server => $headers . <<'END');
        location / { ratelimit zone=away; ratelimit zone=here; try_files /index.html =404; }
        location /any/ { ratelimit zone=any; ratelimit zone=here; try_files /index.html =404; }
        location /look/ { ratelimit zone=here cost=0; try_files /index.html =404; }
        location /look_away/ { ratelimit zone=away cost=0; try_files /index.html =404; }
END
    $node->{redis} = $redis;
    wait_until('the running Redis decides', sub { $node->get('/look/')->header('X-Source') // '' eq 'redis' });
    return $node;
}

# Waits until this many requests remain in the limit of the running Redis, after all refunds.
sub wait_for_left {
    my ($node, $left) = @_;
    wait_until("$left remain", sub { $node->get('/look/')->header('X-RateLimit-Remaining') == $left });
    return pass("$left remain");
}

subtest 'several limits, one unavailable or malformed: open' => sub {
    my $node = several_node('open', here => '4r/d', away => '1r/d');
    for my $path ('/', '/any/?r=x') {
        for my $left ($path eq '/' ? (3, 2) : (1, 0)) {
            my $answer = $node->get($path);
            is seen($answer), '200 FAILED_OPEN redis';
            is $answer->header('X-RateLimit-Limit'), 4, 'with the headers of the other limit';
            is $answer->header('X-RateLimit-Remaining'), $left;
            is $answer->header('X-Zone'), 'here';
        }
    }
    is seen($node->get('/')), '429 REJECTED redis', 'the other limit still refuses';
    ok eval { wait_until('a memory', sub { seen($node->get('/any/?r=x')) eq '429 REJECTED cache' }); 1 }, 'and its refusal is cached';
};

subtest 'several limits, one unavailable or malformed: closed' => sub {
    my $node = several_node('closed', here => '4r/d', away => '1r/d');
    for my $path ('/', '/any/?r=x') {
        for (1 .. 3) {
            my $answer = $node->get($path);
            is seen($answer), '503 FAILED_CLOSED -';
            is $answer->header('X-RateLimit-Limit'), undef;
        }
    }
    wait_for_left($node, 4);
    is seen($node->get('/any/?r=9r/d')), '200 PASSED redis';
};

subtest 'several limits, one unavailable or malformed: local' => sub {
    my $node = several_node('local', here => '8r/d', away => '3r/d');
    is_deeply [map { seen($node->get('/')) } 1 .. 3], [('200 PASSED local') x 3];
    for (1 .. 3) {
        my $answer = $node->get('/');
        is seen($answer), '429 REJECTED local';
        is $answer->header('X-Zone'), 'away';
        is $answer->header('X-RateLimit-Limit'), 3;
    }
    wait_for_left($node, 5);
    is seen($node->get('/any/?r=x')), '200 FAILED_OPEN redis', 'a malformed rate cannot be decided by the node either';

    $node = several_node('local', here => '2r/d', away => '5r/d');
    is_deeply [map { $node->status('/') } 1 .. 5], [200, 200, 429, 429, 429];
    is $node->get('/')->header('X-Zone'), 'here';
    is $node->get('/look_away/')->header('X-RateLimit-Remaining'), 3, 'a request that Redis refuses is not counted by the node';
};

subtest 'a request refused because of a malformed rate is not counted in its other limits' => sub {
    my $redis = redis();
    my $node  = nginx(
        http => <<"END",
    ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }
    ratelimit_zone k\$arg_k zone=one rate=2r/d;
    ratelimit_zone k\$arg_k zone=other rate=\$arg_rate;
END
        server => <<'END',
    location / { ratelimit zone=one; ratelimit zone=other; ratelimit_fail_mode closed; }
    location = /one { ratelimit zone=one; try_files /index.html =404; }
END
    );
    is $node->status('/?rate=5r/d'), 200;
    is $node->status('/?rate=nonsense'), 503 for 1 .. 3;
    is $redis->calls('evalsha'), 1, 'Redis receives no check of these requests';
    is $node->status('/one'), $_ for 200, 429;
};

finish();

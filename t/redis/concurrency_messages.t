# concurrency= when messages are lost, late or repeated, and when workers stop: nobody is refused because
# of units that no request holds.

use Ratelimit::Backend;
use Ratelimit::Remaining qw(remaining remains);
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my $backend = Ratelimit::Backend->new;

# / passes requests to the backend, /quick answers at once, /peek reports the state.
sub limited_node {
    my (%options) = @_;
    my $redis = $options{redis} // redis();
    my $addr  = $options{addr} // $redis->addr;
    my $node  = nginx(
        # nginx itself complains about connections of a worker that gets QUIT or HUP, and then TERM.
        expected => qr/did not answer when a worker exited|open socket #\d+ left in connection|aborting/,
        %options,
        http => "ratelimit_redis main { server $addr; @{[ $options{settings} // '' ]} }"
            . "ratelimit_zone k\$arg_k zone=test @{[ $options{zone} // 'concurrency=3 hold=1h' ]};",
        server => "location / { ratelimit zone=test; add_header X-Result \$ratelimit_status always;"
            . " proxy_pass http://@{[ $backend->addr ]}; }"
            . 'location = /quick { ratelimit zone=test; add_header X-Result $ratelimit_status always;'
            . ' try_files /index.html =404; }'
            . 'location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }'
            . 'location /ops/ { ratelimit_api; }',
    );
    $node->{redis} = $redis;    # it ends with the node
    return ($node, $redis);
}

# For what does not stall Redis itself.
my $patient = 'timeout 5s; connect_timeout 5s;';

sub result { my ($node, $path) = @_; return $node->get($path)->header('X-Result') }

# The first result by Redis: its timeout is short, and the machine may be busy.
sub decided {
    my ($node, $path) = @_;
    my $result;
    wait_until('Redis decides', sub { ($result = result($node, $path)) ne 'FAILED_OPEN' });
    return $result;
}

for my $stall (0.4, 1.5, 2.5) {
    subtest "a stall of Redis of $stall s holds nothing" => sub {
        my ($node, $redis) = limited_node();
        is decided($node, '/quick'), 'PASSED';
        $redis->pause;
        my $end = time + $stall;
        while (time < $end) {
            is result($node, '/quick'), 'FAILED_OPEN';
            sleep 0.05;
        }
        $redis->resume;
        wait_until('Redis decides again', sub { result($node, '/quick') ne 'FAILED_OPEN' });
        remains($node, 3, 'the key is free');
        my %results;
        $results{ decided($node, '/quick') }++ for 1 .. 10;
        is_deeply \%results, {PASSED => 10}, 'no request is refused';
    };
}

subtest 'a stall during which the worker exits' => sub {
    my ($node, $redis) = limited_node();
    my ($other) = limited_node(redis => $redis, settings => $patient);
    is decided($node, '/quick'), 'PASSED';
    $redis->pause;
    is result($node, '/quick'), 'FAILED_OPEN' for 1 .. 3;
    $node->stop('TERM');
    $redis->resume;
    remains($other, 3, 'what Redis then executes takes nothing for longer than it may be late', '', 5);
};

for my $case (
    ['out of memory', sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 1) }, sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 0) }],
    ['read only', sub { $_[0]->cmd('REPLICAOF', '127.0.0.1', 1) }, sub { $_[0]->cmd('REPLICAOF', 'NO', 'ONE') }],
) {
    my ($name, $begin, $end) = @{$case};
    subtest "requests that end while Redis is $name release what they hold" => sub {
        my ($node, $redis) = limited_node(zone => 'concurrency=5 hold=1h', settings => $patient);
        my @held = $backend->hold($node, ('/') x 5);
        is remaining($node), 0;
        $begin->($redis);
        $backend->finish;
        is http_read($_)->status, 200 for @held;
        sleep 0.3;
        $end->($redis);
        remains($node, 5, 'when Redis writes again');
    };
}

subtest 'killed connections leave nothing held' => sub {
    my ($node, $redis) = limited_node(zone => 'concurrency=100 hold=1h', workers => 2);
    my @loads = map { load(port => $node->port, path => "/quick?k=$_", clients => 4) } 1 .. 4;
    for my $kill (1 .. 20) {
        $_->wait_for_more(20) for @loads;
        $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');
    }
    $_->stop for @loads;
    remains($node, 100, "key $_", "?k=$_") for 1 .. 4;
};

subtest 'a lost reply does not refuse the only client of the key' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my ($node) = limited_node(redis => $redis, addr => $proxy->addr, zone => 'concurrency=1 hold=1h',
        settings => $patient);
    is result($node, '/quick?k=warm'), 'PASSED';
    for my $try (1 .. 5) {
        wait_until('nothing is under way', sub { remaining($node, '?k=1') == 1 });
        $proxy->lose;
        is result($node, '/quick?k=1'), 'PASSED', 'the reply to its check, or to what it stated before, is lost';
    }
    remains($node, 1, 'nothing is held', '?k=1');
};

subtest 'another hold= on another node locks nobody out' => sub {
    my ($old, $redis) = limited_node(zone => 'concurrency=3 hold=2s', settings => $patient);
    my ($new) = limited_node(redis => $redis, zone => 'concurrency=3 hold=4s', settings => $patient);
    my @held = $backend->hold($old, '/');
    my %results;
    my $end = time + 5;
    while (time < $end) {
        $results{ result($_, '/quick') }++ for $old, $new;
        sleep 0.01;
    }
    is_deeply [keys %results], ['PASSED'], 'one request at a time passes beside one that lasts';
    is remaining($new), 2, 'which is still counted';
    $backend->finish;
    remains($new, 3, 'until it ends');
};

for my $case (['QUIT, then TERM', 'QUIT', 1.5], ['reload, then TERM', 'HUP', 1.5], ['TERM', '', 0]) {
    my ($name, $signal, $pause) = @{$case};
    subtest "what open requests hold is free after $name" => sub {
        my ($node, $redis) = limited_node(settings => $patient);
        my ($other) = limited_node(redis => $redis, settings => $patient);
        my @held = $backend->hold($node, ('/') x 3);
        is remaining($other), 0;
        kill $signal => $node->pid if $signal;
        sleep $pause;
        is remaining($other), 0, 'while they last';
        $node->stop('TERM');
        remains($other, 3, 'afterwards');
        $backend->drop;
    };
}

subtest 'an old worker whose last request ends while Redis stands still' => sub {
    my ($node, $redis) = limited_node();
    my ($other) = limited_node(redis => $redis);
    my @held = $backend->hold($node, '/');
    $node->reload;
    $redis->pause;
    $backend->finish;
    is http_read($held[0])->status, 200;
    sleep 2.5;
    $redis->resume;
    remains($other, 3, 'releases what it held');
};

subtest 'a client that sends one request after the other is never refused: several connections to Redis' => sub {
    my ($node) = limited_node(zone => 'concurrency=1 hold=1h', settings => "connections 4; $patient");
    wait_until('Redis decides', sub { result($node, '/quick?k=first') eq 'PASSED' });
    my $socket = http_connect($node->port);
    my %results;
    for (1 .. 300) {
        http_send($socket, '/quick');
        $results{ http_read($socket)->header('X-Result') }++;
    }
    is_deeply \%results, {PASSED => 300} or diag explain \%results;
    http_send($socket, '/quick') for 1 .. 200;
    %results = ();
    $results{ http_read($socket)->header('X-Result') }++ for 1 .. 200;
    is_deeply \%results, {PASSED => 200}, 'pipelined';
};

subtest 'a shadow limit whose statement Redis ignores has not refused the request' => sub {
    my $redis = redis();
    my $node  = nginx(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; $patient }"
            . 'ratelimit_zone k$arg_k zone=test concurrency=3 hold=1h;'
            . 'ratelimit_zone k$arg_k zone=other concurrency=3 hold=1h;',
        server => 'location / { ratelimit zone=test shadow; ratelimit zone=other;'
            . " proxy_pass http://@{[ $backend->addr ]}; }"
            . 'location /ops/ { ratelimit_api; }',
    );
    $node->{redis} = $redis;    # it ends with the node
    my @held = $backend->hold($node, '/');
    # The clock of Redis, by which a worker numbers its statements, was an hour ahead.
    my $ahead = (time + 3600) * 1e6;
    is $redis->cmd('EVAL', "redis.call('SETRANGE', KEYS[1], 40, struct.pack('<d', ARGV[1])) return 1", 1,
        'rl:test:{k}', $ahead), 1;
    is $node->status('/?for=0'), 200;
    my @decisions = grep { /^ratelimit_requests_total\{zone="test"/ } split /\n/, $node->get('/ops/metrics')->body;
    is_deeply [map { /(result="\w+".*)/ } grep { !/ 0$/ } @decisions],
        ['result="passed_shadow",source="redis"} 1'], 'only the first request is counted for the shadow limit';
    is $node->count_log(qr/limiting requests, shadow/), 0, 'and nothing says that it would have been refused';
    # The worker would state for a minute that it holds nothing.
    $redis->cmd('DEL', 'rl:test:{k}');
    $backend->finish;
    is http_read($held[0])->status, 200;
};

finish();

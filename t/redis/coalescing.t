# Coalescing: each worker has at most one call in flight for a hot key, and each request is decided as if
# it had been sent alone.

use Ratelimit::Test;
use IO::Select;
use Time::HiRes qw(time);

# As node() of the library, with cache=off, so that Redis decides every request.
sub hot_node {
    my (%options) = @_;
    $options{zone} .= ' cache=off';
    $options{timeout} = '60s';    # requests wait while a test sends others
    $options{server} = 'add_header X-Status $ratelimit_status always;'
        . 'add_header X-Remaining $ratelimit_remaining always;' . ($options{server} // '');
    return node(%options);
}

# Sends the requests while Redis is paused; returns their responses, in order.
sub at_once {
    my ($node, $redis, @paths) = @_;
    $redis->pause;
    my @sockets = map { http_connect($node->port) } @paths;
    for my $i (0 .. $#paths) {
        http_send($sockets[$i], $paths[$i], close => 1);
        wait_for_arrivals($node, $i + 1) if $i == 0 || $i == $#paths;
    }
    $redis->resume;
    return map { http_read($_) } @sockets;
}

# Waits until $count requests are pending in nginx.
sub wait_for_arrivals {
    my ($node, $count) = @_;
    wait_until("$count requests are pending", sub {
        my $status = request($node->{ports}[1], '/status')->body;
        my ($active, $waiting) = $status =~ /Active connections: (\d+).*Waiting: (\d+)/s;
        my ($reading, $writing) = $status =~ /Reading: (\d+) Writing: (\d+)/;
        return $writing >= $count + 1 && $reading == 0;    # and the status request
    });
    return;
}

# With a status page, which is not limited.
sub watched {
    my (%options) = @_;
    return hot_node(%options, ports => 2,
        server => ($options{server} // '') . 'location = /status { ratelimit off; stub_status; }');
}

# The number of checks that Redis received while the code ran.
sub checks_during {
    my ($redis, $code) = @_;
    my $before = $redis->calls('evalsha');
    $code->();
    return $redis->calls('evalsha') - $before;
}

sub left { return map { $_->header('X-RateLimit-Remaining') } @_ }

subtest 'requests of a hot key share calls, and each has its own count' => sub {
    my $redis = redis();
    for my $clock (qw(redis local)) {
        my $node = watched(redis => $redis, zone => "rate=1000r/d algorithm=fixed_window clock=$clock");
        my @answers;
        is checks_during($redis, sub { @answers = at_once($node, $redis, ("/?k=$clock") x 100) }), 2,
            'one hundred concurrent requests are two calls';
        is_deeply [sort { $b <=> $a } left(@answers)], [reverse 900 .. 999], 'each response has its own remaining';
        is scalar(grep { $_->status != 200 } @answers), 0;
        my @reset = map { $_->header('X-RateLimit-Reset') } @answers;
        is scalar(grep { abs($_ - $reset[0]) > 2 } @reset), 0, 'the resets agree';
    }
};

subtest 'under load requests of a key share calls' => sub {
    my $redis = redis();
    my $node = hot_node(redis => $redis, zone => 'rate=1000000r/d algorithm=sliding_window_counter', workers => 2);
    my @statuses;
    my $calls = checks_during($redis, sub { @statuses = burst($node->port, '/', 4000, 100) });
    is scalar(grep { $_ == 200 } @statuses), 4000;
    cmp_ok $calls, '<', 2000, "$calls calls for 4000 requests";
    is remaining_of($node), 996_000, 'each request is counted once';
};

sub remaining_of { return $_[0]->get('/peek' . ($_[1] // ''))->header('X-RateLimit-Remaining') }

for my $zone ('fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets',
    'token_bucket', 'gcra burst=49', 'leaky_bucket burst=49') {
    subtest "exactly the quota passes: $zone" => sub {
        my $redis = redis();
        my $limit = $zone =~ /leaky/ ? 'nodelay' : '';
        my $node = watched(redis => $redis, zone => "rate=50r/d algorithm=$zone", limit => $limit);
        my @answers = at_once($node, $redis, ('/') x 120);
        is scalar(grep { $_->status == 200 } @answers), 50;
        is scalar(grep { $_->status == 429 && $_->header('Retry-After') } @answers), 70;
        is_deeply [sort { $a <=> $b } left(grep { $_->status == 200 } @answers)], [0 .. 49];
        my @nodes = map { hot_node(redis => $redis, zone => "rate=50r/d algorithm=$zone", limit => $limit,
                workers => 2, block => 'connections 4;') } 1 .. 2;
        my @statuses = burst([map { $_->port } @nodes], '/?k=all', 400, 80);
        is scalar(grep { $_ == 200 } @statuses), 50, 'also on two nodes with two workers';
    };
}

subtest 'requests of any cost share a call: 0, several, and more than the limit can hold' => sub {
    my $redis = redis();
    my $node = watched(redis => $redis, zone => 'rate=100r/d algorithm=token_bucket', limit => 'cost=$arg_c');
    my @costs = map { (1, 1, 0, 7, 200, 2)[$_ % 6] } 0 .. 59;
    my @answers = at_once($node, $redis, map { "/?c=$_" } @costs);
    my $spent = 0;
    for my $i (0 .. $#costs) {
        my $passed = $answers[$i]->status == 200;
        $spent += $costs[$i] if $passed;
        ok $passed, 'cost=0 passes' if $costs[$i] == 0;
        ok !$passed, 'more than the capacity is refused' if $costs[$i] == 200;
        is $answers[$i]->header('Retry-After'), undef if $costs[$i] == 200;
    }
    cmp_ok $spent, '<=', 100;
    cmp_ok $spent, '>', 93, 'and no more than the largest cost is left unused';
    is remaining_of($node), 100 - $spent;
};

subtest 'requests that share a call through a leaky bucket are each delayed until their turn' => sub {
    my $redis = redis();
    my $node = watched(redis => $redis, zone => 'rate=20r/s algorithm=leaky_bucket burst=100', limit => 'delay=5',
        server => 'add_header X-At $msec always;');
    $redis->pause;
    my @sockets = map { http_connect($node->port) } 1 .. 30;
    http_send($_, '/', close => 1) for @sockets;
    wait_for_arrivals($node, 30);
    my $began = time;
    $redis->resume;
    my $select = IO::Select->new(@sockets);
    my (@ended, @answered);    # when the client read an answer, and when nginx gave it
    while ($select->count) {
        for my $socket ($select->can_read(5)) {
            my $answer = http_read($socket);
            is $answer->status, 200 or return;
            push @answered, $answer->header('X-At');
            push @ended, time - $began;
            $select->remove($socket);
        }
    }
    my $early = grep { $ended[$_] < ($_ - 5) / 20 - 0.06 } 0 .. 29;
    is $early, 0, 'none before its turn';
    @answered = sort { $a <=> $b } @answered;
    cmp_ok $answered[5], '<', $answered[29] - 0.5, 'the first ones without delay';
};

subtest 'requests with several limits, shadow limits and dry runs share calls' => sub {
    my $redis = redis();
    my $node = watched(redis => $redis, zone => 'rate=40r/d algorithm=gcra burst=39',
        http => 'ratelimit_zone a$arg_k zone=wide rate=1000r/d algorithm=sliding_window_log cache=off;'
            . 'ratelimit_zone s$arg_k zone=shadow rate=10r/d algorithm=fixed_window cache=off;',
        location => 'ratelimit zone=wide; ratelimit zone=shadow shadow;',
        server => join '', map { "location = /peek/$_ { ratelimit zone=$_ cost=0; try_files /index.html =404; }" }
            qw(wide shadow));
    my @answers;
    is checks_during($redis, sub { @answers = at_once($node, $redis, ('/') x 100) }), 2;
    is scalar(grep { $_->status == 200 } @answers), 40, 'the tightest enforced limit decides';
    is remaining_of($node), 0;
    is remaining_of($node, '/wide'), 960, 'the wide limit counts the admitted requests only';
    is remaining_of($node, '/shadow'), 0, 'the shadow limit is used up';

    $node = watched(redis => $redis, zone => 'rate=40r/d algorithm=gcra burst=39',
        location => 'ratelimit_dry_run on;');
    @answers = at_once($node, $redis, ('/?k=dry') x 100);
    is scalar(grep { $_->status == 200 } @answers), 100;
    is scalar(grep { $_->header('X-Status') eq 'REJECTED_DRY_RUN' } @answers), 60;
};

subtest 'clients that leave do not affect other requests of their call' => sub {
    my $redis = redis();
    my $node = watched(redis => $redis, zone => 'rate=1000r/d algorithm=fixed_window');
    for my $leaving ([0], [0 .. 9], [5 .. 19], [1, 3, 7, 19], [0 .. 19]) {
        $redis->cmd('SCRIPT', 'FLUSH') if @{$leaving} % 2;    # the call is retried after they left
        $redis->pause;
        my @sockets = map { http_connect($node->port) } 1 .. 20;
        for my $i (0 .. 19) {
            http_send($sockets[$i], '/', close => 1);
            wait_for_arrivals($node, $i + 1) if $i == 0;
        }
        wait_for_arrivals($node, 20);
        close $sockets[$_] for @{$leaving};
        my %left = map { $_ => 1 } @{$leaving};
        $redis->resume;
        my @stay = map { http_read($sockets[$_])->status } grep { !$left{$_} } 0 .. 19;
        is_deeply \@stay, [(200) x (20 - @{$leaving})], 'the other clients get their responses';
    }
    is $node->status('/'), 200;
    is 1000 - remaining_of($node), 1 + 100, 'all requests are counted, also of clients that left';
};

finish();

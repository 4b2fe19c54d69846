# Leases: a node takes tokens of a busy key in advance, so that most requests need no call to Redis. Never
# more requests pass than the limit allows, and no lease lasts longer than a second.

use Ratelimit::Test;
use Time::HiRes qw(time);

my @slow = (
    ['fixed_window',           'rate=100000r/d algorithm=fixed_window'],
    ['sliding_window_counter', 'rate=100000r/d algorithm=sliding_window_counter'],
    ['sliding_window_log',     'rate=100000r/d algorithm=sliding_window_log'],
    ['sliding_window_buckets', 'rate=100000r/d algorithm=sliding_window_buckets'],
    ['token_bucket',           'rate=1r/d algorithm=token_bucket burst=50000'],
    ['gcra',                   'rate=1r/d algorithm=gcra burst=49999'],
    ['leaky_bucket',           'rate=1r/d algorithm=leaky_bucket burst=49999', 'nodelay'],
);

sub lease_node {
    my (%options) = @_;
    $options{http} = 'keepalive_requests 1000000;' . ($options{http} // '');
    $options{server} = 'add_header X-Source $ratelimit_source always;'
        . 'add_header X-Status $ratelimit_status always;' . ($options{server} // '');
    return node(%options);
}

# A request on a kept connection: (status, source, remaining).
sub fetch {
    my ($node, $path) = @_;
    $node->{socket} //= http_connect($node->port);
    http_send($node->{socket}, $path);
    my $answer = http_read($node->{socket});
    return ($answer->status, map { $answer->header($_) } qw(X-Source X-RateLimit-Remaining));
}

# Sends $times requests, one after another; the number admitted by each source, and `refused`.
sub fetch_times {
    my ($node, $times, $path) = @_;
    my %seen = map { $_ => 0 } qw(redis lease cache refused);
    for (1 .. $times) {
        my ($status, $source) = fetch($node, $path // '/');
        $seen{ $status == 200 ? $source : 'refused' }++;
    }
    return \%seen;
}

# The part of a limit that Redis has counted for a key.
sub counted {
    my ($node, $key) = @_;
    my $answer = $node->get('/peek' . ($key ? "?k=$key" : ''));
    return $answer->header('X-RateLimit-Limit') - $answer->header('X-RateLimit-Remaining');
}

sub checks { return $_[0]{redis}->calls('evalsha') }

for (@slow) {
    my ($algorithm, $zone, $limit) = @{$_};
    subtest "most requests of a busy key need no call: $algorithm" => sub {
        my $node = lease_node(zone => "$zone lease=40", limit => $limit, workers => 2);
        my $before = checks($node);
        my $seen = fetch_times($node, 600);
        my $calls = checks($node) - $before;
        is $seen->{redis} + $seen->{lease}, 600, 'all requests pass';
        cmp_ok $seen->{redis}, '<=', $calls, 'each request that Redis admitted was one call; the others renewed leases';
        cmp_ok $calls, '<', 300, "$calls calls for 600 requests, one after another";
        cmp_ok counted($node), '>=', 600, 'every request is counted';
        cmp_ok counted($node), '<=', 600 + 40 * $calls, 'no more than requests and leases are counted';

        $before = checks($node);
        my @statuses = burst($node->port, '/?k=many', 2000, 50);
        is scalar(grep { $_ == 200 } @statuses), 2000;
        cmp_ok checks($node) - $before, '<', 700, 'calls are few for concurrent requests too';
        cmp_ok counted($node, 'many'), '>=', 2000;
    };
}

subtest 'with lease=off or lease=1 nothing is counted in advance' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=off');
    is fetch_times($node, 100)->{redis}, 100;
    is counted($node), 100;
    $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=1');
    is fetch_times($node, 100)->{refused}, 0;
    cmp_ok counted($node), '<=', 101;
};

subtest 'a key that is not busy gets no lease' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=gcra burst=999 lease=100');
    fetch($node, "/?k=$_") for 1 .. 100;
    is scalar(grep { counted($node, $_) != 1 } 1 .. 100), 0, 'each of a hundred keys is counted exactly';
    my $last = time;
    for my $times (1 .. 3) {
        wait_until('a second is over', sub { time - $last > 1.2 });
        is +(fetch($node, '/?k=1'))[1], 'redis', 'one request a second goes to Redis';
        $last = time;
        is counted($node, 1), 1 + $times, 'and nothing is leased';
    }
    fetch($node, '/?k=1') for 1 .. 200;
    $last = time;
    cmp_ok counted($node, 1), '<=', 4 + 400, 'no more is leased than the recent requests';
    wait_until('the key has been quiet', sub { time - $last > 4.4 });
    my $before = counted($node, 1);
    is +(fetch($node, '/?k=1'))[1], 'redis';
    is counted($node, 1), $before + 1, 'after a pause nothing is leased';
};

subtest 'leases never exceed the limit' => sub {
    for (
        ['fixed_window',           'rate=500r/d algorithm=fixed_window'],
        ['sliding_window_log',     'rate=500r/d algorithm=sliding_window_log'],
        ['sliding_window_counter', 'rate=500r/d algorithm=sliding_window_counter'],
        ['sliding_window_buckets', 'rate=500r/d algorithm=sliding_window_buckets'],
        ['token_bucket',           'rate=1r/d algorithm=token_bucket burst=500'],
        ['gcra',                   'rate=1r/d algorithm=gcra burst=499'],
        ['leaky_bucket',           'rate=1r/d algorithm=leaky_bucket burst=499', 'nodelay'],
    ) {
        my ($name, $zone, $limit) = @{$_};
        my $redis = redis();
        my @nodes = map { lease_node(redis => $redis, zone => "$zone lease=30", limit => $limit,
                workers => 2) } 1 .. 3;
        for my $key (1 .. 2) {
            my @statuses = burst([map { $_->port } @nodes], "/?k=$key", 1500, 100);
            my $passed = grep { $_ == 200 } @statuses;
            is scalar(grep { $_ != 200 && $_ != 429 } @statuses), 0, "$name: all requests are decided";
            cmp_ok $passed, '<=', 500, 'no more than the limit pass';
            cmp_ok counted($nodes[0], $key), '<=', 500, 'no more than the limit are counted';
            next if $name ne 'fixed_window';
            # What another worker has leased may be on its way.
            wait_until('all is used', sub {
                for my $node (@nodes) {
                    $passed++ while (fetch($node, "/?k=$key"))[0] == 200;
                }
                return $passed >= 500;
            });
            is $passed, 500, 'the whole limit can be used before the window ends';
        }
    }
};

subtest 'requests of different costs use leases, and the limit holds' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=20',
        limit => 'cost=$arg_c', workers => 2);
    my ($spent, $leased) = (0, 0);
    for my $i (1 .. 400) {
        my $cost = (1, 1, 1, 7, 2, 0)[$i % 6];
        my ($status, $source) = fetch($node, "/?c=$cost");
        next if $status != 200;
        $spent += $cost;
        $leased++ if $source eq 'lease';
        is $source, 'redis', 'cost=0 goes to Redis' if !$cost;
    }
    cmp_ok $spent, '<=', 1000;
    cmp_ok $spent, '>=', 700;
    cmp_ok $leased, '>', 20;
};

subtest 'remaining counts down, and the reset with time' => sub {
    my $node = lease_node(zone => 'rate=10000r/d algorithm=fixed_window lease=50');
    my (@left, @reset, $watch);
    for (1 .. 300) {
        $watch = stopwatch();
        my $answer = $node->get('/');
        push @left,  $answer->header('X-RateLimit-Remaining');
        push @reset, $answer->header('X-RateLimit-Reset');
    }
    # Tokens of a renewal that is under way are counted, and not known yet.
    my @off = map { abs(10_000 - $_ - $left[$_ - 1]) } 1 .. 300;
    is scalar(grep { $_ > 50 } @off), 0, 'by no more than a lease too little';
    cmp_ok scalar(grep { $_ <= 3 } @off), '>', 200, 'mostly by one for each request' or diag "@left";
    is scalar(grep { $reset[$_] > $reset[$_ - 1] } 1 .. 299), 0;
    my $later = $reset[-1] - $node->get('/peek')->header('X-RateLimit-Reset');
    cmp_ok $later, '>=', -1;
    cmp_ok $later, '<=', 1 + $watch->elapsed;

    $node = lease_node(zone => 'rate=100r/s algorithm=gcra burst=9999 lease=50');
    my $began = time;
    my $debt = 0;
    for my $count (1 .. 300) {
        my $answer = $node->get('/');
        my $elapsed = time - $began;
        my $least = $count / 100 - $elapsed;
        $debt++ if $answer->header('X-RateLimit-Reset') < $least - 0.1;
        $debt++ if $answer->header('X-RateLimit-Reset') > $count / 100 + 50 / 100 * (1 + $elapsed) + 1;
    }
    is $debt, 0, 'the reset is as far away as the admitted requests make it';
};

subtest 'leaky_bucket delays requests with leases too' => sub {
    my $node = lease_node(zone => 'rate=40r/s algorithm=leaky_bucket burst=500 lease=20');
    my @sockets = map { http_connect($node->port) } 1 .. 60;
    my $began = time;
    my @ended;
    http_send($_, '/', close => 1) for @sockets;
    for (@sockets) { is http_read($_)->status, 200 or last; push @ended, time - $began }
    @ended = sort { $a <=> $b } @ended;
    cmp_ok $ended[-1], '>=', 59 / 40 - 0.1, 'sixty requests at forty a second';
    my $early = grep { $ended[$_] < $_ / 40 - 0.1 } 0 .. 59;
    is $early, 0, 'none before its turn';
};

finish();

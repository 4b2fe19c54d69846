# Leases: a busy key takes requests ahead, so that most need not wait for Redis; never more than its
# limit, and not for longer than a second.

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

# A request on a kept connection: status, source, remaining.
sub ask {
    my ($node, $path) = @_;
    $node->{socket} //= http_connect($node->port);
    http_send($node->{socket}, $path);
    my $answer = http_read($node->{socket});
    return ($answer->status, map { $answer->header($_) } qw(X-Source X-RateLimit-Remaining));
}

# Asks so many times, one after another: how often each source passed a request, and `refused`.
sub ask_times {
    my ($node, $times, $path) = @_;
    my %seen = map { $_ => 0 } qw(redis lease cache refused);
    for (1 .. $times) {
        my ($status, $source) = ask($node, $path // '/');
        $seen{ $status == 200 ? $source : 'refused' }++;
    }
    return \%seen;
}

# How much of a limit Redis has counted for a key.
sub counted {
    my ($node, $key) = @_;
    my $answer = $node->get('/peek' . ($key ? "?k=$key" : ''));
    return $answer->header('X-RateLimit-Limit') - $answer->header('X-RateLimit-Remaining');
}

sub checks { return $_[0]{redis}->calls('evalsha') }

for (@slow) {
    my ($algorithm, $zone, $limit) = @{$_};
    subtest "a busy key asks redis now and then: $algorithm" => sub {
        my $node = lease_node(zone => "$zone lease=40", limit => $limit, workers => 2);
        my $before = checks($node);
        my $seen = ask_times($node, 600);
        my $asked = checks($node) - $before;
        is $seen->{redis} + $seen->{lease}, 600, 'all pass';
        is $seen->{redis}, $asked, 'those of redis are its checks';
        cmp_ok $asked, '<', 300, "$asked checks for 600 requests, one after another";
        cmp_ok counted($node), '>=', 600, 'no request is uncounted';
        cmp_ok counted($node), '<=', 600 + 40 * $asked, 'nor more than was taken ahead';

        $before = checks($node);
        my @statuses = burst($node->port, '/?k=many', 2000, 50);
        is scalar(grep { $_ == 200 } @statuses), 2000;
        cmp_ok checks($node) - $before, '<', 700, 'many at once';
        cmp_ok counted($node, 'many'), '>=', 2000;
    };
}

subtest 'no lease, no requests taken ahead' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=off');
    is ask_times($node, 100)->{redis}, 100;
    is counted($node), 100;
    $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=1');
    is ask_times($node, 100)->{refused}, 0;
    cmp_ok counted($node), '<=', 101;
};

subtest 'a key that is not busy loses nothing' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=gcra burst=999 lease=100');
    ask($node, "/?k=$_") for 1 .. 100;
    is scalar(grep { counted($node, $_) != 1 } 1 .. 100), 0, 'each of a hundred keys is counted once';
    my $last = time;
    for my $asked (1 .. 3) {
        wait_until('its second is over', sub { time - $last > 1.2 });
        is +(ask($node, '/?k=1'))[1], 'redis', 'who asks once in a second asks redis';
        $last = time;
        is counted($node, 1), 1 + $asked, 'for himself';
    }
    ask($node, '/?k=1') for 1 .. 200;
    $last = time;
    cmp_ok counted($node, 1), '<=', 4 + 400, 'nobody takes more ahead than has come lately';
    wait_until('it is quiet again', sub { time - $last > 4.4 });
    my $before = counted($node, 1);
    is +(ask($node, '/?k=1'))[1], 'redis';
    is counted($node, 1), $before + 1, 'which is forgotten soon';
};

subtest 'the limit holds, whatever is taken ahead' => sub {
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
            is scalar(grep { $_ != 200 && $_ != 429 } @statuses), 0, "$name: all are decided";
            cmp_ok $passed, '<=', 500, 'no more pass than may';
            cmp_ok counted($nodes[0], $key), '<=', 500, 'no more are counted';
            next if $name ne 'fixed_window';
            for my $node (@nodes) {
                $passed++ while (ask($node, "/?k=$key"))[0] == 200;
            }
            is $passed, 500, 'and all of them can be had until the window ends';
        }
    }
};

subtest 'costs are taken whole' => sub {
    my $node = lease_node(zone => 'rate=1000r/d algorithm=fixed_window lease=20',
        limit => 'cost=$arg_c', workers => 2);
    my ($spent, $leased) = (0, 0);
    for my $i (1 .. 400) {
        my $cost = (1, 1, 1, 7, 2, 0)[$i % 6];
        my ($status, $source) = ask($node, "/?c=$cost");
        next if $status != 200;
        $spent += $cost;
        $leased++ if $source eq 'lease';
        is $source, 'redis', 'a look is redis\'s' if !$cost && $source ne 'redis';
    }
    cmp_ok $spent, '<=', 1000;
    cmp_ok $spent, '>=', 700;
    cmp_ok $leased, '>', 20;
};

subtest 'remaining goes down one by one, and the reset with time' => sub {
    my $node = lease_node(zone => 'rate=10000r/d algorithm=fixed_window lease=50');
    my (@left, @reset);
    for (1 .. 300) {
        my $answer = $node->get('/');
        push @left,  $answer->header('X-RateLimit-Remaining');
        push @reset, $answer->header('X-RateLimit-Reset');
    }
    is_deeply \@left, [map { 10_000 - $_ } 1 .. 300];
    is scalar(grep { $reset[$_] > $reset[$_ - 1] } 1 .. 299), 0;
    my $peek = $node->get('/peek')->header('X-RateLimit-Reset');
    cmp_ok abs($reset[-1] - $peek), '<=', 1;

    $node = lease_node(zone => 'rate=100r/s algorithm=gcra burst=9999 lease=50');
    my $began = time;
    my $debt = 0;
    for my $asked (1 .. 300) {
        my $answer = $node->get('/');
        my $elapsed = time - $began;
        my $least = $asked / 100 - $elapsed;
        $debt++ if $answer->header('X-RateLimit-Reset') < $least - 0.1;
        $debt++ if $answer->header('X-RateLimit-Reset') > $asked / 100 + 50 / 100 * (1 + $elapsed) + 1;
    }
    is $debt, 0, 'an arrival time is as far away as the requests that passed make it';
};

subtest 'who waits for his turn waits for it with leases too' => sub {
    my $node = lease_node(zone => 'rate=40r/s algorithm=leaky_bucket burst=500 lease=20');
    my @sockets = map { http_connect($node->port) } 1 .. 60;
    my $began = time;
    my @ended;
    http_send($_, '/', close => 1) for @sockets;
    for (@sockets) { is http_read($_)->status, 200 or last; push @ended, time - $began }
    @ended = sort { $a <=> $b } @ended;
    cmp_ok $ended[-1], '>=', 59 / 40 - 0.1, 'sixty at forty a second';
    my $early = grep { $ended[$_] < $_ / 40 - 0.1 } 0 .. 59;
    is $early, 0, 'none before its turn';
};

finish();

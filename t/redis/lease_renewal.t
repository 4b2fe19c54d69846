# Leases are renewed before they are used up or end: with a Redis that is far away, a busy key waits for no renewal,
# no more pass than the limit allows, and a renewal that fails harms no request.

use Ratelimit::Test;
use Time::HiRes qw(time sleep);

# A node whose Redis is behind a proxy. Its workers, and what else stands in the block and the location.
sub lease_node {
    my ($zone, %options) = @_;
    my $redis = $options{redis} // redis();
    my $proxy = proxy(to => $redis->addr);
    my $node  = nginx(
        workers => $options{workers} // 1,
        http => "keepalive_requests 1000000; ratelimit_redis main { server @{[ $proxy->addr ]}; timeout 5s; connect_timeout 5s; }"
            . "ratelimit_zone k\$arg_k zone=test $zone; ratelimit_zone o zone=other rate=1r/d; " . ($options{http} // ''),
        server => 'add_header X-Source $ratelimit_source always; add_header X-Status $ratelimit_status always;'
            . "location / { ratelimit zone=test; @{[ $options{location} // '' ]} try_files /index.html =404; }"
            . 'location /refused { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }'
            . 'location /peek { ratelimit zone=test cost=0; try_files /index.html =404; }',
    );
    @{$node}{qw(redis proxy)} = ($redis, $proxy);
    return $node;
}

# One request after another for some seconds, $apart seconds apart, and at least $least: how many were decided by each
# source (or status, if they did not pass), and the longest wait for an answer.
sub requests {
    my ($node, $seconds, $apart, $path, $least) = @_;
    $node->{socket} //= http_connect($node->port);
    my %seen = (longest => 0);
    for (my ($end, $count) = (time + $seconds, 0); time < $end || $count < ($least // 0); sleep $apart) {
        $count++;
        my $sent = time;
        http_send($node->{socket}, $path // '/?k=1');
        my $answer = http_read($node->{socket});
        $seen{longest} = time - $sent if time - $sent > $seen{longest};
        my $passed = $answer->status == 200 && ($answer->header('X-Status') // '') eq 'PASSED';
        $seen{ $passed ? $answer->header('X-Source') : $answer->header('X-Status') }++;
        $seen{passed}++ if $passed;
    }
    return \%seen;
}

sub counted {
    my ($node, $key) = @_;
    my $answer = $node->get('/peek?k=' . ($key // 1));
    return $answer->header('X-RateLimit-Limit') - $answer->header('X-RateLimit-Remaining');
}

for my $zone (
    'rate=1000000r/d algorithm=fixed_window',       'rate=1000000r/d algorithm=sliding_window_counter',
    'rate=1000000r/d algorithm=sliding_window_log', 'rate=1r/h algorithm=token_bucket burst=1000000',
    'rate=1r/h algorithm=gcra burst=999999 clock=local',
) {
    subtest "a busy key waits for no renewal, 80 ms away: $zone" => sub {
        my $node = lease_node("$zone lease=1000");
        $node->{proxy}->delay(0.08);
        my ($seen, $waited);
        for (1 .. 5) {    # again if the machine stood still for as long as a lease
            requests($node, 1.2, 0.002);
            $seen = requests($node, 1.5, 0.002);
            last if !($waited = $seen->{redis} // 0);
        }
        is $waited, 0, 'no request went to Redis' or diag explain $seen;
        cmp_ok $seen->{lease}, '>', 50, 'the key was busy';
    };
}

subtest 'a key that is no longer used takes no more tokens' => sub {
    my $node = lease_node('rate=100000r/d algorithm=fixed_window lease=100');
    requests($node, 1, 0.005);
    wait_until('the last renewal has ended', sub { my $before = counted($node); sleep 0.2; return counted($node) == $before });
    my $before = counted($node);
    sleep 1.5;
    is counted($node), $before;
};

subtest 'a key of a few requests a second has few tokens, and a request that is refused takes none' => sub {
    my $node = lease_node('rate=100000r/d algorithm=sliding_window_log lease=100');
    my $seen = requests($node, 3, 0.25);
    my $most = 3 * $seen->{passed} + 10;
    cmp_ok counted($node), '<=', $most, "$seen->{passed} requests";
    is $node->status('/refused?k=2'), 200, 'the other limit has one';
    requests($node, 1, 0.005, '/refused?k=2');
    cmp_ok counted($node, 2), '<=', 1, 'only the one that passed is counted';
};

subtest 'with several workers and nodes no more pass than the limit allows, and all of it can be used' => sub {
    my $redis = redis();
    my @nodes = map { lease_node('rate=4000r/d algorithm=fixed_window lease=200', redis => $redis, workers => 2) } 1 .. 2;
    $_->{proxy}->delay(0.03) for @nodes;
    my $passed = 0;
    my @loads = map { load(port => $_->port, path => '/?k=1', clients => 8) } @nodes;
    wait_until('the limit is reached', sub { grep { $_->seen->{429} } @loads }, 60);
    $passed += $_->stop->{200} // 0 for @loads;
    # What is left of their leases, or on its way to another worker.
    my $more = sub { return scalar grep { $_ == 200 } map { burst($_->port, '/?k=1', 100, 5) } @nodes };
    wait_until('no token is left', sub { ($passed += $more->()) >= 4000 });
    is $passed + $more->(), 4000;
};

subtest 'a renewal that fails is no failure of a request' => sub {
    my $node = lease_node('rate=100000r/d algorithm=fixed_window lease=50',
        location => 'ratelimit_fail_mode closed;');
    requests($node, 1, 0.005);
    $node->{proxy}->cut;
    my $seen = requests($node, 1, 0.005);
    is $seen->{passed}, ($seen->{lease} // 0) + ($seen->{redis} // 0), 'all pass after a connection was lost';
    is $seen->{FAILED_CLOSED} // 0, 0;
    $node->{redis}->cmd(qw(CONFIG SET maxmemory 1));
    my @all;
    for (1 .. 200) { push @all, $node->get('/?k=1')->header('X-Status'); last if $all[-1] ne 'PASSED' }
    is $all[-1], 'FAILED_CLOSED', 'when the tokens are used up, the fail mode decides';
    cmp_ok scalar(@all), '>', 5, 'the tokens of the lease are used before';
    $node->{redis}->cmd(qw(CONFIG SET maxmemory 0));
    wait_until('Redis decides again', sub { $node->get('/?k=1')->header('X-Status') eq 'PASSED' });
};

subtest 'a reload keeps the tokens, and the new workers renew them' => sub {
    my $node = lease_node('rate=100000r/d algorithm=fixed_window lease=100');
    requests($node, 1, 0.005);
    $node->reload(gone => 1);
    delete $node->{socket};
    my $seen = requests($node, 1.2, 0.005, undef, 100);
    is $seen->{passed}, ($seen->{lease} // 0) + ($seen->{redis} // 0);
    cmp_ok $seen->{lease}, '>', 10 * ($seen->{redis} // 0);
};

for my $case (['a ring', sub { map { redis() } 1 .. 3 }, ''], ['a cluster', sub { cluster()->masters }, 'topology cluster;']) {
    my ($what, $servers, $topology) = @{$case};
    subtest "keys on several servers: $what" => sub {
        my @servers = $servers->();
        my $node = nginx(
            http => "keepalive_requests 1000000; ratelimit_redis main { $topology timeout 5s; connect_timeout 5s; "
                . join('', map { "server @{[ $_->addr ]};" } @servers) . '}'
                . 'ratelimit_zone k$arg_k zone=test rate=10000r/d algorithm=fixed_window lease=100;',
            server => 'add_header X-Source $ratelimit_source always; add_header X-Status $ratelimit_status always;'
                . 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }'
                . 'location /peek { ratelimit zone=test cost=0; try_files /index.html =404; }',
        );
        for my $key (1 .. 6) {
            my $seen = requests($node, 0.6, 0.002, "/index.html?k=$key", 100);
            is $seen->{passed}, ($seen->{lease} // 0) + ($seen->{redis} // 0), "all pass, key $key";
            cmp_ok $seen->{lease}, '>', 3 * $seen->{redis}, 'most of them without Redis';
            cmp_ok counted($node, $key), '<=', $seen->{passed} + 200, 'and little is counted that did not pass';
            cmp_ok counted($node, $key), '>=', $seen->{passed};
        }
    };
}

finish();

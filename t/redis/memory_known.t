# Cached refusals and leases in zones whose shared memory is full: the least recently used keys are
# evicted, no memory is lost, and every admitted request is counted.

use Ratelimit::Test;
use Time::HiRes qw(time);

my $long = 'y' x 110;
my $redis = redis();

# An nginx with a zone of 32k with these parameters. A request costs c, unless `cost` is given.
sub small_node {
    my ($zone, %options) = @_;
    $redis->cmd('FLUSHALL');
    my $node = nginx(level => 'notice', %options, http => 'keepalive_requests 1000000;'
            . "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . "ratelimit_zone \$arg_k zone=test:32k $zone;",
        server => 'location / { ratelimit zone=test cost=' . ($options{cost} // '$arg_c') . '; ratelimit_log_level info;'
            . 'add_header X-Source $ratelimit_source always; try_files /index.html =404;'
            . ($options{location} // '') . '}');
    $node->{socket} = http_connect($node->port);
    return $node;
}

sub decision {
    my ($node, $key, $cost) = @_;
    http_send($node->{socket}, "/?k=$key" . ($cost ? "&c=$cost" : ''));
    my $answer = http_read($node->{socket});
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

# Refuses $count keys by requests of this cost; returns the number of the newest ones whose refusal is still cached.
# Each is remembered for at most $seconds. On a slow machine the test begins again, with other keys.
sub cached_refusals {
    my ($node, $name, $count, $cost, $seconds) = @_;
    my ($known, $from);
    do {
        my @times;
        for my $i (1 .. $count) {
            push @times, time;
            decision($node, $name . $i . ($i % 4 ? '' : $long), $cost) for 1 .. 2;    # the second is refused
        }
        $known = 0;
        for my $i (reverse 1 .. $count) {
            last if decision($node, $name . $i . ($i % 4 ? '' : $long), $cost) ne '429 cache';
            $known++;
        }
        $from = $times[-($known + 1)] // $times[0];
        $name .= '+';
    } while time - $from > 0.9 * $seconds;
    return $known;
}

sub is_silent {
    my ($node) = @_;
    is $node->log =~ s/^.*\[(?:notice|info)\].*\n//gmr, '', 'nothing else is logged';
    return;
}

subtest 'as refusals are evicted and added, the number of cached ones stays the same' => sub {
    my $node = small_node('rate=2r/d algorithm=fixed_window', cost => 2);
    my $first = cached_refusals($node, 'a', 600, 2, 5);
    cmp_ok $first, '>', 20;
    cmp_ok $first, '<', 300, 'not all of them';
    my @others = map { cached_refusals($node, "r$_", 600, 2, 5) } 1 .. 6;
    is scalar(grep { abs($_ - $first) > 3 } @others), 0, 'the same number each time' or diag "$first: @others";
    is_silent($node);
};

subtest 'the leases of the least recently used keys are evicted' => sub {
    my $node = small_node('rate=10000r/d algorithm=fixed_window lease=20');
    my (%passed, %seen, $leased);
    for my $round (1 .. 4) {
        for my $i (1 .. 400) {
            my $key = "k$i" . ($i % 3 ? '' : $long);
            for (1 .. 5) {
                my $decision = decision($node, $key);
                $seen{$decision}++;
                $passed{$key}++ if $decision =~ /^200/;
            }
            $leased++ if decision($node, 'hot') eq '200 lease';
            $passed{hot}++;
        }
    }
    is_deeply [sort keys %seen], ['200 lease', '200 redis'], 'all requests pass, some with leases';
    cmp_ok $leased, '>', 1000, 'a key in constant use keeps its lease';
    my $uncounted = 0;
    for my $key (keys %passed) {
        my (undef, $counted) = unpack 'd<2', $redis->cmd('GET', "rl:test:{$key}");
        $uncounted++ if $counted < $passed{$key};
    }
    is $uncounted, 0, 'every admitted request is counted';
    is_silent($node);
};

subtest 'refusals, leases and log runs share the memory' => sub {
    my $node = small_node('rate=20r/d algorithm=fixed_window lease=10');
    my $before = cached_refusals($node, 'before', 400, 11, 1);    # a zone with several costs
    cmp_ok $before, '>', 20;
    for my $i (1 .. 300) {
        decision($node, "busy$i" . ($i % 2 ? $long : '')) for 1 .. 8;
        decision($node, "dear$i", 25) for 1 .. 2;
    }
    my %seen;
    $seen{ decision($node, 'late') }++ for 1 .. 40;
    is $seen{'200 redis'} + $seen{'200 lease'}, 20, 'a new key is counted and leased';
    cmp_ok $seen{'200 lease'}, '>=', 5;
    cmp_ok $seen{'429 cache'}, '>=', 15, 'its refusal is cached';
    my $after = cached_refusals($node, 'after', 400, 11, 1);
    cmp_ok abs($after - $before), '<=', $before / 5 + 2, 'no memory is lost' or diag "$before, $after";
    is_silent($node);
};

subtest 'counts that only this node has are not evicted for refusals that Redis knows too' => sub {
    my $other = redis();
    my $node = nginx(http => 'keepalive_requests 1000000;'
            . "ratelimit_redis main { server @{[ $other->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=test:32k rate=30r/d algorithm=gcra burst=29;',
        server => 'location / { ratelimit zone=test cost=$arg_c; ratelimit_log_level info; ratelimit_fail_mode local;'
            . 'add_header X-Source $ratelimit_source always; try_files /index.html =404; }');
    $node->{socket} = http_connect($node->port);
    for my $i (1 .. 400) { decision($node, "k$i", 31) for 1 .. 2 }
    $other->stop('KILL');
    $node->wait_for_log(qr/is away/);
    my %passed;
    for (1 .. 40) {
        for my $key (map { "l$_" } 1 .. 40) { $passed{$key}++ if decision($node, $key) eq '200 local' }
    }
    is_deeply [sort { $a <=> $b } values %passed], [(30) x 40], 'forty keys are limited exactly';
};

subtest 'workers that are killed leave usable shared memory' => sub {
    $redis->cmd('FLUSHALL');
    my $zones = 'map $request_id $each { default $request_id; } ratelimit_zone $each zone=all:64k rate=9r/d lease=9;'
        . 'ratelimit_zone k$arg_k zone=one:64k rate=$arg_r algorithm=fixed_window lease=9;';
    my $node = nginx(workers => 2, expected => qr/exited on signal 9|was locked by/,
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } $zones",
        server => 'location / { ratelimit zone=all; ratelimit zone=one; try_files /index.html =404; }');
    my @loads = map { load(port => $node->port, path => "/?$_", clients => 16) } 'r=50r/s', 'r=9r/d';
    survives_kills($node, 15, @loads);
};

finish();

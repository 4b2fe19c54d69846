# What is known of keys (refusals, requests taken ahead) in zones whose shared memory is full: the keys
# that were used least recently make room, no block is lost, and nobody passes uncounted.

use Ratelimit::Test;

my $long = 'y' x 110;
my $redis = redis();

# An nginx with a zone of 32k of these parameters.
sub small_node {
    my ($zone, %options) = @_;
    $redis->cmd('FLUSHALL');
    my $node = nginx(level => 'notice', %options, http => 'keepalive_requests 1000000;'
            . "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . "ratelimit_zone \$arg_k zone=test:32k $zone;",
        server => 'location / { ratelimit zone=test cost=$arg_c; ratelimit_log_level info;'
            . 'add_header X-Source $ratelimit_source always; try_files /index.html =404;'
            . ($options{location} // '') . '}');
    $node->{socket} = http_connect($node->port);
    return $node;
}

sub told {
    my ($node, $key, $cost) = @_;
    http_send($node->{socket}, "/?k=$key" . ($cost ? "&c=$cost" : ''));
    my $answer = http_read($node->{socket});
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

# How many of the newest of so many keys are still known to be refused after all were.
sub remembered {
    my ($node, $name, $count) = @_;
    for my $i (1 .. $count) {
        told($node, $name . $i . ($i % 4 ? '' : $long), 2) for 1 .. 2;    # the second is refused
    }
    my $known = 0;
    for my $i (reverse 1 .. $count) {
        last if told($node, $name . $i . ($i % 4 ? '' : $long), 2) ne '429 cache';
        $known++;
    }
    return $known;
}

sub is_silent {
    my ($node) = @_;
    is $node->log =~ s/^.*\[(?:notice|info)\].*\n//gmr, '', 'the log has nothing to say';
    return;
}

subtest 'refusals come and go, and as many are remembered as ever' => sub {
    my $node = small_node('rate=2r/d algorithm=fixed_window');
    my $first = remembered($node, 'a', 600);
    cmp_ok $first, '>', 20;
    cmp_ok $first, '<', 300, 'not all of them';
    my @others = map { remembered($node, "r$_", 600) } 1 .. 6;
    is scalar(grep { abs($_ - $first) > 3 } @others), 0, 'each time' or diag "$first: @others";
    is_silent($node);
};

subtest 'what busy keys took ahead goes with the keys that were used least recently' => sub {
    my $node = small_node('rate=10000r/d algorithm=fixed_window lease=20');
    my (%passed, %seen, $leased);
    for my $round (1 .. 4) {
        for my $i (1 .. 400) {
            my $key = "k$i" . ($i % 3 ? '' : $long);
            for (1 .. 5) {
                my $told = told($node, $key);
                $seen{$told}++;
                $passed{$key}++ if $told =~ /^200/;
            }
            $leased++ if told($node, 'hot') eq '200 lease';
            $passed{hot}++;
        }
    }
    is_deeply [sort keys %seen], ['200 lease', '200 redis'], 'all pass, some of what was taken ahead';
    cmp_ok $leased, '>', 1000, 'a key that is used all the time keeps it';
    my $uncounted = 0;
    for my $key (keys %passed) {
        my (undef, $counted) = unpack 'd<2', $redis->cmd('GET', "rl:test:{$key}");
        $uncounted++ if $counted < $passed{$key};
    }
    is $uncounted, 0, 'and nobody passes uncounted';
    is_silent($node);
};

subtest 'refusals, busy keys and logged ones share it' => sub {
    my $node = small_node('rate=20r/d algorithm=fixed_window lease=10');
    my $before = remembered($node, 'before', 400);
    for my $i (1 .. 300) {
        told($node, "busy$i" . ($i % 2 ? $long : '')) for 1 .. 8;
        told($node, "dear$i", 25) for 1 .. 2;
    }
    my %seen;
    $seen{ told($node, 'late') }++ for 1 .. 40;
    is $seen{'200 redis'} + $seen{'200 lease'}, 20, 'a key is counted and leased in the crowd';
    cmp_ok $seen{'200 lease'}, '>=', 5;
    cmp_ok $seen{'429 cache'}, '>=', 15, 'and its refusal known';
    my $after = remembered($node, 'after', 400);
    cmp_ok abs($after - $before), '<=', $before / 5 + 2, 'no room is lost' or diag "$before, $after";
    is_silent($node);
};

subtest 'what this node counts while redis is away is not lost for what redis knows as well' => sub {
    my $other = redis();
    my $node = nginx(http => 'keepalive_requests 1000000;'
            . "ratelimit_redis main { server @{[ $other->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=test:32k rate=30r/d algorithm=gcra burst=29;',
        server => 'location / { ratelimit zone=test cost=$arg_c; ratelimit_log_level info; ratelimit_fail_mode local;'
            . 'add_header X-Source $ratelimit_source always; try_files /index.html =404; }');
    $node->{socket} = http_connect($node->port);
    for my $i (1 .. 400) { told($node, "k$i", 31) for 1 .. 2 }
    $other->stop('KILL');
    $node->wait_for_log(qr/is away/);
    my %passed;
    for (1 .. 40) {
        for my $key (map { "l$_" } 1 .. 40) { $passed{$key}++ if told($node, $key) eq '200 local' }
    }
    is_deeply [sort { $a <=> $b } values %passed], [(30) x 40], 'forty keys are counted to the end';
};

subtest 'workers that are killed at work leave what can be used' => sub {
    $redis->cmd('FLUSHALL');
    my $zones = 'ratelimit_zone $request_id zone=all:64k rate=9r/d lease=9;'
        . 'ratelimit_zone k$arg_k zone=one:64k rate=$arg_r algorithm=fixed_window lease=9;';
    my $node = nginx(workers => 2, expected => qr/exited on signal 9|was locked by/,
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } $zones",
        server => 'location / { ratelimit zone=all; ratelimit zone=one; try_files /index.html =404; }');
    my @loads = map { load(port => $node->port, path => "/?$_", clients => 16) } 'r=50r/s', 'r=9r/d';
    survives_kills($node, 15, @loads);
};

finish();

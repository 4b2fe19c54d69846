# A hot key, for which requests go to Redis together, when Redis hangs, breaks or goes away.

use Ratelimit::Test;
use IO::Select;
use Time::HiRes qw(time);

my $zone = 'rate=1000000r/d algorithm=fixed_window';

sub hot_node {
    my (%options) = @_;
    my $block = $options{block};
    return nginx(%options,
        http => "keepalive_requests 1000000; ratelimit_redis main { server @{[ $options{redis}->addr ]}; $block }"
            . "ratelimit_zone k\$arg_k zone=test $zone;",
        server => 'location / { ratelimit zone=test; add_header X-Status $ratelimit_status always; '
            . 'try_files /index.html =404; }');
}

# Asks from a hundred connections, on each one request after another, until the code says stop; calls it
# with the time that each waited, and its answer's status and what became of it.
sub ask_from_many {
    my ($node, $seen) = @_;
    my $select = IO::Select->new(map { http_connect($node->port) } 1 .. 100);
    my (%began, %text);
    my $ask = sub {
        my ($socket) = @_;
        ($began{$socket}, $text{$socket}) = (time, '');
        syswrite $socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    };
    $ask->($_) for $select->handles;
    while ($select->count) {
        my @ready = $select->can_read(20) or die "no answer within 20 s\n";
        for my $socket (@ready) {
            sysread $socket, $text{$socket}, 4096, length $text{$socket} or die "closed\n";
            my ($head, $length) = $text{$socket} =~ /^(.*?Content-Length: (\d+).*?\r\n\r\n)/s or next;
            next if length $text{$socket} < length($head) + $length;
            my ($status) = $head =~ m{^HTTP/1.1 (\d+)};
            my ($result) = $head =~ /^X-Status: (\w+)/m;
            if ($seen->(time - $began{$socket}, $status, $result)) { $ask->($socket) }
            else                                                 { $select->remove($socket) }
        }
    }
    return;
}

my $grace = 0.6;    # for a busy machine

subtest 'while redis hangs nobody waits much longer than the timeout' => sub {
    my $redis = redis();
    my $node = hot_node(redis => $redis, workers => 2,
        block => 'timeout 400ms; connect_timeout 400ms; breaker failures=1000000;');
    my ($longest, %results);
    for (1 .. 3) {    # a busy machine may let somebody wait
        my ($began, $answers) = (time, 0);
        $longest = 0;
        ask_from_many($node, sub {
            my ($waited, $status, $result) = @_;
            $redis->pause if ++$answers == 300;
            if ($answers > 300) {
                $longest = $waited if $waited > $longest;
                $results{"$status $result"}++;
            }
            return time < $began + 3;
        });
        $redis->resume;
        last if $longest < 0.4 + $grace;
    }
    cmp_ok $longest, '<', 0.4 + $grace, "the longest waited $longest s";
    is_deeply [grep { !/^200 (?:PASSED|FAILED_OPEN)$/ } keys %results], [], 'all were let pass';
    cmp_ok $results{'200 FAILED_OPEN'}, '>', 300, 'by the fail mode';
    wait_until('it goes on', sub { $node->get('/')->header('X-Status') eq 'PASSED' });
    ok 1, 'and all is well when it goes on';
};

subtest 'requests that wait in one call are one silence, and none waits once the breaker is open' => sub {
    my $redis = redis();
    my $node = hot_node(redis => $redis, block => 'timeout 1s; connect_timeout 5s; breaker failures=1 open=60s;');
    is $node->get('/')->header('X-Status'), 'PASSED';
    $redis->pause;
    my ($began, $answers, $late) = (time, 0, 0);
    ask_from_many($node, sub {
        my ($waited) = @_;
        $late++ if $answers++ >= 200 && $waited > 0.9;
        return $answers < 1000;
    });
    $redis->resume;
    is $late, 0, 'who comes after a hundred have failed does not wait';
    cmp_ok time - $began, '<', 4;
    is $node->count_log(qr/is away/), 1, 'which is one line';
};

subtest 'a slow redis decides a hot key as long as it answers in time' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node = hot_node(redis => $proxy, block => 'timeout 3s; connect_timeout 5s;');
    is $node->get('/')->header('X-Status'), 'PASSED';
    $proxy->delay(1.8);
    my ($began, %results) = (time);
    ask_from_many($node, sub { $results{ $_[2] }++; return time < $began + 6 });
    is_deeply [keys %results], ['PASSED'], 'nobody is left to the fail mode' or diag explain \%results;
    is $node->count_log(qr/is away/), 0;
};

for my $case (['is killed', sub { $_[0]->stop('KILL') }], ['closes the connection', sub { $_[1]->cut }],
    ['answers nonsense', sub { $_[1]->garble }]) {
    my ($what, $break) = @{$case};
    subtest "when redis $what all who wait are answered" => sub {
        my $redis = redis();
        my $proxy = proxy(to => $redis->addr);
        my $node = hot_node(redis => $proxy, workers => 2,
            block => 'timeout 2s; connect_timeout 2s; breaker failures=1000000;');
        my ($began, $answers, $longest, %results) = (time, 0, 0);
        ask_from_many($node, sub {
            my ($waited, $status, $result) = @_;
            $break->($redis, $proxy) if ++$answers == 300;
            $longest = $waited if $waited > $longest;
            $results{"$status $result"}++;
            return $answers < 1500;
        });
        is_deeply [grep { !/^200 (?:PASSED|FAILED_OPEN)$/ } keys %results], [], 'and let pass';
        cmp_ok $longest, '<', 4 + $grace;
        $proxy->pass;
        $redis->start if !$redis->lives;
        wait_until('it goes on', sub { $node->get('/')->header('X-Status') eq 'PASSED' });
        ok 1, 'until it is back';
    };
}

finish();

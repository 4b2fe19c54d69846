# Coalesced checks of a hot key while Redis hangs, breaks or is unavailable.

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
            . 'add_header X-Time $ratelimit_time always; '
            . 'try_files /index.html =404; }');
}

# Sends requests on a hundred connections, on each one after another, until the code returns false. Calls
# the code with each request's duration, status, $ratelimit_status and $ratelimit_time.
sub request_from_many {
    my ($node, $seen) = @_;
    my $select = IO::Select->new(map { http_connect($node->port) } 1 .. 100);
    my (%began, %text);
    my $send = sub {
        my ($socket) = @_;
        ($began{$socket}, $text{$socket}) = (time, '');
        syswrite $socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    };
    $send->($_) for $select->handles;
    while ($select->count) {
        my @ready = $select->can_read(20) or die "no answer within 20 s\n";
        for my $socket (@ready) {
            sysread $socket, $text{$socket}, 4096, length $text{$socket} or die "closed\n";
            my ($head, $length) = $text{$socket} =~ /^(.*?Content-Length: (\d+).*?\r\n\r\n)/s or next;
            next if length $text{$socket} < length($head) + $length;
            my ($status) = $head =~ m{^HTTP/1.1 (\d+)};
            my ($result) = $head =~ /^X-Status: (\w+)/m;
            my ($decided) = $head =~ /^X-Time: ([\d.]+)/m;
            if ($seen->(time - $began{$socket}, $status, $result, $decided)) { $send->($socket) }
            else                                                 { $select->remove($socket) }
        }
    }
    return;
}

my $grace = 0.6;    # seconds, for a busy machine

subtest 'while Redis hangs no request waits much longer than the timeout' => sub {
    my $redis = redis();
    my $node = hot_node(redis => $redis, workers => 2,
        block => 'timeout 400ms; connect_timeout 400ms; breaker failures=1000000;');
    my ($longest, %results);
    for (1 .. 6) {    # retried: a busy machine may delay a request
        my ($watch, $answers) = (stopwatch(), 0);
        ($longest, %results) = (0);
        request_from_many($node, sub {
            my ($waited, $status, $result) = @_;
            $redis->pause if ++$answers == 300;
            if ($answers > 300) {
                $longest = $waited if $waited > $longest;
                $results{"$status $result"}++;
            }
            return ($results{'200 FAILED_OPEN'} // 0) < 600 && $watch->elapsed < 60;
        });
        $redis->resume;
        $longest -= $watch->elapsed - $watch->net;
        last if $longest < 0.4 + $grace;
    }
    cmp_ok $longest, '<', 0.4 + $grace, "the longest waited $longest s";
    is_deeply [grep { !/^200 (?:PASSED|FAILED_OPEN)$/ } keys %results], [], 'all requests pass';
    cmp_ok $results{'200 FAILED_OPEN'}, '>', 300, 'by the fail mode while Redis hangs';
    wait_until('Redis decides again', sub { $node->get('/')->header('X-Status') eq 'PASSED' });
    ok 1, 'Redis decides again when it responds';
};

subtest 'a call of many requests that times out counts as one failure, and none waits once the breaker is open' => sub {
    my $redis = redis();
    my $node = hot_node(redis => $redis, block => 'timeout 1s; connect_timeout 5s; breaker failures=1 open=60s;');
    is $node->get('/')->header('X-Status'), 'PASSED';
    $redis->pause;
    my ($watch, $answers, $late) = (stopwatch(), 0, 0);
    request_from_many($node, sub {
        my (undef, undef, undef, $decided) = @_;
        $late++ if $answers++ >= 200 && $decided > 0.9;
        return $answers < 1000;
    });
    $redis->resume;
    is $late, 0, 'no request waits after the first hundred have failed';
    $watch->within(4);
    is $node->count_log(qr/is away/), 1, 'one line in the log';
};

subtest 'a slow Redis decides every request of a hot key while its replies come in time' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node = hot_node(redis => $proxy, block => 'timeout 5s; connect_timeout 5s;');
    $proxy->delay(1);
    burst($node->port, '/', 20, 20);  # loads the scripts, also that for requests which wait together
    $proxy->delay(2.6);    # two of them are longer than the timeout
    my ($began, %results) = (time);
    request_from_many($node, sub { $results{ $_[2] }++; return time < $began + 8 });
    is_deeply [keys %results], ['PASSED'], 'no request is left to the fail mode' or diag explain \%results;
    is $node->count_log(qr/is away/), 0;
};

for my $case (['is killed', sub { $_[0]->stop('KILL') }], ['closes the connection', sub { $_[1]->cut }],
    ['answers nonsense', sub { $_[1]->garble }]) {
    my ($what, $break) = @{$case};
    subtest "when Redis $what all pending requests are answered" => sub {
        my $redis = redis();
        my $proxy = proxy(to => $redis->addr);
        my $node = hot_node(redis => $proxy, workers => 2,
            block => 'timeout 2s; connect_timeout 2s; breaker failures=1000000;');
        my ($began, $answers, $longest, %results) = (time, 0, 0);
        request_from_many($node, sub {
            my ($waited, $status, $result) = @_;
            $break->($redis, $proxy) if ++$answers == 300;
            $longest = $waited if $waited > $longest;
            $results{"$status $result"}++;
            return $answers < 1500;
        });
        is_deeply [grep { !/^200 (?:PASSED|FAILED_OPEN)$/ } keys %results], [], 'all requests pass';
        cmp_ok $longest, '<', 4 + $grace;
        $proxy->pass;
        $redis->start if !$redis->lives;
        wait_until('Redis decides again', sub { $node->get('/')->header('X-Status') eq 'PASSED' });
        ok 1, 'Redis decides again when it is back';
    };
}

finish();

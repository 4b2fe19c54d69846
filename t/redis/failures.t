# How long the fail mode decides when Redis, its connections or nginx's workers stall, under constant
# load: each response is recorded with its time and status.

use Ratelimit::Test;
use IO::Select;
use List::Util qw(max);
use Time::HiRes qw(time sleep);

# Added to the time that each fault allows, for a busy machine.
my $slack = $ENV{RATELIMIT_SLACK} // 0.25;

# While nginx gets requests, the test sends PING to Redis. A round trip of a third of nginx's timeout
# shows that the machine is too busy for Redis: a request that fails then is not the module's fault.
sub pinger {
    my ($redis, $timeout) = @_;
    my ($socket, $sent_at, @slow);
    my $ping = sub {
        local $SIG{PIPE} = 'IGNORE';
        if ($sent_at) {
            IO::Select->new($socket)->can_read(0) or return;
            push @slow, [$sent_at, time] if time - $sent_at > $timeout / 3;
            undef $sent_at;
            sysread $socket, my $reply, 4096 or undef $socket;
        }
        $socket //= IO::Socket::INET->new(PeerAddr => $redis->addr) or return;
        $sent_at = time;
        syswrite $socket, "PING\r\n" or undef $socket;
    };
    my $was_slow = sub {
        my ($at) = @_;
        return scalar grep { $_->[0] <= $at && $at <= $_->[1] + 1.5 * $timeout } @slow, $sent_at ? [$sent_at, time] : ();
    };
    return $ping, $was_slow;
}

sub failing_node {
    my ($redis, %options) = @_;
    my $block = $options{block} // '';
    my $node = nginx(workers => 2, %options,
        http => "keepalive_requests 1000000; ratelimit_redis main { server @{[ $redis->addr ]}; $block }"
            . 'map $request_id $each { default $request_id; }'
            . 'ratelimit_zone $each zone=test rate=1000000r/d; ratelimit_zone hot zone=hot rate=1000000r/d lease=20;',
        server => 'location / { ratelimit zone=test; ratelimit zone=hot; add_header X-Status $ratelimit_status always;'
            . ' try_files /index.html =404; } location /one/ { ratelimit zone=test;'
            . ' add_header X-Status $ratelimit_status always; try_files /index.html =404; }');
    wait_until('Redis decides', sub { ($node->get('/')->header('X-Status') // '') eq 'PASSED' }) for 1 .. 5;
    $node->{pinger} = sub { pinger($redis, $block =~ /\btimeout (\d+)ms/ ? $1 / 1000 : 0.1) };
    return $node;
}

# Sends requests on twenty connections, one after another on each, and calls the code of `do` at its
# times (seconds from the start). What is called late, or returns late, adds to $seconds; and two rounds of answers come in
# the last third of the time after it. Returns [time of the response, status, whether Redis was too slow for
# a PING then] for each.
sub observe {
    my ($node, $seconds, %do) = @_;
    my $select = IO::Select->new(map { http_connect($node->port) } 1 .. 20);
    my ($ping, $was_slow) = $node->{pinger}->();
    my ($began, $number, @seen, %text) = (time, 0);
    my $send = sub {
        my ($socket) = @_;
        $text{$socket} = '';
        my $path = $number++ % 2 ? '/' : '/one/';
        syswrite $socket, "GET $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    };
    my @due = sort { $a <=> $b } keys %do;
    my ($late, $end) = (0, 0);
    my $rest = $seconds - $due[-1];
    $send->($_) for $select->handles;
    while ($select->count) {
        while (@due && time - $began - $late >= $due[0]) {
            my $at = shift @due;
            (delete $do{$at})->();
            $late = time - $began - $at;
        }
        $ping->();
        for my $socket ($select->can_read(0.005)) {
            sysread $socket, $text{$socket}, 4096, length $text{$socket} or die "closed\n";
            my ($head, $length) = $text{$socket} =~ /^(.*?Content-Length: (\d+).*?\r\n\r\n)/s or next;
            next if length $text{$socket} < length($head) + $length;
            push @seen, [time, $head =~ /^X-Status: (\w+)/m];
            $end++ if !@due && time - $began - $late > $seconds - $rest / 3;
            if (time - $began - $late < $seconds || $end < 40) { $send->($socket) }
            else                          { $select->remove($socket) }
        }
        sleep 0.005;    # some thousand requests a second are enough, and leave the machine to others
    }
    return map { [@{$_}, $_->[1] ne 'PASSED' && $was_slow->($_->[0])] } @seen;
}

sub failed { return grep { $_->[1] ne 'PASSED' } @_ }

# The requests that failed although Redis was not slow.
sub blamed { return grep { !$_->[2] } failed(@_) }

# The fail mode decided no request later than `$after` seconds after the fault's end.
sub holds {
    my ($what, $end, $after, @seen) = @_;
    my $last = max(0, map { $_->[0] - $end } blamed(@seen));
    cmp_ok $last, '<', $after + $slack, sprintf '%s: the last failed request was %.3f s after its end', $what, $last;
    cmp_ok scalar(grep { $_->[0] > $end + $after + $slack } @seen), '>', 20, 'and requests were sent after that';
    return;
}

subtest 'while Redis stalls the fail mode decides no longer than the stall' => sub {
    my $redis = redis();
    my $node = failing_node($redis);
    for my $stall (0.1, 0.12, 0.2, 0.3, 0.5, 1, 3) {
        my $end;
        my @seen = observe($node, $stall + 1.5, 0.3 => sub { $redis->pause }, 0.3 + $stall => sub { $redis->resume; $end = time });
        holds("a stall of $stall s", $end, 0.05, @seen);
        cmp_ok scalar(failed(@seen)), '>', 0, 'the fail mode decided during the stall' if $stall > 0.5;
    }
};

subtest 'a Redis that always replies after the timeout is reported once' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node = failing_node($proxy, workers => 1, block => 'breaker open=10s;');
    my $status = sub { return $node->get('/one/')->header('X-Status') };
    my $reports = sub { return $node->count_log(qr/\Q@{[ $proxy->addr ]}\E answered: too late, the fail mode decides$/) };
    $proxy->delay(0.3);
    wait_until('it is reported', sub { $status->() ne 'PASSED' && $reports->() });
    is_deeply [map { $status->() } 1 .. 20], [('FAILED_OPEN') x 20], 'the fail mode decides';
    is $reports->(), 1, 'not once for each request';
    is $node->count_log(qr/is away/), 0, 'it is not reported as away';
    $proxy->pass;
    wait_until('Redis decides', sub { $status->() eq 'PASSED' });
};

subtest 'a worker that was stopped itself fails no request' => sub {
    for my $mutex ('on', 'off') {
        my $redis = redis();
        my $node = failing_node($redis, block => 'timeout 400ms; connect_timeout 1s;', events => "accept_mutex $mutex;");
        $node->wait_for_workers($node->pid);
        my @workers = $node->workers;
        my @do = map { ($_ => sub { kill STOP => @workers }, $_ + 0.6 => sub { kill CONT => @workers }) } 0.2, 1.1, 2;
        my @seen = observe($node, 3.2, @do);
        is scalar(blamed(@seen)), 0, "accept_mutex $mutex: of " . @seen;
        cmp_ok scalar(@seen), '>', 100;
        is $node->count_log(qr/is away/), 0 if !failed(@seen);
    }
};

subtest 'connections that are killed fail no request' => sub {
    for my $connections (1, 4) {
        my $redis = redis();
        my $node = failing_node($redis, block => "timeout 400ms; connections $connections;");
        my $kill = sub { kill_clients($redis) };
        my @seen = observe($node, 2.5, map { $_ => $kill } 0.3, 0.6, 0.9, 1.2, 1.5, 1.8);
        is scalar(blamed(@seen)), 0, "$connections connections: of " . @seen;
        is $node->count_log(qr/is away/), 0, 'no line in the log' if !failed(@seen);
    }
};

subtest 'scripts that are lost, with and without their connection, fail no request' => sub {
    my $redis = redis();
    my $node = failing_node($redis, block => 'timeout 400ms;');
    my $flush = sub { $redis->cmd('SCRIPT', 'FLUSH') };
    my $both  = sub { $flush->(); kill_clients($redis) };
    my @seen = observe($node, 3, map { 0.2 * $_ => $_ % 2 ? $flush : $both } 1 .. 12);
    is scalar(blamed(@seen)), 0, 'of ' . @seen;
    is $node->count_log(qr/is away|answered:/), 0, 'no line in the log' if !failed(@seen);
};

subtest 'a connection on which one reply was lost is replaced' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node = failing_node($proxy, workers => 1);
    my $status = sub { return $node->get('/one/')->header('X-Status') };
    my @later;
    for (1 .. 5) {    # again, if the machine was too busy for the short timeout
        wait_until('Redis decides', sub { $status->() eq 'PASSED' });
        my ($ping, $was_slow) = pinger($redis, 0.1);
        $proxy->swallow;
        is $status->(), 'FAILED_OPEN', 'it had no reply in time';
        my @at;
        @later = map { $ping->(); push @at, time; $status->() } 1 .. 20;
        sleep 0.02;
        $ping->();
        last if !grep { $was_slow->($_) } @at;
    }
    cmp_ok scalar(grep { $_ ne 'PASSED' } @later), '<=', 3, "then: @later";
    is_deeply [@later[10 .. 19]], [('PASSED') x 10], 'Redis decides';
    is $node->count_log(qr/is away/), 0;
};

sub kill_clients { return $_[0]->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') }

my $kill = sub { $_[0]->stop('KILL') };
my $start = sub { $_[0]->start };

# Name, start and end of a fault, seconds until Redis decides again, seconds that the fault lasts (1).
my @faults = (
    ['CLIENT PAUSE', sub { $_[0]->cmd('CLIENT', 'PAUSE', 500, 'ALL'); $_[0]{until} = time + 0.5 }, sub { sleep max(0, $_[0]{until} - time) }, 0.15],
    ['OOM', sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 1) }, sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 0) }, 0.15],
    ['a busy script', sub {
        my ($redis) = @_;
        $redis->{busy} = IO::Socket::INET->new(PeerAddr => $redis->addr) or die $!;
        print { $redis->{busy} } "EVAL 'while true do end' 0\r\n";
    }, sub { $_[0]->cmd('SCRIPT', 'KILL') }, 0.15],
    # A new connection is made after a pause of 500 ms at most.
    ['NOAUTH', sub { $_[0]->cmd('CONFIG', 'SET', 'requirepass', 'x'); kill_clients(@_) },
        sub { $_[0]->cmd('AUTH', 'x'); $_[0]->cmd('CONFIG', 'SET', 'requirepass', '') }, 0.6],
    ['READONLY', sub { $_[0]->cmd('REPLICAOF', '127.0.0.1', 1) }, sub { $_[0]->cmd('REPLICAOF', 'NO', 'ONE') }, 0.6],
    ['maxclients', sub { $_[0]->cmd('CONFIG', 'SET', 'maxclients', 1); kill_clients(@_) },
        sub { $_[0]->cmd('CONFIG', 'SET', 'maxclients', 1000) }, 0.6],
    (map { ["a kill for $_ s", $kill, $start, 0.6, $_] } 0.3, 1, 3),
    ['a kill with a restart at once', sub { }, sub { $kill->(@_); $start->(@_) }, 0.6],
);

subtest 'soon after a fault ends Redis decides again' => sub {
    for (@faults) {
        my ($what, $cause, $cure, $after, $lasts) = @{$_};
        $lasts //= 1;
        my $redis = redis();
        $redis->cmd('CONFIG', 'SET', 'lua-time-limit', 50);
        my $node = failing_node($redis);
        my $end;
        my @seen = observe($node, $lasts + 2, 0.3 => sub { $cause->($redis) },
            0.3 + $lasts => sub { $cure->($redis); $end = time });
        holds($what, $end, $after, @seen);
        cmp_ok scalar(failed(@seen)), '>', 0, 'the fail mode decided during the fault' if $what !~ /at once/;
        is $node->count_log(qr/is away/), 0, 'a server that replies with errors is not reported as unavailable' if $what eq 'OOM';
    }
};

finish();

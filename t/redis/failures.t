# How long the fail mode decides when Redis, its connections or nginx's own workers stall: requests
# come all the time, each with its time and what became of it.

use Ratelimit::Test;
use IO::Select;
use List::Util qw(max);
use Time::HiRes qw(time sleep);

# Beside what the fault itself allows, for a machine that is busy with other things.
my $slack = $ENV{RATELIMIT_SLACK} // 0.25;

sub failing_node {
    my ($redis, %options) = @_;
    my $block = $options{block} // '';
    my $node = nginx(workers => 2, %options,
        http => "keepalive_requests 1000000; ratelimit_redis main { server @{[ $redis->addr ]}; $block }"
            . 'ratelimit_zone $request_id zone=test rate=1000000r/d; ratelimit_zone hot zone=hot rate=1000000r/d lease=20;',
        server => 'location / { ratelimit zone=test; ratelimit zone=hot; add_header X-Status $ratelimit_status always;'
            . ' try_files /index.html =404; } location /one/ { ratelimit zone=test;'
            . ' add_header X-Status $ratelimit_status always; try_files /index.html =404; }');
    wait_until('redis decides', sub { ($node->get('/')->header('X-Status') // '') eq 'PASSED' }) for 1 .. 5;
    return $node;
}

# Requests from twenty connections, one after another on each; at the times (seconds from the start) of `do`
# its code is called. Returns [when it ended, its status], for each.
sub observe {
    my ($node, $seconds, %do) = @_;
    my $select = IO::Select->new(map { http_connect($node->port) } 1 .. 20);
    my ($began, $number, @seen, %text) = (time, 0);
    my $ask = sub {
        my ($socket) = @_;
        $text{$socket} = '';
        my $path = $number++ % 2 ? '/' : '/one/';
        syswrite $socket, "GET $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    };
    my @due = sort { $a <=> $b } keys %do;
    $ask->($_) for $select->handles;
    while ($select->count) {
        (delete $do{ shift @due })->() while @due && time - $began >= $due[0];
        for my $socket ($select->can_read(0.005)) {
            sysread $socket, $text{$socket}, 4096, length $text{$socket} or die "closed\n";
            my ($head, $length) = $text{$socket} =~ /^(.*?Content-Length: (\d+).*?\r\n\r\n)/s or next;
            next if length $text{$socket} < length($head) + $length;
            push @seen, [time, $head =~ /^X-Status: (\w+)/m];
            if (time - $began < $seconds) { $ask->($socket) }
            else                          { $select->remove($socket) }
        }
    }
    return @seen;
}

sub failed { return grep { $_->[1] ne 'PASSED' } @_ }

# The fail mode decided no request later than `$after` seconds after the fault's end.
sub holds {
    my ($what, $end, $after, @seen) = @_;
    my $last = max(0, map { $_->[0] - $end } failed(@seen));
    cmp_ok $last, '<', $after + $slack, sprintf '%s: the last one %.3f s after its end', $what, $last;
    cmp_ok scalar(grep { $_->[0] > $end + $after + $slack } @seen), '>', 20, 'and others came after that';
    return;
}

subtest 'a redis that stalls costs no more fail mode than its stall' => sub {
    my $redis = redis();
    my $node = failing_node($redis);
    for my $stall (0.1, 0.12, 0.2, 0.3, 0.5, 1, 3) {
        my $end;
        my @seen = observe($node, $stall + 1.5, 0.3 => sub { $redis->pause }, 0.3 + $stall => sub { $redis->resume; $end = time });
        holds("a stall of $stall s", $end, 0.05, @seen);
        cmp_ok scalar(failed(@seen)), '>', 0, 'there was a stall' if $stall > 0.5;
    }
};

subtest 'a worker that was stopped itself fails nothing' => sub {
    for my $mutex ('on', 'off') {
        my $redis = redis();
        my $node = failing_node($redis, block => 'timeout 400ms; connect_timeout 1s;', events => "accept_mutex $mutex;");
        my @workers = $node->workers;
        my @do = map { ($_ => sub { kill STOP => @workers }, $_ + 0.6 => sub { kill CONT => @workers }) } 0.2, 1.1, 2;
        my @seen = observe($node, 3.2, @do);
        is scalar(failed(@seen)), 0, "accept_mutex $mutex: of " . @seen;
        cmp_ok scalar(@seen), '>', 100;
        is $node->count_log(qr/is away/), 0;
    }
};

subtest 'connections that are killed cost nothing' => sub {
    for my $connections (1, 4) {
        my $redis = redis();
        my $node = failing_node($redis, block => "timeout 400ms; connections $connections;");
        my $kill = sub { $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') };
        my @seen = observe($node, 2.5, map { $_ => $kill } 0.3, 0.6, 0.9, 1.2, 1.5, 1.8);
        is scalar(failed(@seen)), 0, "$connections connections: of " . @seen;
        is $node->count_log(qr/is away/), 0, 'and no line';
    }
};

my $kill = sub { $_[0]->stop('KILL') };
my $start = sub { $_[0]->start };

# A fault's begin, its end, how long after that redis decides again, and how long the fault lasts.
my @faults = (
    ['CLIENT PAUSE', sub { $_[0]->cmd('CLIENT', 'PAUSE', 500, 'ALL'); $_[0]{until} = time + 0.5 }, sub { sleep max(0, $_[0]{until} - time) }, 0.15],
    ['OOM', sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 1) }, sub { $_[0]->cmd('CONFIG', 'SET', 'maxmemory', 0) }, 0.15],
    ['a busy script', sub {
        my ($redis) = @_;
        $redis->{busy} = IO::Socket::INET->new(PeerAddr => $redis->addr) or die $!;
        print { $redis->{busy} } "EVAL 'while true do end' 0\r\n";
    }, sub { $_[0]->cmd('SCRIPT', 'KILL') }, 0.15],
    (map { ["a kill for $_ s", $kill, $start, 0.6, $_] } 0.3, 1, 3),
    ['a kill with a restart at once', sub { }, sub { $kill->(@_); $start->(@_) }, 0.6],
);

subtest 'when a fault ends redis decides again' => sub {
    for (@faults) {
        my ($what, $cause, $cure, $after, $lasts) = @{$_};
        $lasts //= 1;
        my $redis = redis();
        $redis->cmd('CONFIG', 'SET', 'busy-reply-threshold', 50);
        my $node = failing_node($redis);
        my $end;
        my @seen = observe($node, $lasts + 2, 0.3 => sub { $cause->($redis) },
            0.3 + $lasts => sub { $cure->($redis); $end = time });
        holds($what, $end, $after, @seen);
        cmp_ok scalar(failed(@seen)), '>', 0, 'it was a fault' if $what !~ /at once/;
        is $node->count_log(qr/is away/), 0, 'an error that is answered is no server that is away' if $what eq 'OOM';
    }
};

finish();

# The checker of `./build.sh chaos` finds violations, and only violations.

use FindBin ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Blocks qw(judge_blocks);
use Chaos::Bounds qw(violations);
use Chaos::Failures qw(judge_failures judge_waits);
use Chaos::Held qw(held_in);
use Chaos::Judge qw(judge_requests);
use Chaos::Remains qw(connections judge_totals);
use Chaos::Report qw(summary table);
use Chaos::Takeovers qw(takeovers unplanned);
use Ratelimit::Test;

my $window = { quota => 100, window => 2, precision => 0.5, burst => 40 };

# Requests at even intervals from a time on; each is answered after a millisecond.
sub even { my ($from, $count, $apart) = @_; return map { at($from + $_ * $apart) } 0 .. $count - 1 }
sub at { my ($sent, $took) = @_; return [$sent, $sent + ($took // 0.001)] }

sub found {
    my ($algorithm, $passes, $gaps) = @_;
    return scalar(violations({ %{$window}, algorithm => $algorithm }, $passes, $gaps));
}

# Algorithm, requests that it may admit, and five percent more than that.
my @cases = (
    ['fixed_window',           [even(2, 100, 0.01), even(4, 100, 0.001)], [even(2, 105, 0.01)]],
    ['sliding_window_log',     [even(1, 100, 0.01), even(3.01, 100, 0.01)], [even(1, 105, 0.018)]],
    ['sliding_window_buckets', [even(1, 100, 0.01), even(2.6, 100, 0.01)],  [even(1, 105, 0.014)]],
    ['sliding_window_counter', [even(2, 100, 0.01), even(5, 50, 0.001)],
        [even(2, 100, 0.01), even(5, 55, 0.001)]],
    ['token_bucket', [even(1, 40, 0), even(1.025, 1000, 0.02)], [even(1, 2200, 0.019)]],
    ['gcra',         [even(1, 41, 0), even(1.025, 1000, 0.02)], [even(1, 2200, 0.019)]],
    ['leaky_bucket', [even(1, 41, 0), even(1.025, 1000, 0.02)], [even(1, 2200, 0.019)]],
);
for my $case (@cases) {
    my ($algorithm, $good, $bad) = @{$case};
    is found($algorithm, $good), 0, "$algorithm: the requests that it may admit are no violation";
    cmp_ok found($algorithm, $bad), '>', 0, "$algorithm: five percent more are a violation";
    is found($algorithm, [map { at($_->[0], 100) } @{$bad}]), 0,
        "$algorithm: requests that may have been decided later are no violation";
    is found($algorithm, [@{$good}, map { [$_->[0] + 5000, $_->[1] + 5000] } @{$good}]), 0,
        "$algorithm: after a long idle time the same requests are no violation";
}

subtest 'too many requests at one time are found' => sub {
    my $log = sub { join '', map { sprintf qq{a %.3f %.3f 0.010 "PASSED" "redis"\n}, $_->[1], $_->[1] - $_->[0] } @_ };
    my $found = sub {
        my ($gaps, @times) = @_;
        return scalar violations({ algorithm => 'concurrency', quota => 2, hold => 3 }, held_in($log->(@times))->{a}, $gaps);
    };
    my @two = ([1, 2], [1.5, 2.5]);
    is $found->([], @two, [2.1, 3]), 0, 'two at a time';
    is $found->([], @two, [1.9, 3]), 1, 'three at a time';
    is $found->([], [1, 9], [1, 9], [4, 5]), 0, 'what is held longer than hold may be free';
    is $found->([], [1, 9], [1, 9], [3, 5]), 1, 'not before';
    is $found->([[1.6, 1.7]], @two, [1.9, 3]), 0, 'a request over a gap is not judged';
    is_deeply held_in(qq{a 5 1 0 "FAILED_OPEN" "redis"\na 5 1 0 "PASSED" "local"\nb 5 1 0.5 "PASSED" "redis"\n}),
        { b => [[4.501, 4.999]] }, 'only what Redis admitted, from its decision on';
};

subtest 'a request that passes within a block is found' => sub {
    my $found = sub {
        my ($gaps, @requests) = @_;
        return scalar judge_blocks(1, [map { { key => 'a', source => 'redis', status => $_->[0], sent => $_->[1],
            received => $_->[1] + 0.01 } } @requests], $gaps);
    };
    my @refused = (['PASSED', 1], ['REJECTED', 1.2]);
    is $found->([], @refused, ['PASSED', 1.9]), 1, 'it passes too early';
    is $found->([], @refused, ['PASSED', 2.3]), 0, 'after the block';
    is $found->([], ['PASSED', 1], ['PASSED', 1.1]), 0, 'nothing was refused';
    is $found->([], @refused, ['REJECTED', 2.1], ['PASSED', 2.2]), 0, 'a refusal within a block does not prolong it';
    is $found->([[1.5, 1.6]], @refused, ['PASSED', 1.9]), 0, 'Redis lost its data meanwhile';
};

subtest 'requests before and after a gap are judged separately' => sub {
    my @twice = (even(2, 100, 0.005), even(3, 100, 0.005));
    for my $algorithm (qw(fixed_window sliding_window_log)) {
        is found($algorithm, \@twice), 1, "$algorithm without a gap: a violation";
        is found($algorithm, \@twice, [[2.6, 2.9]]), 0, "$algorithm with a gap: none";
    }
    is found('token_bucket', [even(2, 200, 0.001)], [[1, 1.1], [9, 9]]), 1, 'a gap elsewhere excuses nothing';
};

subtest 'violations of gcra equal a search over all intervals' => sub {
    srand 7;
    for my $round (1 .. 60) {
        my @passes = map { at(rand 3, rand 0.3) } 1 .. 60 + int rand 40;
        my $limit = { algorithm => 'gcra', quota => 20, window => 1, burst => 15 };
        my $most = -1e9;
        for my $from (map { $_->[0] } @passes) {
            for my $to (map { $_->[1] } @passes) {
                my $count = grep { $_->[0] >= $from && $_->[1] <= $to } @passes;
                my $over = $count - 16 - 20 * ($to - $from);
                $most = $over if $to >= $from && $over > $most;
            }
        }
        next if abs($most) < 0.01;
        is scalar(violations($limit, \@passes)), $most > 0 ? 1 : 0, sprintf 'round %d: %.2f', $round, $most
            or last;
    }
};

# A request that was sent at this time and failed a tenth of a second later.
sub failed {
    my ($sent, %more) = @_;
    return { id => 1, node => 0, zone => 'z', key => 'k', status => 'FAILED_OPEN', sent => $sent,
        received => $sent + 0.1, %more };
}

subtest 'failed requests are allowed in a fault and its slack only' => sub {
    my $idle = sub { 0 };
    my $complaints = sub {
        my ($faults, $busy, @requests) = @_;
        return scalar @{ (judge_failures(\@requests, $faults, $busy, 0.1))[0] };
    };
    my @stop = { name => 'stop', from => 10, to => 11, slack => 0.15 };
    is $complaints->(\@stop, $idle, failed(9.95), failed(10.5), failed(11.1)), 0, 'within the fault and its slack';
    is $stop[0]{failed}, 3, 'the failures are counted';
    cmp_ok abs($stop[0]{longest} - 0.1), '<', 1e-6, 'the longest slack is recorded';
    is $complaints->(\@stop, $idle, failed(9)), 1, 'before the fault';
    is $complaints->(\@stop, $idle, failed(11.2)), 1, 'after its slack';
    is $complaints->(\@stop, $idle, failed(11.2, status => 'PASSED', source => 'redis')), 0, 'a request that Redis decided is no failure';
    is $complaints->(\@stop, $idle, failed(11.2, status => 'PASSED', source => 'local')), 1,
        'a request that the node decided in place of Redis is a failure';
    is $complaints->(\@stop, sub { 0.08 }, failed(11.2)), 0, 'a busy machine adds to the slack';
    is $stop[0]{excused}, 1, 'such requests are counted as excused';
    is $complaints->([], sub { 0.2 }, failed(11.2)), 0, 'a busy machine excuses what it delayed';
    my @kill = { name => 'client_kill', from => 10, to => 10.01 };
    is $complaints->(\@kill, $idle, failed(10)), 1, 'a fault that may fail no request';
    is $complaints->([@stop, @kill], $idle, failed(10.2)), 0, 'unless another fault explains it';
};

subtest 'a request that waits longer than its bound is a violation' => sub {
    my $late = sub {
        my ($pauses, $busy) = @_;
        return scalar judge_waits([failed(10, received => 11)], sub { 0.6 }, $pauses, sub { $busy });
    };
    is $late->({}, 0), 1, 'a request that waited longer';
    is $late->({}, 0.5), 0, 'none on a busy machine';
    is $late->({ 0 => [[9, 10.5]] }, 0), 0, 'none if its worker was stopped';
    is $late->({ 1 => [[9, 10.5]] }, 0), 1, "a violation if only another node's worker was stopped";
};

subtest 'the nodes\' totals must agree with the clients\' records' => sub {
    my @requests = map { failed($_, zone => 'free', status => 'PASSED') } 1 .. 5;
    my $wrong = sub {
        my ($counted, $killed, @more) = @_;
        return scalar judge_totals([@requests, @more], { totals => [{ 'free passed' => 10 }] },
            { totals => [{ 'free passed' => 10 + $counted }] }, $killed);
    };
    is $wrong->(5, {}), 0, 'equal totals';
    is $wrong->(4, {}), 1, 'too few counted';
    is $wrong->(6, {}), 1, 'too many counted';
    is $wrong->(6, {}, failed(9, status => 'lost')), 0, 'no violation if a client got no response';
    is $wrong->(4, { 0 => 1 }), 0, 'no violation if a worker was killed';
};

subtest 'only nginx\'s remaining connections are counted' => sub {
    my $counted = sub {
        my ($name, $cmd) = @_;
        return scalar connections("id=7 addr=127.0.0.1:9 laddr=127.0.0.1:8 fd=9 name=$name age=3 idle=2 cmd=$cmd user=default");
    };
    is $counted->('nginx-ratelimit-77', 'evalsha'), 1, 'one that sends checks';
    is $counted->('nginx-ratelimit-77', 'cluster|slots'), 1, 'one that requests the map';
    is $counted->('', 'NULL'), 1, 'one without a command';
    is $counted->('', 'restore-asking'), 0, 'a cluster node that moved keys';
    is $counted->('sentinel-009f0864-cmd', 'ping'), 0, 'a Sentinel';
    is $counted->('', 'client|list'), 0, 'the connection that lists them';
};

subtest 'undecided requests and violated limits are found' => sub {
    my $found = sub { my ($faults, @requests) = @_; return (judge_requests(\@requests, $faults, sub { 0 }))[0] };
    my @way = (way => 'half', http => 0);
    is scalar @{ $found->([], failed(1, @way, zone => 'free', status => 'lost')) }, 1, 'a client without a response';
    is scalar @{ $found->([], failed(1, @way, zone => 'leaky', status => 'lost')) }, 0, 'none if its request was delayed';
    is scalar @{ $found->([{ name => 'worker kill', node => 0, from => 1, to => 1 }],
            failed(1, @way, zone => 'free', status => 'lost')) }, 0, 'none if its worker was killed';

    # Zone gcra admits 21 at once.
    my @burst = map { failed(4, way => 'stay', zone => 'gcra', status => 'PASSED', source => 'redis') } 1 .. 41;
    like $found->([], @burst)->[0], qr/^key k of zone gcra: gcra admitted 41/, 'too many requests of a key';
    my @apart = map { { %{ $burst[$_] }, sent => $_ < 20 ? 2 : 4, received => $_ < 20 ? 2 : 4 } } 0 .. 40;
    is_deeply $found->([], @apart), [], 'none if they are spread out';
    my @step = ({ name => 'clock step', from => 4.05, to => 4.06, step => 20 });
    my @later = map { { %{ $burst[$_] }, sent => $_ < 21 ? 4 : 4.1, received => $_ < 21 ? 4.01 : 4.2 } } 0 .. 40;
    like $found->([], @later)->[0], qr/gcra admitted 41/, 'too many within a short time';
    is_deeply $found->(\@step, @later), [], 'none if the clock stepped forwards in between';
    $step[0]{step} = -20;
    like $found->(\@step, @later)->[0], qr/gcra admitted 41/, 'a clock step backwards excuses nothing';
};

# A line of a sentinel's log, $second seconds after noon.
sub logged { my ($second, $event) = @_; return sprintf "7:X 22 Nov 2026 12:00:%06.3f # %s main\n", $second, $event }

subtest 'unplanned takeovers are found in the sentinels\' logs' => sub {
    my @logs = (
        logged(1, '+sdown') . logged(2, '+failover-state-wait-promotion') . logged(3, '+switch-master'),
        logged(3.04, '+switch-master') . logged(20, '+failover-state-wait-promotion')
            . logged(30, '+failover-state-wait-promotion') . logged(31, '+switch-master'),
    );
    my $noon = POSIX::mktime(0, 0, 12, 22, 10, 126, 0, 0, -1);
    my @seen = map { [map { sprintf '%.2f', $_ - $noon } @{$_}] } takeovers(@logs);
    is_deeply \@seen, [['2.00', '3.04'], ['30.00', '31.00']], 'from the promotion to the last sentinel that names the new master';
    my @faults = ({ name => 'takeover', from => $noon + 28, to => $noon + 31, loses => 1 },
        { name => 'busy script', from => $noon + 1.5, to => $noon + 2.5 });
    my @unplanned = unplanned([takeovers(@logs)], \@faults);
    is scalar @unplanned, 1, 'an ordered takeover is not unplanned';
    is_deeply [unplanned([], \@faults)], [], 'nor is any other fault';

    my $found = sub {
        my ($faults, @times) = @_;
        my @requests = map { failed($_, zone => 'gcra', way => 'stay', status => 'PASSED', source => 'redis') } @times;
        return scalar @{ (judge_requests(\@requests, $faults, sub { 0 }))[0] };
    };
    my ($before, $after) = map { $noon + $_ } 1.5, 3.2;
    my @once_more = ((($before) x 21), (($after) x 21));
    is $found->([], map { $_ > $before ? $before + 0.2 : $_ } @once_more), 1, 'twice a burst is a violation';
    is $found->(\@unplanned, @once_more), 0, 'none if a takeover lost the counts in between';
    is $found->(\@unplanned, (($before) x 21), (($after) x 26)), 1, 'more than a burst after the takeover is a violation';
    is $found->(\@unplanned, (($before) x 26), (($after) x 21)), 1, 'more than a burst before the takeover is a violation';
};

subtest 'the table sums up runs' => sub {
    my $run = sub {
        return summary(topology => 'one', seed => 1, seconds => 30, requests => 100, violations => 1, excused => 0,
            busy => 0.01, faults => [@_]);
    };
    my $text = table($run->({ name => 'stop', failed => 3, longest => 0.1 }, { name => 'stop', failed => 1 }),
        $run->({ name => 'stop', failed => 5, longest => 0.9, bad => 2 }, { name => 'kill' }));
    like $text, qr/^\| stop \| 3 \| 9 \| 0.90 s \| 0.15 s \|  \| \*\*2 too many\*\* \|$/m, 'a fault with violations';
    like $text, qr/^\| kill \| 1 \| 0 \|  \| 0.6 s \|  \| pass \|$/m, 'a fault without violations';
    like $text, qr/^200 requests in 60 s \(one 60 s\); 2 violations/m, 'the sums of all runs';
};

finish();

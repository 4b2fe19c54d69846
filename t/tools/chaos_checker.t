# The checker of `./build.sh chaos`: it finds what it has to find, and nothing else.

use FindBin ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Bounds qw(violations);
use Chaos::Failures qw(judge_failures judge_waits);
use Chaos::Judge qw(judge_requests);
use Chaos::Remains qw(connections judge_totals);
use Chaos::Report qw(summary table);
use Chaos::Takeovers qw(takeovers unplanned);
use Ratelimit::Test;

my $window = { quota => 100, window => 2, precision => 0.5, burst => 40 };

# Requests at even distances from a time on; each is answered after a millisecond.
sub even { my ($from, $count, $apart) = @_; return map { at($from + $_ * $apart) } 0 .. $count - 1 }
sub at { my ($sent, $took) = @_; return [$sent, $sent + ($took // 0.001)] }

sub found {
    my ($algorithm, $passes, $gaps) = @_;
    return scalar(violations({ %{$window}, algorithm => $algorithm }, $passes, $gaps));
}

# Algorithm, what it may just let in, and what is five in a hundred more.
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
    is found($algorithm, $good), 0, "$algorithm: what it may let in is no violation";
    cmp_ok found($algorithm, $bad), '>', 0, "$algorithm: five in a hundred more is one";
    is found($algorithm, [map { at($_->[0], 100) } @{$bad}]), 0,
        "$algorithm: nor is what may have been decided at another time";
    is found($algorithm, [@{$good}, map { [$_->[0] + 5000, $_->[1] + 5000] } @{$good}]), 0,
        "$algorithm: a key that was idle may do it again";
}

subtest 'what comes after a gap is judged apart from what came before' => sub {
    my @twice = (even(2, 100, 0.005), even(3, 100, 0.005));
    for my $algorithm (qw(fixed_window sliding_window_log)) {
        is found($algorithm, \@twice), 1, "$algorithm without a gap";
        is found($algorithm, \@twice, [[2.6, 2.9]]), 0, "$algorithm with one";
    }
    is found('token_bucket', [even(2, 200, 0.001)], [[1, 1.1], [9, 9]]), 1, 'but one elsewhere excuses nothing';
};

subtest 'bursts of gcra against a search of all intervals' => sub {
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

# A request that was sent at a time and failed a tenth of a second later.
sub failed {
    my ($sent, %more) = @_;
    return { id => 1, node => 0, zone => 'z', key => 'k', status => 'FAILED_OPEN', sent => $sent,
        received => $sent + 0.1, %more };
}

subtest 'requests fail only in a fault and its slack' => sub {
    my $idle = sub { 0 };
    my $sentences = sub {
        my ($faults, $busy, @requests) = @_;
        return scalar @{ (judge_failures(\@requests, $faults, $busy, 0.1))[0] };
    };
    my @stop = { name => 'stop', from => 10, to => 11, slack => 0.15 };
    is $sentences->(\@stop, $idle, failed(9.95), failed(10.5), failed(11.1)), 0, 'within it';
    is $stop[0]{failed}, 3, 'they are counted';
    cmp_ok abs($stop[0]{longest} - 0.1), '<', 1e-6, 'and the longest slack is known';
    is $sentences->(\@stop, $idle, failed(9)), 1, 'before it';
    is $sentences->(\@stop, $idle, failed(11.2)), 1, 'after its slack';
    is $sentences->(\@stop, $idle, failed(11.2, status => 'PASSED', source => 'redis')), 0, 'others are none';
    is $sentences->(\@stop, $idle, failed(11.2, status => 'PASSED', source => 'local')), 1,
        'what this node decided in place of Redis is one';
    is $sentences->(\@stop, sub { 0.08 }, failed(11.2)), 0, 'a busy machine adds to the slack';
    is $stop[0]{excused}, 1, 'and that is counted';
    is $sentences->([], sub { 0.2 }, failed(11.2)), 0, 'and excuses what it delayed';
    my @kill = { name => 'client_kill', from => 10, to => 10.01 };
    is $sentences->(\@kill, $idle, failed(10)), 1, 'a fault that may cost none';
    is $sentences->([@stop, @kill], $idle, failed(10.2)), 0, 'unless another fault explains it';
};

subtest 'a request waits no longer than its bound' => sub {
    my $late = sub {
        my ($pauses, $busy) = @_;
        return scalar judge_waits([failed(10, received => 11)], sub { 0.6 }, $pauses, sub { $busy });
    };
    is $late->({}, 0), 1, 'one that waited longer';
    is $late->({}, 0.5), 0, 'a busy machine';
    is $late->({ 0 => [[9, 10.5]] }, 0), 0, 'a worker that was stopped';
    is $late->({ 1 => [[9, 10.5]] }, 0), 1, "another node's worker";
};

subtest 'totals agree with what clients recorded' => sub {
    my @requests = map { failed($_, zone => 'free', status => 'PASSED') } 1 .. 5;
    my $wrong = sub {
        my ($counted, $killed, @more) = @_;
        return scalar judge_totals([@requests, @more], { totals => [{ 'free passed' => 10 }] },
            { totals => [{ 'free passed' => 10 + $counted }] }, $killed);
    };
    is $wrong->(5, {}), 0, 'when they do';
    is $wrong->(4, {}), 1, 'too few';
    is $wrong->(6, {}), 1, 'too many';
    is $wrong->(6, {}, failed(9, status => 'lost')), 0, 'unless one got no answer';
    is $wrong->(4, { 0 => 1 }), 0, 'not where a worker was killed';
};

subtest 'connections that stay are counted, but for those that are not nginx\'s' => sub {
    my $counted = sub {
        my ($name, $cmd) = @_;
        return scalar connections("id=7 addr=127.0.0.1:9 laddr=127.0.0.1:8 fd=9 name=$name age=3 idle=2 cmd=$cmd user=default");
    };
    is $counted->('nginx-ratelimit-77', 'evalsha'), 1, 'one that counts';
    is $counted->('nginx-ratelimit-77', 'cluster|slots'), 1, 'one that looks for the map';
    is $counted->('', 'NULL'), 1, 'one that has not said anything';
    is $counted->('', 'restore-asking'), 0, 'a node that has moved keys';
    is $counted->('sentinel-009f0864-cmd', 'ping'), 0, 'a Sentinel';
    is $counted->('', 'client|list'), 0, 'the one that lists them';
};

subtest 'every request is decided, and every key of a limit is checked' => sub {
    my $found = sub { my ($faults, @requests) = @_; return (judge_requests(\@requests, $faults, sub { 0 }))[0] };
    my @way = (way => 'half', http => 0);
    is scalar @{ $found->([], failed(1, @way, zone => 'free', status => 'lost')) }, 1, 'a client without an answer';
    is scalar @{ $found->([], failed(1, @way, zone => 'leaky', status => 'lost')) }, 0, 'not if it was delayed';
    is scalar @{ $found->([{ name => 'worker kill', node => 0, from => 1, to => 1 }],
            failed(1, @way, zone => 'free', status => 'lost')) }, 0, 'nor if its worker was killed';

    # Of zone gcra, 21 may pass at once.
    my @burst = map { failed(4, way => 'stay', zone => 'gcra', status => 'PASSED', source => 'redis') } 1 .. 41;
    like $found->([], @burst)->[0], qr/^key k of zone gcra: gcra let in 41/, 'too many for a key';
    my @apart = map { { %{ $burst[$_] }, sent => $_ < 20 ? 2 : 4, received => $_ < 20 ? 2 : 4 } } 0 .. 40;
    is_deeply $found->([], @apart), [], 'not if they come apart';
    my @step = ({ name => 'clock step', from => 4.05, to => 4.06, step => 20 });
    my @later = map { { %{ $burst[$_] }, sent => $_ < 21 ? 4 : 4.1, received => $_ < 21 ? 4.01 : 4.2 } } 0 .. 40;
    like $found->([], @later)->[0], qr/gcra let in 41/, 'soon after one another';
    is_deeply $found->(\@step, @later), [], 'unless the clock made a step forwards in between';
    $step[0]{step} = -20;
    like $found->(\@step, @later)->[0], qr/gcra let in 41/, 'a step backwards frees no key';
};

# A line of a sentinel's log, this number of seconds after noon.
sub logged { my ($second, $event) = @_; return sprintf "7:X 22 Nov 2026 12:00:%06.3f # %s main\n", $second, $event }

subtest 'a takeover that no fault ordered is known by the logs of the sentinels' => sub {
    my @logs = (
        logged(1, '+sdown') . logged(2, '+failover-state-wait-promotion') . logged(3, '+switch-master'),
        logged(3.04, '+switch-master') . logged(20, '+failover-state-wait-promotion')
            . logged(30, '+failover-state-wait-promotion') . logged(31, '+switch-master'),
    );
    my $noon = POSIX::mktime(0, 0, 12, 22, 10, 126, 0, 0, -1);
    my @seen = map { [map { sprintf '%.2f', $_ - $noon } @{$_}] } takeovers(@logs);
    is_deeply \@seen, [['2.00', '3.04'], ['30.00', '31.00']], 'from the promotion to the last sentinel that names it';
    my @faults = ({ name => 'takeover', from => $noon + 28, to => $noon + 31, loses => 1 },
        { name => 'busy script', from => $noon + 1.5, to => $noon + 2.5 });
    my @unplanned = unplanned([takeovers(@logs)], \@faults);
    is scalar @unplanned, 1, 'one that was ordered is none';
    is_deeply [unplanned([], \@faults)], [], 'nor is another fault';

    my $found = sub {
        my ($faults, @times) = @_;
        my @requests = map { failed($_, zone => 'gcra', way => 'stay', status => 'PASSED', source => 'redis') } @times;
        return scalar @{ (judge_requests(\@requests, $faults, sub { 0 }))[0] };
    };
    my ($before, $after) = map { $noon + $_ } 1.5, 3.2;
    my @once_more = ((($before) x 21), (($after) x 21));
    is $found->([], map { $_ > $before ? $before + 0.2 : $_ } @once_more), 1, 'twice a burst is too much';
    is $found->(\@unplanned, @once_more), 0, 'but not when what was counted is lost between the two';
    is $found->(\@unplanned, (($before) x 21), (($after) x 26)), 1, 'more than a burst after it is too much';
    is $found->(\@unplanned, (($before) x 26), (($after) x 21)), 1, 'and so is more than one before it';
};

subtest 'the table sums up runs' => sub {
    my $run = sub {
        return summary(topology => 'one', seed => 1, seconds => 30, requests => 100, violations => 1, excused => 0,
            busy => 0.01, faults => [@_]);
    };
    my $text = table($run->({ name => 'stop', failed => 3, longest => 0.1 }, { name => 'stop', failed => 1 }),
        $run->({ name => 'stop', failed => 5, longest => 0.9, bad => 2 }, { name => 'kill' }));
    like $text, qr/^\| stop \| 3 \| 9 \| 0.90 s \| 0.15 s \|  \| \*\*2 too many\*\* \|$/m, 'a fault that cost too much';
    like $text, qr/^\| kill \| 1 \| 0 \|  \| 0.6 s \|  \| pass \|$/m, 'one that did not';
    like $text, qr/^200 requests in 60 s \(one 60 s\); 2 violations/m, 'and all together';
};

finish();

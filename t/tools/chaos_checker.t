# The checker of `./build.sh chaos` finds violations, and only violations.

use FindBin ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Blocks qw(judge_blocks);
use Chaos::Bounds qw(violations);
use Chaos::Failures qw(judge_failures judge_waits);
use Chaos::Held qw(held_in judge_held);
use Chaos::Judge qw(judge_requests with_logs);
use Chaos::Overrides qw(judge_agreement judge_changes);
use Chaos::Remains qw(connections judge_totals);
use Chaos::Report qw(summary table);
use Chaos::Takeovers qw(takeovers unplanned);
use JSON::PP qw(encode_json);
use Ratelimit::Process qw(temp_folder);
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
    ['sliding_window_buckets', [even(1, 100, 0.01), even(3.01, 100, 0.01)], [even(1, 105, 0.018)]],
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
        return scalar violations({ algorithm => 'concurrency', quota => 2 }, held_in($log->(@times), sub { 0 }, 3)->{a}, $gaps);
    };
    my @two = ([1, 2], [1.5, 2.5]);
    is $found->([], @two, [2.1, 3]), 0, 'two at a time';
    is $found->([], @two, [1.9, 3]), 1, 'three at a time';
    is $found->([], [1, 9], [1, 9], [4, 5]), 0, 'what is held longer than hold may be free';
    is $found->([], [1, 9], [1, 9], [3, 5]), 1, 'not before';
    is $found->([[1.6, 1.7]], @two, [1.9, 3]), 0, 'a request over a gap is not judged';
    is_deeply held_in(qq{a 5 1 0 "FAILED_OPEN" "redis"\na 5 1 0 "PASSED" "local"\nb 5 1 0.5 "PASSED" "redis"\n}, sub { 0 }, 3),
        { b => [[4.501, 4.999, 4.501]] }, 'only what Redis admitted, from its decision on';

    my $node = bless { folder => temp_folder() }, 'Ratelimit::Nginx';
    write_file("$node->{folder}/held-busy.log", $log->([1, 3], [1, 3], [1, 2], [1.9, 3]));
    my $judged = sub {
        my ($from, $to, @faults) = @_;
        return scalar judge_held(\@faults, sub { $_[0] < $to && $from < $_[1] ? $to - $from : 0 }, $node);
    };
    is $judged->(9, 9), 1, 'four at a time';
    is $judged->(1.85, 2), 0, 'a busy machine may have delayed the decision';
    is $judged->(2, 2.15), 1, 'not a delay after it';
    is $judged->(9, 9, { name => 'worker stop', from => 1.8, to => 2 }), 0, 'its worker may have been stopped';
    is $judged->(9, 9, { name => 'worker stop', from => 1.4, to => 1.5 }), 1, 'not one that runs again';
    is $judged->(9, 9, { name => 'clock step', step => 8, from => 1.02, to => 1.02 }), 0, 'a clock may have stepped after the decision';
    is $judged->(9, 9, { name => 'clock step', step => 8, from => 0.9, to => 0.9 }), 1, 'not a step before it';
};

subtest 'a request that passes within a block is found' => sub {
    my $found = sub {
        my ($gaps, @requests) = @_;
        return scalar judge_blocks(1, [map { { key => 'a', source => 'redis', status => $_->[0], sent => $_->[1],
            received => $_->[1] + 0.01 } } @requests], $gaps, 3);
    };
    my @refused = (['PASSED', 1], ['REJECTED', 1.2]);
    is $found->([], @refused, ['PASSED', 1.9]), 1, 'it passes too early';
    is $found->([], @refused, ['PASSED', 2.3]), 0, 'after the block';
    is $found->([], ['PASSED', 1], ['PASSED', 1.1]), 0, 'nothing was refused';
    is $found->([], @refused, ['REJECTED', 2.1], ['PASSED', 2.2]), 0, 'a refusal within a block does not prolong it';
    is $found->([[1.5, 1.6]], @refused, ['PASSED', 1.9]), 0, 'Redis lost its data meanwhile';
    is $found->([], ['FAILED_OPEN', 0.5], @refused, ['PASSED', 1.9]), 0, 'what failed may have been counted: no block begins';
    is $found->([], ['FAILED_OPEN', -2.5], @refused, ['PASSED', 1.9]), 1, 'that was long ago';

    # Zone blocked counts by windows of a second.
    my $after = sub {
        my (%step) = @_;
        my @requests = map { failed($_->[1], zone => 'blocked', way => 'stay', status => $_->[0], source => 'redis',
            received => $_->[1] + 0.01) } @refused, ['PASSED', 1.9];
        return scalar grep { /^zone blocked: .* within a block/ }
            @{ (judge_requests(\@requests, [{ name => 'clock step', %step, to => $step{from} }], sub { 0 }))[0] };
    };
    is $after->(from => -10, step => -8), 0, 'the clock had reached the time before its step back: no block begins for twice its counts';
    is $after->(from => -10, step => 8), 1, 'a step ahead is long over';
    is $after->(from => -14, step => -8), 1, 'so is an earlier step back';
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
    my @kill = ({ name => 'CLIENT KILL', cuts => 1, from => 4.02, to => 4.03 });
    is_deeply $found->(\@kill, @burst), [], 'none if they may have been sent again';
    like $found->([{ %{ $kill[0] }, from => 3, to => 3 }], @burst)->[0], qr/gcra admitted/, 'not long after';
    my @step = ({ name => 'clock step', from => 4.05, to => 4.06, step => 20 });
    my @later = map { { %{ $burst[$_] }, sent => $_ < 21 ? 4 : 4.1, received => $_ < 21 ? 4.01 : 4.2 } } 0 .. 40;
    like $found->([], @later)->[0], qr/gcra admitted 41/, 'too many within a short time';
    is_deeply $found->(\@step, @later), [], 'none if the clock stepped forwards in between';
    $step[0]{step} = -20;
    like $found->(\@step, @later)->[0], qr/gcra admitted 41/, 'a clock step backwards excuses nothing';
};

# A line of a sentinel's log, $second seconds after noon. The server at $port takes over.
sub logged {
    my ($second, $event, $port) = @_;
    my $about = $event eq '+switch-master' ? "main 127.0.0.1 1 127.0.0.1 $port" : "slave 127.0.0.1:$port 127.0.0.1 $port @ main 127.0.0.1 1";
    return sprintf "7:X 22 Nov 2026 12:00:%06.3f # %s %s\n", $second, $event, $about;
}

subtest 'unplanned takeovers are found in the sentinels\' logs' => sub {
    my ($promotes, $promoted, $switch) = ('+failover-state-wait-promotion', '+promoted-slave', '+switch-master');
    my @logs = (
        logged(1, '+sdown', 8) . logged(2, $promotes, 8) . logged(2.9, $promoted, 8) . logged(9.6, $switch, 8) . logged(31.4, $switch, 8),
        logged(3.04, $switch, 8) . logged(20, $promotes, 8) . logged(30, $promotes, 8) . logged(31, $switch, 8),
        logged(8.5, $promotes, 9) . logged(9.2, $promoted, 9),
    );
    my $noon = POSIX::mktime(0, 0, 12, 22, 10, 126, 0, 0, -1);
    my @seen = map { [map { sprintf '%.2f', $_ - $noon } @{$_}] } takeovers(@logs);
    is_deeply \@seen, [['2.00', '3.04'], ['8.50', '9.20'], ['30.00', '31.40']],
        'from the promotion to the last sentinel that tells its subscribers';
    my @faults = ({ name => 'takeover', from => $noon + 28, to => $noon + 31, loses => 1 },
        { name => 'busy script', from => $noon + 1.5, to => $noon + 2.5 });
    my @unplanned = unplanned([takeovers(@logs[0, 1])], \@faults);
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

# A change of key k of zone changed that the API answered 10 ms later; its own limit is 40.
sub change { my ($begun, $value, $http) = @_;
    return { zone => 'changed', key => 'a', value => $value, begun => $begun, answered => $begun + 0.01, http => $http // 200 } }

# A request of this key, decided by a limit: "block", "unlimited" or its size.
sub decided {
    my ($sent, $by, %more) = @_;
    my %how = $by eq 'block' ? (status => 'REJECTED', source => 'override')
        : $by eq 'unlimited' ? (status => 'UNLIMITED', source => '')
        :                      (status => 'PASSED', source => 'redis', limit => $by);
    return failed($sent, zone => 'changed', key => 'a', received => $sent + 0.01, %how, %more);
}

subtest 'a decision by a limit that was not in force lately is found' => sub {
    my $found = sub { my ($changes, $faults, @requests) = @_; return (judge_changes(\@requests, $changes, $faults, sub { 0 }))[0] };
    my $count = sub { return scalar @{ $found->(@_) } };
    my $block = [change(10, 'block')];
    is $count->($block, [], decided(9, 40), decided(11.9, 40), decided(10.1, 'block', node => 1), decided(13, 'block')), 0,
        'either limit for two seconds';
    like $found->($block, [], decided(13, 40))->[0], qr/^request 1 to node 0, a of changed.*by the limit 40; in force since 10\.900: block$/,
        'a key that is blocked has a request that passes';
    is $count->($block, [], decided(13, 40, status => 'FAILED_OPEN', source => '', limit => '')), 1, 'also without Redis';
    is $count->($block, [], decided(9.9, 'block')), 1, 'a block before it was set';
    is $count->($block, [], decided(11, 'block'), decided(11.1, 40)), 1, 'a node goes back';
    is $count->($block, [], decided(11, 'block'), decided(11.1, 40, node => 1)), 0, 'another node may be later';
    is $count->($block, [], decided(11, 'block', received => 12), decided(11.1, 40)), 0, 'a response that comes later shows nothing';

    my $free = [change(10, 'unlimited')];
    is $count->($free, [], decided(13, 'unlimited')), 0, 'a key without a limit';
    is $count->($free, [], decided(13, 40, status => 'REJECTED', source => 'cache')), 1, 'it has a request that is refused';
    is $count->([@{$free}, change(20, 40, 204)], [], decided(23, 'unlimited')), 1, 'an override that was taken back';
    is $count->([change(10, 10)], [], decided(13, 40)), 1, 'another rate';
    is $count->([change(10, 10)], [], decided(13, 10)), 0, 'its own rate';

    my @stop = { name => 'stop', from => 11, to => 11.5, slack => 0.15 };
    is $count->($block, \@stop, decided(13.5, 40)), 0, 'Redis was stopped meanwhile';
    is $count->($block, \@stop, decided(13.9, 40)), 1, 'it has answered for two seconds';
    is $count->($block, [{ name => 'stop', from => 12.2, to => 13, slack => 0.15 }], decided(13.5, 40)), 1,
        'it stopped after all nodes knew the block';
    is $count->($block, [{ name => 'short stop', from => 11, to => 11.5 }], decided(13, 40)), 1, 'a fault that may cost none';
    my @worker = { name => 'worker stop', node => 0, from => 11, to => 11.5 };
    is $count->($block, \@worker, decided(13, 40)), 0, 'a worker of the node was stopped';
    is $count->($block, \@worker, decided(13, 40, node => 1)), 1, 'a worker of another node was stopped';

    is $count->([change(10, 'block', 503)], [], decided(30, 40), decided(30, 'block', node => 1)), 0, 'a change that failed may have been made';
    is $count->([change(10, 'block', 0), change(15, 10)], [], decided(18, 'block')), 1, 'until the next one';
    is $count->($block, [{ name => 'takeover', from => 10.5, to => 11, loses => 1 }], decided(30, 40)), 0, 'a change that may be lost';
    is $count->($block, [{ name => 'takeover', from => 12, to => 13, loses => 1 }], decided(30, 40)), 1, 'one that was long known to the replica';
    is $count->([change(10, 'block', 500)], [], decided(9, 40)), 1, 'an answer that the API must not give';
    is((judge_changes([decided(11, 40), decided(13, 'block'), decided(14, 'block')], $block, [], sub { 0 }))[1], 2,
        'the decisions that one limit explains are counted');
};

subtest 'more requests than the largest limit that was in force are found' => sub {
    my $found = sub { my ($changes, @requests) = @_; return scalar @{ (judge_changes(\@requests, $changes, [], sub { 0 }))[0] } };
    my $some = sub { my ($from, $by, $count) = @_; return map { decided($from + $_ * 0.01, $by) } 1 .. $count };
    my $smaller = [change(10, 10)];
    is $found->($smaller, $some->(8, 40, 40), $some->(14, 10, 10)), 0, 'as many as each may admit';
    is $found->($smaller, $some->(14, 10, 11)), 1, 'more than the smaller quota';
    is $found->($smaller, $some->(10, 40, 40), $some->(11, 10, 10)), 0, 'as many by each, since they count apart';
    is $found->($smaller, $some->(10, 40, 41), $some->(11, 10, 10)), 1, 'more than the larger';
    is $found->($smaller, $some->(14, 10, 9), map { decided($_->{sent}, 10, status => 'REJECTED') } $some->(14, 10, 9)), 0,
        'refused requests do not count';
};

subtest 'a request that no limit applies to is UNLIMITED' => sub {
    my $status = sub { return with_logs([failed(1, status => 'none', @_)])->[0]{status} };
    is $status->(zone => 'changed', http => 200), 'UNLIMITED', 'in a zone with overrides';
    is $status->(zone => 'changed', http => 500), 'none', 'not if nginx had an error';
    is $status->(zone => 'free', http => 200), 'none', 'not in others';
};

# A node of a fleet of one: its lists of zone changed (`redis`), how many it says that it has (`count`), and the
# answer's headers for key a (`headers`).
sub Lonely::nginx { return $_[0] }
sub Lonely::get {
    my ($self, $path) = @_;
    my $listed = $path =~ m{^/api/zones/changed/} ? $self->{redis} : [];
    my $body = encode_json({ overrides => $listed, count => $path =~ /changed/ && $self->{count} ? $self->{count} : scalar @{$listed} });
    my @own = ('X-Status', 'PASSED', 'X-Source', 'redis', 'X-Limit', $path =~ /bursts/ ? 21 : 40);
    my @pairs = $path =~ m{^/changed\?k=a} ? @{ $self->{headers} } : @own;
    my $answer = Ratelimit::Http::Answer->parse("HTTP/1.1 200 OK\r\n" . join '', map { "$pairs[2 * $_]: $pairs[2 * $_ + 1]\r\n" } 0 .. @pairs / 2 - 1);
    $answer->{body} = $body;
    return $answer;
}

subtest 'nodes that do not agree with Redis on the overrides are found' => sub {
    my @block = { key => 'a', block => 1 };
    my @blocked = ('X-Status', 'REJECTED', 'X-Source', 'override');
    my @passed = ('X-Status', 'PASSED', 'X-Source', 'redis', 'X-Limit', 40);
    my $found = sub {
        my ($change, %node) = @_;
        return join '; ', judge_agreement(bless({%node}, 'Lonely'), [change(10, $change)], [], 0);
    };
    is $found->('block', redis => \@block, headers => \@blocked), '', 'a block';
    is $found->('unlimited', redis => [{ key => 'a', unlimited => 1 }], headers => []), '', 'no limit';
    is $found->(10, redis => [{ key => 'a', rate => '10r/2s' }], headers => [@passed[0 .. 4], 10]), '', 'another rate';
    is $found->('block', redis => \@block, headers => \@passed),
        'node 0, zone changed: a request of key a is decided by 40, Redis has block', 'a node that does not know the block';
    is $found->('block', redis => \@block, headers => \@blocked, count => 2),
        'node 0, zone changed has 2 overrides, Redis 1', 'a node with one more';
    is $found->('block', redis => [], headers => \@passed),
        'node 0, zone changed: Redis has 40 for key a, after changes to block', 'a change that Redis lost';
};

subtest 'the table sums up runs' => sub {
    my $run = sub {
        return summary(topology => 'one', seed => 1, seconds => 30, requests => 100, refusals => 7, violations => 1, excused => 0,
            busy => 0.01, faults => [@_]);
    };
    my $text = table($run->({ name => 'stop', failed => 3, longest => 0.1 }, { name => 'stop', failed => 1 }),
        $run->({ name => 'stop', failed => 5, longest => 0.9, bad => 2 }, { name => 'kill' }));
    like $text, qr/^\| stop \| 3 \| 9 \| 0.90 s \| 0.15 s \|  \| \*\*2 too many\*\* \|$/m, 'a fault with violations';
    like $text, qr/^\| kill \| 1 \| 0 \|  \| 0.6 s \|  \| pass \|$/m, 'a fault without violations';
    like $text, qr/^200 requests in 60 s \(one 60 s\); the cause of 14 refusals was looked for; 2 violations/m, 'the sums of all runs';
};

finish();

# `./build.sh chaos` finds refusals without a cause: models of each limit play random requests, and wrong models are found.

use FindBin ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Held qw(holders judge_refused judge_released);
use Chaos::Judge qw(judge_requests);
use Chaos::Limits qw(counting key_in limits);
use Chaos::Refusals qw(judge_refusals judge_unblocked);
use Chaos::Takeovers qw(exits);
use JSON::PP qw(encode_json);
use List::Util qw(first max min sum0);
use POSIX qw(floor strftime);
use Ratelimit::Test;
use Time::HiRes ();

my $idle = sub { 0 };

# What a limit has counted of one key: models by algorithm, which say whether a request of cost 1 passes at a time, and
# count one. entries: [time, number].
sub counted_in { my ($state, $from, $to) = @_; return sum0(map { $_->[1] } grep { $_->[0] >= $from && $_->[0] < $to } @{ $state->{entries} }) }

sub window_of { my ($limit, $at) = @_; return $limit->{window} * floor($at / $limit->{window}) }

my %used = (
    fixed_window => sub { my ($limit, $state, $at) = @_; return counted_in($state, window_of($limit, $at), 9e99) },
    sliding_window_counter => sub {
        my ($limit, $state, $at) = @_;
        my ($begin, $window) = (window_of($limit, $at), $limit->{window});
        return counted_in($state, $begin, 9e99) + floor(counted_in($state, $begin - $window, $begin) * (1 - ($at - $begin) / $window));
    },
    sliding_window_log => sub { my ($limit, $state, $at) = @_; return counted_in($state, $at - $limit->{window} + 1e-9, 9e99) },
    sliding_window_buckets => sub {
        my ($limit, $state, $at) = @_;
        my $width = $limit->{precision};
        return sum0(map { $_->[1] } grep { $width * floor($_->[0] / $width) + $width > $at - $limit->{window} } @{ $state->{entries} });
    },
    drained => sub {
        my ($limit, $state, $at) = @_;
        my $full = $limit->{burst} + ($limit->{algorithm} eq 'token_bucket' ? 0 : 1);
        my $level = max(0, ($state->{level} // 0) - $limit->{quota} / $limit->{window} * ($at - ($state->{time} // 0)));
        return $limit->{quota} - $full + $level;
    },
);
$used{$_} = $used{drained} for qw(token_bucket gcra leaky_bucket);

sub passes {
    my ($limit, $state, $at) = @_;
    return $used{ $limit->{algorithm} }->($limit, $state, $at) <= $limit->{quota} - 1 + 1e-9;
}

sub count {
    my ($limit, $state, $at, $cost) = @_;
    push @{ $state->{entries} }, [$at, $cost];
    $state->{level} = max(0, ($state->{level} // 0) - $limit->{quota} / $limit->{window} * ($at - ($state->{time} // 0))) + $cost;
    $state->{time} = $at;
    return;
}

# Plays random requests of a location for 20 seconds, and returns their records. Times are those of each request: it is
# sent, decided, answered. zones: parameters of zones that differ from those of Chaos::Limits: a wrong model. what:
# named parts of the model that are wrong.
sub play {
    my ($location, $rate, $zones, %what) = @_;
    my @zones = map { { name => $_, %{ limits()->{$_} }, %{ $zones->{$_} // {} } } } counting($location);
    my ($at, $id, %state, @requests) = (1000, 0);
    while ($at < 1020) {
        $at += -log(1 - rand) / $rate;
        my $number = ++$id;
        my $keys = limits()->{$location}{keys} // 2;
        my %request = (id => $number, node => 0, zone => $location, way => 'stay', http => 200, source => 'redis',
            sent => $at, received => $at + 0.001 + rand 0.004, other => 'v1',
            key => $keys eq 'new' ? "u$number" : $keys =~ /^\d+$/ && $keys > 2 ? 'k' . (1 + int rand $keys) : 'a');
        $what{asks}->(\%request) if $what{asks};
        push @requests, \%request;
    }
    decide(\%state, $_, \%what, @zones) for @requests;
    return \@requests;
}

sub decide {
    my ($state, $request, $what, @zones) = @_;
    my $at = $request->{at} = $request->{sent} + rand($request->{received} - $request->{sent});
    my @limits = map { [$_, $state->{ $_->{name} }{ key_in($_->{name}, $request) } //= { entries => [] }] } @zones;
    my @refuse = grep { my ($limit, $of) = @{$_}; ($of->{blocked} // 0) > $at || !passes($limit, $of, $at) } @limits;
    my $shadow = $request->{shadow};
    if (@refuse && !$shadow) {
        @{$request}{qw(status by)} = ('REJECTED', $refuse[0][0]{name});
    }
    else {
        $request->{status} //= 'PASSED';
    }
    for (@refuse) {
        my ($limit, $of) = @{$_};
        next if !$limit->{block} || $shadow && !$what->{shadows_block};
        $of->{blocked} = $at + $limit->{block} if ($of->{blocked} // 0) <= $at || $what->{prolongs};
    }
    my $counts = !@refuse || $what->{counts_refused};
    $counts = $what->{counts_closed} if $request->{status} eq 'FAILED_CLOSED';
    return if !$counts;
    my $cost = $what->{counts_twice} && !($request->{id} % 10) ? 2 : 1;
    for (@limits) {
        my ($limit, $of) = @{$_};
        my $charge = !defined $limit->{charge} || $what->{unsettled} ? 1 : $what->{settled_twice} ? 2 * $limit->{charge} - 1 : $limit->{charge};
        count($limit, $of, $at, $cost * $charge);
    }
    return;
}

sub found {
    my ($requests, $faults) = @_;
    my ($sentences) = judge_refusals($requests, $requests, $faults // [], $idle);
    return first { /^refused without a cause/ } @{$sentences};
}

# Of each location, a model with the limit's parameters, and models that are wrong by little.
my %rate = (fixed => 30, counter => 30, log => 30, buckets => 30, token => 30, gcra => 30, leaky => 30, charged => 20, blocked => 8, brief => 10);
for my $location (sort keys %rate) {
    subtest "refusals by zone $location" => sub {
        my $limit = limits()->{$location};
        srand 5;
        my $right = play($location, $rate{$location});
        is found($right), undef, 'the right model has none without a cause';
        cmp_ok scalar(grep { $_->{status} eq 'REJECTED' } @{$right}), '>', 10, 'it refuses';
        is_deeply [(judge_requests($right, [], $idle))[0]], [[]], 'nor lets it too many through';
        my %wrong = (
            'refuses one too early' => [{ defined $limit->{burst} ? (burst => $limit->{burst} - 1) : (quota => $limit->{quota} - 1) }],
            'has a longer window'   => [{ window => 1.25 * $limit->{window} }],
            $limit->{algorithm} eq 'fixed_window' ? () : ('counts what it refuses' => [{}, counts_refused => 1]),
            'counts some requests twice' => [{}, counts_twice => 1],
            $limit->{block} ? ('blocks for longer' => [{ block => 1.2 * $limit->{block} }],
                'prolongs a block' => [{}, prolongs => 1]) : (),
            $limit->{charge} ? ('charges twice' => [{}, settled_twice => 1]) : (),
        );
        for my $name (sort keys %wrong) {
            my ($zone, %what) = @{ $wrong{$name} };
            srand 5;
            like found(play($location, $rate{$location}, { $location => $zone }, %what)), qr/^refused without a cause by $location, key a: request \d+ to node 0/,
                "a model that $name";
        }
        return if $limit->{charge};    # Chaos::Bounds does not know charges
        srand 5;
        my %more = defined $limit->{burst} ? (burst => 1.2 * $limit->{burst} + 1) : (quota => 1.2 * $limit->{quota});
        my ($excess) = judge_requests(play($location, $rate{$location}, { $location => \%more }), [], $idle);
        like $excess->[0], qr/admitted/, 'and one that admits more';
    };
}

subtest 'what was taken back refuses nobody' => sub {
    my $refunded = sub { srand 5; return play('refunded', 10, {}, @_) };
    is found($refunded->()), undef, 'requests of charge 0';
    like found($refunded->(unsettled => 1)), qr/by refunded/, 'unless the refund is lost';
    my @kill = ({ name => 'CLIENT KILL', cuts => 1, from => 1000, to => 1020 });
    is found($refunded->(unsettled => 1), \@kill), undef, 'which it may be with its connection';

    # Of the zone, a model of a block that begins by what a lost refund left counted.
    my $blocking = sub {
        local limits()->{refunded}{block} = 60;
        my (%what) = @_;
        my @kill = ({ name => $what{fault}, cuts => $what{fault} eq 'worker kill' ? 0 : 1, node => 0, from => 1000, to => 1002 });
        my @requests = map { { id => $_, node => 0, zone => 'refunded', key => 'a', way => 'stay', http => 200, source => 'redis', by => 'refunded',
            status => $_ <= 12 ? 'PASSED' : 'REJECTED', sent => 1001 + $_ / 100, received => 1001.001 + $_ / 100 } } 1 .. 13;
        push @requests, { %{ $requests[12] }, id => 14, sent => $what{later}, received => $what{later} + 0.001 };
        return found(\@requests, \@kill);
    };
    is $blocking->(fault => 'CLIENT KILL', later => 1003), undef, 'a lost refund may begin a block';
    like $blocking->(fault => 'CLIENT KILL', later => 1013), qr/by refunded, key a: request 14/, 'until its worker has said so';
    is $blocking->(fault => 'worker kill', later => 1013), undef, 'which a worker that was killed does not';

    my $closed = sub {
        my (%what) = @_;
        srand 5;
        return play('shut', 25, {}, %what, asks => sub { my ($of) = @_;
            @{$of}{qw(status source received)} = ('FAILED_CLOSED', '', $of->{sent} + 0.25) if $of->{sent} > 1008.2 && $of->{sent} < 1009 });
    };
    my @stop = ({ name => 'stop', slack => 0.15, from => 1008, to => 1009 });
    is found($closed->(), \@stop), undef, 'requests that the fail mode refused';
    like found($closed->(counts_closed => 1), \@stop), qr/by shut/, 'are not counted';
    $stop[0]{cuts} = 1;
    is found($closed->(counts_closed => 1), \@stop), undef, 'unless nobody got the late reply';
};

subtest 'the only request of a key passes, also if it is sent again' => sub {
    srand 5;
    my $once = play('once', 20);
    is found($once), undef, 'they pass';
    @{ $once->[9] }{qw(status by)} = ('REJECTED', 'once');
    my @kill = ({ name => 'CLIENT KILL', cuts => 1, from => 1000, to => 1020 });
    like found($once, \@kill), qr/by once, key u10/, 'one is refused by itself';
};

subtest 'who is blocked was refused' => sub {
    my $shaded = sub {
        my (@what) = @_;
        srand 5;
        return play('shaded', 60, {}, @what, asks => sub { my ($of) = @_; @{$of}{qw(zone shadow)} = ('shade', 1) if $of->{id} % 8 });
    };
    is found($shaded->()), undef, 'a shadow limit counts';
    like found($shaded->(shadows_block => 1)), qr/by shade/, 'and begins no block';

    # Forty requests at one time, of which the first limit admits two; the victim's next request.
    my @rally = map { { id => $_, node => 0, zone => 'own', key => 'a', other => 'v1', way => 'stay', http => 429, source => 'redis',
        status => $_ < 3 ? 'PASSED' : 'REJECTED', by => 'own', sent => 10, received => 10.02 } } 1 .. 40;
    my %next = (id => 41, node => 0, zone => 'own', key => 'u41', other => 'v1', way => 'stay', http => 429, source => 'redis',
        status => 'REJECTED', by => 'theirs', retry => 1, sent => 10.06, received => 10.07);
    is found([@rally, \%next]), undef, 'until they are returned, units of other requests may refuse';
    like found([@rally, { %next, sent => 10.5, received => 10.51 }]), qr/by theirs, key v1: request 41/, 'but they begin no block';
    is found([@rally, \%next, { %next, id => 42, sent => 11, received => 11.01, source => 'cache' }]), undef, 'a node may remember that';
    like found([@rally, \%next, { %next, id => 42, sent => 11.3, received => 11.31, source => 'cache' }]), qr/request 42/, 'for a second';

    my @long = ({ %next, zone => 'gcra', key => 'a', by => 'gcra', retry => 9 });
    my ($sentences) = judge_refusals(\@long, \@long, [], $idle);
    like $sentences->[1], qr/^refused for too long: request 41 .*, Retry-After 9$/, 'a retry time that no count explains';
};

subtest 'a block lasts from one of the refusals until it has begun' => sub {
    my $at = sub { my ($sent, $status) = @_; return { id => int(100 * $sent), node => 0, zone => 'blocked', key => 'a', way => 'stay', http => 429,
        source => 'redis', status => $status // 'REJECTED', by => 'blocked', sent => $sent, received => $sent + 0.002 } };
    my @first = ((map { $at->(10.1, 'PASSED') } 1 .. 5), $at->(10.2));
    is found([@first, $at->(11.19)]), undef, 'from the first';
    like found([@first, $at->(11.25)]), qr/request 1125/, 'not longer';
    is found([@first, $at->(10.26), $at->(11.25)]), undef, 'from the second, which was decided before the block had begun';
    like found([@first, $at->(10.4), $at->(11.25)]), qr/request 1125/, 'not from one that the block refused';
};

subtest 'limits that are changed count apart' => sub {
    my @by = map { { id => $_, node => 0, zone => 'changed', key => 'a', way => 'stay', http => 200, source => 'redis',
        status => 'PASSED', limit => 40, sent => 10.01, received => 10.02 } } 1 .. 10;
    my $refused = sub { return { %{ $by[0] }, status => 'REJECTED', by => 'changed', limit => $_[0], sent => 10.1, received => 10.11 } };
    like found([@by, $refused->(10)]), qr/by changed/, 'another limit has counted none of them';
    is found([(map { { %{$_}, limit => 10 } } @by), $refused->(10)]), undef, 'this one has counted all';
    is found([(map { { %{$_}, status => 'FAILED_OPEN', source => '', limit => '' } } @by), $refused->(10)]), undef, 'either may have';
};

subtest 'a clock that ran backwards may prolong refusals' => sub {
    my $key = sub { my ($status, $sent) = @_; return { id => 1, node => 0, zone => 'gcra', key => 'a', way => 'stay', http => 200,
        source => 'redis', status => $status, by => 'gcra', sent => $sent, received => $sent + 0.01 } };
    my $back = sub { return [{ name => 'clock step', step => $_[0], from => 12, to => 12 }] };
    my @two = ($key->('PASSED', 10), $key->('REJECTED', 12.5));
    like found(\@two), qr/by gcra/, 'without a step';
    is found(\@two, $back->(-8)), undef, 'after a step back';
    is found([@two, $key->('REJECTED', 18)], $back->(-8)), undef, 'whenever the key is used next';
    like found([$two[0], $key->('PASSED', 12.5), $key->('REJECTED', 18)], $back->(-8)), qr/by gcra/, 'but only once';
    like found([$two[0], $key->('REJECTED', 25)], $back->(-8)), qr/by gcra/, 'until the clock has caught up';
    like found(\@two, $back->(8)), qr/by gcra/, 'not after a step forwards';
    like found([$two[1]], $back->(-8)), qr/by gcra/, 'nor of a key that was not used before it';
};

# A node: remaining or blocked of each key, and what is in flight of zone serial.
sub Resting::get {
    my ($self, $path) = @_;
    my ($zone, $key) = $path =~ m{/zones/(\w+)/keys/(\w+)};
    return bless { body => 'late' }, 'Ratelimit::Http::Answer' if $key && $self->{late}-- > 0;
    my $body = $path eq '/api/metrics' ? qq(ratelimit_in_flight{zone="serial"} $self->{in_flight}\n)
        : encode_json({ remaining => limits()->{$zone}{quota} - ($self->{held}{$key} // 0), blocked => $self->{blocked}{$key} });
    return bless { body => $body }, 'Ratelimit::Http::Answer';
}

subtest 'what passed ahead over a link that is dead is counted later' => sub {
    my $at = sub { my ($sent, $status, $source) = @_; return { id => 100 * $sent, node => 0, zone => 'first', key => 'a', by => 'first',
        sent => $sent, received => $sent + 0.001, status => $status, source => $source } };
    my @ahead = map { $at->(10.5 + $_ / 100, 'PASSED', 'ahead') } 1 .. limits()->{first}{quota};
    my $refused = sub { return [@ahead, $at->($_[0], 'REJECTED', 'redis')] };
    my %dead = (name => 'dead link', cuts => 1, slack => 1.4, from => 10, to => 11);
    is found($refused->(12.5)), undef, 'what was counted at once refuses';
    like found($refused->(13.5)), qr/by first, key a/, 'for the length of the window';
    my $silent = [{ %dead, silent => 1 }];
    is found($refused->(18), $silent), undef, 'it is counted when its connection is given up';
    like found($refused->(19), $silent), qr/by first, key a/, 'not later';
    like found($refused->(18), [\%dead]), qr/by first, key a/, 'a link that closes is known to be cut';
    like found([map { $_->{source} eq 'ahead' ? { %{$_}, source => 'redis' } : $_ } @{ $refused->(18) }], $silent), qr/by first, key a/,
        'what waited for the reply is not counted later';
};

subtest 'requests at one time' => sub {
    my $client = sub { my ($sent, $took, $status, %more) = @_; return { id => 1, node => 0, zone => 'serial', key => 'c1', by => 'serial',
        source => 'redis', status => $status, sent => $sent, received => $sent + $took, %more } };
    my $judged = sub {
        my ($faults, @requests) = @_;
        return (judge_refused(\@requests, holders(\@requests, $faults, $idle), $faults))[0][0];
    };
    my @one = $client->(10, 0.5, 'PASSED');
    is $judged->([], @one, $client->(10.2, 0.01, 'REJECTED')), undef, 'another one runs';
    is $judged->([], @one, $client->(10.55, 0.01, 'REJECTED')), undef, 'it ends';
    like $judged->([], $client->(10, 0.5, 'PASSED', link => 7), $client->(10.55, 0.01, 'REJECTED', link => 7)), qr/held/, 'over one connection it has';
    like $judged->([], @one, $client->(10.8, 0.01, 'REJECTED'), $client->(11, 0.01, 'REJECTED')),
        qr/^refused without a cause by serial, key c1, at most 0 of 1 held: request 1 .*, and 1 more$/, 'it has ended';
    my @stop = ({ name => 'stop', slack => 0.15, from => 10.4, to => 11 });
    is $judged->(\@stop, @one, $client->(11.3, 0.01, 'REJECTED')), undef, 'Redis did not hear of it';
    like $judged->(\@stop, @one, $client->(11.7, 0.01, 'REJECTED')), qr/held/, 'now it has';
    my @kill = ({ name => 'worker kill', node => 0, from => 10.4, to => 10.4 });
    is $judged->(\@kill, @one, $client->(27, 0.01, 'REJECTED')), undef, 'a killed worker holds until `hold` ends';
    like $judged->(\@kill, @one, $client->(30, 0.01, 'REJECTED')), qr/held/, 'not longer';
    like $judged->([{ %{ $kill[0] }, node => 1 }], @one, $client->(12, 0.01, 'REJECTED')), qr/held/, 'not one of another node';
    my @takeover = ({ name => 'takeover', loses => 1, from => 10.4, to => 11 });
    my $exit = sub { return strftime("%Y/%m/%d %T [notice] 7#7: exit\n", localtime $_[0]) };
    my @after = (@one, $client->(17, 0.01, 'REJECTED'));
    my $judged_with = sub { return (judge_refused(\@after, holders(\@after, \@takeover, $idle, exits(\@takeover, @_)), \@takeover))[0][0] };
    is $judged_with->($exit->(10)), undef, 'so does a worker that exits during a takeover';
    like $judged_with->($exit->(9)), qr/held/, 'not one that exited before';
    like $judged_with->($exit->(11)), qr/held/, 'nor after it';
    like $judged_with->('', $exit->(10)), qr/held/, 'nor one of another node';
    like $judged->([], $client->(10, 0.5, 'REJECTED'), $client->(10.2, 0.01, 'REJECTED')), qr/held/, 'what is refused holds nothing';
    is $judged->([], $client->(10, 0.5, 'REJECTED', zone => 'joint', by => 'tight'), $client->(10.2, 0.1, 'REJECTED', zone => 'joint', by => 'joint')),
        undef, 'what another limit refuses may hold something for a moment';
    is $judged->([{ name => 'clock step', step => -12, from => 9, to => 9 }], @one, $client->(12, 0.01, 'REJECTED')), undef, 'a clock ran backwards';

    my $rests = sub {
        my ($kills, %node) = @_;
        my $held = [$client->(Time::HiRes::time() - 3, 0.5, 'PASSED')];
        return join '; ', judge_released(holders($held, $kills, $idle), 2, bless { in_flight => 0, late => 0, %node }, 'Resting');
    };
    is $rests->([]), '', 'nothing is held at rest';
    is $rests->([], held => { c1 => 1 }), 'key c1 of zone joint: 1 are held, no request is in flight; key c1 of zone serial: 1 are held, no request is in flight',
        'a unit that nobody holds';
    is $rests->([], late => 30), '', 'a node whose answers fail for a while';
    like $rests->([], late => 1e6), qr/key c1 of zone serial: what is held is not known: late;/, 'a node whose answers fail for long';
    is $rests->([], in_flight => 2), 'node 0: ratelimit_in_flight of zone serial is 2 at rest', 'a gauge that is wrong';
};

subtest 'keys that are blocked at rest were refused' => sub {
    my $found = sub {
        my ($blocked, $until) = @_;
        my @requests = ({ zone => 'own', key => 'a', other => 'v1' });
        return join '; ', judge_unblocked(bless({ blocked => { v1 => $blocked }, late => 0 }, 'Resting'), { theirs => { v1 => $until } }, \@requests);
    };
    is $found->(undef, 0), '', 'no block';
    is $found->(7, time + 8), '', 'a block with a cause';
    is $found->(7, time - 1), 'key v1 of zone theirs is blocked for 7 s without a cause', 'a block without a cause';
};

finish();

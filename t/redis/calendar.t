# calendar=: quotas for days, weeks, months and years of a time zone, and billing periods that begin on a day of the month.
# needs: python3 tzdata

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Build qw(top);
use Ratelimit::Fleet;
use Ratelimit::Process qw(temp_folder);
use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(sleep time);

my $berlin = 'algorithm=fixed_window calendar=Europe/Berlin';

# Begin, end and number of the current period, by Python's zoneinfo. Waits if it is about to end.
sub period {
    my ($zone, $kind, $start) = @_;
    my $program = 'import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True; '
        . 'import calendar_oracle as o; '
        . 'print(*o.period(o.ZoneInfo(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))';
    my $current = sub {
        open my $python, '-|', 'python3', '-c', $program, top() . '/t/unit', $zone, $kind, $start // 1, int time
            or die "python3: $!";
        return split ' ', <$python>;
    };
    my (undef, $end) = $current->();
    if ($end - time < 120) {
        diag "waiting until the $kind ends";
        sleep $end - time + 1;
    }
    return $current->();
}

sub passed {
    my ($node, $path, $times) = @_;
    return scalar grep { $_ == 200 } map { $node->status($path) } 1 .. $times;
}

# Checks that the refusal of a request says when the period ends.
sub refused_until {
    my ($node, $path, $end, $what) = @_;
    my $before = time;
    my $answer = $node->get($path);
    return is_refused_until($before, $answer, time, $end, $what);
}

# The same of an answer that came between these times.
sub is_refused_until {
    my ($before, $answer, $after, $end, $what) = @_;
    is $answer->status, 429, $what;
    my ($least, $most) = ($end - $after, $end - $before + 1);
    for my $header ('Retry-After', 'X-RateLimit-Reset') {
        my $seconds = $answer->header($header) // -1;
        ok $seconds >= $least && $seconds <= $most, "$what: $header is the end of the period"
            or diag "$seconds, not $least to $most";
    }
    return;
}

# A file of a time zone with one offset, in which the day ends at $end, or $later seconds after it on the same date.
sub zone_file {
    my ($folder, $end, $later) = @_;
    my $offset = -$end % 86_400;
    $offset -= 86_400 if $offset > 43_200;
    $offset -= $later // 0;
    return write_file("$folder/Day", 'TZif' . "\0" x 16 . pack('N6 l> C C', 0, 0, 0, 0, 1, 4, $offset, 0, 0) . "LMT\0");
}

my ($begin, $end, $number) = period('Europe/Berlin', 'month');

subtest 'nodes in other time zones count one month' => sub {
    my $redis = redis();
    my @nodes = map {
        local $ENV{TZ} = $_;
        node(zone => "rate=5r/month $berlin", redis => $redis, location => 'ratelimit_headers x-ratelimit draft;');
    } 'Asia/Tokyo', 'America/New_York';
    is passed($nodes[0], '/', 3) + passed($nodes[1], '/', 3), 5, 'five requests pass';
    refused_until($nodes[$_], '/', $end, "node $_") for 0, 1;
    my $whole = $nodes[1]->get('/?k=other');
    my $length = $end - $begin;
    is $whole->header('RateLimit-Policy'), qq("test";q=5;w=$length), 'the policy has the length of this month';
    is_deeply [sort $redis->keys_like('*')], [map { "rl:test:{k$_}:$number" } 'other', ''],
        'the key has the day on which the period began';
    my $left = $redis->cmd('PTTL', "rl:test:{k}:$number") / 1000;
    my $expected = $end - time + 3600;
    ok abs($left - $expected) < 5, 'and expires an hour after its end' or diag "$left, not $expected";
};

subtest 'billing periods begin on the day that a map gives' => sub {
    my %days = (a => 15, b => 31, c => 1, d => '', e => 32, f => 'x');
    my $map = join ' ', map { qq($_ "$days{$_}";) } keys %days;
    my $node = node(zone => "rate=1r/month $berlin start=\$day", http => "map \$arg_k \$day { $map }",
        location => 'ratelimit_headers x-ratelimit;');
    my %periods = map { $_ => [period('Europe/Berlin', 'month', $days{$_} =~ /^(?:15|31)$/ ? $days{$_} : 1)] } keys %days;
    my $began = time;
    for my $key (sort keys %days) {
        my (undef, $until, $of) = @{ $periods{$key} };
        is $node->status("/?k=$key"), 200;
        refused_until($node, "/?k=$key", $until, "start=$days{$key}");
        is_deeply [$node->{redis}->keys_like("rl:test:{k$key}*")], ["rl:test:{k$key}:$of"];
    }
    my $logged = $node->count_log(qr/invalid start "(?:32|x)" for zone "test"/);
    cmp_ok $logged, '>=', 1, 'a malformed start is logged';
    cmp_ok $logged, '<=', 1 + (time - $began) / 9, 'of four requests one, as long as they come within ten seconds';
};

subtest 'days, weeks and years of other zones' => sub {
    for my $of (['day', 'Asia/Kathmandu'], ['week', 'Australia/Eucla'], ['year', 'Pacific/Chatham'], ['day', 'UTC']) {
        my ($kind, $zone) = @{$of};
        my (undef, $until) = period($zone, $kind);
        my $node = node(zone => "rate=2r/$kind algorithm=fixed_window calendar=$zone",
            location => 'ratelimit_headers x-ratelimit;');
        is passed($node, '/', 3), 2, "of a $kind in $zone";
        refused_until($node, '/', $until, "a $kind in $zone");
    }
};

subtest 'in the memory of the node' => sub {
    my $node = nginx(http => "ratelimit_zone k\$arg_k zone=test rate=3r/month $berlin;",
        server => 'location / { ratelimit zone=test; ratelimit_headers x-ratelimit; }');
    is passed($node, '/', 5), 3;
    refused_until($node, '/', $end, 'without Redis');
    my $away = node(zone => "rate=3r/month $berlin", http => 'ratelimit_fail_mode local;');
    $away->{redis}->stop('KILL');
    is passed($away, '/', 5), 3, 'fail mode local, when Redis is away';
    refused_until($away, '/', $end, 'fail mode local');
};

# Two nodes of one zone. For one its day ends in some seconds, for the other, whose data or clock differ, an hour later.
# Returns (earlier, later, end of the day of the earlier).
sub nodes_that_differ {
    my ($seconds) = @_;
    my $redis = redis();
    my $ends = int(time) + $seconds;
    my @nodes = map {
        my $folder = temp_folder();
        zone_file($folder, $ends, $_);
        local $ENV{TZDIR} = $folder;
        node(zone => 'rate=3r/day algorithm=fixed_window calendar=Day', redis => $redis,
            location => 'ratelimit_headers x-ratelimit;');
    } 0, 3600;
    return $ends - time < 8 ? nodes_that_differ($seconds * 2) : (@nodes, $ends);
}

subtest 'at the end of a period each request has one quota, also if clocks or time zone data differ' => sub {
    my ($earlier, $later, $ends, $passed, @answers);
    my $seconds = 15;
    do {    # again, if the day ended meanwhile
        ($earlier, $later, $ends) = nodes_that_differ($seconds);
        $passed = passed($later, '/', 2) + passed($earlier, '/', 2);
        @answers = map { [time, $_->get('/'), time] } $earlier, $later;
        $seconds *= 2;
    } while time > $ends;
    is $passed, 3, 'both count the day that ends';
    is_refused_until(@{ $answers[0] }, $ends, 'the earlier node');
    is_refused_until(@{ $answers[1] }, $ends + 3600, 'the later node');
    wait_until('the day ends', sub { time > $ends + 0.05 }, $ends - time + 10);
    is passed($earlier, '/', 2), 2, 'the next day has a quota of its own';
    is passed($later, '/', 2), 0, 'who is in the day before has no second one of it';
    is passed($later, '/?k=new', 4), 3, 'nor is a new key refused';
    is passed($earlier, '/', 2), 1, 'the next day goes on';
};

# Two nodes whose day ends in some seconds: one without Redis, and one with fail mode local, whose Redis is away.
# Returns (node, node with fail mode local, their clock, end of the day).
sub nodes_in_memory {
    my ($seconds) = @_;
    my ($folder, $clock, $ends) = (temp_folder(), Chaos::Clock->new, int(time) + $seconds);
    zone_file($folder, $ends);
    my $environment = $clock->environment;
    local @ENV{'TZDIR', keys %{$environment}} = ($folder, values %{$environment});
    my $zone = 'rate=3r/day algorithm=fixed_window calendar=Day';
    my $node = nginx(http => "ratelimit_zone k\$arg_k zone=test $zone;",
        server => 'location / { ratelimit zone=test; ratelimit_headers x-ratelimit; }');
    my $away = node(zone => $zone, http => 'ratelimit_fail_mode local;', location => 'ratelimit_headers x-ratelimit;');
    $away->{redis}->stop('KILL');
    return $ends - time < 8 ? nodes_in_memory($seconds * 2) : ($node, $away, $clock, $ends);
}

subtest 'a count in memory ends with its period, and is there again if the clock is set back' => sub {
    my ($node, $away, $clock, $ends, @passed, @answers);
    my $seconds = 15;
    do {    # again, if the day ended meanwhile
        ($node, $away, $clock, $ends) = nodes_in_memory($seconds);
        @passed  = map { passed($_, '/', 4) } $node, $away;
        @answers = map { [time, $_->get('/'), time] } $node, $away;
        $seconds *= 2;
    } while time > $ends;
    is_deeply \@passed, [3, 3];
    is_refused_until(@{$_}, $ends, 'the day that ends') for @answers;
    wait_until('the day ends', sub { time > $ends + 0.05 }, $ends - time + 10);
    is passed($_, '/', 4), 3, 'the next day begins with nothing counted' for $node, $away;
    $node->status("/?k=other$_") for 1 .. 20;
    $clock->step(-1800);
    is passed($node, '/', 4), 0, 'the day before has no second quota';
};

subtest 'costs, charges, reserves, blocks and shadows' => sub {
    my $file = 'ratelimit_headers x-ratelimit; try_files /index.html =404;';
    my $node = node(zone => "rate=10r/month $berlin", server => <<"END");
        location /cost { ratelimit zone=test cost=4 charge=\$arg_charge; $file }
        location /low { ratelimit zone=test reserve=5; $file }
        location /shadow { ratelimit zone=test shadow; $file }
END
    is $node->status('/cost?charge=1'), 200;
    remains($node, 9, 'what was not used is returned');
    is $node->status('/cost?charge=6'), 200;
    remains($node, 3, 'what was used beyond the cost is charged');
    refused_until($node, '/low', $end, 'a request that leaves five');
    is passed($node, '/', 5), 3, 'the others have the rest';
    is $node->status('/shadow'), 200;
    my $blocks = node(zone => "rate=1r/month $berlin block=366d", location => 'ratelimit_headers x-ratelimit;',
        server => 'location /ops/ { ratelimit_api; }');
    is passed($blocks, '/', 2), 1;
    ok wait_until('the block', sub { $blocks->{redis}->cmd('EXISTS', 'rl:test:{k}:block') }),
        'a refused key is blocked beside its counts';
    cmp_ok $blocks->get('/')->header('Retry-After'), '>', $end - time + 86_400 * 300, 'also beyond the period';
    ok wait_until('the block is known', sub {
        $blocks->status('/');
        my ($zone) = @{ decode_json($blocks->get('/ops/zones')->body)->{zones} };
        return $zone->{busiest}[0]{blocked};
    }), 'the node shows it';
};

subtest 'requests that arrive together, and limits on two servers' => sub {
    my $other = redis();
    my $node = node(zone => "rate=20r/month $berlin redis=main cache=off", workers => 2,
        http => "ratelimit_redis other { server @{[ $other->addr ]}; timeout 5s; connect_timeout 5s; }
            ratelimit_zone k\$arg_k zone=other rate=5r/d redis=other;",
        server => 'location /both { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }
            location = /left { ratelimit zone=test cost=0; ratelimit_headers x-ratelimit; try_files /index.html =404; }');
    my @statuses = burst($node->port, '/both', 8, 1);
    is scalar(grep { $_ == 200 } @statuses), 5, 'the other limit refuses three of eight';
    remains($node, 15, 'they are refunded', '/left');
    @statuses = burst($node->port, '/', 60, 16);
    is scalar(grep { $_ == 200 } @statuses), 15, 'exactly what is left passes';
};

subtest 'a plan by a variable' => sub {
    my $node = node(zone => "rate=\$plan $berlin", location => 'ratelimit_headers x-ratelimit;',
        http => 'map $arg_p $plan { free 2r/month; pro 4r/month; day 3r/day; odd 5r/m; } ratelimit_fail_mode closed;');
    is passed($node, '/?p=free', 4), 2;
    is passed($node, '/?p=pro', 4), 2, 'a larger plan counts what was used of this month';
    is passed($node, '/?p=day', 4), 3, 'a day is counted apart';
    is passed($node, '/?p=none', 4), 4, 'no plan, no limit';
    is $node->status('/?p=odd'), 503, 'another rate is malformed';
    is $node->count_log(qr{invalid rate "5r/m" for zone "test"}), 1;
};

subtest 'the API shows the period, and finds and frees its count' => sub {
    my $node = member(zone => "rate=2r/month $berlin", location => 'ratelimit_headers x-ratelimit;',
        http => "ratelimit_zone k\$arg_k zone=bill rate=1r/month $berlin start=\$arg_day redis=main;",
        server => 'location /bill { ratelimit zone=bill; try_files /index.html =404; }');
    my %zones = map { $_->{name} => $_ } @{ decode_json($node->get('/ops/zones')->body)->{zones} };
    is_deeply $zones{test}{calendar},
        { time_zone => 'Europe/Berlin', start => '1', begin => $begin, end => $end };
    is_deeply $zones{bill}{calendar},
        { time_zone => 'Europe/Berlin', start => '$arg_day', begin => undef, end => undef };
    is passed($node, '/', 3), 2;
    my $state = decode_json($node->get('/ops/zones/test/keys/k')->body);
    is_deeply [@{$state}{qw(rate remaining)}], ['2r/month', 0];
    ok abs($state->{retry_after} - ($end - time)) < 5, 'until the end of the period';
    is $node->status('/ops/zones/test/keys/k', method => 'DELETE'), 204;
    is $node->status('/'), 200, 'freed';

    is $node->status('/bill?day=15'), 200;
    is $node->status('/bill?day=15'), 429;
    for my $method ('GET', 'DELETE') {
        my $answer = $node->get('/ops/zones/bill/keys/k', method => $method);
        is $answer->status, 400;
        like $answer->body, qr/expected an argument start=/;
        is $node->status('/ops/zones/bill/keys/k?start=32', method => $method), 400;
    }
    is decode_json($node->get('/ops/zones/bill/keys/k?start=15')->body)->{remaining}, 0;
    is $node->status('/ops/zones/bill/keys/k?start=15', method => 'DELETE'), 204;
    is $node->status('/bill?day=15'), 200;
};

subtest 'an override changes the quota of the period' => sub {
    my $node = member(zone => "rate=2r/month $berlin",
        http => 'ratelimit_zone k$arg_k zone=plain rate=2r/m redis=main;',
        server => 'location /plain { ratelimit zone=plain; }');
    is passed($node, '/', 3), 2;
    override($node, 'k', { rate => '5r/month' });
    in_force($node, 'k', 5);
    is passed($node, '/', 5), 3, 'what was used before counts';
    is take_back($node, 'k'), 204;
    in_force($node, 'k', 2);
    is passed($node, '/', 1), 0;
    for my $wrong (['test', '5r/day', 'the same period'], ['test', '5r/m', 'the zone has calendar='],
        ['plain', '5r/month', 'the zone has no calendar=']) {
        my ($zone, $rate, $why) = @{$wrong};
        my $answer = $node->get("/ops/zones/$zone/override", method => 'PUT', body => qq({"rate":"$rate"}));
        is $answer->status, 400, "$rate for $zone";
        like $answer->body, qr/\Q$why\E/;
    }
};

subtest 'nginx -t names what is wrong' => sub {
    my $folder = temp_folder();
    my %wrong = (
        'rate=5r/month algorithm=fixed_window'                            => 'calendar= beside it',
        'rate=5r/d algorithm=fixed_window start=3'                        => 'calendar= beside it',
        "rate=5r/d $berlin"                                               => 'r/day, r/week, r/month or r/year',
        "rate=0r/month $berlin"                                           => 'in a day, week, month or year',
        'rate=5r/month calendar=UTC'                                      => 'algorithm=fixed_window beside it',
        'rate=5r/month algorithm=fixed_window calendar=Europe/Brelin'     => 'a time zone that this machine has',
        'rate=5r/month algorithm=fixed_window calendar=../localtime'      => 'such as UTC or Europe/Berlin',
        "rate=5r/week $berlin start=3"                                    => 'which only a rate in r/month has',
        "rate=5r/month $berlin start=0"                                   => 'from 1 to 31',
        "rate=5r/month $berlin clock=redis"                               => 'clock=local, or none',
        "rate=5r/month $berlin redis=main lease=5"                        => 'no such parameter beside calendar=',
        "rate=5r/month $berlin redis=main ahead=5"                        => 'no such parameter beside calendar=',
        'concurrency=5 calendar=UTC'                                      => 'no such parameter beside concurrency=',
    );
    for my $zone (sort keys %wrong) {
        my ($status, @lines) = conf_test(
            http => "ratelimit_redis main { server 127.0.0.1:1; } ratelimit_zone \$uri zone=test $zone;");
        is $status, 1, $zone;
        like "@lines", qr/\Q$wrong{$zone}\E/;
        is scalar(@lines), 1, 'in one line' or diag @lines;
    }
    local $ENV{TZDIR} = $folder;
    my ($status, @lines) = conf_test(http => "ratelimit_zone \$uri zone=test rate=5r/month $berlin;");
    is $status, 1, 'without time zone data';
    like "@lines", qr/install the package tzdata/;
    ($status) = conf_test(
        http => 'ratelimit_zone $uri zone=test rate=5r/month algorithm=fixed_window calendar=UTC clock=local start=31;');
    is $status, 0, 'UTC needs none';
};

finish();

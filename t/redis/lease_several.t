# Leases where a request has several limits: each limit uses its own lease, and a call leases only if all
# its limits can and their keys are on one server.

use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my @servers = map { redis() } 1 .. 2;

# An nginx on these servers; http and server as for nginx(), with the source of each decision in a header.
sub node_on {
    my ($servers, %options) = @_;
    my $block = join ' ', map { 'server ' . $_->addr . ';' } @{$servers};
    return nginx(
        %options,
        http => "keepalive_requests 1000000; ratelimit_redis main { $block timeout 5s; connect_timeout 5s; } $options{http}",
        server => 'add_header X-Source $ratelimit_source always; '
            . $options{server} =~ s/\{/{ try_files \/index.html =404;/gr,
    );
}

# A request's status and the source of its decision: "200 lease".
sub decision {
    my ($node, $path) = @_;
    $node->{socket} //= http_connect($node->port);
    http_send($node->{socket}, $path);
    my $answer = http_read($node->{socket});
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

sub count_decisions {
    my ($node, $path, $times) = @_;
    my %seen = map { $_ => 0 } '200 redis', '200 lease', '429 redis', '429 cache';
    $seen{ decision($node, $path) }++ for 1 .. $times;
    return \%seen;
}

# The part of a limit that Redis has counted, read at this path.
sub counted {
    my ($node, $path) = @_;
    my $answer = $node->get($path);
    return $answer->header('X-RateLimit-Limit') - $answer->header('X-RateLimit-Remaining');
}

my $zones = 'ratelimit_zone a$arg_a zone=one rate=5000r/d algorithm=fixed_window lease=40;'
    . 'ratelimit_zone b$arg_b zone=two rate=5000r/d algorithm=sliding_window_log lease=20;'
    . 'ratelimit_zone a$arg_a zone=none rate=5000r/d algorithm=fixed_window;'
    . 'ratelimit_zone b$arg_b zone=tight rate=30r/d algorithm=fixed_window lease=20;'
    . 'ratelimit_zone c$arg_c zone=client rate=5000r/d algorithm=fixed_window lease=20;'
    . 'ratelimit_zone a$arg_a zone=few rate=90r/d algorithm=fixed_window lease=20;';
my $peeks = join '', map { "location = /peek/$_ { ratelimit zone=$_ cost=0; }" }
    qw(one two none tight client few);

# Keys for a and b that begin so and are on different servers of the ring.
sub keys_apart {
    my ($node, $begin) = @_;
    my %on;
    for my $key (map { "$begin$_" } 1 .. 40) {
        decision($node, "/place?a=$key&b=$key");
        $on{a}{ $servers[0]->cmd('EXISTS', "rl:one:{a$key}") ? 0 : 1 } = $key;
        $on{b}{ $servers[0]->cmd('EXISTS', "rl:two:{b$key}") ? 0 : 1 } = $key;
    }
    $_->cmd('FLUSHALL') for @servers;
    return "a=$on{a}{0}&b=$on{b}{1}";
}

my %locations = (
    place  => 'ratelimit zone=one; ratelimit zone=two;',
    both   => 'ratelimit zone=one; ratelimit zone=two;',
    mixed  => 'ratelimit zone=one; ratelimit zone=none;',
    shadow => 'ratelimit zone=one; ratelimit zone=tight shadow;',
    narrow => 'ratelimit zone=one; ratelimit zone=tight;',
    few    => 'ratelimit zone=few;',
    refuse => 'ratelimit zone=few; ratelimit zone=tight;',
    all    => 'ratelimit zone=one; ratelimit zone=client;',
    costly => 'ratelimit zone=one cost=2; ratelimit zone=two cost=2;',
    free   => 'ratelimit zone=one; ratelimit zone=two cost=0;',
);
my $server = $peeks . join '', map { "location = /$_ { $locations{$_} }" } sort keys %locations;

# The number of checks, and renewals of leases, of all servers.
sub checks {
    my $count = 0;
    $count += $_->calls('evalsha') for @servers;
    return $count;
}

for my $case (['one server', $servers[0]], ['two servers', @servers]) {
    my ($where, @all) = @{$case};
    my $node = node_on(\@all, http => $zones, server => $server, workers => 2);
    my $keys = @all == 2 ? keys_apart($node, '') : 'a=1&b=1';

    subtest "two limits with leases" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $before = checks();
        my $seen = count_decisions($node, "/both?$keys", 400);
        my $calls = checks() - $before;
        is $seen->{'200 redis'} + $seen->{'200 lease'}, 400;
        cmp_ok $seen->{'200 lease'}, '>', 200, 'most requests use leases';
        for my $zone (qw(one two)) {
            my $counted = counted($node, "/peek/$zone?$keys");
            cmp_ok $counted, '>=', 400, "each request is counted in $zone";
            cmp_ok $counted, '<=', 400 + 20 * $calls, 'no more than requests and leases are counted';
        }
    } if @all == 1;

    subtest "two limits lease again after a pause, though one lease is still valid" => sub {
        $_->cmd('FLUSHALL') for @servers;
        count_decisions($node, "/both?$keys", 100);
        wait_until('leases are left', sub { decision($node, "/both?$keys") eq '200 lease' });
        my $began = time;
        wait_until('the lease of the sliding window has expired', sub { time > $began + 1.2 });
        cmp_ok count_decisions($node, "/both?$keys", 300)->{'200 lease'}, '>', 150;
        cmp_ok count_decisions($node, "/costly?$keys", 300)->{'200 lease'}, '>', 150, 'also when a lease is too small for the cost';
    } if @all == 1;

    subtest "a limit for all clients leases beside a limit for each client" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my %seen = map { $_ => 0 } '200 redis', '200 lease';
        my $fresh = $keys =~ s/a=/a=all/r;
        for my $turn (1 .. 150) {
            $seen{ decision($node, "/all?$fresh&c=$_") }++ for 1 .. 4;
        }
        is $seen{'200 redis'} + $seen{'200 lease'}, 600;
        cmp_ok $seen{'200 lease'}, '>', 300, 'most requests use leases';
        cmp_ok counted($node, "/peek/one?$fresh"), '>=', 600, 'all requests are counted';
        cmp_ok counted($node, "/peek/client?c=$_"), '>=', 150 for 1 .. 4;
    } if @all == 1;

    subtest 'limits whose keys are on two servers lease nothing' => sub {
        $_->cmd('FLUSHALL') for @servers;
        is count_decisions($node, "/both?$keys", 100)->{'200 redis'}, 100;
        is counted($node, "/peek/$_?$keys"), 100, "no more than the requests is counted in $_" for qw(one two);
    } if @all == 2;

    subtest "if one limit of a call cannot lease, none does: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        for my $path ("/mixed?$keys", "/free?$keys") {
            my $fresh = $path =~ s/a=/a=fresh/r;
            is count_decisions($node, $fresh, 100)->{'200 redis'}, 100;
            is counted($node, "/peek/one?" . $fresh =~ s/.*\?//r), 100, 'nothing is counted in advance'
                if $path =~ /mixed/;
        }
    };

    subtest "a shadow limit that refuses does not prevent leases" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $fresh = $keys =~ s/a=/a=shadow/r;
        my $seen = count_decisions($node, "/shadow?$fresh", 400);
        is $seen->{'200 redis'} + $seen->{'200 lease'} + ($seen->{'200 cache'} // 0), 400, 'all requests pass';
        cmp_ok $seen->{'200 lease'}, '>', 200, 'most requests use leases';
        my $counted = counted($node, "/peek/one?$fresh");
        cmp_ok $counted, '>=', 400, 'all requests are counted in the enforced limit';
        cmp_ok $counted, '<=', 400 + 2 * 40, 'no second lease is taken while one is valid';
        cmp_ok counted($node, "/peek/tight?$keys"), '<=', 30;
    } if @all == 1;

    subtest "a refused request returns the leased tokens that it used: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $refuse = '/refuse?' . (@all == 2 ? keys_apart($node, 'spend') : 'a=spend&b=spend');
        # Behind the replies to peeks no renewal is under way, which could have the last tokens.
        my $used = sub {
            my ($status) = decision($node, $refuse) =~ /^(\d+)/;
            decision($node, "/peek/$_?" . $refuse =~ s/.*\?//r) for qw(few tight);
            return $status;
        };
        is_deeply [map { $used->() } 1 .. 30], [(200) x 30], 'one limit is used up';
        my $few = $refuse =~ s/refuse/few/r;
        my $passed = 30;
        until (decision($node, $few) eq '200 lease') { ++$passed < 90 or last }
        ++$passed;
        my $seen = count_decisions($node, $refuse, 100);
        is $seen->{'429 redis'} + $seen->{'429 cache'}, 100;
        $seen = count_decisions($node, $few, 100);
        cmp_ok $seen->{'200 lease'}, '>', 0;
        is $passed + $seen->{'200 lease'} + $seen->{'200 redis'}, 90, 'the other limit has lost none';
    };

    # By fixed_window leased tokens last as long as the window, by the log a second: then each second may leave two leases.
    for my $algorithm ('fixed_window', 'sliding_window_log') {
        subtest "requests that one limit refuses are not counted in the other: $algorithm, $where" => sub {
            $_->cmd('FLUSHALL') for @servers;
            my $fresh = node_on(\@all, server => $server, workers => 2,
                http => $zones =~ s/rate=30r\/d/rate=8r\/s/r =~ s/(zone=one .*?)fixed_window/$1$algorithm/r);
            my ($passed, $began) = (0, time);
            until (time - $began > 4) {
                $passed += grep { $_ == 200 } burst($fresh->port, "/narrow?$keys", 100, 20);
                sleep 0.03;    # the limit is eight a second
            }
            my $seconds = int(time - $began) + 2;
            cmp_ok $passed, '<=', 8 * $seconds;
            my $leases = $algorithm eq 'fixed_window' ? 2 : 2 * $seconds;
            # What the last burst returns may be on its way.
            wait_until('the refused requests are not counted',
                sub { counted($fresh, "/peek/one?$keys") <= $passed + 40 * $leases });
            my $counted = counted($fresh, "/peek/one?$keys");
            cmp_ok $counted, '>=', $passed;
            note "$counted counted, $passed passed";
        };
    }
}

subtest 'a refusal by another Redis returns the leased token, also while other requests use the lease' => sub {
    my $slow = proxy(to => $servers[1]->addr);
    my $node = nginx(
        http => join('', map { "ratelimit_redis $_->[0] { server $_->[1]; timeout 5s; connect_timeout 5s; }" }
                ['a', $servers[0]->addr], ['b', $slow->addr])
            . 'keepalive_requests 1000000;'
            . 'ratelimit_zone all zone=a redis=a rate=1000000r/d algorithm=fixed_window lease=100;'
            . 'ratelimit_zone all zone=b redis=b rate=1r/d algorithm=fixed_window cache=off;',
        server => join '', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /a { ratelimit zone=a; }', 'location = /both { ratelimit zone=a; ratelimit zone=b; }',
            'location = /peek { ratelimit zone=a cost=0; }'
    );
    is $node->status('/both'), 200;
    $slow->delay(0.05);
    my $load = load(port => $node->port, path => '/a', clients => 4);
    $load->wait_for_more(1000);
    my @statuses = map { burst($node->port, '/both', 100, 50) } 1 .. 8;
    is scalar(grep { $_ == 429 } @statuses), 800;
    my $seen = $load->stop;
    is $seen->{failed}, 0 or diag $seen->{why};
    my $more = counted($node, '/peek') - $seen->{200} - 1;
    cmp_ok $more, '>=', 0, 'every admitted request is counted';
    cmp_ok $more, '<=', 300, 'refused requests are not, beyond what is leased';
};

finish();

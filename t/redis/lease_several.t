# Leases where a request has several limits: each spends its own, and what is asked takes ahead if all of
# it can; on one server or on two.

use Ratelimit::Test;
use Time::HiRes qw(time);

my @servers = map { redis() } 1 .. 2;

# An nginx on these servers; http and server as for nginx(), with who decided in a header.
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

# "200 lease": a request's status and who decided.
sub told {
    my ($node, $path) = @_;
    $node->{socket} //= http_connect($node->port);
    http_send($node->{socket}, $path);
    my $answer = http_read($node->{socket});
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

sub count_told {
    my ($node, $path, $times) = @_;
    my %seen = map { $_ => 0 } '200 redis', '200 lease', '429 redis', '429 cache';
    $seen{ told($node, $path) }++ for 1 .. $times;
    return \%seen;
}

# What Redis has counted of a limit that is read at this path.
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
    qw(one two none tight client);

# Keys for a and b that are on other servers of the ring.
sub keys_apart {
    my ($node) = @_;
    my %on;
    for my $key (1 .. 40) {
        told($node, "/place?a=$key&b=$key");
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

for my $case (['one server', $servers[0]], ['two servers', @servers]) {
    my ($where, @all) = @{$case};
    my $node = node_on(\@all, http => $zones, server => $server, workers => 2);
    my $keys = @all == 2 ? keys_apart($node) : 'a=1&b=1';

    subtest "both have leases: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $seen = count_told($node, "/both?$keys", 400);
        is $seen->{'200 redis'} + $seen->{'200 lease'}, 400;
        cmp_ok $seen->{'200 lease'}, '>', 200, 'most are leased';
        for my $zone (qw(one two)) {
            my $counted = counted($node, "/peek/$zone?$keys");
            cmp_ok $counted, '>=', 400, "each is counted in $zone";
            cmp_ok $counted, '<=', 400 + 20 * $seen->{'200 redis'}, 'and no more than was taken ahead';
        }
    };

    subtest "both have leases again after a lull, though one of them has some left: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        count_told($node, "/both?$keys", 100);
        wait_until('some are left', sub {
            my $told = told($node, "/both?$keys");
            return $told eq '200 redis' && told($node, "/both?$keys") eq '200 lease';
        });
        my $began = time;
        wait_until('those that slide have lapsed', sub { time > $began + 1.2 });
        cmp_ok count_told($node, "/both?$keys", 300)->{'200 lease'}, '>', 150;
        cmp_ok count_told($node, "/costly?$keys", 300)->{'200 lease'}, '>', 150, 'or too few for the cost';
    };

    subtest "a limit for all clients has leases beside one for each: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my %seen = map { $_ => 0 } '200 redis', '200 lease';
        my $fresh = $keys =~ s/a=/a=all/r;
        for my $turn (1 .. 150) {
            $seen{ told($node, "/all?$fresh&c=$_") }++ for 1 .. 4;
        }
        is $seen{'200 redis'} + $seen{'200 lease'}, 600;
        cmp_ok $seen{'200 lease'}, '>', 300, 'most are leased';
        cmp_ok counted($node, "/peek/one?$fresh"), '>=', 600, 'and all are counted';
        cmp_ok counted($node, "/peek/client?c=$_"), '>=', 150 for 1 .. 4;
    };

    subtest "one has none, so nobody has: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        for my $path ("/mixed?$keys", "/free?$keys") {
            my $fresh = $path =~ s/a=/a=fresh/r;
            is count_told($node, $fresh, 100)->{'200 redis'}, 100;
            is counted($node, "/peek/one?" . $fresh =~ s/.*\?//r), 100, 'and all is counted one by one'
                if $path =~ /mixed/;
        }
    };

    subtest "a shadow limit that would refuse does not stand in the way: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $fresh = $keys =~ s/a=/a=shadow/r;
        my $seen = count_told($node, "/shadow?$fresh", 400);
        is $seen->{'200 redis'} + $seen->{'200 lease'} + ($seen->{'200 cache'} // 0), 400, 'all pass';
        cmp_ok $seen->{'200 lease'}, '>', 200, 'most by leases';
        my $counted = counted($node, "/peek/one?$fresh");
        cmp_ok $counted, '>=', 400, 'and are counted by the one that counts';
        cmp_ok $counted, '<=', 400 + 2 * 40, 'which does not take ahead again what it has';
        cmp_ok counted($node, "/peek/tight?$keys"), '<=', 30;
    };

    subtest "who is refused spends nothing that is leased: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $refuse = '/refuse?' . $keys =~ s/=/=spend/gr;
        is_deeply [map { told($node, $refuse) =~ /^(\d+)/ } 1 .. 30], [(200) x 30], 'one limit is used up';
        my $few = $refuse =~ s/refuse/few/r;
        my $passed = 30;
        until (told($node, $few) eq '200 lease') { ++$passed < 90 or last }
        ++$passed;
        my $seen = count_told($node, $refuse, 100);
        is $seen->{'429 redis'} + $seen->{'429 cache'}, 100;
        $seen = count_told($node, $few, 100);
        cmp_ok $seen->{'200 lease'}, '>', 0;
        is $passed + $seen->{'200 lease'} + $seen->{'200 redis'}, 90, 'of the other all is there';
    };

    subtest "what one refuses is not spent in the other: $where" => sub {
        $_->cmd('FLUSHALL') for @servers;
        my $fresh = node_on(\@all, server => $server, workers => 2,
            http => $zones =~ s/rate=30r\/d/rate=8r\/s/r =~ s/(zone=one .*?)fixed_window/$1sliding_window_log/r);
        my ($passed, $began) = (0, time);
        until (time - $began > 4) {
            $passed += grep { $_ == 200 } burst($fresh->port, "/narrow?$keys", 100, 20);
        }
        my $counted = counted($fresh, "/peek/one?$keys");
        my $seconds = int(time - $began) + 2;
        cmp_ok $passed, '<=', 8 * $seconds;
        cmp_ok $counted, '>=', $passed;
        cmp_ok $counted, '<=', 1.5 * $passed + 10, 'little more is counted than passed';
    };
}

subtest 'who is refused elsewhere spends nothing that is leased, though it is asked for again meanwhile' => sub {
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
    cmp_ok $more, '>=', 0, 'who passed is counted';
    cmp_ok $more, '<=', 300, 'and who did not is not';
};

finish();

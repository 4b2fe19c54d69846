# A ring: keys are spread over independent servers, and a request whose limits are on several servers is
# counted in all of them or in none.

use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

# The servers, and for each a list of the keys among k1 to k300 that the ring puts on it.
my @servers = map { redis() } 1 .. 3;
my $placing = ring_node(\@servers, http => 'ratelimit_zone $arg_a zone=place rate=9r/d;',
    server => 'location / { ratelimit zone=place; }');
$placing->status("/?a=k$_") for 1 .. 300;
my @keys = map { keys_of($_) } @servers;
$_->cmd('FLUSHALL') for @servers;

# The keys of the zone "place" that a server has.
sub keys_of {
    my ($server) = @_;
    return [map { /\{(\w+)\}/ ? $1 : () } $server->keys_like('rl:place:*')];
}

# An nginx whose block "main" is a ring of these servers; the second server has weight 2.
sub ring_node {
    my ($servers, %options) = @_;
    my $block = join ' ', map { 'server ' . $_->addr . ($_ == $servers[1] ? ' weight=2;' : ';') }
        @{$servers};
    my $http = $options{http} // '';
    return nginx(
        %options,
        http => "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; } $http",
        server => 'add_header X-Status $ratelimit_status always; '
            . $options{server} =~ s/\{/{ try_files \/index.html =404;/gr,
    );
}

# Lines for zones with these rates, keyed by $arg_a, $arg_b and $arg_c, and for /peek/ZONE, which reports a
# zone's state at no cost.
sub limits {
    my (%rates) = @_;
    my %argument = (one => 'a', two => 'b', three => 'c');
    my (@zones, @peeks);
    for my $name (sort keys %rates) {
        push @zones, "ratelimit_zone \$arg_$argument{$name} zone=$name cache=off $rates{$name};";
        my $now = $rates{$name} =~ /leaky_bucket/ ? 'nodelay' : '';
        push @peeks, "location = /peek/$name { ratelimit zone=$name cost=0 $now; }";
    }
    return ("@zones", "@peeks");
}

sub remaining {
    my ($node, $path) = @_;
    return $node->get($path)->header('X-RateLimit-Remaining');
}

subtest 'keys are spread over all servers by weight, and each stays on its server' => sub {
    is scalar(map { @{$_} } @keys), 300, 'each key is on one server';
    cmp_ok scalar @{ $keys[$_] }, '>=', 30, "server $_ has its share" for 0 .. 2;
    cmp_ok scalar @{ $keys[1] }, '>', scalar @{ $keys[$_] }, 'the server of weight 2 has more than others'
        for 0, 2;
    my $turned = ring_node([reverse @servers], http => 'ratelimit_zone $arg_a zone=place rate=9r/d;',
        server => 'location / { ratelimit zone=place; }');
    for my $node ($placing, $turned) {
        $node->status("/?a=k$_") for 1 .. 300;
    }
    is_deeply [map { keys_of($_) } @servers], \@keys, 'also for a node that lists the servers in another order';
    is remaining($turned, '/?a=k1'), 6, 'the nodes share counts';
    $_->cmd('FLUSHALL') for @servers;
};

subtest 'limits by the same key are on one server, and take one call' => sub {
    my ($zones, $peeks) = limits(one => 'rate=9r/d', two => 'rate=9r/d');
    $zones =~ s/arg_b/arg_a/;
    my $node = ring_node(\@servers, http => $zones,
        server => "location / { ratelimit zone=one; ratelimit zone=two; } $peeks");
    for my $i (0 .. 2) {
        my $key = $keys[$i][0];
        my @before = map { $_->calls('evalsha') } @servers;
        is $node->status("/?a=$key"), 200;
        my @calls = map { $servers[$_]->calls('evalsha') - $before[$_] } 0 .. 2;
        is_deeply \@calls, [map { $_ == $i ? 1 : 0 } 0 .. 2], "one call, to server $i";
        is_deeply [$servers[$i]->keys_like], ["rl:one:{$key}", "rl:two:{$key}"];
        $servers[$i]->cmd('FLUSHALL');
    }
};

subtest 'a server that is killed affects only its keys, and is used again when it restarts' => sub {
    my $node = ring_node(\@servers, http => 'ratelimit_zone $arg_a zone=one rate=3r/d;',
        server => 'location /open { ratelimit zone=one; }'
            . 'location /closed { ratelimit zone=one; ratelimit_fail_mode closed; }');
    $servers[1]->stop('KILL');
    $node->wait_for_log(qr/\Q@{[ $servers[1]->addr ]}\E.* is away/);
    for my $i (0, 2) {
        my $key = $keys[$i][0];
        is_deeply [map { $node->status("/$_?a=$key") } qw(open closed open closed)],
            [200, 200, 200, 429], "the keys of server $i are still counted";
    }
    for my $key (@{ $keys[1] }[0 .. 4]) {
        my $answer = $node->get("/open?a=$key");
        is $answer->status, 200;
        is $answer->header('X-Status'), 'FAILED_OPEN';
        is $node->status("/closed?a=$key"), 503;
    }
    is $node->count_log(qr/is away/), 1, 'one line in the log';
    $servers[1]->start;
    wait_until('its keys are counted again', sub { $node->status("/closed?a=$keys[1][1]") == 200 });
    is_deeply [map { $node->status("/closed?a=$keys[1][0]") } 1 .. 4], [200, 200, 200, 429];
    $_->cmd('FLUSHALL') for @servers;
};

my ($here, $there, $elsewhere) = map { $_->[0] } @keys;

for my $algorithm (@algorithms) {
    subtest "a request that one server refuses is refunded on the other: $algorithm" => sub {
        my $now = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my ($zones, $peeks) = limits(one => "rate=100r/d algorithm=$algorithm"
                . ($algorithm =~ /leaky|gcra/ ? ' burst=99' : ''), two => 'rate=2r/d');
        my $node = ring_node(\@servers, http => $zones, server => <<"END" . $peeks);
            location = / { ratelimit zone=one $now; ratelimit zone=two; }
            location = /turned { ratelimit zone=two; ratelimit zone=one $now; }
            location = /dear { ratelimit zone=one $now cost=7; ratelimit zone=two; }
            location = /dry { ratelimit zone=one $now; ratelimit zone=two; ratelimit_dry_run on; }
            location = /shadow { ratelimit zone=one $now shadow; ratelimit zone=two; }
            location = /harmless { ratelimit zone=one $now; ratelimit zone=two shadow; }
END
        my $both = "a=$here&b=$there";
        is_deeply [map { $node->status("/?$both") } 1 .. 3], [200, 200, 429];
        my $peek = "/peek/one?a=$here";
        remains($node, 98, 'two passed', $peek);
        for my $path (qw(/ /turned /dear /dry /shadow)) {
            my $expected = $path eq '/dry' ? 200 : 429;
            is $node->status("$path?$both"), $expected, "$path refuses" for 1 .. 5;
            remains($node, 98, 'and counts nothing', $peek);
        }
        is $node->get("/dry?$both")->header('X-Status'), 'REJECTED_DRY_RUN';
        is $node->status("/harmless?$both"), 200, 'a shadow limit does not refuse';
        is remaining($node, $peek), 97, 'and refunds nothing';
        is $node->status("/?a=$there&b=$there"), 429, 'limits of one key take one call';
        is remaining($node, "/peek/one?a=$there"), 100;
        $_->cmd('FLUSHALL') for @servers;

        my @statuses = burst($node->port, "/?$both", 50, 50);
        is scalar(grep { $_ == 200 } @statuses), 2, 'two of fifty concurrent requests pass';
        remains($node, 98, 'and two are counted', $peek);
        $_->cmd('FLUSHALL') for @servers;
    };
}

subtest 'after a refund remaining and reset are as if nothing had been counted' => sub {
    my %rate = (
        sliding_window_log => '100r/d', sliding_window_buckets => '100r/d precision=1s', gcra => '100r/d burst=99',
        fixed_window => '100r/d', sliding_window_counter => '100r/6s',
    );
    my @names = sort keys %rate;
    my ($zones, $locations) = ('ratelimit_zone $arg_b zone=full rate=1r/d algorithm=fixed_window cache=off;', '');
    for my $name (@names) {
        $zones .= "ratelimit_zone \$arg_a zone=$name rate=$rate{$name} algorithm=$name;";
        $locations .= "location = /$name { ratelimit zone=$name; ratelimit zone=full; ratelimit_headers draft; }"
            . "location = /some/$name { ratelimit zone=$name cost=20; }"
            . "location = /look/$name { ratelimit zone=$name cost=0; ratelimit_headers draft; }";
    }
    my $node = ring_node(\@servers, http => $zones, server => "location = /fill { ratelimit zone=full; } $locations");
    is $node->status("/fill?b=$there"), 200;
    $node->status("/some/$_?a=$here") for @names;
    # The counter's next window, so that a request would start it; by then every limit is two seconds old.
    my $soon = $servers[0]->cmd('TIME')->[0] + 2;
    wait_until('the next window', sub { $servers[0]->cmd('TIME')->[0] >= $soon - $soon % 6 + 6 });
    for my $name (reverse @names) {
        my $state = sub { return [$_[0]->header('RateLimit') =~ /"$name";r=(\d+);t=(\d+)/] };
        my ($before, $refused, $after) = map { $node->get($_) } "/look/$name?a=$here", "/$name?a=$here&b=$there", "/look/$name?a=$here";
        is $refused->status, 429, $name;
        my ($first, $shown, $last) = map { $state->($_) } $before, $refused, $after;
        # What is left grows with time, and the time until the reset shrinks.
        for (['remaining', $first->[0], $shown->[0], $last->[0]], ['reset', $last->[1], $shown->[1], $first->[1]]) {
            my ($what, $least, $got, $most) = @{$_};
            ok $got >= $least - 1 && $got <= $most + 1, "$name: $what as cost=0 reports: $got, from $least to $most";
        }
    }
    $_->cmd('FLUSHALL') for @servers;
};

subtest 'two tight limits on two servers count exactly the requests that both let pass' => sub {
    for my $algorithm (@algorithms) {
        my $now = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my $burst = $algorithm =~ /leaky|gcra/ ? 'burst=9' : '';
        my ($zones, $peeks) = limits(
            map { $_ => "rate=10r/d algorithm=$algorithm $burst" } qw(one two));
        my $node = ring_node(\@servers, http => $zones, workers => 2,
            server => "location / { ratelimit zone=one $now; ratelimit zone=two $now; } $peeks");
        my $passed = grep { $_ == 200 } burst($node->port, "/?a=$here&b=$there", 50, 50);
        cmp_ok $passed, '<=', 10, "$algorithm: no more than the limit pass";
        # A refund by another worker may still be in flight.
        for my $peek ("/peek/one?a=$here", "/peek/two?b=$there") {
            wait_until('all refunds have arrived', sub { remaining($node, $peek) == 10 - $passed });
            is remaining($node, $peek), 10 - $passed, 'exactly the admitted requests are counted';
        }
        my $late = grep { $node->status("/?a=$here&b=$there") == 200 } 1 .. 11;
        is $passed + $late, 10, 'the rest of the limit can be used afterwards';
        $_->cmd('FLUSHALL') for @servers;
    }
};

subtest 'with three limits on three servers, a refusal by any is refunded on the others' => sub {
    my %quota = (one => 100, two => 100, three => 100);
    my %key = (one => "a=$here", two => "b=$there", three => "c=$elsewhere");
    my $all = join '&', map { $key{$_} } sort keys %key;
    for my $tight (sort keys %quota) {
        my ($zones, $peeks) = limits(map { $_ => 'rate=' . ($_ eq $tight ? 5 : 100) . 'r/d' } keys %quota);
        my $node = ring_node(\@servers, http => $zones,
            server => "location / { ratelimit zone=one; ratelimit zone=two; ratelimit zone=three; } $peeks");
        my @statuses = burst($node->port, "/?$all", 40, 20);
        is scalar(grep { $_ == 200 } @statuses), 5, "zone $tight admits five";
        for my $name (sort keys %quota) {
            remains($node, $name eq $tight ? 0 : 95, "exactly these are counted in zone $name", "/peek/$name?$key{$name}");
        }
        $_->cmd('FLUSHALL') for @servers;
    }
};

subtest 'a refusing shadow limit does not prevent the refund of the other limits' => sub {
    my ($zones, $peeks) = limits(one => 'rate=9r/d', two => 'rate=1r/d');
    my $node = ring_node(\@servers, http => "$zones ratelimit_zone \$arg_a zone=narrow rate=1r/d;",
        server => 'location / { ratelimit zone=one; ratelimit zone=narrow shadow; ratelimit zone=two; }'
            . $peeks);
    is_deeply [map { $node->status("/?a=$here&b=$there") } 1 .. 4], [200, 429, 429, 429];
    remains($node, 8, 'the one that passed is counted', "/peek/one?a=$here");
    $_->cmd('FLUSHALL') for @servers;
};

subtest 'with one server unavailable, the fail mode decides its limit only' => sub {
    my ($zones, $peeks) = limits(one => 'rate=5r/d', two => 'rate=2r/d');
    my $node = ring_node(\@servers, http => $zones, server => $peeks . join '',
        map { "location = /$_ { ratelimit zone=one; ratelimit zone=two; ratelimit_fail_mode $_; }" }
            qw(open closed local));
    $servers[1]->stop('KILL');
    $node->wait_for_log(qr/ is away/);
    my $peek = "/peek/one?a=$here";

    is $node->status("/closed?a=$here&b=$there"), 503, 'closed refuses' for 1 .. 5;
    wait_until('and the other limit is refunded', sub { remaining($node, $peek) == 5 });
    is_deeply [map { $node->status("/local?a=$here&b=$there") } 1 .. 4], [200, 200, 429, 429],
        'local counts on this node';
    remains($node, 3, 'and refunds what it refuses', $peek);
    is $node->get("/open?a=$here&b=$there")->header('X-Status'), 'FAILED_OPEN', 'open admits';
    is_deeply [map { $node->status("/open?a=$here&b=$there") } 1 .. 3], [200, 200, 429],
        'as long as the other limit does';
    $servers[1]->start;
    $_->cmd('FLUSHALL') for @servers;
};

subtest 'limits of one location may be in two blocks' => sub {
    my $node = nginx(
        http => join('', map { "ratelimit_redis r$_ { server @{[ $servers[$_]->addr ]}; timeout 5s;"
                . " connect_timeout 5s; } ratelimit_zone k\$arg_k zone=z$_ redis=r$_ rate="
                . (3 + 2 * $_) . 'r/d;' } 0 .. 1),
        server => 'location = / { ratelimit zone=z0; ratelimit zone=z1; }'
            . 'location = /few { ratelimit zone=z0; try_files /index.html =404; }'
            . 'location = /peek { ratelimit zone=z1 cost=0; try_files /index.html =404; }',
    );
    is_deeply [map { $node->status('/') } 1 .. 6], [200, 200, 200, 429, 429, 429];
    wait_until('the other block has counted three', sub { remaining($node, '/peek') == 2 });
    is_deeply [$servers[0]->keys_like], ['rl:z0:{k}'], 'each block has its own zone\'s key';
    is_deeply [$servers[1]->keys_like], ['rl:z1:{k}'];
};

subtest 'late refunds arrive too, and do not count as failures of their server' => sub {
    my @servers = map { redis() } 1 .. 2;
    my @proxies = map { proxy(to => $_->addr) } @servers;
    my $node = nginx(
        http => 'ratelimit_redis main { timeout 2s; connect_timeout 2s; breaker failures=5 open=5s; '
            . join('', map { "server @{[ $_->addr ]}; " } @proxies) . '}'
            . 'ratelimit_zone a$arg_a zone=one rate=1000r/d algorithm=fixed_window;'
            . 'ratelimit_zone b$arg_b zone=two rate=1r/d algorithm=fixed_window cache=off;',
        server => join '', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /both { ratelimit zone=one; ratelimit zone=two; }',
            'location = /peek { ratelimit zone=one cost=0; }'
    );
    my %on;
    for my $key (1 .. 40) {
        $node->get("/both?a=$key&b=$key");
        $on{a}{ $servers[0]->cmd('EXISTS', "rl:one:{a$key}") ? 0 : 1 } = $key;
        $on{b}{ $servers[0]->cmd('EXISTS', "rl:two:{b$key}") ? 0 : 1 } = $key;
    }
    $_->cmd('FLUSHALL') for @servers;
    my $keys = "a=$on{a}{0}&b=$on{b}{1}";
    is $node->status("/both?$keys"), 200;
    $_->delay(0.03) for @proxies;
    for my $time (1 .. 2) {
        is scalar(grep { $_ == 429 } burst($node->port, "/both?$keys", 20, 20)), 20;
        wait_until('all refused requests are refunded',
            sub { $node->get("/peek?$keys")->header('X-RateLimit-Remaining') == 999 });
    }
    my $began = time;
    wait_until('the timeout of every refund is over', sub { time - $began > 2 });
    is $node->count_log(qr/is away/), 0;
};

finish();

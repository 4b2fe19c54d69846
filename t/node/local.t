# Zones without Redis: each limit of each algorithm, counted in this node's shared memory.
# needs: gcc libc6-dev

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my @windows = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets);
my @arrival = qw(token_bucket leaky_bucket gcra);

# The parameters of a zone that admits $limit requests at once, and this quota per window.
sub zone_of {
    my ($algorithm, $limit, $window) = @_;
    my $burst = $algorithm =~ /^(?:leaky_bucket|gcra)$/ ? ' burst=' . ($limit - 1) : '';
    return "rate=${limit}r/$window algorithm=$algorithm$burst";
}

# An nginx with zones and no Redis. zones: name => parameters. Each zone has a location of its name,
# with `ratelimit zone=name` and the parameters that limits has for it. Other options: key, sizes,
# http, server, and nginx's.
sub local_node {
    my (%options) = @_;
    my $key = $options{key} // 'k$arg_k';
    my $server = join '', map { "add_header X-$_ \$ratelimit_\L$_ always;" }
        qw(Status Zone Source Time Limit Remaining Reset Retry_After);
    my $http = $options{http} // '';
    for my $name (sort keys %{ $options{zones} }) {
        my ($size) = ($options{sizes} // {})->{$name} // '1m';
        $http .= "ratelimit_zone $key zone=$name:$size $options{zones}{$name};\n";
        my $limit = ($options{limits} // {})->{$name} // '';
        $server .= "location /$name/ { ratelimit zone=$name $limit; try_files /index.html =404; }\n";
    }
    return nginx(%options, http => $http, server => $server . ($options{server} // ''));
}

sub statuses { my ($node, @paths) = @_; return [map { $node->status($_) } @paths] }

for my $algorithm (@windows, @arrival) {
    subtest "$algorithm is exact for a hundred concurrent requests, on any worker" => sub {
        my $node = local_node(workers => 4, zones => { zone => zone_of($algorithm, 30, 'd') },
            limits => { zone => $algorithm eq 'leaky_bucket' ? 'nodelay' : '' });
        for my $key (1 .. 5) {
            my @statuses = burst($node->port, "/zone/?k=$key", 100, 100);
            is scalar(grep { $_ == 200 } @statuses), 30;
            is scalar(grep { $_ == 429 } @statuses), 70;
        }
        my @statuses = burst($node->port, '/zone/?k=many', 5000, 50);
        is scalar(grep { $_ == 200 } @statuses), 30, 'and for thousands';
        is $node->count_log(qr/limiting requests, by zone "zone", key "kmany"/), 1;
    };

    subtest "$algorithm reports the remaining requests, and when a refused one will pass" => sub {
        my $clock = Chaos::Clock->new(passes => 1);
        my $node = local_node(workers => 2, zones => { zone => zone_of($algorithm, 2, 'd') },
            limits => { zone => $algorithm eq 'leaky_bucket' ? 'nodelay' : '' }, environment => $clock->environment);
        my $passed = $node->get('/zone/');
        is $passed->status, 200;
        is $passed->header("X-$_->[0]"), $_->[1], $_->[0]
            for ['Status', 'PASSED'], ['Source', 'local'], ['Zone', 'zone'], ['Limit', 2],
            ['Remaining', 1], ['RateLimit-Limit', 2], ['RateLimit-Remaining', 1], ['Time', '0.000'],
            ['Retry_After', undef];
        is $passed->header('X-RateLimit-Reset'), $passed->header('X-Reset');
        cmp_ok $passed->header('X-Reset'), '<=', 2 * 86_400;
        is $passed->header('Retry-After'), undef;

        is $node->get('/zone/')->header('X-RateLimit-Remaining'), 0;
        my $refused = $node->get('/zone/');
        is $refused->status, 429;
        is $refused->header('X-Status'), 'REJECTED';
        is $refused->header('X-Source'), 'local';
        is $refused->header('X-Remaining'), 0;
        is $refused->header('X-Retry_After'), $refused->header('Retry-After');
        my ($before, $then);
        for my $key (1 .. 8) {    # again if the machine was too slow: the seconds of Retry-After are rounded up
            my $watch = stopwatch();
            my ($retry) = map { $node->get("/zone/?k=$key")->header('Retry-After') // () } 1 .. 3;
            $clock->step($retry - 2);
            $before = $node->status("/zone/?k=$key");
            my $took = $watch->elapsed;
            $clock->step(2);
            $then = $node->status("/zone/?k=$key");
            last if $took < 1;
        }
        is $before, 429, 'none passes long before Retry-After';
        is $then, 200, 'none is refused after Retry-After';
    };

    subtest "$algorithm counts costs, and cost=0 counts nothing" => sub {
        my $node = local_node(zones => { zone => zone_of($algorithm, 10, 'd') },
            limits => { zone => 'cost=$arg_c' . ($algorithm eq 'leaky_bucket' ? ' nodelay' : '') });
        my $left = sub {
            my $answer = $node->get("/zone/?c=$_[0]");
            return join ' ', $answer->status, $answer->header('X-RateLimit-Remaining');
        };
        is $left->(0), '200 10' for 1 .. 2;
        is $left->(7), '200 3';
        is $left->(4), '429 3', 'a cost above the remaining counts nothing';
        is $left->(3), '200 0';
        is $left->(0), '200 0', 'cost=0 always passes' for 1 .. 2;
        is $left->(1), '429 0';
        my $never = $node->get('/zone/?c=11');
        is $never->status, 429;
        is $never->header('Retry-After'), undef, 'a cost that never fits has no Retry-After';
        is $node->get('/zone/?c=many&k=2')->header('X-Remaining'), 9, 'a malformed cost counts as 1';
        is $node->get('/zone/?k=2')->header('X-Remaining'), 8, 'a missing cost counts as 1';
        is $node->count_log(qr/invalid cost "many" for zone "zone"/), 1;
    };

    subtest "$algorithm refuses nothing in a dry run or as a shadow limit" => sub {
        my $node = local_node(zones => { shadow => zone_of($algorithm, 1, 'd'), dry => zone_of($algorithm, 1, 'd') },
            limits => { shadow => 'shadow', dry => '; ratelimit_dry_run on' });
        is_deeply [map { $node->get('/dry/')->header('X-Status') } 1 .. 3],
            ['PASSED', ('REJECTED_DRY_RUN') x 2];
        is_deeply statuses($node, ('/dry/', '/shadow/') x 3), [(200) x 6];
        is $node->get('/shadow/')->header('X-Remaining'), 0;
        is $node->get('/shadow/')->header('X-Status'), 'PASSED';
    };
}

subtest 'leaky_bucket delays excess requests, or not, as limit_req does' => sub {
    my $zone = 'rate=4r/s algorithm=leaky_bucket';
    my %limits = (none => '', all => 'burst=5', some => 'burst=5 delay=3', nodelay => 'burst=5 nodelay');
    my $node = local_node(workers => 2, zones => { map { $_ => $zone } keys %limits }, limits => \%limits);
    for (['none', 1, 0], ['all', 1, 5], ['some', 4, 2], ['nodelay', 6, 0]) {
        my ($name, $passed, $delayed) = @{$_};
        my $expected = join ' ', ('DELAYED') x $delayed, ('PASSED') x $passed, ('REJECTED') x (8 - $passed - $delayed);
        my ($watch, $seen, $took);
        for my $try (1 .. 8) {    # retried: a busy machine may delay requests
            $watch = stopwatch();
            my @sockets = map { http_connect($node->port) } 1 .. 8;
            http_send($_, "/$name/?k=$try", close => 1) for @sockets;
            $seen = join ' ', sort map { http_read($_)->header('X-Status') } @sockets;
            $took = $watch->elapsed;
            last if $seen eq $expected;
        }
        is $seen, $expected, $name;
        cmp_ok $took, '>', $delayed / 4 - 0.05, 'excess requests are delayed' if $delayed;
        $watch->within($delayed / 4 + 1, 'and no longer than their delay');
    }
};

subtest 'cost=0 is never delayed, and ends no run of refusals' => sub {
    my $node = local_node(zones => { zone => 'rate=1r/h algorithm=leaky_bucket burst=1' },
        limits => { zone => 'delay=1 cost=$arg_c' }, server => "location /slow/ { ratelimit zone=zone cost=0; try_files /index.html =404; }");
    is_deeply statuses($node, ('/zone/') x 3), [200, 200, 429];
    my $end = time + 1.5;
    while (time < $end) {
        my $look = $node->get('/slow/');
        is $look->header('X-Status'), 'PASSED' or last;
        is $node->status('/zone/'), 429 or last;
        sleep 0.005;
    }
    is $node->count_log(qr/limiting requests/), 1, 'one run';
    is $node->count_log(qr/limited \d+ request/), 0;
};

subtest 'several limits count a request in all of them or in none' => sub {
    my @names = (@windows, @arrival);
    my %limits = map { $_ => 'cost=$arg_c' . ($_ eq 'leaky_bucket' ? ' nodelay' : '') } @names;
    my $all = join '', map { "ratelimit zone=$_ " . ($_ eq 'leaky_bucket' ? 'nodelay' : '') . ';' } @names;
    my $node = local_node(workers => 4, limits => \%limits,
        zones  => { last => zone_of('fixed_window', 5, 'd'), map { $_ => zone_of($_, 9, 'd') } @names },
        server => "location /all/ { $all ratelimit zone=last; try_files /index.html =404; }"
            . "location /first/ { ratelimit zone=last; $all try_files /index.html =404; }"
            . "location /shadow/ { $all ratelimit zone=last shadow; try_files /index.html =404; }");
    for my $path (qw(all first)) {
        my @statuses = burst($node->port, "/$path/?k=$path", 100, 20);
        is scalar(grep { $_ == 200 } @statuses), 5, 'as many as the smallest limit admits';
        is $node->get("/$_/?k=$path&c=0")->header('X-Remaining'), 4, "$_ has counted only the admitted requests" for @names;
        my $refused = $node->get("/$path/?k=$path");
        is $refused->header('X-Zone'), 'last', 'the smallest limit refuses';
        is $refused->header('X-Remaining'), 0, 'the headers are those of the smallest limit';
    }
    my @statuses = burst($node->port, '/shadow/?k=shadow', 100, 20);
    is scalar(grep { $_ == 200 } @statuses), 9, 'a shadow limit refuses nothing';
    is $node->get('/last/?k=shadow')->status, 429, 'and counts the requests that fit it';

    # Both orders of the zones in parallel, from all workers: no deadlock.
    my @loads = map { load(port => $node->port, path => "/$_/?k=both") } qw(all first);
    $_->wait_for_more(2000) for @loads;
    is $_->stop->{failed}, 0 for @loads;
};

subtest 'a request is counted once, through any redirect or subrequest' => sub {
    my $node = local_node(zones => { zone => zone_of('fixed_window', 100, 'd') }, server => <<'END');
        error_page 404 /index.html;
        location /absent { ratelimit zone=zone; }
        location /try/ { ratelimit zone=zone; try_files $uri /index.html; }
        location /named/ { ratelimit zone=zone; error_page 404 = @named; }
        location @named { ratelimit zone=zone; try_files /index.html =404; }
        location /auth/ { ratelimit zone=zone; auth_request /zone/; try_files /index.html =404; }
        location = /index.html { ratelimit zone=zone; }
END
    for my $path (qw(absent try/x named/x auth/x)) {
        my $answer = $node->get("/$path?k=$path");
        is $answer->header('X-Status'), 'PASSED', $path;
        is $answer->header('X-Remaining'), 99;
        is $node->get("/zone/?k=$path")->header('X-Remaining'), 98, 'counted once';
    }
};

subtest 'keys may contain any bytes' => sub {
    my $node = local_node(key => '$http_x_key', zones => { zone => 'rate=1r/d' },
        main => '', http => 'large_client_header_buffers 4 32k;');
    my $long = 'x' x 8192;
    my @keys = ('a b', '{x}', '}', "tab\there", '%00', '"quoted"', "\xc3\xa4\xff\x01", 'x' x 127, 'x' x 128,
        'x' x 129, $long, $long . 'y', 'y' . $long);
    my $statuses = sub { return map { $node->status('/zone/', headers => ['X-Key', $_]) } @keys };
    is_deeply [$statuses->()], [(200) x @keys], 'each key is counted separately';
    is_deeply [$statuses->()], [(429) x @keys], 'the second request of each is refused';
    is $node->status('/zone/'), 200, 'an empty key is not limited' for 1 .. 2;

    my $binary = local_node(key => '$binary_remote_addr', zones => { zone => 'rate=1r/d' });
    is_deeply statuses($binary, ('/zone/') x 2), [200, 429], 'a key with zero bytes';
};

subtest 'the rate may be a variable' => sub {
    my $node = local_node(zones => { map { $_ => "rate=\$arg_r algorithm=$_" } @windows, 'token_bucket' });
    for my $algorithm (@windows, 'token_bucket') {
        my $left = sub {
            my $answer = $node->get("/$algorithm/?r=$_[0]");
            return join ' ', $answer->status, $answer->header('X-RateLimit-Remaining') // '-';
        };
        is $left->('5r/d'), '200 4', $algorithm;
        is $left->('9r/d'), $algorithm eq 'token_bucket' ? '200 6' : '200 7', 'a larger rate';
        is $left->('1r/d'), '429 0', 'a smaller rate';
        is $left->(''),     '200 -', 'an empty rate is no limit';
    }
};

subtest 'with a malformed rate the fail mode decides' => sub {
    my $node = local_node(zones => { bad => 'rate=$arg_r', good => zone_of('fixed_window', 2, 'd') },
        server => join '', map { <<"END" } qw(open closed local));
        location /$_/ { ratelimit zone=bad; ratelimit zone=good; ratelimit_fail_mode $_;
            try_files /index.html =404; }
        location /alone_$_/ { ratelimit zone=bad; ratelimit_fail_mode $_; try_files /index.html =404; }
END
    my $decision = sub {
        my $answer = $node->get($_[0]);
        return join ' ', $answer->status, map { $answer->header("X-$_") // '-' }
            qw(Status Source RateLimit-Remaining);
    };
    is $decision->("/alone_$_/?r=x"), '200 FAILED_OPEN - -', "$_, alone" for qw(open local);
    is $decision->('/alone_closed/?r=x'), '503 FAILED_CLOSED - -', 'closed, alone';
    for my $mode (qw(open local)) {
        is $decision->("/$mode/?r=x&k=$mode"), $_, "$mode, beside another limit"
            for '200 FAILED_OPEN local 1', '200 FAILED_OPEN local 0', '429 REJECTED local 0';
    }
    is $decision->('/closed/?r=x&k=c'), '503 FAILED_CLOSED - -', 'closed, beside another limit' for 1 .. 3;
    is $decision->('/closed/?r=9r/d&k=c'), '200 PASSED local 1', 'the other limit has not counted those requests';
    is $node->count_log(qr/invalid rate "x" for zone "bad"/), 1, 'one line in the log';
};

subtest 'a limit of one request a day admits one' => sub {
    for my $algorithm (@windows, @arrival) {
        my $node = local_node(zones => { zone => "rate=1r/d algorithm=$algorithm" });
        is_deeply statuses($node, ('/zone/') x 3), [200, 429, 429], $algorithm;
        my $retry = $node->get('/zone/')->header('Retry-After');
        cmp_ok $retry, '<=', 2 * 86_400;
    }
};

subtest 'a reload keeps the counts, unless it changes the size of the zone' => sub {
    my %zones = map { $_ => zone_of($_, 4, 'd') } @windows, @arrival;
    my $node = local_node(workers => 2, zones => \%zones, limits => { leaky_bucket => 'nodelay' });
    is_deeply statuses($node, map { ("/$_/") x 3 } sort keys %zones), [(200) x 21];
    $node->reload(gone => 1);
    is_deeply statuses($node, map { ("/$_/") x 2 } sort keys %zones), [(200, 429) x 7], 'the counts are kept';
    $node->configure(http => $node->{http} =~ s/:1m/:2m/gr);
    $node->reload(gone => 1);
    is_deeply statuses($node, map { ("/$_/") x 5 } sort keys %zones), [(200, 200, 200, 200, 429) x 7], 'the counts start over';
};

subtest 'a reload under load loses no count' => sub {
    my $node = local_node(workers => 2, zones => { zone => zone_of('sliding_window_log', 5000, 'd') });
    my $load = load(port => $node->port, path => '/zone/');
    for (1 .. 10) { $node->reload; $load->wait_for_more(20) }
    wait_until('the limit is used up', sub { ($load->seen->{429} // 0) > 0 }, 30);
    my $seen = $load->stop;
    is $seen->{200}, 5000;
    is $seen->{failed}, 0 or diag $seen->{why};
    is $node->count_log(qr/limiting requests/), 1;
};

subtest 'nginx with master_process off counts in its own memory' => sub {
    my %zones = map { $_ => zone_of($_, 2, 'd') } @windows, @arrival;
    my $node = local_node(single => 1, zones => \%zones, limits => { leaky_bucket => 'nodelay' });
    is_deeply statuses($node, map { ("/$_/") x 3 } sort keys %zones), [(200, 200, 429) x 7];
};

finish();

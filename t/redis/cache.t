# The denial cache: a key that Redis refuses is refused without Redis for as long as Redis would refuse it.

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Test;
use Time::HiRes qw(time);

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

# As node() of the library, with the source and the status of each decision in headers.
sub cached_node {
    my (%options) = @_;
    $options{server} = 'add_header X-Source $ratelimit_source always;'
        . 'add_header X-Status $ratelimit_status always;' . ($options{server} // '');
    return node(%options);
}

# A request's status and the source of its decision: "429 cache".
sub decision {
    my ($node, $path) = @_;
    my $answer = $node->get($path);
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

# Runs the code; returns the number of checks that Redis received meanwhile.
sub checks_during {
    my ($redis, $code) = @_;
    my $before = $redis->calls('evalsha');
    $code->();
    return $redis->calls('evalsha') - $before;
}

# A refusal is remembered for five seconds, which may not be enough for a slow machine. Returns a function that sets the
# node's clock back to the time of this call.
sub time_stops {
    my ($clock) = @_;
    my ($since, $stepped) = (time, 0);
    return sub {
        my $step = $since - time - $stepped;
        $clock->step($step);
        $stepped += $step;
    };
}

sub remaining { my ($node, $path) = @_; return $node->get($path)->header('X-RateLimit-Remaining') }

subtest 'a refused flood does not reach Redis, on any worker' => sub {
    for my $algorithm (@algorithms) {
        my $clock = Chaos::Clock->new(passes => 1);
        my $node = cached_node(zone => "rate=3r/d algorithm=$algorithm "
                . ($algorithm =~ /gcra|leaky/ ? 'burst=2' : ''),
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '', workers => 2, environment => $clock->environment);
        is_deeply [map { decision($node, '/') } 1 .. 4], [('200 redis') x 3, '429 redis'], $algorithm;
        my $set_back = time_stops($clock);
        my @statuses;
        my $checks = checks_during($node->{redis}, sub {
            for (1 .. 10) {
                $set_back->();
                push @statuses, burst($node->port, '/', 50, 50);
            }
        });
        is decision($node, '/'), '429 cache';
        is $checks, 0, '500 more requests send no check';
        is scalar(grep { $_ == 429 } @statuses), 500, 'and all are refused';
        is decision($node, '/?k=other'), '200 redis', 'other keys are checked in Redis';
    }
};

subtest 'a node whose configuration has no charge= notices what others refund' => sub {
    my %options = (zone => 'rate=1r/d algorithm=fixed_window');
    my $one = cached_node(%options, limit => 'charge=$arg_charge', location => 'limit_rate 1k;');
    my $two = cached_node(%options, redis => $one->{redis});
    my $socket = http_connect($one->port);
    http_send($socket, '/big.bin?charge=0');
    wait_until('it is counted', sub { remaining($two, '/peek') == 0 });
    is decision($two, '/'), '429 redis';
    is decision($two, '/'), '429 cache', 'the refusal is remembered, until the end of the day';
    close $socket;
    wait_until('the request is refunded', sub { remaining($one, '/peek') == 1 });
    wait_until('and the other node admits the key', sub { decision($two, '/') eq '200 redis' }, 8);
    pass 'soon';
};

subtest 'headers of a cached refusal count down, and the key is admitted when they say' => sub {
    for my $algorithm (@algorithms) {
        my $node = cached_node(zone => "rate=2r/4s algorithm=$algorithm "
                . ($algorithm =~ /gcra|leaky/ ? 'burst=1' : ''),
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '');
        my (@seen, $answer, $asked, $watch, $wait);
        for (1 .. 5) {    # again, if the machine was too slow to ask meanwhile
            wait_until('a refusal lasts some seconds', sub {
                $asked  = time;
                $answer = $node->get('/');
                return $answer->status == 429 && $answer->header('Retry-After') >= 2;
            }, 20);
            my $began = time;    # it was refused between the two times
            ($watch, $wait) = (stopwatch(), $answer->header('Retry-After'));
            wait_until('the key is admitted', sub {
                my $first = time;
                my $peek  = $node->get('/peek')->header('X-RateLimit-Reset');
                my $early = time;
                $answer = $node->get('/');
                my $late = time;
                push @seen, [$answer->header('X-RateLimit-Reset') - $peek, $answer->header('Retry-After'),
                    $wait - ($late - $asked), $wait - ($early - $began), $late - $first]
                    if ($answer->header('X-Source') // '') eq 'cache';
                return $answer->status == 200;
            }, 20);
            last if @seen;
        }
        cmp_ok scalar(@seen), '>', 0, "$algorithm: requests were refused from the cache";
        # Never later than in Redis. Both are rounded up to whole seconds.
        is scalar(grep { $_->[0] > 1 || $_->[0] < -1 - $_->[4] } @seen), 0, 'the reset equals that of Redis';
        is scalar(grep { $_->[1] < $_->[2] - 1 || $_->[1] > $_->[3] + 1 } @seen), 0, 'Retry-After counts down'
            or diag explain [grep { $_->[1] < $_->[2] - 1 || $_->[1] > $_->[3] + 1 } @seen];
        cmp_ok time - $asked, '>', $wait - 1.1, 'the key was not admitted before Retry-After';
        $watch->within($wait + 2, 'nor long after it');
    }
};

subtest 'after a refusal a smaller cost is checked in Redis, an equal or larger one is not' => sub {
    my $node = cached_node(zone => 'rate=10r/d algorithm=sliding_window_log', limit => 'cost=$arg_c');
    is decision($node, '/?c=6'), '200 redis';
    is decision($node, '/?c=5'), '429 redis';
    # A cost above the smallest refused one is cached for a second at most.
    my $cached = sub {
        my ($what, @costs) = @_;
        for my $cost (@costs) {
            wait_until("$cost is refused from the cache$what", sub { decision($node, "/?c=$cost") eq '429 cache' });
        }
    };
    $cached->('', 5, 6, 10, 11, 1_000_000);
    is decision($node, '/?c=1'), '200 redis', 'a smaller cost may still fit';
    is decision($node, '/?c=5'), '429 redis', 'and its success invalidates the cached refusal';
    is decision($node, '/?c=4'), '429 redis';
    $cached->(' again', 4, 5);
    is decision($node, '/?c=0'), '200 redis', 'cost=0 always goes to Redis';
    is remaining($node, '/?c=0'), 3;
    is $node->get('/?c=11')->header('Retry-After'), undef, 'a cost that never fits has no Retry-After';
    isnt $node->get('/?c=10')->header('Retry-After'), undef;
    is decision($node, '/?c=11&k=dear'), '429 redis', 'a cost above the capacity is refused';
    is decision($node, '/?c=12&k=dear'), '429 redis', 'its refusal is not cached';
    is decision($node, '/?c=10&k=dear'), '200 redis', 'and does not affect smaller costs';
};

subtest 'Retry-After of a cached refusal is right after cheaper requests have passed' => sub {
    for my $algorithm (qw(gcra token_bucket)) {
        # A cost of 1 takes 600 s to refill.
        my $node = cached_node(zone => "rate=6r/h algorithm=$algorithm burst=" . ($algorithm eq 'gcra' ? 9 : 10),
            limit => 'cost=$arg_c', server => $algorithm eq 'gcra'
            ? 'location = /few { ratelimit zone=test burst=4; try_files /index.html =404; }' : '');
        my $retry = sub {
            my ($low, $high, $path, $what) = @_;
            my $answer = $node->get($path);
            is $answer->status, 429, "$algorithm: $what";
            my $time = $answer->header('Retry-After');
            ok $time >= $low && $time <= $high, 'Retry-After' or diag $time;
            return $answer->header('X-RateLimit-Remaining');
        };
        is $node->status('/?c=5'), 200;
        is $retry->(540, 600, '/?c=6', 'refused'), 5;
        is $node->status('/?c=1'), 200, 'a cheaper request passes' for 1 .. 4;
        is $retry->(2940, 3000, '/?c=6', 'the expensive one waits longer'), 1;
        next if $algorithm ne 'gcra';
        is $node->status('/?c=5&k=two'), 200;
        is decision($node, '/few?k=two'), '429 redis', 'the smaller burst refuses';
        is $node->status('/?c=4&k=two'), 200, 'the larger burst admits';
        is decision($node, '/few?k=two'), '429 redis', 'the smaller burst is checked again';
    }
};

subtest 'a refusal is cached for its own quota, window and burst only' => sub {
    my $node = cached_node(zone => 'rate=$arg_r algorithm=fixed_window',
        http => 'ratelimit_zone b$arg_k zone=bursts rate=1r/d algorithm=gcra burst=1;',
        server => 'location /few { ratelimit zone=bursts; try_files /index.html =404; }'
            . 'location /more { ratelimit zone=bursts burst=4; try_files /index.html =404; }');
    is_deeply [map { decision($node, '/?r=2r/d') } 1 .. 3], [('200 redis') x 2, '429 redis'];
    is decision($node, '/?r=1r/d'), '429 redis', 'quota';
    # Each is remembered for a second at most.
    ok eval {
        wait_until('both', sub { 2 == grep { $_ eq '429 cache' } (map { decision($node, "/?r=${_}r/d") } 1, 2, 1, 2)[2, 3] });
        1;
    }, 'each quota has its own refusal';
    is decision($node, '/?r=3r/d'), '200 redis', 'quota';
    is decision($node, '/?r=2r/d'), '429 redis', 'an admitted request of the key clears the others';
    # Not an hour: in the first hour of a day both windows would have the same start.
    is decision($node, '/?r=2r/1007s'), '200 redis', 'window';
    is_deeply [map { decision($node, '/few') } 1 .. 3], [('200 redis') x 2, '429 redis'];
    ok eval { wait_until('a memory', sub { decision($node, '/few') eq '429 cache' }); 1 }, 'few';
    is decision($node, '/more'), '200 redis', 'burst';
};

subtest 'with cache=off every request is checked in Redis' => sub {
    my $node = cached_node(zone => 'rate=1r/d cache=off');
    is decision($node, '/'), '200 redis';
    is checks_during($node->{redis}, sub { is decision($node, '/'), '429 redis' for 1 .. 5 }), 5;
};

subtest 'cached refusals survive a reload, unless it changes what they depend on' => sub {
    my ($redis, $other) = (redis(), redis());
    my $zone = 'rate=2r/d algorithm=fixed_window';
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = cached_node(redis => $redis, zone => $zone, workers => 2, environment => $clock->environment);
    my $reload_with = sub {
        my (%new) = @_;
        my %options = (redis => $redis, zone => $zone, %new);
        $node->configure(http => Ratelimit::Test::http_lines(%options));
        $node->reload(gone => 1);
    };
    is_deeply [map { decision($node, '/') } 1 .. 3], [('200 redis') x 2, '429 redis'];
    my $set_back = time_stops($clock);
    is decision($node, '/'), '429 cache';
    $reload_with->();
    $set_back->();
    is decision($node, '/'), '429 cache', 'the same configuration' for 1 .. 3;
    for (
        ['rate',   '200 redis', zone  => 'rate=9r/d algorithm=fixed_window'],
        ['window',        '200 redis', zone  => 'rate=2r/1007s algorithm=fixed_window'],
        ['algorithm',    '200 redis', zone  => 'rate=2r/d algorithm=gcra burst=1'],
        ['clock',         '429 redis', zone  => "$zone clock=local"],
        ['prefix',        '200 redis', block => 'prefix other:;'],
        ['database',      '200 redis', block => 'database 3;'],
        ['server',        '200 redis', redis => $other],
        ['server list', undef,       block => 'server ' . $other->addr . ';'],
    ) {
        my ($what, $expected, @new) = @{$_};
        my $start = 1_000_000 * 86_400 * int(time / 86_400);
        $redis->cmd('SET', 'rl:test:{k}', pack('d<2V', $start, 2, 86_400), 'EX', 86_400);
        $reload_with->();
        like decision($node, '/'), qr/^429/, 'the key is refused';
        $reload_with->(@new);
        my $decision = decision($node, '/');
        is $decision, $expected, "another $what: the decision is new" if $expected;
        like $decision, qr/redis$/, "another $what: Redis decides";
    }
    $reload_with->(zone => "$zone cache=off");
    is decision($node, '/'), '429 redis', 'cache=off';
};

subtest 'full memory evicts the least recently used keys, and fails no request' => sub {
    my $redis = redis();
    my $long = 'y' x 110;
    my $node = nginx(level => 'notice', http => <<"END", server => <<'END');
        ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }
        ratelimit_zone \$arg_k zone=test:32k rate=1r/d algorithm=fixed_window;
        keepalive_requests 100000;
END
        location / { ratelimit zone=test; ratelimit_log_level info; try_files /index.html =404;
            add_header X-Source $ratelimit_source always; }
END
    my $socket = http_connect($node->port);
    my $decision = sub {
        http_send($socket, "/?k=$_[0]");
        my $answer = http_read($socket);
        return $answer->status . ' ' . $answer->header('X-Source');
    };
    my @hot = ('hot', "hot$long", 'h' x 24, 'h' x 25);
    my (%seen, $evicted, %asked);    # %asked: until when Redis was asked of a hot key
    for my $key (@hot) {
        $asked{$key} = time;
        is $decision->($key), $_ for '200 redis', '429 redis', '429 cache';
    }
    for my $i (1 .. 1500) {
        my $key = "k$i" . ($i % 3 ? '' : $long);
        $seen{ join ', ', map { $decision->($key) } 1 .. 3 }++;
        next if $i % 10;
        for my $hot (@hot) {
            my ($before, $of_hot) = (time, $decision->($hot));
            next if $of_hot eq '429 cache';
            # Remembered for five seconds at most: on a slow machine these end.
            $evicted //= "$hot at $i: $of_hot" if $of_hot ne '429 redis' || time - $asked{$hot} < 4.9;
            $asked{$hot} = $before;
        }
    }
    is_deeply \%seen, { '200 redis, 429 redis, 429 cache' => 1500 };
    is $evicted, undef, 'hot keys stay cached';
    is $decision->('k1'), '429 redis', 'cold keys are evicted';
    is $node->log =~ s/^.*\[(?:notice|info)\].*\n//gmr, '', 'nothing else is logged';
};

subtest 'dry run and shadow limits use the cache, and never refuse' => sub {
    my $node = cached_node(
        zone   => 'rate=1r/d algorithm=fixed_window',
        http   => 'ratelimit_zone k$arg_k zone=wide rate=100r/d algorithm=fixed_window;',
        server => 'location /dry { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }'
            . 'location /shadow { ratelimit zone=test shadow; ratelimit zone=wide; try_files /index.html =404; }'
            . 'location /wide { ratelimit zone=wide cost=0; try_files /index.html =404; }',
    );
    is_deeply [map { decision($node, '/') } 1 .. 2], ['200 redis', '429 redis'];
    is checks_during($node->{redis}, sub { is decision($node, '/dry'), '200 cache' for 1 .. 3 }), 0;
    is $node->get('/dry')->header('X-Status'), 'REJECTED_DRY_RUN';
    is decision($node, '/shadow'), '200 redis' for 1 .. 3;
    is remaining($node, '/wide'), 97, 'the enforced limit still counts';
    is $node->get('/shadow')->header('X-RateLimit-Limit'), 100, 'and sets the headers';
};

subtest 'with several limits, a cached refusal of one counts nothing in any' => sub {
    my $node = cached_node(
        zone     => 'rate=2r/d algorithm=fixed_window',
        http     => 'ratelimit_zone w$arg_k zone=wide rate=100r/d algorithm=fixed_window;',
        location => 'ratelimit zone=wide; ratelimit_headers x-ratelimit draft;',
        server   => 'location /wide { ratelimit zone=wide cost=0; try_files /index.html =404; }',
    );
    is_deeply [map { decision($node, '/') } 1 .. 3], ['200 redis', '200 redis', '429 redis'];
    my $answer;
    is checks_during($node->{redis}, sub { $answer = $node->get('/') for 1 .. 5 }), 0;
    is $answer->header('X-Source'), 'cache';
    is $answer->header('X-RateLimit-Limit'), 2, 'the headers are the refusing limit\'s';
    is $answer->header('X-RateLimit-Remaining'), 0;
    like $answer->header('RateLimit'), qr/^"test";r=0;t=\d+$/;
    cmp_ok $answer->header('Retry-After'), '>', 0;
    is remaining($node, '/wide'), 98, 'the other limit has counted the admitted requests only';
};

subtest 'cached refusals hold while Redis is unavailable, and are dropped when it returns' => sub {
    my $redis = redis();
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = cached_node(redis => $redis, zone => 'rate=1r/d', workers => 2, environment => $clock->environment);
    $node->wait_for_log(qr/is up/, 2);    # both workers
    is_deeply [map { decision($node, '/?k=held') } 1 .. 2], ['200 redis', '429 redis'];
    my $set_back = time_stops($clock);
    is decision($node, '/?k=held'), '429 cache';
    $redis->stop('KILL');
    $node->wait_for_log(qr/is away/, 2);
    $set_back->();
    is decision($node, '/?k=held'), '429 cache', 'a cached key' for 1 .. 5;
    is $node->get('/?k=other')->header('X-Status'), 'FAILED_OPEN', 'another key';
    $redis->start;
    $node->wait_for_log(qr/is up/, 4);
    $set_back->();
    is_deeply [map { decision($node, '/?k=held') } 1 .. 3], ['200 redis', '429 redis', '429 cache'],
        'the restarted Redis, which has no data, decides';
};

subtest 'on a ring, a server\'s return drops its own cached refusals only' => sub {
    my @servers = map { redis() } 1 .. 2;
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = cached_node(redis => $servers[0], zone => 'rate=1r/d',
        block => 'server ' . $servers[1]->addr . ';', environment => $clock->environment);
    my %key_on;
    for my $key (1 .. 20) {
        decision($node, "/?k=$key");
        $key_on{ $servers[0]->cmd('EXISTS', "rl:test:{k$key}") ? 0 : 1 } = $key;
    }
    my @paths = map { "/?k=$key_on{$_}" } 0, 1;
    is_deeply [map { decision($node, $_) } @paths], [('429 redis') x 2];
    my $set_back = time_stops($clock);
    is_deeply [map { decision($node, $_) } @paths], [('429 cache') x 2];
    $_->stop('KILL') for @servers;
    $node->wait_for_log(qr/is away/, 2);
    for my $i (0, 1) {
        $set_back->();
        is decision($node, $paths[$i]), '429 cache', 'cached while its server is unavailable';
        $servers[$i]->start;
        $node->wait_for_log(qr/at \Q@{[ $servers[$i]->addr ]}\E is up/, 2);
        $set_back->();
        is decision($node, $paths[$i]), '200 redis', 'Redis decides when its server is up again';
    }
};

subtest 'a key whose request was refunded is not refused for long' => sub {
    my @servers = map { redis() } 1 .. 2;
    my $zones = 'ratelimit_zone b$arg_b zone=other rate=1r/d algorithm=fixed_window cache=off;';
    my ($node, $elsewhere) = map {
        cached_node(redis => $servers[0], zone => 'rate=1r/d algorithm=fixed_window', timeout => '60s',
            block => 'server ' . $servers[1]->addr . ';', http => $zones,
            server => 'location = /two { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }'
                . 'location = /other { ratelimit zone=other; try_files /index.html =404; }')
    } 1 .. 2;
    for my $key (1 .. 20) { decision($node, "/?k=$key"); decision($node, "/other?b=$key") }
    my ($here)  = grep { $servers[0]->cmd('EXISTS', "rl:test:{k$_}") } 1 .. 20;
    my ($there) = grep { $servers[1]->cmd('EXISTS', "rl:other:{b$_}") } 1 .. 20;
    $servers[0]->cmd('FLUSHALL');

    # The other limit refuses, but only after two nodes have been refused because of this request.
    $servers[1]->pause;
    my $socket = http_connect($node->port);
    http_send($socket, "/two?k=$here&b=$there", close => 1);
    wait_until('the request is counted', sub { $servers[0]->cmd('EXISTS', "rl:test:{k$here}") });
    is decision($_, "/?k=$here"), '429 redis' for $node, $elsewhere;
    # For a second at most.
    ok wait_until('a memory', sub { decision($_, "/?k=$here") eq '429 cache' }), 'the refusal is cached' for $node, $elsewhere;
    my $watch = stopwatch();
    $servers[1]->resume;
    is http_read($socket)->status, 429, 'the other limit refuses';
    wait_until('the request is refunded',
        sub { (unpack 'd<2', $servers[0]->cmd('GET', "rl:test:{k$here}"))[1] == 0 });
    is decision($node, "/peek?k=$here"), '200 redis';
    wait_until('the other node checks in Redis again', sub { decision($elsewhere, "/?k=$here") eq '200 redis' });
    $watch->within(4, 'within seconds, not at the end of the day');
};

finish();

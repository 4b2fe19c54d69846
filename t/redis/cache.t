# The denial cache: who is known to be refused is refused without Redis, for as long as Redis would.

use Ratelimit::Test;
use Time::HiRes qw(time);

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

# As node() of the library, with who decided in a header.
sub cached_node {
    my (%options) = @_;
    $options{server} = 'add_header X-Source $ratelimit_source always;'
        . 'add_header X-Status $ratelimit_status always;' . ($options{server} // '');
    return node(%options);
}

# A request's status and who decided: "429 cache".
sub told {
    my ($node, $path) = @_;
    my $answer = $node->get($path);
    return $answer->status . ' ' . ($answer->header('X-Source') // '-');
}

# Runs the code; returns how many checks Redis got.
sub asked_by {
    my ($redis, $code) = @_;
    my $before = $redis->calls('evalsha');
    $code->();
    return $redis->calls('evalsha') - $before;
}

sub remaining { my ($node, $path) = @_; return $node->get($path)->header('X-RateLimit-Remaining') }

subtest 'a flood that is refused does not reach redis, whichever worker it meets' => sub {
    for my $algorithm (@algorithms) {
        my $node = cached_node(zone => "rate=3r/d algorithm=$algorithm "
                . ($algorithm =~ /gcra|leaky/ ? 'burst=2' : ''),
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '', workers => 2);
        is_deeply [map { told($node, '/') } 1 .. 5],
            [('200 redis') x 3, '429 redis', '429 cache'], $algorithm;
        my @statuses;
        is asked_by($node->{redis}, sub { @statuses = burst($node->port, '/', 500, 50) }), 0,
            'redis hears nothing of 500 more';
        is scalar(grep { $_ == 429 } @statuses), 500, 'which are refused';
        is told($node, '/?k=other'), '200 redis', 'others are asked for';
    }
};

subtest 'headers of what is refused count down, and time frees the key' => sub {
    for my $algorithm (@algorithms) {
        my $node = cached_node(zone => "rate=2r/4s algorithm=$algorithm "
                . ($algorithm =~ /gcra|leaky/ ? 'burst=1' : ''),
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '');
        my ($answer, @seen);
        wait_until('it is refused for some seconds', sub {
            $answer = $node->get('/');
            return $answer->status == 429 && $answer->header('Retry-After') >= 2;
        }, 20);
        my ($began, $wait) = (time, $answer->header('Retry-After'));
        wait_until('it passes', sub {
            my $peek = $node->get('/peek')->header('X-RateLimit-Reset');
            my $early = time;
            $answer = $node->get('/');
            my $late = time;
            push @seen, [$answer->header('X-RateLimit-Reset') - $peek, $answer->header('Retry-After'),
                $wait - ($late - $began), $wait - ($early - $began)]
                if ($answer->header('X-Source') // '') eq 'cache';
            return $answer->status == 200;
        }, 20);
        cmp_ok scalar(@seen), '>', 3, "$algorithm: it was refused from the cache";
        # Never later than Redis; rounded up to whole seconds, as the first one was.
        is scalar(grep { $_->[0] > 1 || $_->[0] < -1 } @seen), 0, 'the reset is what redis says';
        is scalar(grep { $_->[1] < $_->[2] - 1 || $_->[1] > $_->[3] + 1 } @seen), 0, 'Retry-After goes down'
            or diag explain [grep { $_->[1] < $_->[2] - 1 || $_->[1] > $_->[3] + 1 } @seen];
        cmp_ok time - $began, '>', $wait - 1.1, 'not before its time';
        cmp_ok time - $began, '<', $wait + 2, 'nor long after';
    }
};

subtest 'a smaller cost is asked for, an equal or larger one is not' => sub {
    my $node = cached_node(zone => 'rate=10r/d algorithm=sliding_window_log', limit => 'cost=$arg_c');
    is told($node, '/?c=6'), '200 redis';
    is told($node, '/?c=5'), '429 redis';
    # A larger cost than the least is remembered for a second at most.
    my $cached = sub {
        my ($what, @costs) = @_;
        for my $cost (@costs) {
            wait_until("$cost is refused from the cache$what", sub { told($node, "/?c=$cost") eq '429 cache' });
        }
    };
    $cached->('', 5, 6, 10, 11, 1_000_000);
    is told($node, '/?c=1'), '200 redis', 'less may be there';
    is told($node, '/?c=5'), '429 redis', 'and leaves less than was remembered';
    is told($node, '/?c=4'), '429 redis';
    $cached->(' again', 4, 5);
    is told($node, '/?c=0'), '200 redis', 'a look is always redis\'s';
    is remaining($node, '/?c=0'), 3;
    is $node->get('/?c=11')->header('Retry-After'), undef, 'never is never';
    isnt $node->get('/?c=10')->header('Retry-After'), undef;
    is told($node, '/?c=11&k=dear'), '429 redis', 'more than the limit can hold';
    is told($node, '/?c=12&k=dear'), '429 redis', 'is not remembered';
    is told($node, '/?c=10&k=dear'), '200 redis', 'and stands in nobody\'s way';
};

subtest 'what is told of a remembered refusal is true after others have passed' => sub {
    for my $algorithm (qw(gcra token_bucket)) {
        # One request of cost 1 is 10 s.
        my $node = cached_node(zone => "rate=6r/m algorithm=$algorithm burst=" . ($algorithm eq 'gcra' ? 9 : 10),
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
        is $retry->(6, 10, '/?c=6', 'refused') , 5;
        is $node->status('/?c=1'), 200, 'a cheaper one passes' for 1 .. 4;
        is $retry->(40, 50, '/?c=6', 'the dearer one hears of it'), 1;
        next if $algorithm ne 'gcra';
        is $node->status('/?c=5&k=two'), 200;
        is told($node, '/few?k=two'), '429 redis', 'refused under another burst';
        is $node->status('/?c=4&k=two'), 200, 'it passes under the larger one';
        is told($node, '/few?k=two'), '429 redis', 'and the other hears of it';
    }
};

subtest 'another quota, window or burst is another limit' => sub {
    my $node = cached_node(zone => 'rate=$arg_r algorithm=fixed_window',
        http => 'ratelimit_zone b$arg_k zone=bursts rate=1r/d algorithm=gcra burst=1;',
        server => 'location /few { ratelimit zone=bursts; try_files /index.html =404; }'
            . 'location /more { ratelimit zone=bursts burst=4; try_files /index.html =404; }');
    is_deeply [map { told($node, '/?r=2r/d') } 1 .. 4], [('200 redis') x 2, '429 redis', '429 cache'];
    is told($node, '/?r=1r/d'), '429 redis', 'quota';
    is told($node, '/?r=2r/d'), '429 cache', 'each is remembered by itself';
    is told($node, '/?r=3r/d'), '200 redis', 'quota';
    is told($node, '/?r=2r/d'), '429 redis', 'and is forgotten when the key is let in';
    # Not an hour: in the day's first one both windows have begun at the same time.
    is told($node, '/?r=2r/1007s'), '200 redis', 'window';
    is_deeply [map { told($node, '/few') } 1 .. 4], [('200 redis') x 2, '429 redis', '429 cache'];
    is told($node, '/more'), '200 redis', 'burst';
};

subtest 'cache=off asks each time' => sub {
    my $node = cached_node(zone => 'rate=1r/d cache=off');
    is told($node, '/'), '200 redis';
    is asked_by($node->{redis}, sub { is told($node, '/'), '429 redis' for 1 .. 5 }), 5;
};

subtest 'what is known survives a reload, if it means the same afterwards' => sub {
    my ($redis, $other) = (redis(), redis());
    my $zone = 'rate=2r/d algorithm=fixed_window';
    my $node = cached_node(redis => $redis, zone => $zone, workers => 2);
    my $become = sub {
        my (%new) = @_;
        my %options = (redis => $redis, zone => $zone, %new);
        $node->configure(http => Ratelimit::Test::http_lines(%options));
        $node->reload(gone => 1);
    };
    is_deeply [map { told($node, '/') } 1 .. 4], [('200 redis') x 2, '429 redis', '429 cache'];
    $become->();
    is told($node, '/'), '429 cache', 'with the same configuration' for 1 .. 3;
    for (
        ['a larger rate',   '200 redis', zone  => 'rate=9r/d algorithm=fixed_window'],
        ['a window',        '200 redis', zone  => 'rate=2r/1007s algorithm=fixed_window'],
        ['an algorithm',    '200 redis', zone  => 'rate=2r/d algorithm=gcra burst=1'],
        ['a clock',         '429 redis', zone  => "$zone clock=local"],
        ['a prefix',        '200 redis', block => 'prefix other:;'],
        ['a database',      '200 redis', block => 'database 3;'],
        ['a server',        '200 redis', redis => $other],
        ['a second server', undef,       block => 'server ' . $other->addr . ';'],
    ) {
        my ($what, $expected, @new) = @{$_};
        my $start = 1_000_000 * 86_400 * int(time / 86_400);
        $redis->cmd('SET', 'rl:test:{k}', pack('d<2V', $start, 2, 86_400), 'EX', 86_400);
        $become->();
        like told($node, '/'), qr/^429/, 'it is refused';
        $become->(@new);
        my $told = told($node, '/');
        is $told, $expected, "$what that is another makes it void" if $expected;
        like $told, qr/redis$/, "$what: redis is asked";
    }
    $become->(zone => "$zone cache=off");
    is told($node, '/'), '429 redis', 'cache=off';
};

subtest 'full memory forgets the keys that were not asked for longest, and fails no request' => sub {
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
    my $told = sub {
        http_send($socket, "/?k=$_[0]");
        my $answer = http_read($socket);
        return $answer->status . ' ' . $answer->header('X-Source');
    };
    my @hot = ('hot', "hot$long", 'h' x 24, 'h' x 25);
    for my $key (@hot) { is $told->($key), $_ for '200 redis', '429 redis', '429 cache' }
    my (%seen, $forgotten);
    for my $i (1 .. 1500) {
        my $key = "k$i" . ($i % 3 ? '' : $long);
        $seen{ join ', ', map { $told->($key) } 1 .. 3 }++;
        next if $i % 10;
        for my $hot (@hot) { $forgotten //= "$hot at $i" if $told->($hot) ne '429 cache' }
    }
    is_deeply \%seen, { '200 redis, 429 redis, 429 cache' => 1500 };
    is $forgotten, undef, 'hot keys stay';
    is $told->('k1'), '429 redis', 'cold ones go';
    is $node->log =~ s/^.*\[(?:notice|info)\].*\n//gmr, '', 'the log has nothing to say';
};

subtest 'dry run and shadow limits know it too, and refuse nobody' => sub {
    my $node = cached_node(
        zone   => 'rate=1r/d algorithm=fixed_window',
        http   => 'ratelimit_zone k$arg_k zone=wide rate=100r/d algorithm=fixed_window;',
        server => 'location /dry { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }'
            . 'location /shadow { ratelimit zone=test shadow; ratelimit zone=wide; try_files /index.html =404; }'
            . 'location /wide { ratelimit zone=wide cost=0; try_files /index.html =404; }',
    );
    is_deeply [map { told($node, '/') } 1 .. 2], ['200 redis', '429 redis'];
    is asked_by($node->{redis}, sub { is told($node, '/dry'), '200 cache' for 1 .. 3 }), 0;
    is $node->get('/dry')->header('X-Status'), 'REJECTED_DRY_RUN';
    is told($node, '/shadow'), '200 redis' for 1 .. 3;
    is remaining($node, '/wide'), 97, 'the enforced limit counts on';
    is $node->get('/shadow')->header('X-RateLimit-Limit'), 100, 'and speaks';
};

subtest 'where one of several limits is known to refuse, nothing is counted anywhere' => sub {
    my $node = cached_node(
        zone     => 'rate=2r/d algorithm=fixed_window',
        http     => 'ratelimit_zone w$arg_k zone=wide rate=100r/d algorithm=fixed_window;',
        location => 'ratelimit zone=wide; ratelimit_headers x-ratelimit draft;',
        server   => 'location /wide { ratelimit zone=wide cost=0; try_files /index.html =404; }',
    );
    is_deeply [map { told($node, '/') } 1 .. 3], ['200 redis', '200 redis', '429 redis'];
    my $answer;
    is asked_by($node->{redis}, sub { $answer = $node->get('/') for 1 .. 5 }), 0;
    is $answer->header('X-Source'), 'cache';
    is $answer->header('X-RateLimit-Limit'), 2, 'the headers are the refusing limit\'s';
    is $answer->header('X-RateLimit-Remaining'), 0;
    like $answer->header('RateLimit'), qr/^"test";r=0;t=\d+$/;
    cmp_ok $answer->header('Retry-After'), '>', 0;
    is remaining($node, '/wide'), 98, 'the other has counted what passed';
};

subtest 'while redis is away known refusals stay; when it is back they are forgotten' => sub {
    my $redis = redis();
    my $node = cached_node(redis => $redis, zone => 'rate=1r/d', workers => 2);
    is_deeply [map { told($node, '/') } 1 .. 3], ['200 redis', '429 redis', '429 cache'];
    $redis->stop('KILL');
    $node->wait_for_log(qr/is away/, 2);
    is told($node, '/'), '429 cache', 'a known key' for 1 .. 5;
    is $node->get('/?k=other')->header('X-Status'), 'FAILED_OPEN', 'another';
    $redis->start;
    $node->wait_for_log(qr/is up/, 4);
    is_deeply [map { told($node, '/') } 1 .. 3], ['200 redis', '429 redis', '429 cache'],
        'it has lost what it knew';
};

subtest 'what a server of a ring refused is forgotten when that server was away, and no other refusal' => sub {
    my @servers = map { redis() } 1 .. 2;
    my $node = cached_node(redis => $servers[0], zone => 'rate=1r/d',
        block => 'server ' . $servers[1]->addr . ';');
    my %server_of;
    for my $key (1 .. 20) {
        told($node, "/?k=$key") for 1 .. 2;
        $server_of{$key} = $servers[0]->cmd('EXISTS', "rl:test:{k$key}") ? 0 : 1;
        is told($node, "/?k=$key"), '429 cache';
    }
    my @keys = map { my $i = $_; (grep { $server_of{$_} == $i } 1 .. 20)[0] } 0, 1;
    $_->stop('KILL') for @servers;
    $node->wait_for_log(qr/is away/, 2);
    for my $i (0, 1) {
        is told($node, "/?k=$keys[$i]"), '429 cache', 'remembered while its server is away';
        $servers[$i]->start;
        $node->wait_for_log(qr/at \Q@{[ $servers[$i]->addr ]}\E is up/, 2);
        is told($node, "/?k=$keys[$i]"), '200 redis', 'Redis decides when its server is up again';
    }
};

subtest 'a key whose take is given back is not refused for long' => sub {
    my @servers = map { redis() } 1 .. 2;
    my $zones = 'ratelimit_zone b$arg_b zone=other rate=1r/d algorithm=fixed_window cache=off;';
    my ($node, $elsewhere) = map {
        cached_node(redis => $servers[0], zone => 'rate=1r/d algorithm=fixed_window',
            block => 'server ' . $servers[1]->addr . ';', http => $zones,
            server => 'location = /two { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }'
                . 'location = /other { ratelimit zone=other; try_files /index.html =404; }')
    } 1 .. 2;
    for my $key (1 .. 20) { told($node, "/?k=$key"); told($node, "/other?b=$key") }
    my ($here)  = grep { $servers[0]->cmd('EXISTS', "rl:test:{k$_}") } 1 .. 20;
    my ($there) = grep { $servers[1]->cmd('EXISTS', "rl:other:{b$_}") } 1 .. 20;
    $servers[0]->cmd('FLUSHALL');

    # The other limit refuses, but not before somebody else has met what the request took of the first.
    $servers[1]->pause;
    my $socket = http_connect($node->port);
    http_send($socket, "/two?k=$here&b=$there", close => 1);
    wait_until('it has taken', sub { $servers[0]->cmd('EXISTS', "rl:test:{k$here}") });
    is told($_, "/?k=$here"), '429 redis' for $node, $elsewhere;
    is told($_, "/?k=$here"), '429 cache', 'is remembered' for $node, $elsewhere;
    my $began = time;
    $servers[1]->resume;
    is http_read($socket)->status, 429, 'it is refused';
    wait_until('what it took is given back',
        sub { (unpack 'd<2', $servers[0]->cmd('GET', "rl:test:{k$here}"))[1] == 0 });
    is told($node, "/peek?k=$here"), '200 redis';
    wait_until('redis is asked again', sub { told($elsewhere, "/?k=$here") eq '200 redis' });
    cmp_ok time - $began, '<', 4, 'within a second or so, and not in a day';
};

finish();

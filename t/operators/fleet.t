# The fleet in the API: ten nodes, zones summed, settings that differ, busiest keys, Redis away, hostile values.

use Ratelimit::Fleet;
use Ratelimit::Http qw(http_connect http_read http_send);
use Ratelimit::Test;
use JSON::PP qw(decode_json encode_json);
use List::Util qw(sum0);
use Time::HiRes qw(time);

# The answer of /fleet.
sub fleet {
    my ($node) = @_;
    my $answer = $node->get('/ops/fleet');
    is $answer->status, 200, '/fleet';
    return decode_json($answer->body);
}

# Waits until /fleet of the node satisfies the condition; returns it.
sub fleet_where {
    my ($node, $what, $condition) = @_;
    return wait_until($what, sub {
        my $answer = $node->get('/ops/fleet');
        my $fleet = $answer->status == 200 ? decode_json($answer->body) : return;
        return $condition->($fleet) ? $fleet : undef;
    });
}

sub named { my ($fleet, $name) = @_; return (grep { $_->{name} eq $name } @{ $fleet->{nodes} })[0] }
sub zone_in { my ($fleet, $name) = @_; return (grep { $_->{name} eq $name } @{ $fleet->{zones} })[0] }

subtest 'a ring whose servers are listed in another order is the same' => sub {
    my @redis = map { redis() } 1 .. 3;
    my @lines = map { 'server ' . $_->addr } @redis;
    my $of = sub {
        my ($name, $servers) = @_;
        return member(redis => $redis[0], zone => 'rate=3r/d redis=main', fleet => "node=$name redis=main",
            http => "ratelimit_redis ring { $servers } ratelimit_zone \$arg_k zone=ringed redis=ring rate=9r/m;");
    };
    my @nodes = ($of->('a', "$lines[1] weight=2; $lines[2];"), $of->('b', "$lines[2]; $lines[1] weight=2;"), $of->('c', "$lines[1]; $lines[2];"));
    my $zone = zone_in(fleet_where($nodes[0], 'three nodes', sub { my $zone = zone_in($_[0], 'ringed'); $zone && $zone->{nodes} == 3 }), 'ringed');
    is_deeply $zone->{differences}, [{ setting => 'redis', differ => 1, nodes => ['c'] }], 'only other weights are another ring';
};

subtest 'ten nodes: each is shown, zones and busiest keys are sums' => sub {
    my $redis = redis();
    my @nodes = map {
        my $rate = $_ == 7 ? '5r/d' : '3r/d';
        member(redis => $redis, zone => $rate eq '5r/d' ? 'rate=5r/d' : 'rate=3r/d', key => '$arg_k', fleet => "node=edge-$_",
            http => 'ratelimit_zone $arg_k zone=same rate=9r/m ahead=2;' . ($_ < 4 ? 'ratelimit_zone $arg_k zone=few rate=1r/s;' : ''))
    } 1 .. 10;
    # Together 3 or 5 requests of each key pass; the others are refused.
    for my $node (@nodes) { $node->status('/?k=busy') for 1 .. 4 }
    $nodes[4]->status('/?k=quiet') for 1 .. 6;
    my $shown = fleet_where($nodes[2], 'ten nodes with all counters, also in the history', sub {
        my $zone = zone_in($_[0], 'test');
        return $_[0]{fleet}{nodes} == 10 && $zone && $zone->{passed} + $zone->{refused} == 46
            && sum0(map { @{ $_[0]{history}{$_} } } qw(passed refused)) == 46;
    });
    is_deeply [sort map { $_->{name} } @{ $shown->{nodes} }], [sort map { "edge-$_" } 1 .. 10];
    my $fleet = $shown->{fleet};
    is_deeply [@{$fleet}{qw(known redis connected overrides overrides_left_out unreadable)}],
        [10, 'main', JSON::PP::true, 0, 0, 0];
    cmp_ok abs($fleet->{as_of} - time), '<', 5, 'the time is Redis\'s';
    is scalar(grep { $_->{self} } @{ $shown->{nodes} }), 1, 'one node is this one';
    ok named($shown, 'edge-3')->{self}, 'the one that was asked';
    for my $node (@{ $shown->{nodes} }) {
        like $node->{version}, qr/^\d+\.\d+/;
        like $node->{nginx}, qr/^1\.\d+\.\d+/;
        cmp_ok $node->{uptime}, '<', time - $^T + 1;
        ok $node->{live}, "$node->{name} lives";
        is_deeply [map { [@{$_}{qw(redis server state workers_up workers)}] } @{ $node->{redis} }],
            [['main', $redis->addr, 'up', 1, 1]], 'and sees Redis';
    }
    my $zone = zone_in($shown, 'test');
    is_deeply $zone->{settings_differ}, ['edge-7'], 'the node with another rate is named';
    is_deeply $zone->{differences}, [{ setting => 'rate', differ => 1, nodes => ['edge-7'] }], 'and the setting';
    is $zone->{differ}, 1;
    is $zone->{settings}, (grep { $_->{name} eq 'test' } @{ named($shown, 'edge-1')->{zones} })[0]{settings}, 'the digest of most';
    is $zone->{highest_use}, 100, 'a key was refused';
    is_deeply [sort @{ $zone->{limits} }], ['3r/d', '5r/d'];
    is $zone->{nodes}, 10;
    is_deeply [@{ zone_in($shown, 'same') }{qw(nodes settings_differ passed ahead)}], [10, [], 0, 20],
        'what may pass beyond its limit: 2 for each worker';
    is $zone->{ahead}, 0;
    is zone_in($shown, 'few')->{nodes}, 3, 'a zone that some nodes have';
    my ($busy, $quiet) = @{ $shown->{busiest} };
    is_deeply [@{$busy}{qw(zone key id)}], ['test', 'busy', 'busy'];
    is_deeply [@{$quiet}{qw(zone key)}], ['test', 'quiet'];
    cmp_ok $busy->{refused}, '>', 30, 'the sum of all nodes';
    is $busy->{refused} + $quiet->{refused}, $zone->{refused};
};

subtest 'a node that dies is shown as away, and its zones are no longer summed' => sub {
    my $redis = redis();
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=3r/d', fleet => "node=edge-$_") } 1 .. 2;
    fleet_where($first, 'two nodes', sub { $_[0]{fleet}{nodes} == 2 });
    my @workers = $second->workers;
    $second->stop('KILL');
    kill KILL => @workers;
    my $shown = fleet_where($first, 'one node', sub { $_[0]{fleet}{nodes} == 1 });
    is $shown->{fleet}{known}, 2;
    my $away = named($shown, 'edge-2');
    ok !$away->{live};
    cmp_ok $shown->{fleet}{as_of} - $away->{heard}, '>', 5;
    is zone_in($shown, 'test')->{nodes}, 1;
    $second->start;
    $shown = fleet_where($first, 'it is started again', sub { $_[0]{fleet}{nodes} == 2 });
    is_deeply [sort map { $_->{name} } @{ $shown->{nodes} }], ['edge-1', 'edge-2'], 'it is shown once';
};

# "edge-1 live, edge-2 away": all that the page shows, by name.
sub rows {
    my ($fleet) = @_;
    return join ', ', sort map { "$_->{name} " . ($_->{live} ? 'live' : 'away') } @{ $fleet->{nodes} };
}

# How many nodes have said in Redis that they ended.
sub ended {
    my ($redis) = @_;
    my %states = @{ $redis->cmd('HGETALL', 'rl:{fleet}:nodes') };
    return scalar grep { decode_json($_)->{ended} } values %states;
}

subtest 'a node that ends leaves the list at once, and what it passed stays in the history' => sub {
    my $redis = redis();
    my $first = member(redis => $redis, zone => 'rate=99r/d', fleet => 'node=edge-1');
    my $passed = sub { my $sum = 0; $sum += $_ for @{ $_[0]{history}{passed} }; $sum };
    my $requests = 0;
    # A Redis that is full takes it, too.
    for (['QUIT', 0], ['TERM', 1]) {
        my ($signal, $memory) = @{$_};
        my $second = member(redis => $redis, zone => 'rate=99r/d', fleet => 'node=edge-2', workers => 2);
        $second->status('/?k=a') for 1 .. 7;
        $requests += 7;
        fleet_where($first, 'two nodes', sub { rows($_[0]) eq 'edge-1 live, edge-2 live' && $passed->($_[0]) == $requests });
        $redis->cmd(qw(CONFIG SET maxmemory), $memory);
        $second->stop($signal);
        my $shown = fleet_where($first, "one row after $signal", sub { rows($_[0]) eq 'edge-1 live' });
        is $shown->{fleet}{known}, 1;
        is $passed->($shown), $requests, 'its requests stay';
        $redis->cmd(qw(CONFIG SET maxmemory 0));
    }
};

subtest 'reloads, workers that die and upgrades are no end; of two nodes of one name, one ends' => sub {
    my $redis = redis();
    my %of = (redis => $redis, zone => 'rate=9r/d', fleet => 'node=same', workers => 2, expected => qr/exited on signal 9/,
        main => 'env ASAN_OPTIONS; env UBSAN_OPTIONS;');
    my $node = member(%of, daemon => 1);
    wait_until('its report', sub { $redis->cmd('HLEN', 'rl:{fleet}:nodes') == 1 });
    $node->reload(gone => 1);
    is ended($redis), 0, 'after a reload';
    for my $victim ($node->workers) {
        kill KILL => $victim;
        wait_until('another worker', sub { $node->workers == 2 && !grep { $_ == $victim } $node->workers });
    }
    is ended($redis), 0, 'after all workers have died';
    fleet_where($node, 'it lives', sub { rows($_[0]) eq 'same live' });
    my $new = $node->upgrade;
    wait_until('both programs', sub { $redis->cmd('HLEN', 'rl:{fleet}:nodes') == 2 });
    $node->leave_to($new);
    is ended($redis), 1, 'only the old program ended';
    fleet_where($node, 'the new program', sub { rows($_[0]) eq 'same live' });
    my $other = member(%of);
    fleet_where($other, 'two of one name', sub { rows($_[0]) eq 'same live, same live' });
    $node->stop('QUIT');
    fleet_where($other, 'the other one stays', sub { rows($_[0]) eq 'same live' });
    is ended($redis), 2;
};

subtest 'nginx ends in time if Redis does not take its end, and is shown as away' => sub {
    my $redis = redis();
    my ($first, $second) = map { member(redis => $redis, zone => 'rate=9r/d', fleet => "node=edge-$_") } 1 .. 2;
    fleet_where($first, 'two nodes', sub { rows($_[0]) eq 'edge-1 live, edge-2 live' });
    $redis->pause;
    $second->stop('QUIT');
    is $second->count_log(qr/\[notice\].*fleet: redis "main" did not answer when nginx ended/), 1;
    $redis->resume;
    fleet_where($first, 'one is away', sub { rows($_[0]) eq 'edge-1 live, edge-2 away' });
};

subtest 'a node that crashes again and again, or is upgraded, has one row; two nodes of one name have two' => sub {
    my $redis = redis();
    # nginx passes no other variables on to the program that it starts.
    my %of = (redis => $redis, zone => 'rate=9r/d', fleet => 'node=same', main => 'env ASAN_OPTIONS; env UBSAN_OPTIONS;');
    my $rows = sub { my ($fleet) = @_; return join ' ', map { $_->{live} ? 'live' : 'away' } @{ $fleet->{nodes} } };
    my $other = member(%of, daemon => 1);
    my $node = member(%of);
    fleet_where($other, 'two nodes', sub { $rows->($_[0]) eq 'live live' });
    for my $round (1 .. 3) {
        my $known = $redis->cmd('ZCARD', 'rl:{fleet}:alive');
        $node->stop('KILL');
        $node = member(%of);
        wait_until('a report', sub { $redis->cmd('ZCARD', 'rl:{fleet}:alive') > $known });
    }
    fleet_where($other, 'the crashed ones are replaced', sub { $rows->($_[0]) eq 'live live' });
    $node->stop('KILL');
    my $shown = fleet_where($other, 'the last one is away', sub { $rows->($_[0]) eq 'live away' });
    is_deeply [@{ $shown->{fleet} }{qw(nodes known)}], [1, 2];
    my $new = $other->upgrade;
    fleet_where($other, 'both programs', sub { $rows->($_[0]) =~ /live live/ });
    $other->leave_to($new);
    fleet_where($other, 'the new program in place of the old one', sub { $rows->($_[0]) eq 'live away' });
};

subtest 'when Redis is away, each node shows itself alone, and says so' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=3r/d', fleet => "node=edge-$_", workers => 3) } 1 .. 2;
    fleet_where($nodes[0], 'two nodes', sub { $_[0]{fleet}{nodes} == 2 });
    $redis->stop('KILL');
    for my $number ((1, 2) x 12) {    # any of the three workers answers
        my $shown = fleet_where($nodes[$number - 1], 'no connection',
            sub { !$_[0]{fleet}{connected} && @{ $_[0]{nodes} } == 1 });
        is_deeply [map { $_->{name} } @{ $shown->{nodes} }], ["edge-$number"];
        is $shown->{fleet}{connected}, JSON::PP::false;
        is $shown->{fleet}{as_of}, undef, 'nothing was read';
        is scalar @{ $shown->{zones} }, 1;
    }
};

subtest 'hostile and broken reports harm no node' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=3r/d', fleet => 'node=edge-1');
    fleet_where($node, 'one node', sub { $_[0]{fleet}{nodes} == 1 });
    my $now = int(time * 1e6);
    my %reports = (
        none => '', list => '[]', open => '{"name":"', deep => '[' x 50_000, bytes => "{\"name\":\"\xFF\"}",
        long => '{"name":"' . 'x' x 200_000 . '"}',
        odd => '{"name":{},"zones":[null,{"name":"test","passed":-5,"refused":1e300}],"redis":7,"busiest":[[]]}',
        huge => encode_json({ name => '<script>', uptime_us => 1e18, zones => [map { { name => "z$_", passed => 9e15, settings => 's' } } 1 .. 900],
            busiest => [map { { zone => 'test', id => "%0$_%", refused => 7 } } 1 .. 60] }),
    );
    for my $name (sort keys %reports) {
        $redis->cmd('ZADD', 'rl:{fleet}:alive', $now, $name);
        $redis->cmd('HSET', 'rl:{fleet}:nodes', $name, $reports{$name});
    }
    my $shown = fleet_where($node, 'all of them', sub { $_[0]{fleet}{known} == 9 });
    is_deeply [sort map { $_->{name} } @{ $shown->{nodes} }], ['', '<script>', 'edge-1'], 'what is readable';
    is $shown->{fleet}{unreadable}, 6;
    cmp_ok scalar @{ $shown->{zones} }, '<=', 257, 'bounded';
    cmp_ok scalar @{ $shown->{busiest} }, '<=', 20;
    is zone_in($shown, 'test')->{passed}, 0;
    $redis->cmd('DEL', 'rl:{fleet}:alive');
    $redis->cmd('SET', 'rl:{fleet}:alive', 'text');
    fleet_where($node, 'a key of another type is an error of Redis', sub { !$_[0]{fleet}{connected} });
    is $node->status('/?k=z'), 200, 'requests are decided';
};

# A node of a fleet with 300 others, which are only in Redis, and code that lets those live for five seconds.
sub large_fleet {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=3r/d', fleet => 'node=edge-0');
    for my $number (1 .. 300) {
        my $report = { name => "edge-$number", zones => [{ name => 'all', settings => 's', passed => $number }],
            busiest => [{ zone => 'all', id => "k$number", refused => $number }], future => 'x' x 2000 };
        $redis->cmd('HSET', 'rl:{fleet}:nodes', "node$number", encode_json($report));
    }
    my $live = sub {
        my $now = int(time * 1e6);
        $redis->cmd('ZADD', 'rl:{fleet}:alive', map { ($now, "node$_") } 1 .. 300);
    };
    return ($redis, $node, $live);
}

# How many scripts Redis has run.
sub scripts_run { my ($redis) = @_; my ($count) = $redis->cmd('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/; return $count }

subtest 'all of three hundred nodes are shown, also when another client leaves meanwhile' => sub {
    my (undef, $node, $live) = large_fleet();
    my $check = sub {
        my ($shown) = @_;
        is_deeply [sort map { $_->{name} } @{ $shown->{nodes} }], [sort map { "edge-$_" } 0 .. 300], 'all nodes';
        is @{ zone_in($shown, 'all') }{$_->[0]}, $_->[1], $_->[0] for ['nodes', 300], ['passed', 45_150];
        is_deeply [map { $_->{id} } @{ $shown->{busiest} }], [map { "k$_" } reverse 281 .. 300], 'the busiest keys of all';
    };
    $live->();
    for (1 .. 5) {
        my $socket = http_connect($node->port);
        http_send($socket, '/ops/fleet');
        close $socket;
    }
    $check->(fleet_where($node, 'all nodes', sub { $live->(); $_[0]{fleet}{nodes} == 301 }));
    my %statuses;
    for (1 .. 8) {
        my %old = map { $_ => 1 } $node->workers;
        my $socket = http_connect($node->port);
        http_send($socket, '/ops/fleet');
        kill HUP => $node->pid;
        while ($socket || grep { $old{$_} } $node->workers, $node->workers(1)) {
            http_send($socket = http_connect($node->port), '/ops/fleet') if !$socket;
            my $answer = http_read($socket);
            $statuses{ $answer ? $answer->status : 'none' }++;
            undef $socket;
        }
    }
    is_deeply [keys %statuses], [200], 'a worker that leaves sends what it has begun';
};

subtest 'twenty open pages of three hundred nodes are not seen by other requests' => sub {
    my ($redis, $node, $live) = large_fleet();
    $live->();
    my @pages = map { http_connect($node->port) } 1 .. 20;
    my $other = http_connect($node->port);
    my $control = http_connect(nginx(module => 0)->port);    # shows how fast the machine is
    fleet_where($node, 'all nodes', sub { $live->(); $_[0]{fleet}{nodes} == 301 });
    my ($calls, $began, $shown, @took) = (scripts_run($redis), time, 0);
    for my $turn (0 .. 59) {    # each page polls every two seconds, so that one of them does so ten times a second
        my $page = $pages[$turn % @pages];
        $live->() if $turn % 20 == 0;
        http_send($page, "/ops/$_") for qw(fleet zones redis);
        my $at = time;
        http_send($other, "/?k=$turn");
        my $answer = http_read($other);
        my $then = time;
        http_send($control, '/');
        http_read($control);
        push @took, [$then - $at, time - $then];
        my @answers = map { http_read($page) } 1 .. 3;
        $shown++ if @{ decode_json($answers[0]->body)->{nodes} } == 301 && $answer->status == 200
            && !grep { $_->status != 200 } @answers;
        my $pause = $began + ($turn + 1) / 10 - time;
        select undef, undef, undef, $pause if $pause > 0;
    }
    is $shown, 60, 'each page shows all nodes, and each other request passes';
    # Once a second the node's own call and that of the page; the script of each other request.
    cmp_ok scripts_run($redis) - $calls, '<=', 60 + 2 * (time - $began) + 6, 'few calls to Redis';
    my @medians = map { my $i = $_; (sort { $a <=> $b } map { $_->[$i] } @took)[30] } 0, 1;
    cmp_ok $medians[0], '<', 0.05 + 3 * $medians[1], 'other requests are as fast as ever';
};

subtest 'a report of another version is shown as far as it is known' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=3r/d');
    my $now = int(time * 1e6) + 3_000_000;
    $redis->cmd('ZADD', 'rl:{fleet}:alive', $now, 'next');
    $redis->cmd('HSET', 'rl:{fleet}:nodes', 'next', encode_json({ name => 'next', version => '9.0', future => [1],
        zones => [{ name => 'test', passed => 5, refused => 2, settings => 'x', more => {} }] }));
    my $shown = fleet_where($node, 'both', sub { $_[0]{fleet}{known} == 2 && named($_[0], 'next')->{live} });
    is named($shown, 'next')->{version}, '9.0';
    is_deeply [@{ zone_in($shown, 'test') }{qw(passed refused nodes)}], [5, 2, 2];
};

subtest 'an override is read by itself' => sub {
    my $node = member(zone => 'rate=3r/d');
    my $read = sub {
        my $answer = $node->get("/ops/zones/test/$_[0]");
        is $answer->status, 200, $_[0];
        return decode_json($answer->body)->{override};
    };
    is $read->('keys/a/override'), undef, 'there is none';
    is $read->('override'), undef;
    override($node, 'a', { rate => '7r/d', for => '1h' });
    override($node, 'override', { block => \1 });
    my $set = $read->('keys/override?key=a');
    is_deeply [@{$set}{qw(rate)}], ['7r/d'];
    like $set->{by}, qr/ 127\.0\.0\.1$/;
    cmp_ok $set->{for_seconds_left}, '>', 3590;
    cmp_ok $set->{for_seconds_left}, '<=', 3600;
    is $read->('override')->{block}, JSON::PP::true;
    is $node->status('/seen/zones/test/override'), 200, 'without write=on';
    wait_until('the block', sub { $node->status('/?k=blocked') == 429 });
    my $history = decode_json($node->get('/ops/zones/test/history')->body);
    is sum0(map { $_ // 0 } @{ $history->{steps}[1]{refused} }), decode_json($node->get('/ops/zones/test')->body)->{counters}{rejected}{override},
        'what an override refuses is in the history';
    is $node->status('/ops/zones/other/override'), 404;
    fleet_where($node, 'both', sub { $_[0]{fleet}{overrides} == 2 });
};

subtest 'requests within a second share one answer' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=3r/d');
    fleet_where($node, 'one node', sub { $_[0]{fleet}{nodes} == 1 });
    # A node asks Redis once a second in any case.
    my $calls = sub { scripts_run($redis) };
    my ($before, $began) = ($calls->(), time);
    is $node->status('/ops/fleet'), 200 for 1 .. 100;
    cmp_ok $calls->() - $before, '<=', 2 * (time - $began) + 6, 'few calls to Redis';
    my @sockets = map { http_connect($node->port) } 1 .. 20;
    wait_until('the answer is old', sub { time - $began > 1.2 });
    ($before, $began) = ($calls->(), time);
    http_send($_, '/ops/fleet') for @sockets;
    close shift @sockets;
    is scalar(grep { http_read($_)->status == 200 } @sockets), 19, 'also requests at one time';
    cmp_ok $calls->() - $before, '<=', 2 * (time - $began) + 6, 'few calls to Redis';
};

subtest 'without ratelimit_fleet there is no fleet' => sub {
    my $node = node(zone => 'rate=3r/d', server => 'location /ops/ { ratelimit_api; }');
    is $node->status('/ops/fleet'), 404;
    is decode_json($node->get('/ops/zones')->body)->{fleet}, JSON::PP::false;
    my $member = member(zone => 'rate=3r/d');
    is decode_json($member->get('/ops/zones')->body)->{fleet}, JSON::PP::true;
    is $member->status('/ops/fleet', method => 'DELETE'), 405;
    is $member->status('/ops/fleet/x'), 404;
};

finish();

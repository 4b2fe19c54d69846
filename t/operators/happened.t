# What happened to a fleet, as its API lists it for two days.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(time);

# The list of the node.
sub happened {
    my ($node) = @_;
    my $answer = $node->get('/ops/fleet');
    return $answer->status == 200 ? decode_json($answer->body)->{happened} : [];
}

# Waits until the list of the node has such an entry that satisfies the condition; returns it.
sub entry_where {
    my ($node, $name, $what, $condition) = @_;
    return wait_until($name, sub {
        my ($found) = grep { $_->{what} eq $what && $condition->($_) } @{ happened($node) };
        return $found;
    });
}
sub names { return join ' ', sort @{ $_[0]{names} } }

sub two_nodes {
    my ($redis, %options) = @_;
    return map { member(redis => $redis, zone => 'rate=9r/d', key => '$arg_k', fleet => "node=edge-$_", %options) } 1 .. 2;
}

subtest 'starts of nodes at about one time are one entry' => sub {
    my $begun = time;
    my ($one, $two) = two_nodes(redis());
    my $started = entry_where($one, 'two starts', 'started', sub { $_[0]{nodes} == 2 });
    is names($started), 'edge-1 edge-2';
    cmp_ok $started->{at}, '>', $begun - 1;
    cmp_ok $started->{until}, '<', time + 1;
    is_deeply [map { $_->{what} } @{ happened($two) }], ['started'], 'and nothing else happened';
};

subtest 'changes are listed with who made them, the same on every node, after they ended, too' => sub {
    my $redis = redis();
    my ($one, $two) = two_nodes($redis);
    override($one, 'a<b', { rate => '5r/m', for => '1h', reason => 'ticket 7' });
    override($two, 'override', { block => JSON::PP::true() });
    is take_back($one, 'override'), 204;
    $one->status('/?k=c');
    is $one->status('/ops/zones/test/keys/c', method => 'DELETE'), 204;
    my @changes = grep { exists $_->{zone} } @{ happened($one) };
    is_deeply [map { $_->{what} } @changes], [qw(freed taken_back set set)], 'the latest first';
    is_deeply [map { $_->{key} } @changes], ['c', undef, undef, 'a<b'];
    is_deeply [map { $_->{by} } @changes], ['edge-1 127.0.0.1', 'edge-1 127.0.0.1', 'edge-2 127.0.0.1', 'edge-1 127.0.0.1'];
    my $set = $changes[3]{override};
    is_deeply [@{$set}{qw(rate reason)}], ['5r/m', 'ticket 7'];
    cmp_ok abs($set->{until} - $changes[3]{at} - 3600), '<', 1;
    is $changes[2]{override}{block}, 1;
    is_deeply [map { $_->{override} } @changes[0, 1]], [undef, undef];
    $one->stop;
    $one->start;
    for my $node ($one, $two) {
        is_deeply [grep { exists $_->{zone} } @{ happened($node) }], \@changes, 'over a restart, and on the other node';
    }
    my $since = decode_json($one->get('/ops/fleet')->body)->{fleet}{changes_since};
    cmp_ok $since, '<=', $changes[3]{at};
    cmp_ok $since, '>', $changes[3]{at} - 60;
};

subtest 'an outage that all nodes see is one entry, and Redis need not remember it' => sub {
    for my $end (['KILL', sub { $_[0]->stop('KILL') }, sub { $_[0]->start }], ['STOP', sub { $_[0]->pause }, sub { $_[0]->resume }]) {
        my ($name, $away, $back) = @{$end};
        my $redis = redis();
        my @nodes = two_nodes($redis);
        entry_where($nodes[0], 'two starts', 'started', sub { $_[0]{nodes} == 2 });
        my $begun = time;
        $away->($redis);
        my $lasts = entry_where($nodes[0], 'an outage', 'redis_away', sub { 1 });
        is $lasts->{until}, undef, "$name: it lasts";
        $_->wait_for_log(qr/fleet: redis "main" does not answer/) for @nodes;
        $back->($redis);
        my $over = entry_where($nodes[1], 'its end', 'redis_away', sub { defined $_[0]{until} && $_[0]{nodes} == 2 });
        is names($over), 'edge-1 edge-2';
        cmp_ok $over->{at}, '>', $begun - 3, 'its begin';
        cmp_ok $over->{at}, '<', $begun + 3;
        cmp_ok $over->{until}, '>', $begun + 2, 'and its end';
        is $over->{times}, 1;
        is scalar(grep { $_->{what} eq 'redis_away' } @{ happened($nodes[1]) }), 1, 'one entry';
        is scalar(grep { $_->{what} eq 'away' } @{ happened($nodes[1]) }), 0, 'no node is said to have been away';
        $nodes[0]->reload(gone => 1);
        entry_where($nodes[1], 'it is kept over a reload', 'loaded', sub { $_[0]{settings} eq '' });
        is_deeply [map { @{$_}{qw(nodes times)} } grep { $_->{what} eq 'redis_away' } @{ happened($nodes[0]) }], [2, 1];
    }
};

subtest 'a node that is started or reloaded while Redis is away sees the same outage' => sub {
    my $redis = redis();
    my ($one) = two_nodes($redis);
    entry_where($one, 'both have reached it', 'started', sub { $_[0]{nodes} == 2 });
    $redis->stop('KILL');
    $one->wait_for_log(qr/fleet: redis "main" does not answer/);
    $one->reload(gone => 1);
    my $three = member(redis => $redis, zone => 'rate=9r/d', key => '$arg_k', fleet => 'node=edge-3');
    entry_where($three, 'a start without Redis', 'redis_away', sub { !defined $_[0]{until} });
    $redis->start;
    my $over = entry_where($three, 'its end', 'redis_away', sub { defined $_[0]{until} && $_[0]{nodes} == 3 });
    is_deeply [map { $_->{times} } grep { $_->{what} eq 'redis_away' } @{ happened($one) }], [1], 'one entry';

    my $other = redis();
    my ($from, $to) = map { $_->addr } $redis, $other;
    $one->configure(http => $one->{http} =~ s/\Q$from\E/$to/r)->reload(gone => 1);
    entry_where($one, 'it is in another fleet', 'started', sub { $_[0]{nodes} == 1 });
    is scalar(grep { $_->{what} eq 'redis_away' } @{ happened($one) }), 1, 'which is no outage';
};

subtest 'a Redis that answers a node late was not away, if that was for at most three seconds' => sub {
    my ($redis, $other) = (redis(), redis());
    $redis->pause;
    my $node = member(redis => $redis, zone => 'rate=9r/d', key => '$arg_k', fleet => 'node=edge-1');
    $redis->resume;
    entry_where($node, 'its start', 'started', sub { 1 });
    override($node, 'a', { block => JSON::PP::true() });
    $other->pause;
    my ($from, $to) = map { $_->addr } $redis, $other;
    $node->configure(http => $node->{http} =~ s/\Q$from\E/$to/r)->reload(gone => 1);
    is $node->count_log(qr/the earlier overrides stay in force, the overrides follow when redis "main" answers/), 1,
        'a reload to another one says so';
    is $node->status('/?k=a'), 429, 'and they do';
    $other->resume;
    entry_where($node, 'it is in another fleet', 'started', sub { 1 });
    is_deeply [grep { $_->{what} eq 'redis_away' && defined $_->{until} && $_->{until} - $_->{at} <= 3 } @{ happened($node) }], [];
};

subtest 'a reload of more zones than a node remembers changes nothing' => sub {
    my $zones = join '', map { "ratelimit_zone \$arg_k zone=n$_:64k rate=1r/s;" } 1 .. 300;
    my $node = member(redis => redis(), zone => 'rate=9r/d', key => '$arg_k', fleet => 'node=edge-1', http => $zones);
    $node->reload(gone => 1);
    is entry_where($node, 'a reload', 'loaded', sub { 1 })->{settings}, '';
};

subtest 'a reload is listed with the settings that it changed, those of several nodes as one' => sub {
    my $redis = redis();
    my @nodes = two_nodes($redis, http => 'ratelimit_zone $arg_k zone=old rate=1r/s;');
    $_->reload(gone => 1) for @nodes;
    my $same = entry_where($nodes[0], 'two reloads', 'loaded', sub { $_[0]{nodes} == 2 });
    is $same->{settings}, '', 'they changed nothing';
    for my $node (@nodes) {
        my $http = $node->{http} =~ s/rate=9r\/d/rate=8r\/d block=1m/r =~ s/zone=old rate=1r\/s/zone=new rate=1r\/s/r;
        $node->configure(http => $http)->reload(gone => 1);
    }
    my $changed = entry_where($nodes[0], 'two more', 'loaded', sub { $_[0]{settings} ne '' && $_[0]{nodes} == 2 });
    is $changed->{settings}, 'test (rate, block), new (new), 1 zone removed';
    is names($changed), 'edge-1 edge-2';
    $nodes[1]->configure(http => $nodes[1]{http} =~ s/ratelimit_fleet /ratelimit_fleet size=16m /r)->reload(gone => 1);
    wait_until('one more', sub { 3 == grep { $_->{what} eq 'loaded' } @{ happened($nodes[0]) } });
    my @loads = grep { $_->{what} eq 'loaded' } @{ happened($nodes[1]) };
    is_deeply [map { $_->{settings} } @loads], ['', $changed->{settings}, ''], 'memory of another size keeps them, and the settings';
    is_deeply [map { $_->{nodes} } @loads], [1, 2, 2];
};

subtest 'nodes that ended, were killed or were started again' => sub {
    my $redis = redis();
    my ($one, $two) = two_nodes($redis);
    my $three = member(redis => $redis, zone => 'rate=9r/d', fleet => 'node=edge-3');
    entry_where($one, 'three starts', 'started', sub { $_[0]{nodes} == 3 });
    my $begun = time;
    $two->stop;
    my $stopped = time;
    my $ended = entry_where($one, 'an end', 'ended', sub { 1 });
    is names($ended), 'edge-2';
    ok $ended->{at} > $begun - 3 && $ended->{at} < $stopped + 3, 'at that time';
    $three->stop('KILL');
    my $away = entry_where($one, 'a death', 'away', sub { 1 });
    is names($away), 'edge-3';
    $two->start;
    my $again = entry_where($one, 'a start', 'started', sub { $_[0]{until} > $ended->{at} });
    is $again->{nodes}, 3, 'of three nodes, one of them twice';
    is names(entry_where($one, 'and the end before it', 'ended', sub { 1 })), 'edge-2';

    # Redis forgets nodes after an hour, but not that they were there.
    my $earlier = sprintf '%.0f', (time - 7200) * 1e6;
    my %states = @{ $redis->cmd('HGETALL', 'rl:{fleet}:nodes') };
    for my $name ('edge-2', 'edge-3') {
        my ($gone) = grep { $states{$_} =~ /"name":"$name"/ && ($name ne 'edge-2' || $states{$_} =~ /"ended":1/) } keys %states;
        $redis->cmd('ZADD', 'rl:{fleet}:alive', $earlier, $gone);
    }
    wait_until('both are forgotten', sub { @{ $redis->cmd('HKEYS', 'rl:{fleet}:nodes') } == 2 });
    for (['ended', 'edge-2'], ['away', 'edge-3']) {
        my ($what, $name) = @{$_};
        my $entry = entry_where($one, "$what two hours ago", $what, sub { abs($_[0]{at} - $earlier / 1e6) < 1 });
        is names($entry), $name;
    }
    is scalar(grep { $_->{what} eq 'away' } @{ happened($one) }), 1;
};

subtest 'a node that was away for hours, and comes back, was not gone' => sub {
    my $redis = redis();
    my ($one, $two) = two_nodes($redis);
    entry_where($one, 'two starts', 'started', sub { $_[0]{nodes} == 2 });
    my @workers = $two->workers;
    pause_processes(@workers);
    my %states = @{ $redis->cmd('HGETALL', 'rl:{fleet}:nodes') };
    my ($id) = grep { $states{$_} =~ /"name":"edge-2"/ } keys %states;
    wait_until('it is forgotten', sub {
        $redis->cmd('ZADD', 'rl:{fleet}:alive', sprintf('%.0f', (time - 7200) * 1e6), $id);
        return entry_where($one, 'it is gone', 'away', sub { abs($_[0]{at} - time + 7200) < 30 });
    });
    kill CONT => @workers;
    wait_until('it was not gone', sub { !grep { $_->{what} eq 'away' } @{ happened($one) } });
    ok $redis->cmd('HEXISTS', 'rl:{fleet}:nodes', $id);
};

subtest 'values in Redis that no node wrote list nothing' => sub {
    my $redis = redis();
    my ($one, $two) = two_nodes($redis);
    entry_where($one, 'two starts', 'started', sub { $_[0]{nodes} == 2 });
    my $now = sprintf '%.0f', time * 1e6;
    $redis->cmd('ZADD', 'rl:{fleet}:journal', $now, $_)
        for 'x', 's', 's5', 's99:kz', "s3:k\0a{}", 's99999999999999999999:x', "f4:kz\0a{}", 'y' x 5000;
    $redis->cmd('ZADD', 'rl:{fleet}:gone', $now, $_) for 'x', "zname\0id", "\0", 'e';
    is_deeply [map { $_->{what} } @{ happened($one) }], ['started'];
    for my $key ('journal', 'gone') {
        $redis->cmd('DEL', "rl:{fleet}:$key");
        $redis->cmd('SET', "rl:{fleet}:$key", 'text');
    }
    override($one, 'a', { block => JSON::PP::true() });
    wait_until('changes are made', sub { $one->status('/?k=a') == 429 });
    wait_until('the list', sub { happened($two)->[0]{what} eq 'started' });
};

finish();

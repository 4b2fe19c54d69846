# A fleet whose Redis has lost its data, and workers that blame no Redis for their own silence.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

my $lost = qr/\[warn\].*ratelimit: fleet: redis "main" has lost its data/;

sub summary { my ($node) = @_; return decode_json($node->get('/ops/fleet')->body)->{fleet} }

subtest 'overrides that Redis has lost are counted in one line of each node, and on the page' => sub {
    for (['that starts again, empty', sub { $_[0]->stop('KILL'); $_[0]->start }], ['that is emptied', sub { $_[0]->cmd('FLUSHALL') }]) {
        my ($name, $lose) = @{$_};
        my $redis = redis();
        my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
        override($nodes[0], $_, { block => \1 }) for qw(ka kb);
        override($nodes[0], 'override', { rate => '50r/d' });
        for my $node (@nodes) {
            wait_until('the changes', sub { $node->status('/?k=a') == 429 && summary($node)->{overrides} == 3 });
            is_deeply [@{ summary($node) }{qw(overrides_lost lost_at)}], [0, undef];
        }
        $lose->($redis);
        for my $node (@nodes) {
            wait_until("a Redis $name", sub { $node->status('/?k=a') == 200 });
            $node->wait_for_log(qr/\[warn\].*fleet: redis "main" has lost its data: 3 overrides are gone/);
            my $now = wait_until('the page', sub { my $now = summary($node); $now->{overrides} == 0 && $now });
            is $now->{overrides_lost}, 3, 'the number';
            cmp_ok abs($now->{lost_at} - $now->{as_of}), '<', 60, 'and when';
        }
        override($nodes[1], 'kc', { block => \1 });
        wait_until('a change', sub { $_->status('/?k=c') == 429 }) for @nodes;
        is $_->count_log($lost), 1, 'one line' for @nodes;
    }
};

subtest 'overrides that an older snapshot of Redis does not have are counted in one line of each node' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    override($nodes[0], $_, { block => \1 }) for qw(ka kb);
    wait_until('both', sub { summary($_)->{overrides} == 2 }) for @nodes;
    $redis->cmd('SAVE');
    override($nodes[1], $_, { block => \1 }) for qw(kc kd);
    override($nodes[1], 'override', { rate => '50r/d' });
    wait_until('five', sub { summary($_)->{overrides} == 5 }) for @nodes;
    $redis->stop('KILL');
    $redis->start;
    for my $node (@nodes) {
        $node->wait_for_log(qr/\[warn\].*fleet: redis "main" has lost its data: 3 overrides are gone/);
        my $now = wait_until('the page', sub { my $now = summary($node); $now->{overrides} == 2 && $now });
        is $now->{overrides_lost}, 3, 'the number';
        is $node->status("/?k=$_->[0]"), $_->[1], "key $_->[0]" for ['a', 429], ['b', 429], ['c', 200], ['d', 200];
    }
    override($nodes[0], 'kc', { block => \1 });
    wait_until('a change', sub { $_->status('/?k=c') == 429 }) for @nodes;
    is $_->count_log($lost), 1, 'one line' for @nodes;
};

subtest 'overrides that were taken back, have ended or are of another Redis are not lost' => sub {
    my ($redis, $other) = (redis(), redis());
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d') } 1 .. 2;
    override($nodes[0], 'ka', { block => \1 });
    my $both;
    for my $lasts (2, 4, 8, 16) {    # longer, if the machine is too slow for that
        my $set = override($nodes[0], 'kb', { block => \1, for => "${lasts}s" });
        wait_until('both', sub { ($both = summary($nodes[1])->{overrides} == 2) || time > $set->{until} });
        last if $both;
    }
    ok $both, 'both are known';
    is take_back($nodes[1], 'ka'), 204;
    wait_until('none', sub { summary($_)->{overrides} == 0 }) for @nodes;
    override($nodes[0], 'kc', { block => \1 });
    wait_until('one', sub { summary($_)->{overrides} == 1 }) for @nodes;
    $nodes[1]->configure(http => $nodes[1]{http} =~ s/server \S+;/server @{[ $other->addr ]};/r)->reload;
    wait_until('none of another Redis', sub { summary($nodes[1])->{overrides} == 0 });
    is $_->count_log($lost), 0 for @nodes;
};

# How many seconds ago, by Redis's clock, a node of the fleet was heard of last.
sub silence {
    my ($redis, $id) = @_;
    my $heard = $redis->cmd('ZSCORE', 'rl:{fleet}:alive', $id);
    my ($seconds, $us) = @{ $redis->cmd('TIME') };
    return ($seconds * 1e6 + $us - $heard) / 1e6;
}

subtest 'an upgrade that is rolled back does not say that Redis is silent' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=100r/d', workers => 2, daemon => 1);
    my ($id) = @{ wait_until('the node', sub { my $ids = $redis->cmd('ZRANGE', 'rl:{fleet}:alive', 0, -1); @{$ids} && $ids }) };
    my $old = $node->pid;
    my $new = $node->upgrade;
    kill WINCH => $old;
    wait_until('no workers of the old program', sub { $node->workers(0, $old) == 0 });
    wait_until('a silence that would be logged', sub { silence($redis, $id) > 3.2 });
    kill HUP => $old;
    wait_until('its workers', sub { $node->workers(0, $old) == 2 });
    wait_until('a report', sub { silence($redis, $id) < 1 });
    kill QUIT => $new;
    wait_until('the new program has left', sub { !kill 0, $new });
    override($node, 'ka', { block => \1 });
    wait_until('a change', sub { $node->status('/?k=a') == 429 });
    is $node->count_log(qr/does not answer, overrides stay/), 0, 'no line about Redis';
};

subtest 'a worker that was stopped blames no Redis' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=100r/d');
    my ($id) = @{ wait_until('the node', sub { my $ids = $redis->cmd('ZRANGE', 'rl:{fleet}:alive', 0, -1); @{$ids} && $ids }) };
    my ($worker) = $node->workers;
    pause_processes($worker);
    wait_until('a silence that would be logged', sub { silence($redis, $id) > 3.2 });
    kill CONT => $worker;
    wait_until('a report', sub { silence($redis, $id) < 1 });
    is $node->count_log(qr/does not answer, overrides stay/), 0, 'no line about Redis';
};

subtest 'requests that passed without a decision are shown apart, during an outage and after it' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=100r/d', fleet => "node=edge-$_") } 1 .. 2;
    my $fleet = sub { return decode_json($_[0]->get('/ops/fleet')->body) };
    my $sum = sub { my $sum = 0; $sum += $_ for @{ $_[0]{history}{ $_[1] } }; $sum };
    wait_until('both nodes', sub { @{ $fleet->($_)->{nodes} } == 2 }) for @nodes;
    is $_->status('/?k=a'), 200 for @nodes;
    is $sum->($fleet->($nodes[0]), 'undecided'), 0, 'none';
    $redis->stop('KILL');
    is $_->status('/?k=a'), 200, 'open' for (@nodes) x 3;
    my $alone = wait_until('this node alone, and its history', sub {
        my $now = $fleet->($nodes[0]);
        !$now->{fleet}{connected} && $now->{nodes}[0]{undecided} == 3 && $sum->($now, 'undecided') == 3 && $now;
    });
    is scalar @{ $alone->{history}{undecided} }, scalar @{ $alone->{history}{passed} };
    $redis->start;
    my $after = wait_until('both nodes', sub {
        my $now = $fleet->($nodes[1]);
        $now->{fleet}{connected} && @{ $now->{nodes} } == 2 && $sum->($now, 'undecided') == 6 && $now;
    });
    is_deeply [map { $_->{undecided} } @{ $after->{nodes} }], [3, 3];
    is $sum->($after, 'passed'), 8, 'they are among those that passed';
};

finish();

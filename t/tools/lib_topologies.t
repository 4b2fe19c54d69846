# The tests' own library: clusters and sentinels.
# needs: redis-sentinel

use Ratelimit::Test;

# The reply to a command, or the error.
sub answer {
    my ($node, @words) = @_;
    return eval { $node->cmd(@words) } // $@;
}

subtest 'a cluster has masters with one replica each, and every slot has an owner' => sub {
    my $cluster = cluster();
    is scalar($cluster->nodes), 6;
    my @masters = $cluster->masters;
    is scalar @masters, 3;
    is_deeply [$cluster->addrs], [map { $_->addr } @masters];
    is $cluster->slot_of('foo'), 12_182, 'the slot of the specification\'s example';
    my $owner = $cluster->node_of_slot(12_182);
    is $owner->cmd('SET', 'foo', 'bar'), 'OK', 'the owner accepts the key';
    my ($other) = grep { $_ != $owner } @masters;
    like answer($other, 'SET', 'foo', 'bar'), qr/^MOVED 12182 \Q@{[ $owner->addr ]}/, 'other masters redirect';

    subtest 'a slot can be moved step by step' => sub {
        $owner->cmd('SET', '{foo}2', 'stays');
        $cluster->migrate_begin(12_182, $other);
        is answer($owner, 'GET', 'foo'), 'bar', 'a key that has not moved is served';
        $cluster->migrate_key('foo');
        like answer($owner, 'GET', 'foo'), qr/^ASK 12182 \Q@{[ $other->addr ]}/, 'a key that has moved is redirected';
        $other->cmd('ASKING');
        is answer($other, 'GET', 'foo'), 'bar';
        is answer($owner, 'GET', '{foo}2'), 'stays';
        $cluster->migrate_key('{foo}2');
        $cluster->migrate_end(12_182);
        is $cluster->node_of_slot(12_182)->addr, $other->addr;
        is answer($other, 'GET', '{foo}2'), 'stays';
    };

    subtest 'many slots can be moved at once' => sub {
        my ($from, $to) = grep { $_ != $other } $cluster->masters;
        my $count = sub {
            my ($node) = @_;
            return scalar grep { $cluster->node_of_slot($_) == $node } map { $_ * 64 } 0 .. 255;
        };
        my $before = $count->($to);
        $cluster->reshard(slots => 640, from => $from, to => $to);
        is $count->($to), $before + 10;
    };

    subtest 'a killed master is replaced, and returns as a replica' => sub {
        $other->cmd('SET', 'foo', 'bar');
        is $other->cmd('WAIT', 1, 10_000), 1, 'its replica is up to date';
        my $killed = $cluster->kill_master_of('foo');
        is $killed->addr, $other->addr;
        ok !$killed->lives;
        $cluster->wait_ok;
        my $new = $cluster->node_of_slot(12_182);
        isnt $new->addr, $killed->addr, 'another master owns its slots';
        is answer($new, 'GET', 'foo'), 'bar', 'with their keys';
        $killed->start;
        wait_until('the old master is a replica', sub { $killed->cmd('ROLE')->[0] eq 'slave' });
        is scalar($cluster->masters), 3;
    };
};

subtest 'a cluster works with a password and without replicas' => sub {
    my $cluster = cluster(replicas => 0, password => 'open sesame');
    is scalar($cluster->nodes), 3;
    my $slot = $cluster->slot_of('foo');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    $from->cmd('SET', 'foo', 'bar');
    $cluster->migrate_begin($slot, $to);
    is $cluster->migrate_key('foo'), 'OK', 'keys move between its nodes';
    $cluster->migrate_end($slot);
    is answer($to, 'GET', 'foo'), 'bar';
};

subtest 'sentinels name the master, and the new one after a failover' => sub {
    my $group = sentinels(master => 'limits', password => 'pw', sentinel_password => 'watch');
    is scalar($group->addrs), 3;
    my ($master, $replica) = ($group->master, $group->replica);
    is $master->cmd('ROLE')->[0], 'master';
    is $replica->cmd('ROLE')->[0], 'slave';
    is $group->failover->addr, $replica->addr;
    is $group->master->addr, $replica->addr;
};

subtest 'sentinels replace a master that is killed' => sub {
    my $group = sentinels(replicas => 2);
    my $old = $group->master;
    $old->stop('KILL');
    my $new = $group->wait_for_new_master($old);
    isnt $new->addr, $old->addr;
    is answer($new, 'SET', 'k', 'v'), 'OK', 'the new master accepts writes';
    isnt $group->replica->addr, $_->addr, 'and has a replica' for $old, $new;
};

finish();

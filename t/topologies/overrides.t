# Overrides where Redis is a ring, a cluster or has sentinels: in force on all nodes, also after a failover.

use Ratelimit::Fleet qw(override take_back metric);
use Ratelimit::FleetKeys;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

sub fleet_of {
    my ($block) = @_;
    return map {
        nginx(http => "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; }"
                . 'ratelimit_fleet; ratelimit_zone $arg_k zone=test rate=100r/d;',
            server => 'location /ops/ { ratelimit_api write=on; } location / { ratelimit zone=test; }', workers => 2)
    } 1 .. 2;
}

sub blocked { my ($node, $key) = @_; return wait_until("a block of $key", sub { $node->status("/?k=$key") == 429 }) }

sub follows {
    my ($block) = @_;
    my @nodes = fleet_of($block);
    override($nodes[0], 'a', { block => \1 });
    blocked($_, 'a') for @nodes;
    my ($third) = fleet_of($block);
    is $third->status('/?k=a'), 429, 'a node that starts knows it before its first decision';
    wait_until('three or four nodes', sub { metric($nodes[0], 'ratelimit_fleet_nodes') >= 3 });
    my $listed = sub { @{ decode_json($_[0]->get('/ops/fleet')->body)->{nodes} } };
    my ($self) = grep { $_->{self} } $listed->($third);
    my $is_listed = sub { scalar grep { $_->{id} eq $self->{id} } $listed->($nodes[0]) };
    wait_until('the third node in the list', $is_listed);
    $third->stop('QUIT');
    wait_until('none that ended', sub { !$is_listed->() });
    return @nodes;
}

subtest 'a ring keeps the fleet on one of its servers' => sub {
    my @redis = map { redis() } 1 .. 3;
    my @nodes = follows(join '', map { 'server ' . $_->addr . ';' } @redis);
    is scalar(grep { my @keys = $_->keys_like('rl:{fleet}:*'); @keys } @redis), 1, 'one server has its keys';
    is take_back($nodes[1], 'a'), 204;
};

my $cluster = cluster();

subtest 'a slot of a cluster that is being moved stops no change, with none or all of its keys moved' => sub {
    my @nodes = follows(join '', 'topology cluster;', map { "server $_;" } $cluster->addrs);
    is take_back($nodes[0], 'a'), 204;
    wait_until('the end of the block', sub { $_->status('/?k=a') == 200 }) for @nodes;
    my $slot = $cluster->slot_of('rl:{fleet}:changes');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    my $changes = sub {
        my ($key) = @_;
        override($nodes[0], $key, { block => \1, for => '1h' });
        blocked($_, $key) for @nodes;
        is take_back($nodes[1], $key), 204;
        wait_until('its end', sub { $_->status("/?k=$key") == 200 }) for @nodes;
    };
    $cluster->migrate_begin($slot, $to);
    $changes->('none');
    my ($first, @more) = all_fleet_keys();
    $cluster->migrate_key($first);
    my $half = $nodes[0]->get('/ops/zones/test/keys/half/override', method => 'PUT', body => '{"block":true}');
    is $half->status, 503, 'a change that no node could read is refused';
    $cluster->migrate_key($_) for @more;
    $changes->('all');
    $cluster->migrate_end($slot);
    $changes->('moved');
    is metric($_, 'ratelimit_fleet_up'), 1 for @nodes;
    $_->stop('QUIT') for @nodes;
    $_->cmd('FLUSHALL') for $cluster->masters;
};

subtest 'a cluster: all keys of the fleet are in one slot, and a failover keeps them' => sub {
    my @nodes = follows('topology cluster;' . join '', map { "server $_;" } $cluster->addrs);
    my $slot = $cluster->slot_of('rl:{fleet}:changes');
    is $cluster->slot_of($_), $slot, $_ for all_fleet_keys();
    $cluster->node_of_slot($slot)->wait_for_a_replica;
    $cluster->kill_master_of('rl:{fleet}:changes');
    is $_->status('/?k=a'), 429, 'as last known' for @nodes;
    wait_until('a change after the failover', sub {
        $nodes[0]->get('/ops/zones/test/keys/b/override', method => 'PUT', body => '{"block":true}')->status == 200;
    }, 40);    # an election without a majority is repeated after five seconds or more
    blocked($_, 'b') for @nodes;
    is $_->status('/?k=a'), 429, 'and the earlier override is still there' for @nodes;
};

subtest 'sentinels: a failover keeps the overrides' => sub {
    my $sentinels = sentinels(count => 3);
    my @nodes = follows('topology sentinel master=' . $sentinels->{master} . ';' . join '', map { "server $_;" } $sentinels->addrs);
    $sentinels->master->wait_for_a_replica;
    $sentinels->master->stop('KILL');
    is $_->status('/?k=a'), 429, 'as last known' for @nodes;
    wait_until('a change after the failover', sub {
        $nodes[1]->get('/ops/zones/test/keys/b/override', method => 'PUT', body => '{"block":true}')->status == 200;
    }, 40);
    blocked($_, 'b') for @nodes;
    is $_->status('/?k=a'), 429 for @nodes;
};

finish();

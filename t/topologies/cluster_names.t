# A cluster whose nodes announce names that do not resolve.

use Ratelimit::Test;

plan skip_all => 'Redis 6.2 announces no names' unless redis()->has_setting('cluster-announce-hostname');

my $cluster = cluster(
    conf => "cluster-announce-hostname node.example\ncluster-preferred-endpoint-type hostname\n");
my ($seed) = $cluster->masters;
my $node = nginx(
    http => <<"END",
    ratelimit_redis main { topology cluster; server @{[ $seed->addr ]}; timeout 2s; connect_timeout 2s; }
    ratelimit_zone k\$arg_k zone=test rate=1000r/d;
END
    server => <<'END',
    location / { ratelimit zone=test; add_header Status $ratelimit_status always; }
END
);

sub decided {
    my ($key) = @_;
    my $answer = $node->get("/?k=$key");
    return $answer->header('Status') eq 'PASSED';
}

subtest 'nodes are connected by the addresses that the map has for their names' => sub {
    ok decided($_), "key $_" for 1 .. 20;
    is $node->count_log(qr/node\.example:\d+ is up/), 3;
};

subtest 'a replica that takes over is found by MOVED' => sub {
    my $master = $cluster->node_of_slot($cluster->slot_of('k1'));
    my ($replica) = grep {
        my $role = $_->cmd('ROLE');
        $role->[0] eq 'slave' && $role->[2] == $master->port
    } $cluster->nodes;
    # FORCE, since a plain FAILOVER sometimes never gets the master's offset.
    my $next = 0;
    wait_until(
        'the replica has taken over',
        sub {
            if (time >= $next) {
                eval { $replica->cmd('CLUSTER', 'FAILOVER', 'FORCE') };
                $next = time + 3;
            }
            # Meanwhile a node may know no owner.
            return eval { $cluster->node_of_slot($cluster->slot_of('k1')) == $replica };
        },
        20
    );
    wait_until('the new master decides', sub { decided(1) });
    is scalar(grep { !decided($_) } 1 .. 20), 0, 'all keys are decided';
};

finish();

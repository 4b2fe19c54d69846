# Another server takes over, of a cluster or behind sentinels: while nginx has traffic, and while it
# has none.
# needs: redis-sentinel

use Ratelimit::Test;
use Time::HiRes qw(time sleep);

# How the requests of these keys were decided, all sent at once.
sub decisions {
    my ($node, @keys) = @_;
    my @clients = map { Ratelimit::Http::http_connect($node->port) } @keys;
    Ratelimit::Http::http_send($clients[$_], "/?k=$keys[$_]", close => 1) for 0 .. $#keys;
    return map { Ratelimit::Http::http_read($_)->header('X-Status') } @clients;
}

sub passed { return scalar grep { $_ eq 'PASSED' } @_ }

# An nginx that waits long for a takeover and one that has no traffic meanwhile, of which every worker
# is connected to all of the `$servers` that it needs.
sub nodes_of {
    my ($topology, $group, $servers) = @_;
    my $block = "topology $topology; " . join ' ', map { "server $_;" } $group->addrs;
    my @nodes = map {
        nginx(
            workers => 2,
            http    => "ratelimit_redis main { $block timeout $_; connect_timeout 1s; }"
                . 'ratelimit_zone k$arg_k zone=test rate=1000000r/d;',
            server => 'add_header X-Status $ratelimit_status always; location / { ratelimit zone=test; '
                . 'try_files /index.html =404; }',
        )
    } '20s', '2s';
    for my $node (@nodes) {
        wait_until('every worker is connected', sub { $node->count_log(qr/ is up/) == 2 * $servers });
    }
    return @nodes;
}

my @keys = 1 .. 24;

sub decided_at_once {
    my ($node) = @_;
    my $began = time;
    is passed(decisions($node, @keys)), @keys, 'the first requests after it are decided by Redis';
    cmp_ok time - $began, '<', 1.5, 'soon';
    return;
}

subtest 'a cluster' => sub {
    my $cluster = cluster();
    my ($patient, $idle) = nodes_of('cluster', $cluster, 3);

    my $slot = $cluster->slot_of('k1');
    my $old  = $cluster->kill_master_of('k1');
    $patient->wait_for_log(qr/is away/, 2);
    is passed(decisions($patient, @keys)), @keys,
        'requests that meet the dead master, or a cluster that is down, wait for the takeover';
    is $patient->count_log(qr/is away/), $patient->count_log(qr/\Q@{[ $old->addr ]}\E is away/),
        'only the dead master is said to be away' or diag $patient->log;

    wait_until('a replica has taken over',
        sub { my $node = eval { $cluster->node_of_slot($slot) }; $node && $node != $old }, 20);
    $cluster->wait_ok;
    decided_at_once($idle);
    is $idle->count_log(qr/fail/i), $idle->count_log(qr/the fail mode decides/), 'no limit failed';
};

subtest 'a master that sentinels watch' => sub {
    my $group = sentinels();
    my ($patient, $idle) = nodes_of('sentinel master=main', $group, 1);
    my $old = $group->master;
    $old->stop('KILL');
    $patient->wait_for_log(qr/is away/, 2);
    is passed(decisions($patient, @keys)), @keys, 'requests that meet the dead one wait';
    $group->wait_for_new_master($old);
    decided_at_once($idle);
};

finish();

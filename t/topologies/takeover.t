# Another server takes over, in a cluster or behind sentinels, while nginx has traffic and while it has
# none.
# needs: redis-sentinel

use Ratelimit::Test;

# $ratelimit_status of requests for these keys, all sent at once.
sub decisions {
    my ($node, @keys) = @_;
    my @clients = map { Ratelimit::Http::http_connect($node->port) } @keys;
    Ratelimit::Http::http_send($clients[$_], "/?k=$keys[$_]", close => 1) for 0 .. $#keys;
    return map { Ratelimit::Http::http_read($_)->header('X-Status') } @clients;
}

sub passed { return scalar grep { $_ eq 'PASSED' } @_ }

# Two nodes: one with a timeout that outlasts a takeover, and one that gets no traffic meanwhile. Every
# worker of both is connected to all $servers that it needs.
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

sub check_first_requests {
    my ($node) = @_;
    my $watch = stopwatch();
    my @seen = decisions($node, @keys);
    is passed(@seen), @keys, 'Redis decides the first requests after the takeover' or diag "@seen\n" . $node->log;
    $watch->within(1.5, 'within seconds');
    return;
}

my $cluster = cluster();

subtest 'a master that hangs while no request comes is noticed before it is replaced' => sub {
    my $servers = join ' ', map { "server $_;" } $cluster->addrs;
    my $node    = nginx(
        http => "ratelimit_redis main { topology cluster; $servers timeout 1s; connect_timeout 1s; }"
            . 'ratelimit_zone k$arg_k zone=test rate=1000000r/d;',
        server => 'add_header X-Status $ratelimit_status always; location / { ratelimit zone=test; '
            . 'try_files /index.html =404; }',
    );
    wait_until('the worker is connected', sub { $node->count_log(qr/ is up/) == 3 });
    my $slot = $cluster->slot_of('k1');
    my $old  = $cluster->node_of_slot($slot);
    is passed(decisions($node, @keys)), @keys, 'all masters have just replied';
    $old->pause;
    wait_until('the worker notices that it hangs', sub { $node->count_log(qr/is away/) }, 5);
    wait_until('a replica has taken over', sub { $cluster->has_left($slot, $old) }, 40);
    $cluster->wait_ok;
    is passed(decisions($node, @keys)), @keys, 'Redis decides the first requests after the takeover';
    $old->resume;
    wait_until('it is a replica', sub { $old->cmd('ROLE')->[0] eq 'slave' && $cluster->is_complete }, 30);
    $node->stop('QUIT');
};

subtest 'a takeover in a cluster fails no request' => sub {
    my ($patient, $idle) = nodes_of('cluster', $cluster, 3);

    my $slot = $cluster->slot_of('k1');
    my $old  = $cluster->kill_master_of('k1');
    $patient->wait_for_log(qr/is away/, 2);
    is passed(decisions($patient, @keys)), @keys,
        'requests to the dead master or the incomplete cluster wait for the takeover';
    is $patient->count_log(qr/is away/), $patient->count_log(qr/\Q@{[ $old->addr ]}\E is away/),
        'only the dead master is reported as unavailable' or diag $patient->log;

    wait_until('a replica has taken over', sub { $cluster->has_left($slot, $old) }, 40);
    $cluster->wait_ok;
    check_first_requests($idle);
    is $idle->count_log(qr/fail/i), $idle->count_log(qr/the fail mode decides/), 'no limit failed';
};

subtest 'a takeover behind sentinels fails no request' => sub {
    my $group = sentinels();
    my ($patient, $idle) = nodes_of('sentinel master=main', $group, 1);
    my $old = $group->master;
    $old->stop('KILL');
    $patient->wait_for_log(qr/is away/, 2);
    is passed(decisions($patient, @keys)), @keys, 'requests to the dead master wait for the takeover';
    $group->wait_for_new_master($old);
    check_first_requests($idle);
};

finish();

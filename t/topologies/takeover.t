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

sub node_of {
    my ($block, $timeout) = @_;
    return nginx(
        workers => 2,
        http    => "ratelimit_redis main { $block timeout $timeout; connect_timeout 1s; }"
            . 'ratelimit_zone k$arg_k zone=test rate=1000000r/d;',
        server => 'add_header X-Status $ratelimit_status always; location / { ratelimit zone=test; '
            . 'try_files /index.html =404; }',
    );
}

my @keys = 1 .. 24;

subtest 'a cluster' => sub {
    my $cluster = cluster();
    my $seeds   = 'topology cluster; ' . join ' ', map { "server $_;" } $cluster->addrs;
    my $idle    = node_of($seeds, '2s');
    my $patient = node_of($seeds, '20s');
    for my $node ($idle, $patient) {
        wait_until('every worker knows all masters', sub { $node->count_log(qr/ is up/) == 6 });
    }

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
    my $began = time;
    is passed(decisions($idle, @keys)), @keys, 'the first requests after it are decided by Redis';
    cmp_ok time - $began, '<', 1.5, 'soon';
    is $idle->count_log(qr/fail/i), $idle->count_log(qr/the fail mode decides/), 'no limit failed';
};

subtest 'a master that sentinels watch' => sub {
    my $group   = sentinels();
    my $seeds   = 'topology sentinel master=main; ' . join ' ', map { "server $_;" } $group->addrs;
    my $idle    = node_of($seeds, '2s');
    my $patient = node_of($seeds, '20s');
    for my $node ($idle, $patient) {
        wait_until('every worker knows the master', sub { $node->count_log(qr/ is up/) == 2 });
    }
    my $old = $group->master;
    $old->stop('KILL');
    $patient->wait_for_log(qr/is away/, 2);
    is passed(decisions($patient, @keys)), @keys, 'requests that meet the dead one wait';
    $group->wait_for_new_master($old);
    my $began = time;
    is passed(decisions($idle, @keys)), @keys, 'the first requests after it are decided by Redis';
    cmp_ok time - $began, '<', 1.5, 'soon';
};

finish();

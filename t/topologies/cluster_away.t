# A cluster that is access-controlled, incomplete, hung or unavailable, and a server that is in no cluster.

use Ratelimit::Test;
use Time::HiRes qw(time sleep);

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

my $cluster = cluster(replicas => 0, password => 'open sesame');

sub node_of {
    my ($block, %options) = @_;
    my $times = $block =~ /timeout/ ? '' : 'timeout 5s; connect_timeout 5s;';
    return nginx(
        %options,
        http => "ratelimit_redis main { topology cluster; $block $times }"
            . 'ratelimit_zone k$arg_k zone=test rate=3r/d;'
            . join('', map { "ratelimit_zone \$arg_o zone=$_ rate=100r/s algorithm=$_;" } @algorithms),
        server => 'ratelimit_fail_mode closed; add_header X-Status $ratelimit_status always;'
            . join('', map { "location /$_ { ratelimit zone=test; ratelimit zone=$_; "
                    . 'try_files /index.html =404; }' } @algorithms)
            . 'location / { ratelimit zone=test; try_files /index.html =404; }'
            . 'location /open { ratelimit zone=test; ratelimit_fail_mode open; try_files /index.html =404; }',
    );
}

sub seeds { return join ' ', map { "server $_;" } $cluster->addrs }

# The number of requests for the map that all running nodes received.
sub map_calls {
    my $sum = 0;
    $sum += $_->calls('cluster|slots') for grep { $_->lives } $cluster->nodes;
    return $sum;
}

subtest 'a user with the rights of doc/operations.md has every right that a cluster needs' => sub {
    my ($rights, $more) = read_file('doc/operations.md')
        =~ /^ACL SETUSER ratelimit on >password (.*)\n(?:.*\n)*?ACL SETUSER ratelimit (.*cluster.*)$/m;
    for my $server ($cluster->nodes) {
        $server->cmd('ACL', 'SETUSER', 'limiter', 'on', '>secret', split(' ', $rights),
            split ' ', $more);
        $server->cmd('ACL', 'LOG', 'RESET');
    }
    my $node = node_of(seeds() . ' username limiter; password secret;');
    my $slot = $cluster->slot_of('kguarded');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    is_deeply [map { $node->status('/?k=guarded') } 1 .. 2], [200, 200];
    $cluster->migrate_begin($slot, $to);
    $cluster->migrate_key('rl:test:{kguarded}');
    is_deeply [map { $node->status('/?k=guarded') } 1 .. 2], [200, 429], 'also after ASK';
    $cluster->migrate_end($slot);
    is_deeply [map { $node->status('/?k=guarded') } 1 .. 2], [429, 429], 'and after MOVED';
    for my $algorithm (@algorithms) {
        is_deeply [map { $node->status("/$algorithm?k=$algorithm&o=o$_") } 1 .. 5],
            [200, 200, 200, 429, 429], "$algorithm counts and refunds";
    }
    is_deeply [map { @{ $_->cmd('ACL', 'LOG') } } $cluster->nodes], [], 'no command was denied';
    is $node->count_log(qr/NOPERM|is away/), 0;
};

subtest 'the default user\'s password works, and a wrong one is reported' => sub {
    is node_of(seeds() . " password 'open sesame';")->status('/?k=password'), 200;
    my $node = node_of(seeds() . ' password wrong;');
    $node->wait_for_log(qr/no node of the cluster knows its slots: WRONGPASS/);
    is $node->status('/'), 503;
};

subtest 'seeds that are dead or in no cluster are reported once' => sub {
    my $lonely = redis();
    my %reason = (
        'server 127.0.0.1:' . free_port() . ';' => 'Connection refused',
        'server ' . $lonely->addr . ';' => 'cluster support disabled',
    );
    for my $block (sort keys %reason) {
        my $node = node_of($block);
        my $line = qr/no node of the cluster knows its slots: .*$reason{$block}/;
        $node->wait_for_log($line);
        my ($began, $before) = (time, $lonely->calls('cluster|slots'));
        # A silent wait: time for two more requests for the map.
        while (time < $began + 2.5) { $node->status('/'); sleep 0.1 }
        my $calls = $lonely->calls('cluster|slots') - $before;
        cmp_ok $calls, '<=', time - $began + 1, 'the map is requested at most once a second';
        is $node->status('/'), 503;
        $node->stop;
        is $node->count_log(qr/\[error\] .*ratelimit: redis/), 1, 'one line in the log' or diag $node->log;
        is $node->count_log($line), 1;
    }
};

subtest 'a node that starts before the cluster is created says so, and uses it when it is' => sub {
    my $first = redis(cluster => 1);
    my $node  = node_of('server ' . $first->addr . '; connect_timeout 5s;');
    $node->wait_for_log(qr/no node of the cluster knows its slots: no slots are assigned yet/);
    is $node->status('/'), 503;
    $first->cmd('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    wait_until('Redis decides', sub { $node->status('/') == 200 });
};

subtest 'a cluster that is down is reported once, and its map is requested about once a second' => sub {
    my $node = node_of(seeds() . " password 'open sesame'; breaker failures=1000000;"
        . "timeout 300ms; connect_timeout 5s;");
    is $node->status('/?k=before'), 200;
    my $victim = $cluster->node_of_slot($cluster->slot_of('kbefore'));
    my @others = grep { $_ != $victim } $cluster->nodes;
    $victim->stop('KILL');
    wait_until('the cluster is down', sub {
        $node->status("/?k=$_") for 1 .. 30;
        return @others == grep({ $_->cmd('CLUSTER', 'INFO') =~ /cluster_state:fail/ } @others)
            && $node->count_log(qr/answered: CLUSTERDOWN/);
    }, 20);
    my ($began, $before, $sent) = (time, map_calls(), 0);
    # A silent wait: time for several requests for the map.
    while (time < $began + 3) { $node->status("/?k=down$sent") == 503 or last; $sent++ }
    cmp_ok $sent, '>', 5, 'requests are refused';
    # A search for the map may use more than one node, if the first does not reply within 50 ms.
    cmp_ok map_calls() - $before, '<=', 4 * (time - $began + 2), 'the map is requested seldom';
    cmp_ok map_calls() - $before, '>=', 1;
    is $node->count_log(qr/\Q@{[ $victim->addr ]}\E is away/), 1, 'one line about the dead master';
    cmp_ok $node->count_log(qr/answered: CLUSTERDOWN/), '<=', 2, 'at most one line about each other master';
    $victim->start;
    $cluster->wait_ok;
    for my $key ('after', 'before') {
        wait_until("requests of $key are decided again", sub { $node->status("/?k=$key") == 200 });
    }
};

subtest 'hung nodes delay a request by at most the timeouts, and a worker\'s exit only for what it has to return' => sub {
    my $node = node_of(seeds() . " password 'open sesame'; timeout 1s; connect_timeout 1s;",
        workers => 2);
    is $node->status("/?k=hung$_"), 200 for 1 .. 10;
    $_->pause for $cluster->nodes;
    my $watch = stopwatch();
    is $node->status('/open?k=hung1'), 200;    # what the fail mode refuses has to be returned
    $watch->within(5);
    $node->configure(http => $node->{http} =~ s/timeout 1s/timeout 30s/gr);
    $node->reload(gone => 1);
    $watch = stopwatch();
    is $node->stop('QUIT') // 0, 0;
    $watch->within(5, 'a pending request for the map does not delay the exit');
    $_->resume for $cluster->nodes;
};

finish();

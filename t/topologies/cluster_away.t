# A cluster that is guarded, incomplete, hung, gone or none.

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
            . 'location / { ratelimit zone=test; try_files /index.html =404; }',
    );
}

sub seeds { return join ' ', map { "server $_;" } $cluster->addrs }

# How often all nodes that live were asked for the map.
sub map_calls {
    my $sum = 0;
    $sum += $_->calls('cluster|slots') for grep { $_->lives } $cluster->nodes;
    return $sum;
}

subtest 'a user with the rights of doc/operations.md can do all that is needed' => sub {
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
    is_deeply [map { $node->status('/?k=guarded') } 1 .. 2], [200, 429], 'also where ASK leads';
    $cluster->migrate_end($slot);
    is_deeply [map { $node->status('/?k=guarded') } 1 .. 2], [429, 429], 'and MOVED';
    for my $algorithm (@algorithms) {
        is_deeply [map { $node->status("/$algorithm?k=$algorithm&o=o$_") } 1 .. 5],
            [200, 200, 200, 429, 429], "$algorithm counts, and gives back";
    }
    is_deeply [map { @{ $_->cmd('ACL', 'LOG') } } $cluster->nodes], [], 'nothing was denied';
    is $node->count_log(qr/NOPERM|is away/), 0;
};

subtest 'the password of the default user will do, a wrong one is told' => sub {
    is node_of(seeds() . " password 'open sesame';")->status('/?k=password'), 200;
    my $node = node_of(seeds() . ' password wrong;');
    $node->wait_for_log(qr/no node of the cluster knows its slots: WRONGPASS/);
    is $node->status('/'), 503;
};

subtest 'seeds that are dead, or in no cluster, are complained about once' => sub {
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
        while (time < $began + 2.5) { $node->status('/'); sleep 0.1 }
        my $calls = $lonely->calls('cluster|slots') - $before;
        cmp_ok $calls, '<=', time - $began + 1, 'asked again once a second at most';
        is $node->status('/'), 503;
        $node->stop;
        is $node->count_log(qr/\[error\] .*ratelimit: redis/), 1, 'one line' or diag $node->log;
        is $node->count_log($line), 1;
    }
};

subtest 'a cluster that is down is told of once, and asked for its map once a second at most' => sub {
    my $node = node_of(seeds() . " password 'open sesame'; breaker failures=1000000;"
        . "timeout 300ms; connect_timeout 5s;");
    is $node->status('/?k=before'), 200;
    my $victim = $cluster->node_of_slot($cluster->slot_of('kbefore'));
    my @others = grep { $_ != $victim } $cluster->nodes;
    $victim->stop('KILL');
    wait_until('it is down', sub {
        $node->status("/?k=$_") for 1 .. 30;
        return @others == grep({ $_->cmd('CLUSTER', 'INFO') =~ /cluster_state:fail/ } @others)
            && $node->count_log(qr/answered: CLUSTERDOWN/);
    }, 20);
    my ($began, $before, $asked) = (time, map_calls(), 0);
    while (time < $began + 3) { $node->status("/?k=down$asked") == 503 or last; $asked++ }
    cmp_ok $asked, '>', 5, 'requests are refused';
    # Each search may ask more than one node, when the first does not answer within 50 ms.
    cmp_ok map_calls() - $before, '<=', 4 * (time - $began + 2), 'and the map is requested now and then';
    cmp_ok map_calls() - $before, '>=', 1;
    is $node->count_log(qr/\Q@{[ $victim->addr ]}\E is away/), 1, 'one line of the dead';
    cmp_ok $node->count_log(qr/answered: CLUSTERDOWN/), '<=', 2, 'one of each other';
    $victim->start;
    $cluster->wait_ok;
    wait_until('requests are decided again', sub { $node->status('/?k=after') == 200 });
    is $node->status('/?k=before'), 200;
};

subtest 'hung nodes delay a request by the timeouts at most, and no worker that leaves' => sub {
    my $node = node_of(seeds() . " password 'open sesame'; timeout 1s; connect_timeout 1s;",
        workers => 2);
    is $node->status("/?k=hung$_"), 200 for 1 .. 10;
    $_->pause for $cluster->nodes;
    my $began = time;
    is $node->status('/?k=hung1'), 503;
    cmp_ok time - $began, '<', 5;
    $node->configure(http => $node->{http} =~ s/timeout 1s/timeout 30s/gr);
    $node->reload(gone => 1);
    $began = time;
    is $node->stop('QUIT') // 0, 0;
    cmp_ok time - $began, '<', 5, 'a query of the map keeps nobody';
    $_->resume for $cluster->nodes;
};

finish();

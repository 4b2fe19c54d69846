# Redis Cluster: limits are exact on every slot, while slots move and masters die.

use Ratelimit::Test;

my $cluster = cluster();
my $dead    = '127.0.0.1:' . free_port();
my @nodes;

# An nginx with these servers as seeds. Zones one, two and single count by $arg_k, other by $arg_o.
sub node_of {
    my ($seeds, %options) = @_;
    my $rate   = $options{rate} // '1000000r/d';
    my $block  = $options{block} // 'timeout 5s; connect_timeout 5s;';
    my $limits = join '', map { "ratelimit_zone k\$arg_k zone=$_ rate=$rate algorithm=fixed_window;" }
        qw(one two single);
    my $mode = $options{mode} // 'closed';
    my $node = nginx(
        %options,
        http => "ratelimit_redis main { topology cluster; "
            . join('', map { "server $_; " } @{$seeds}) . "$block } $limits"
            . "ratelimit_zone \$arg_o zone=other rate=$rate algorithm=fixed_window;"
            . 'ratelimit_zone k$arg_k zone=penal rate=3r/d block=1h cache=off;'
            . 'ratelimit_zone k$arg_k zone=beside rate=3r/d block=1h cache=off;'
            . 'ratelimit_zone $arg_b zone=bare1 rate=3r/d; ratelimit_zone $arg_b zone=bare2 rate=5r/d;'
            . 'log_format status "$request_uri $status=$ratelimit_status";',
        server => "ratelimit_fail_mode $mode; access_log access.log status;"
            . 'add_header X-Status $ratelimit_status always;'
            . join('', map { s/\{/{ try_files \/index.html =404;/r }
                'location = /one { ratelimit zone=one; }',
                'location = /single { ratelimit zone=single; }',
                'location = /both { ratelimit zone=one; ratelimit zone=two; }',
                'location = /apart { ratelimit zone=one; ratelimit zone=other; }',
                'location = /penal { ratelimit zone=penal; }',
                'location = /beside { ratelimit zone=one; ratelimit zone=beside; }',
                'location = /bare { ratelimit zone=bare1; ratelimit zone=bare2; }',
                'location = /peek/one { ratelimit zone=one cost=0; }',
                'location = /peek/single { ratelimit zone=single cost=0; }',
                'location = /peek/two { ratelimit zone=two cost=0; }',
                'location = /peek/other { ratelimit zone=other cost=0; }'),
    );
    push @nodes, $node;
    return $node;
}

# The number of requests that a limit has counted.
sub counted {
    my ($node, $zone, $keys) = @_;
    my $answer = $node->get("/peek/$zone?$keys");
    return $answer->header('X-RateLimit-Limit') - $answer->header('X-RateLimit-Remaining');
}

sub failures { return scalar grep { /FAILED/ } split /\n/, $_[0]->file('access.log') }

# A number whose key "k<number>" is in one of the slots from $first to $last.
sub key_in {
    my ($first, $last) = @_;
    for my $number (1 .. 100_000) {
        my $slot = $cluster->slot_of("k$number");
        return $number if $slot >= $first && $slot <= $last;
    }
    die 'no key';
}

sub first_slot_of {
    my ($node) = @_;
    my ($first) = sort { $a <=> $b }
        map { $_->[0] } grep { $_->[2][1] == $node->port } @{ $node->cmd('CLUSTER', 'SLOTS') };
    return $first;
}

# The number of error replies of this kind by all running nodes.
sub errors {
    my ($kind) = @_;
    my $sum = 0;
    for my $node (grep { $_->lives } $cluster->nodes) {
        $sum += $1 if $node->cmd('INFO', 'errorstats') =~ /^errorstat_$kind:count=(\d+)/m;
    }
    return $sum;
}

# Ends a load: Redis decided every request, and each is counted once.
sub check_load {
    my ($node, $load, $keys, @zones) = @_;
    my $seen = $load->stop;
    is $seen->{failed}, 0, 'no request failed' or diag $seen->{why};
    is join(' ', grep { /^\d+$/ } sort keys %{$seen}), 200, 'all requests passed';
    is counted($node, $_, $keys), $seen->{200}, "each request is counted once in zone $_" for @zones;
    is failures($node), 0, 'the fail mode decided none';
    return;
}

subtest 'limits are exact on all slots, for nginx nodes with different seeds, some of them dead' => sub {
    my ($first, $second, $third) = $cluster->addrs;
    my ($replica) = grep { my $node = $_; !grep { $_ eq $node->addr } $cluster->addrs } $cluster->nodes;
    my @pair = (node_of([$dead, $first], rate => '3r/d'),
        node_of([$replica->addr, $dead], rate => '3r/d'));
    my %passed;
    for my $key (1 .. 40) {
        $passed{$key} = grep { $_ == 200 } map { $_->status("/one?k=$key") } @pair, @pair;
    }
    is join(' ', map { $passed{$_} } 1 .. 40), join(' ', (3) x 40), 'three of four requests of each key pass';
    isnt join(' ', $_->keys_like('rl:one:*')), '', 'every master has some' for $cluster->masters;
    is $_->count_log(qr/cluster of 3 masters: /), 1, 'one line names the masters' for @pair;
    is $_->count_log(qr/is away|no node/), 0, 'dead seeds are not reported' for @pair;
};

subtest 'two limits in one slot or in two are both counted or neither' => sub {
    my $node = node_of([$cluster->addrs], rate => '3r/d');
    is_deeply [map { $node->status('/both?k=both') } 1 .. 4], [200, 200, 200, 429];
    is_deeply [map { $node->status("/apart?k=apart&o=x$_") } 1 .. 4], [200, 200, 200, 429];
    wait_until('a request that the other limit refuses is refunded', sub { counted($node, 'other', 'o=x4') == 0 });
    is_deeply [map { $node->status("/apart?k=apart$_&o=same") } 1 .. 5], [200, 200, 200, 429, 429];
    for my $refused (4, 5) {
        wait_until('it is refunded', sub { counted($node, 'one', "k=apart$refused") == 0 });
    }
};

subtest 'keys with braces are counted like any other' => sub {
    my $node = node_of([$cluster->addrs]);
    for my $key ('a}b', '{', '}', '}x', '{}', '{}x', '{a}', 'a{b}c', '}{', 'x}y{z') {
        is_deeply [map { $node->status("/bare?b=$key") } 1 .. 4], [200, 200, 200, 429], "'$key'";
        is $node->get("/bare?b=$key")->header('X-Status'), 'REJECTED';
    }
    is failures($node), 0;
};

subtest 'slots that move under load keep their counts' => sub {
    my ($from, $to) = $cluster->masters;
    my $first = first_slot_of($from);
    my $node = node_of([$to->addr]);
    my ($one, $two) = map { key_in($first + $_, $first + $_ + 99) } 0, 100;
    my @loads = (load(port => $node->port, path => "/one?k=$one", clients => 4),
        load(port => $node->port, path => "/both?k=$two", clients => 4));
    $_->wait_for_more(50) for @loads;
    $cluster->reshard(slots => 200, from => $from, to => $to);
    $_->wait_for_more(50) for @loads;
    is $cluster->node_of_slot($cluster->slot_of("k$_"))->port, $to->port, 'the slot has moved' for $one, $two;
    check_load($node, $loads[0], "k=$one", 'one');
    check_load($node, $loads[1], "k=$two", 'one', 'two');
    is $node->count_log(qr/is away|answered:/), 0;
};

subtest 'while a slot moves step by step under load each request is counted exactly once' => sub {
    my $node = node_of([$cluster->addrs], workers => 2);
    my $slot = $cluster->slot_of('kstep');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    my ($both, $apart, $single) = map { load(port => $node->port, path => "/$_", clients => 4) }
        'both?k=step', 'apart?k=away&o=kstep', 'single?k=step';
    my $more = sub { $_->wait_for_more(30) for $both, $apart, $single };
    $more->();
    my ($asks, $tries) = (errors('ASK'), errors('TRYAGAIN'));
    $cluster->migrate_begin($slot, $to);
    $more->();
    $cluster->migrate_key('rl:one:{kstep}');
    wait_until('the slot\'s keys are on two nodes', sub { errors('TRYAGAIN') > $tries });
    $more->();
    for my $zone (qw(single other two)) {
        $cluster->migrate_key("rl:$zone:{kstep}");
        $more->();
    }
    cmp_ok errors('ASK'), '>', $asks, 'the old master redirected with ASK';
    $cluster->migrate_end($slot);
    $more->();
    check_load($node, $both,   'k=step',         'one', 'two');
    check_load($node, $apart,  'k=away&o=kstep', 'one', 'other');
    check_load($node, $single, 'k=step',         'single');
    is $node->count_log(qr/is away|answered:/), 0, 'no error is logged';
};

subtest 'a new key of a moving slot is counted on the new master' => sub {
    my $node = node_of([$cluster->addrs], rate => '3r/d');
    my $slot = $cluster->slot_of('kfresh');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    $cluster->migrate_begin($slot, $to);
    is_deeply [map { $node->status('/both?k=fresh') } 1 .. 4], [200, 200, 200, 429];
    is_deeply [sort grep { /kfresh/ } $to->keys_like], ['rl:one:{kfresh}', 'rl:two:{kfresh}'];
    $cluster->migrate_end($slot);
    is $node->status('/both?k=fresh'), 429;
    is failures($node), 0;
};

subtest 'limits with a block are decided while their slot moves' => sub {
    my $node = node_of([$cluster->addrs]);
    for my $key (qw(new old)) {
        my $slot = $cluster->slot_of("k$key");
        my $from = $cluster->node_of_slot($slot);
        my ($to) = grep { $_ != $from } $cluster->masters;
        my $record = "rl:penal:{k$key}:block";
        my $penal = sub { map { $node->status("/penal?k=$key") } 1 .. $_[0] };
        if ($key eq 'old') {
            is_deeply [$penal->(4)], [200, 200, 200, 429];
            wait_until('the block', sub { $from->cmd('EXISTS', $record) });
            $from->cmd('DEL', "rl:penal:{k$key}");
        }
        $cluster->migrate_begin($slot, $to);
        if ($key eq 'old') {
            is_deeply [$penal->(3)], [429, 429, 429], 'a blocked key stays blocked';
            $cluster->migrate_key($record);
        } else {
            is_deeply [$penal->(4)], [200, 200, 200, 429], 'another one has its limit';
            wait_until('its block', sub { grep { $_ eq $record } $to->keys_like });
            is_deeply [map { $node->status("/beside?k=$key") } 1 .. 4], [200, 200, 200, 429], 'beside another limit';
        }
        is_deeply [$penal->(2)], [429, 429], 'also when the record has been moved';
        $cluster->migrate_end($slot);
        is_deeply [$penal->(1)], [429], 'and afterwards';
    }
    is failures($node), 0;
};

subtest 'a request whose reply was lost passes while its slot moves' => sub {
    my $slot = $cluster->slot_of('klate');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    my $first = first_slot_of($from);
    my $other = key_in($first, $first + 99);
    my $proxy = proxy(to => $from->addr);
    $from->cmd('CONFIG', 'SET', 'cluster-announce-port', $proxy->port);
    wait_until('the node announces the proxy',
        sub { grep { $_->[2][1] == $proxy->port } @{ $from->cmd('CLUSTER', 'SLOTS') } });
    my $node = node_of([$proxy->addr], rate => '1r/d');
    wait_until('a decision by that node', sub { $node->get("/both?k=$other")->header('X-Status') eq 'PASSED' });
    $proxy->delay(30);
    my $socket = http_connect($node->port);
    http_send($socket, '/both?k=late');
    wait_until('Redis has counted it', sub { $from->cmd('EXISTS', 'rl:one:{klate}', 'rl:two:{klate}') == 2 });
    $from->cmd('CONFIG', 'SET', 'cluster-announce-port', 0);
    $cluster->migrate_begin($slot, $to, $from);    # others may still know the proxy's port
    $cluster->migrate_key('rl:one:{klate}');
    my $tries = errors('TRYAGAIN');
    $proxy->pass;    # what is delayed stays delayed
    $proxy->cut;
    is http_read($socket)->header('X-Status'), 'PASSED', 'it was the only one of its key';
    cmp_ok errors('TRYAGAIN'), '>', $tries, 'its limits were on two nodes';
    is $node->get('/both?k=late')->header('X-Status'), 'REJECTED', 'and it was counted';
    $cluster->migrate_key('rl:two:{klate}');
    $cluster->migrate_end($slot);
};

subtest 'a master that is killed under load is replaced' => sub {
    my $node = node_of([$cluster->addrs], mode => 'open', workers => 2);
    my $load = load(port => $node->port, path => '/one?k=lost', clients => 4);
    my $other = load(port => $node->port, path => '/both?k=lost', clients => 4);
    $_->wait_for_more(50) for $load, $other;
    my $killed = $cluster->kill_master_of('klost');
    $cluster->wait_ok;
    my $watch = stopwatch();
    wait_until('requests of its slots are decided again',
        sub { $node->get('/one?k=lost')->header('X-Status') eq 'PASSED' && !$killed->lives
            && $node->count_log(qr/cluster of 3 masters: /) >= 4 }, 20);
    $watch->within(5, 'within seconds after the cluster has another master');
    $_->wait_for_more(50) for $load, $other;
    for my $seen (map { $_->stop } $load, $other) {
        is $seen->{failed}, 0 or diag $seen->{why};
        is join(' ', grep { /^\d+$/ } sort keys %{$seen}), 200, 'all requests passed';
    }
    is $node->count_log(qr/\Q@{[ $killed->addr ]}\E is away/), 2, 'each worker logs one line about the dead master';
    is $node->count_log(qr/cluster of 3 masters: /), 4, 'and one line about the new masters';
    $killed->start;
    $cluster->wait_ok;
};

subtest 'late replies count while a slot moves to a node that has none' => sub {
    my $new  = $cluster->add_node;
    my $slot = $cluster->slot_of('kscale');
    my $from = $cluster->node_of_slot($slot);
    my $node = node_of([$cluster->addrs], block => 'timeout 200ms; connect_timeout 200ms;');
    my $passed = 0;
    my $request = sub { my $status = $node->status('/single?k=scale'); $passed += $status == 200; return $status };
    is $request->(), 200;
    $cluster->migrate_begin($slot, $new);
    $cluster->migrate_key('rl:single:{kscale}');
    is $request->(), 200, 'by the new node';
    $new->pause;
    my $maps = sub {
        my $sum = 0;
        $sum += $_->calls('cluster|slots') for grep { $_->lives } $cluster->nodes;
        return $sum;
    };
    my $before = $maps->();
    wait_until('the map is read again, and again', sub { $request->(); $maps->() >= $before + 9 }, 30);
    $new->resume;
    wait_until('a decision', sub { $request->() == 200 });
    wait_until('the units of refused requests are returned', sub { counted($node, 'single', 'k=scale') == $passed });
    is $node->count_log(qr/\Q@{[ $new->addr ]}\E is away/), 1, 'it was away once';
    $cluster->migrate_end($slot);
};

subtest 'no call had keys in different slots' => sub {
    $_->stop('QUIT') for @nodes;
    is join("\n", grep { /CROSSSLOT/ } map { split /\n/, $_->log } @nodes), '';
    is errors('CROSSSLOT'), 0;
};

finish();

# Every view, script and topology with exactly the rights of doc/operations.md, "Rights in Redis".
# needs: redis-sentinel

use Ratelimit::Build qw(top);
use Ratelimit::Fleet qw(override take_back);
use Ratelimit::Test;
use JSON::PP qw(decode_json);

my $documented = read_file(top() . '/doc/operations.md') =~ s/.*^## Rights in Redis$//msr =~ s/^## .*//msr;
my ($first, $cluster, $master, $fleet) = $documented =~ /^ACL SETUSER ratelimit (.*)$/mg;
my ($watcher) = $documented =~ /^ACL SETUSER watcher (.*)$/mg;
my $user = 'username limiter; password secret;';

# Makes the user on each server, with these rights of the document and no others, and empties the log of what was denied.
sub allow {
    my ($rights, @servers) = @_;
    for my $server (@servers) {
        $server->cmd('ACL', 'SETUSER', 'limiter', 'reset', split ' ', $rights =~ s/>password/>secret/r);
        $server->cmd('ACL', 'LOG', 'RESET');
    }
    return;
}

sub denied { return [map { map { my %entry = @{$_}; $entry{object} } @{ $_->cmd('ACL', 'LOG') } } @_] }

my %zones = (
    (map { $_ => "rate=3r/h algorithm=$_" }
        qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets token_bucket leaky_bucket gcra)),
    concurrency => 'concurrency=2 hold=2s', block => 'rate=2r/h block=1h', lease => 'rate=1000r/h lease=20',
    ahead => 'rate=1000r/h ahead=10', calendar => 'algorithm=fixed_window calendar=UTC rate=3r/month',
    buckets_block => 'rate=2r/h algorithm=token_bucket block=1h',
);

# A node with a zone of each kind; each as a location of its own, and all together.
sub node_of {
    my ($block, $redis) = @_;
    my @names = sort keys %zones;
    my %limit = (leaky_bucket => 'nodelay', fixed_window => 'charge=$arg_charge', concurrency => 'reserve=1');
    my $limits = sub { return join '', map { "ratelimit zone=$_ " . ($limit{$_} // '') . ';' } @_ };
    return nginx(
        workers => 2,
        http => "ratelimit_redis main { $block $user timeout 5s; connect_timeout 5s; } ratelimit_fleet;"
            . 'ratelimit_zone $arg_k zone=test rate=2r/d;'
            . join('', map { "ratelimit_zone \$arg_k zone=$_ $zones{$_};" } @names),
        server => 'ratelimit_fail_mode closed; location /ops/ { ratelimit_api write=on; } location / { ratelimit zone=test; }'
            . join('', map { "location /$_/ { @{[ $limits->($_) ]} try_files /index.html =404; }" } @names)
            . "location /all/ { @{[ $limits->(@names) ]} try_files /index.html =404; }"
            . 'location /check/ { ratelimit_check; ratelimit zone=test; } location /peek/ { ratelimit_check peek; ratelimit zone=test; }',
    );
}

# Every script of a limit, every view of the API and every change work on the node.
sub everything_works {
    my ($node) = @_;
    for my $zone (sort keys %zones, 'all') {
        my @statuses = map { $node->status("/$zone/?k=$zone&charge=" . ($_ % 3)) } 1 .. 5;
        is scalar(grep { $_ != 200 && $_ != 429 } @statuses), 0, "$zone: @statuses";
        is $statuses[0], 200, 'the first one passes';
    }
    is $node->status("/$_/x?k=checked"), 200, $_ for qw(check peek);
    my @views = map { ("zones/$_", "zones/$_/keys/$_", "zones/$_/history", "zones/$_/overrides", "zones/$_/override",
        "zones/$_/keys/$_/override") } sort keys %zones;
    is $node->status("/ops/$_"), 200, "GET $_" for '', qw(metrics zones redis fleet history overrides), @views;
    override($node, 'ka', $_) for { rate => '5r/h', for => '2s' }, { block => \1 }, { unlimited => \1 };
    override($node, 'override', { rate => '7r/h' });
    my $tag = $node->get('/ops/zones/test/keys/ka/override')->header('ETag');
    is $node->get('/ops/zones/test/keys/ka/override', method => 'DELETE', headers => ['If-Match' => $tag])->status, 204, 'If-Match';
    is scalar(@{ decode_json($node->get("/ops/$_")->body)->{overrides} }), 1, $_ for qw(overrides zones/test/overrides);
    is take_back($node, 'override'), 204, 'the zone\'s override is taken back';
    is $node->status("/ops/zones/$_/keys/$_", method => 'DELETE'), 204, "a key of $_ is freed" for sort keys %zones;
    is scalar(@{ decode_json($node->get('/ops/fleet')->body)->{nodes} }), 1, 'the node is listed';
    $node->reload(gone => 1);
    is $node->status('/gcra/?k=reloaded'), 200, 'after a reload';
    $node->stop('QUIT');
    is $node->count_log(qr/NOPERM|can't run|permission|Rights in Redis|did not answer when nginx ended/), 0, 'no right is missed';
    return;
}

subtest 'one server' => sub {
    my $redis = redis();
    allow("$first $fleet", $redis);
    everything_works(node_of('server ' . $redis->addr . ';'));
    is_deeply denied($redis), [], 'no command was denied';
};

subtest 'a cluster, while slots move' => sub {
    my $group = cluster(replicas => 0);
    allow("$first $cluster $fleet", $group->nodes);
    my $block = join ' ', 'topology cluster;', map { "server $_;" } $group->addrs;
    my ($gcra, $to) = ($group->slot_of('gcra'), undef);
    ($to) = grep { $_ != $group->node_of_slot($gcra) } $group->masters;
    $group->migrate_begin($gcra, $to);    # its keys do not exist: ASK
    everything_works(node_of($block));
    $group->migrate_end($gcra);
    is_deeply denied($group->nodes), [], 'no command was denied';
};

subtest 'sentinels' => sub {
    my $group = sentinels(replicas => 1);
    allow("$first $master $fleet", $group->nodes);
    allow($watcher, $group->sentinels);
    everything_works(node_of(join ' ', 'topology sentinel master=main;',
        'sentinel_username limiter; sentinel_password secret;', map { "server $_;" } $group->addrs));
    is_deeply denied($group->nodes, $group->sentinels), [], 'no command was denied';
};

subtest 'the documents name each command that a script has, and no other' => sub {
    my %used = map { lc $_ => 1 } map { read_file($_) =~ /redis\.p?call\(\s*'(\w+)'/g } glob top() . '/lua/*.lua';
    cmp_ok scalar(keys %used), '>', 20, 'commands are found';
    my %rights = map { $_ => 1 } "$first $fleet" =~ /\+([\w|]+)/g;
    is_deeply [sort grep { !$rights{$_} } keys %used], [], 'each is a right';
    my $engines = lc read_file(top() . '/doc/comparison.md') =~ s/.*^## Engines$//msr =~ s/^\| engine.*//msr;
    is_deeply [sort grep { $engines !~ /\b$_\b/ } keys %used], [], 'each is in "Engines" of comparison.md';
    my %sent = map { $_ => 1 } qw(evalsha eval del select client|setname);
    is_deeply [sort grep { !$used{$_} && !$sent{$_} } keys %rights], [], 'each right is used';
};

finish();

# A failover whose leading sentinel waits for a replica: a worker that listens to that sentinel uses the new master at once.
# needs: redis-sentinel

use Ratelimit::Test;

my $group = sentinels(replicas => 2);

wait_until('replicas and sentinels are known', sub { eval { $group->is_complete } }, 60);
my @before = $group->listeners;
my $node = nginx(
    http => 'ratelimit_redis main { topology sentinel master=main; ' . join(' ', map { "server $_;" } $group->addrs)
        . ' timeout 5s; connect_timeout 5s; } ratelimit_zone $arg_k zone=test rate=3r/d;',
    server => 'ratelimit_fail_mode closed; location / { ratelimit zone=test; try_files /index.html =404; }',
);
is $node->status('/?k=before'), 200;
my @now = $group->listeners;
my ($leader, @others) = ($group->sentinels)[grep { $now[$_] > $before[$_] } 0 .. $#now];
is @others, 0, 'the worker is subscribed to one sentinel';

my $old = $group->master;
my ($slow, $new) = grep { $_ != $old } $group->nodes;
$slow->cmd('CONFIG', 'SET', 'replica-priority', 0);    # so that the other replica is promoted
wait_until('the sentinel knows the priority', sub {
    my %of = map { my %is = @{$_}; ($is{port} => $is{'slave-priority'}) } @{ $leader->cmd('SENTINEL', 'REPLICAS', 'main') };
    return $of{ $slow->port } eq '0';
}, 60);
$leader->cmd('SENTINEL', 'SET', 'main', 'failover-timeout', 60_000, 'down-after-milliseconds', 60_000);
$slow->pause;
wait_until('the failover begins', sub { eval { $leader->cmd('SENTINEL', 'FAILOVER', 'main') } }, 60);
# A server that is promoted closes its connections.
wait_until('the other replica is promoted', sub { eval { $new->cmd('ROLE')->[0] eq 'master' } }, 60);
$node->wait_for_log(qr/master main is at \Q@{[ $new->addr ]}/);
is $node->status('/?k=led'), 200;
is_deeply [$new->keys_like('*led*')], ['rl:test:{led}'], 'the new master decides';
unlike $leader->log, qr/\+switch-master/, 'before the sentinel reports the end of the failover';
$slow->resume;
wait_until('the failover ends', sub { $leader->log =~ /\+switch-master/ }, 60);

finish();

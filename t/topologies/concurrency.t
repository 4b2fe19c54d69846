# concurrency= where keys are on several servers: a ring and a cluster.

use Ratelimit::Backend;
use Ratelimit::Remaining qw(remaining remains);
use Ratelimit::Test;
use Time::HiRes qw(sleep time);

my $backend = Ratelimit::Backend->new;
my $ring    = [map { redis() } 1 .. 3];
my $cluster = cluster();
my %block   = (
    ring    => join(' ', map { 'server ' . $_->addr . ';' } @{$ring}),
    cluster => 'topology cluster; ' . join(' ', map { "server $_;" } $cluster->addrs),
);

# Limits by two keys, which may be on two servers; /peek/ZONE reports what remains.
sub limited_node {
    my ($topology, %options) = @_;
    my $upstream = "proxy_pass http://@{[ $backend->addr ]};";
    return nginx(
        %options,
        http => "ratelimit_redis main { $block{$topology} timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_a zone=one concurrency=3 hold=2s;'
            . 'ratelimit_zone $arg_b zone=two concurrency=2 hold=2s;',
        server => "location = /both { ratelimit zone=one; ratelimit zone=two; $upstream }"
            . "location = /single { ratelimit zone=one; $upstream }"
            . 'location = /peek/one { ratelimit zone=one cost=0; try_files /index.html =404; }'
            . 'location = /peek/two { ratelimit zone=two cost=0; try_files /index.html =404; }',
    );
}

for my $topology (sort keys %block) {
    subtest "each key is held and released on its server: $topology" => sub {
        my @nodes = map { limited_node($topology, workers => 2) } 1 .. 2;
        my @keys  = map { "$topology$_" } 1 .. 8;
        my @held  = map { my $key = $_; map { $backend->hold($_, "/both?a=$key&b=x$key") } @nodes } @keys;
        for my $key (@keys) {
            is $nodes[0]->status("/both?a=$key&b=x$key"), 429, "key $key: the second limit refuses";
            remains($nodes[1], 1, "/peek/one?a=$key", "/peek/one?a=$key");
        }
        my $end = time + 2.5;
        my %seen;
        for (my $turn = 0; time < $end; $turn++) { $seen{ remaining($nodes[0], "/peek/one?a=$keys[$turn % 8]") }++; sleep 0.02 }
        is_deeply [keys %seen], [1], 'they are renewed';
        $backend->finish;
        is http_read($_)->status, 200 for @held;
        for my $key (@keys) {
            remains($nodes[0], 3, "/peek/one?a=$key", "/peek/one?a=$key");
            remains($nodes[1], 2, "/peek/two?b=x$key", "/peek/two?b=x$key");
        }
    };
}

subtest 'a slot that moves takes along what is held' => sub {
    my $node = limited_node('cluster');
    my @held = $backend->hold($node, ('/single?a=moves') x 2);
    my $slot = $cluster->slot_of('{moves}');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_->port != $from->port } $cluster->masters;
    $cluster->migrate_begin($slot, $to);
    $cluster->migrate_key($_) for $from->keys_like('*{moves}*');
    $cluster->migrate_end($slot);
    remains($node, 1, '/peek/one?a=moves', '/peek/one?a=moves');
    sleep 2.5;
    is remaining($node, '/peek/one?a=moves'), 1, 'and it is renewed there';
    $backend->finish;
    remains($node, 3, '/peek/one?a=moves', '/peek/one?a=moves');
};

finish();

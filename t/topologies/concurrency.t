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
            . 'ratelimit_zone $arg_a zone=one concurrency=3 hold=4s;'
            . 'ratelimit_zone $arg_b zone=two concurrency=2 hold=4s;',
        server => "location = /both { ratelimit zone=one; ratelimit zone=two; $upstream }"
            . "location = /single { ratelimit zone=one; $upstream }"
            . 'location = /peek/one { ratelimit zone=one cost=0; try_files /index.html =404; }'
            . 'location = /peek/two { ratelimit zone=two cost=0; try_files /index.html =404; }',
    );
}

# What is held for all subtests, while all of it has to be renewed at the same time.
my %started = map { $_ => start($_) } sort keys %block;

sub start {
    my ($topology) = @_;
    my @nodes = map { limited_node($topology, workers => 2) } 1 .. 2;
    my @keys  = map { "$topology$_" } 1 .. 8;
    return { nodes => \@nodes, keys => \@keys, held => [map { my $key = $_; map { $backend->hold($_, "/both?a=$key&b=x$key") } @nodes } @keys] };
}

for my $topology (sort keys %block) {
    subtest "each key is held on its server: $topology" => sub {
        my @nodes = @{ $started{$topology}{nodes} };
        for my $key (@{ $started{$topology}{keys} }) {
            is $nodes[0]->status("/both?a=$key&b=x$key"), 429, "key $key: the second limit refuses";
            remains($nodes[1], 1, "/peek/one?a=$key", "/peek/one?a=$key");
        }
    };
}

my $node  = limited_node('cluster');
my @moves = $backend->hold($node, ('/single?a=moves') x 2);

subtest 'a slot that moves takes along what is held' => sub {
    my $slot = $cluster->slot_of('{moves}');
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_->port != $from->port } $cluster->masters;
    $cluster->migrate_begin($slot, $to);
    $cluster->migrate_key($_) for $from->keys_like('*{moves}*');
    $cluster->migrate_end($slot);
    remains($node, 1, '/peek/one?a=moves', '/peek/one?a=moves');
};

subtest 'all of it is renewed, also on the server that has it now' => sub {
    my @peeks = ([$node, '/peek/one?a=moves']);
    for my $of (values %started) {
        push @peeks, map { [$of->{nodes}[0], "/peek/one?a=$_"] } @{ $of->{keys} };
    }
    # Beyond the time at which what is not renewed is free.
    my $end = time + 4.7;
    my %seen;
    for (my $turn = 0; time < $end; $turn++) {
        my ($from, $path) = @{ $peeks[$turn % @peeks] };
        $seen{ remaining($from, $path) }++;
        sleep 0.02;
    }
    is_deeply [keys %seen], [1];
};

$backend->finish;

for my $topology (sort keys %block) {
    subtest "each key is released on its server: $topology" => sub {
        my ($first, $second) = @{ $started{$topology}{nodes} };
        is http_read($_)->status, 200 for @{ $started{$topology}{held} };
        for my $key (@{ $started{$topology}{keys} }) {
            remains($first, 3, "/peek/one?a=$key", "/peek/one?a=$key");
            remains($second, 2, "/peek/two?b=x$key", "/peek/two?b=x$key");
        }
    };
}

subtest 'and on the server to which its slot has moved' => sub {
    is http_read($_)->status, 200 for @moves;
    remains($node, 3, '/peek/one?a=moves', '/peek/one?a=moves');
};

finish();

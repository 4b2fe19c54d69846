# ahead= where keys are on several servers, in a ring or a cluster, and where sentinels name the one.
# needs: redis-sentinel

use JSON::PP qw(decode_json);
use Ratelimit::Test;

my @path = ('algorithm=fixed_window', 'algorithm=gcra burst=19', 'algorithm=sliding_window_log');
my $quick = 'timeout 300ms; connect_timeout 300ms;';

# Limits by two keys, which may be on two servers.
sub ahead_node {
    my ($block, $zone, %options) = @_;
    return nginx(
        %options,
        http => "ratelimit_redis main { $block }"
            . "ratelimit_zone \$arg_a zone=one rate=20r/d $zone ahead=5;"
            . "ratelimit_zone \$arg_b zone=two rate=20r/d $zone ahead=5;",
        server => 'add_header X-Source $ratelimit_source always; location /rl/ { ratelimit_api; }' . join '',
            map { s/\{/{ try_files \/index.html =404; ratelimit_fail_mode closed;/r }
            'location = /single { ratelimit zone=one; }',
            'location = /both { ratelimit zone=one; ratelimit zone=two; }',
    );
}

sub left {
    my ($node, $zone, $key) = @_;
    my $answer = $node->get("/rl/zones/$zone/keys?key=$key");
    return $answer->status == 200 ? decode_json($answer->body)->{remaining} : 'status ' . $answer->status;
}

sub is_left {
    my ($node, $zone, $key, $expected) = @_;
    my $got = '';
    ok eval { wait_until('the count', sub { ($got = left($node, $zone, $key)) eq $expected }, 8); 1 },
        "$zone has $expected left for $key" or diag "left: $got";
    return;
}

sub passed { my ($node, $path, $times) = @_; return scalar grep { $node->status($path) == 200 } 1 .. $times }

my $cluster = cluster();

{
    my @ring    = map { redis() } 1 .. 3;
    my %block   = (
        ring    => join(' ', map { 'server ' . $_->addr . ';' } @ring) . ' timeout 5s; connect_timeout 5s;',
        cluster => 'topology cluster; timeout 5s; connect_timeout 5s;' . join(' ', map { "server $_;" } $cluster->addrs),
    );
    for my $topology (sort keys %block) {
        for my $zone (@path) {
            subtest "each key is counted on its server, and each limit on its own: $topology, $zone" => sub {
                my $node = ahead_node($block{$topology}, $zone);
                my $prefix = ($zone =~ tr/a-z//cdr) . $topology;
                for my $key (map { "$prefix$_" } 1 .. 8) {
                    is $node->get("/both?a=$key&b=x$key")->header('X-Source'), 'ahead', 'it passes ahead';
                    is passed($node, "/single?a=$key", 4), 4;
                    is_left($node, 'one', $key, 15);
                    is_left($node, 'two', "x$key", 19);
                    is passed($node, "/both?a=$key&b=x$key", 20), 15, 'the limit is exact';
                    is_left($node, 'one', $key, 0);
                    is_left($node, 'two', "x$key", 4);
                }
            };
        }
    }

    subtest 'a slot that moves: what passes ahead is counted once' => sub {
        my $node = ahead_node($block{cluster}, $path[0]);
        my $key  = 'moved';
        is passed($node, "/single?a=$key", 1), 1;
        is_left($node, 'one', $key, 19);
        my $slot = $cluster->slot_of("rl:one:{$key}");
        my ($to) = grep { $_->port != $cluster->node_of_slot($slot)->port } $cluster->masters;
        $cluster->migrate_begin($slot, $to);
        is passed($node, "/single?a=$key", 1), 1;
        is_left($node, 'one', $key, 18);
        $cluster->migrate_key("rl:one:{$key}");
        is passed($node, "/single?a=$key", 1), 1;
        wait_until('it is counted where the key is now', sub { $to->cmd('ASKING'); $to->cmd('EXISTS', "rl:one:{$key}") });
        $cluster->migrate_end($slot);
        is passed($node, "/single?a=$key", 1), 1;
        is_left($node, 'one', $key, 16);
    };
}

subtest 'a master that dies: its units are reported to the next one' => sub {
    my $node = ahead_node("topology cluster; $quick" . join(' ', map { "server $_;" } $cluster->addrs), $path[0]);
    is passed($node, '/single?a=1', 2), 2;
    is_left($node, 'one', 1, 18);
    $cluster->node_of_slot($cluster->slot_of('rl:one:{1}'))->wait_for_a_replica;
    $cluster->kill_master_of('rl:one:{1}');
    my $passed = passed($node, '/single?a=1', 8);
    cmp_ok $passed, '<=', 5, "n units pass at most: $passed";
    $cluster->wait_ok;
    wait_until('all of them are counted', sub { my $left = left($node, 'one', 1); $left =~ /^\d+$/ && $left <= 18 - $passed }, 15);
    cmp_ok left($node, 'one', 1), '>=', 18 - 2 * $passed, 'at worst twice';
};

subtest 'one server of a ring is away: its keys have n units, the others go on' => sub {
    my @ring = map { redis() } 1 .. 2;
    my $node = ahead_node(join(' ', map { 'server ' . $_->addr . ';' } @ring) . 'timeout 2s; connect_timeout 2s;', $path[0]);
    passed($node, "/single?a=$_", 1) for 1 .. 20;
    is_left($node, 'one', $_, 19) for 1 .. 20;    # the answers to all of them have come
    my ($here) = grep { $ring[0]->cmd('EXISTS', "rl:one:{$_}") } 1 .. 20;
    my ($away) = grep { $ring[1]->cmd('EXISTS', "rl:one:{$_}") } 1 .. 20;
    $ring[1]->stop;
    $node->wait_for_log(qr/is away/);
    is passed($node, "/single?a=$away", 10), 5, 'five pass, then the fail mode refuses';
    is passed($node, "/single?a=$here", 10), 10;
    is_left($node, 'one', $here, 9);    # until all are reported, the next may have to ask, also for the key that is away
    is passed($node, "/both?a=$here&b=$away", 3), 3, 'another zone has units of its own';
    $ring[1]->start;
    is_left($node, 'one', $away, 15);
    is_left($node, 'two', $away, 17);
};

subtest 'a master that sentinels replace: its units are reported to the next one' => sub {
    my $group = sentinels();
    my $node = ahead_node("topology sentinel master=main; $quick" . join(' ', map { "server $_;" } $group->addrs), $path[0]);
    wait_until('the first passes ahead', sub { $node->get('/single?a=warm')->header('X-Source') });
    is passed($node, '/single?a=1', 2), 2;
    is_left($node, 'one', 1, 18);
    my $old = $group->master;
    wait_until('the replica knows them', sub { eval { $group->replica->cmd('EXISTS', 'rl:one:{1}') } });
    $old->stop('KILL');
    my $passed = passed($node, '/single?a=1', 8);
    cmp_ok $passed, '<=', 5, "n units pass at most: $passed";
    $group->wait_for_new_master($old);
    wait_until('all of them are counted', sub { my $left = left($node, 'one', 1); $left =~ /^\d+$/ && $left <= 18 - $passed }, 15);
    cmp_ok left($node, 'one', 1), '>=', 18 - 2 * $passed, 'at worst twice';
    my $rest = passed($node, '/single?a=1', 30);
    cmp_ok $rest + $passed + 2, '<=', 20 + 5, 'at most n pass beyond the limit';
};

finish();

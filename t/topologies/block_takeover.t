# A server takes over whose clock is behind that of the one before it. The counts of later times may refuse requests for a
# while, but no block (block=) begins because of that.
# needs: redis-sentinel

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Test;

my $behind = 120;    # seconds: more than a takeover takes
my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'token_bucket burst=10', 'gcra burst=9',
);
my @keys = map { "key$_" } 1 .. 3;
my @clocks = map { Chaos::Clock->new } 1 .. 6;

sub blocking_node {
    my ($topology, $group) = @_;
    return nginx(
        http => "ratelimit_redis main { topology $topology; " . join(' ', map { "server $_;" } $group->addrs)
            . ' timeout 5s; connect_timeout 5s; }'
            . join('', map { "ratelimit_zone \$arg_k zone=z$_ rate=10r/2s block=5d algorithm=$algorithms[$_];" } 0 .. $#algorithms),
        server => 'add_header X-Status $ratelimit_status always;'
            . join('', map { "location = /$_ { ratelimit zone=z$_; try_files /index.html =404; }" } 0 .. $#algorithms),
    );
}

sub refused_for {
    my ($node, $path) = @_;
    my $answer = $node->get($path);
    return $answer->status == 429 ? $answer->header('Retry-After') : undef;
}

sub use_keys {
    my ($node) = @_;
    for my $i (0 .. $#algorithms) {
        for my $key (@keys) {
            is join(' ', map { $node->status("/$i?k=$key") } 1 .. 6), '200 200 200 200 200 200', "$algorithms[$i]: six requests pass";
        }
    }
    return;
}

# Six requests, as before, of every key. @$seen: the Retry-After of those that were refused.
sub none_blocked {
    my ($node, $i, $what) = @_;
    my @refused;
    for my $key (@keys) {
        push @refused, grep { defined } map { refused_for($node, "/$i?k=$key") } 1 .. 6;
    }
    is_deeply [grep { $_ > 86_400 } @refused], [], "$what, $algorithms[$i]: no key is blocked";
    return scalar @refused;
}

sub check_after_takeover {
    my ($node) = @_;
    wait_until('decisions of Redis', sub { $node->get('/0?k=other')->header('X-Status') !~ /FAILED/ }, 20);
    my $refused = 0;
    $refused += none_blocked($node, $_, 'at once') for 0 .. $#algorithms - 1;
    cmp_ok $refused, '>', 0, 'the counts of later times refuse some requests';
    select undef, undef, undef, 0.5;    # a block begins behind the decision
    none_blocked($node, $_, 'again') for 0 .. $#algorithms - 1;
    # The counts that no request has touched are of later times still, when twice the window has passed.
    select undef, undef, undef, 4.8;
    none_blocked($node, $#algorithms, 'twice the window later');
    select undef, undef, undef, 0.5;
    none_blocked($node, $#algorithms, 'and again');
    return;
}

sub blocks_there {
    my ($node) = @_;
    $node->get('/0?k=flood') for 1 .. 11;
    return ok eval { wait_until('a block', sub { (refused_for($node, '/0?k=flood') // 0) > 86_400 }); 1 }, 'before that, a refusal begins a block';
}

my %groups = (
    'sentinel master=main' => sub {
        $clocks[1]->step(-$behind);
        return sentinels(environments => [map { $_->environment } @clocks[0, 1]]);
    },
    cluster => sub {
        $_->step(-$behind) for @clocks[3 .. 5];
        return cluster(environments => [map { $_->environment } @clocks]);
    },
);
for my $topology ('sentinel master=main', 'cluster') {
    subtest "a replica whose clock is behind takes over: $topology" => sub {
        $_->step(-$_->{offset}) for @clocks;
        my $group = $groups{$topology}->();
        my $node  = blocking_node($topology, $group);
        blocks_there($node);
        use_keys($node);
        $_->step(-$behind) for @clocks;    # no key expires before the takeover, however long that takes
        if ($topology eq 'cluster') {
            my @masters = $group->masters;
            $_->wait_for_a_replica for @masters;
            for my $old (@masters) {
                $group->hand_over($old);
            }
        } else {
            my $old = $group->master;
            $old->wait_for_a_replica;
            $old->stop('KILL');
            $group->wait_for_new_master($old);
        }
        check_after_takeover($node);
    };
}

# Both keys are of one server, whose clock is 120 seconds ahead of the target's.
subtest 'a slot is moved to a server whose clock is behind' => sub {
    $_->step(-$_->{offset}) for @clocks;
    my $group = cluster(replicas => 0, environments => [map { $_->environment } @clocks[0 .. 2]]);
    my %clock;
    @clock{ map { $_->port } $group->nodes } = @clocks;
    my ($from, $to) = $group->masters;
    $clock{ $to->port }->step(-$behind);
    my ($moving, $staying) = grep { $group->node_of_slot($group->slot_of($_)) == $from } 'a' .. 'z';
    my $node   = blocking_node('cluster', $group);
    my $slot   = $group->slot_of($moving);
    my $record = "rl:z2:{$moving}";
    my $until_blocked = sub {
        my ($key) = @_;
        return eval { wait_until('a block', sub { (refused_for($node, "/2?k=$key") // 0) > 86_400 }); 1 };
    };
    is join(' ', map { $node->status("/2?k=$moving") } 1 .. 6), '200 200 200 200 200 200', 'six requests pass';
    $group->migrate_begin($slot, $to);
    $group->migrate_key($record);
    my @waits;
    wait_until('the counts of later times refuse requests', sub {
        push @waits, grep { defined } refused_for($node, "/2?k=$moving");
        return @waits >= 20;
    });
    ok $until_blocked->($staying), 'a key of the old server is blocked';
    push @waits, grep { defined } map { refused_for($node, "/2?k=$moving") } 1 .. 6;
    $group->migrate_end($slot);
    push @waits, grep { defined } map { refused_for($node, "/2?k=$moving") } 1 .. 6;
    is_deeply [grep { $_ > 86_400 } @waits], [], 'but the key that is moved is not';
};

finish();

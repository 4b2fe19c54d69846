# block= where keys are on several servers: a ring, a cluster, and several ratelimit_redis.

# needs: libprotocol-http2-perl

use Ratelimit::Test;

my $ring    = [map { redis() } 1 .. 2];
my $cluster = cluster();
my %servers = (
    ring    => join(' ', map { 'server ' . $_->addr . ';' } @{$ring}),
    cluster => 'topology cluster; ' . join(' ', map { "server $_;" } $cluster->addrs),
);
my $times = 'connect_timeout 2s; timeout 2s;';    # a block begins after both
my $block = 2 * 86_400;    # longer than any algorithm refuses with a rate per day

# A node with limits by two keys, which may be on two servers; %options: parameters of the zones.
sub blocking_node {
    my ($topology, %options) = @_;
    my %redis = map { $_ => $topology eq 'several' ? " redis=$_" : '' } 'first', 'second';
    my $redis = $topology eq 'several'
        ? join '', map { "ratelimit_redis $_->[0] { server " . $_->[1]->addr . "; $times }" } ['first', $ring->[0]], ['second', $ring->[1]]
        : "ratelimit_redis main { $servers{$topology} $times }";
    return nginx(
        workers => 2,
        listen  => $options{listen},
        http    => "$redis ratelimit_zone \$arg_a zone=first $options{first}$redis{first};"
            . "ratelimit_zone \$arg_b zone=second $options{second}$redis{second};",
        server => join '', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /both { ratelimit zone=first; ratelimit zone=second; }',
            'location = /charged { ratelimit zone=first; ratelimit zone=second charge=$arg_charge; }',
            'location = /first { ratelimit zone=first cost=0; }',
            'location = /second { ratelimit zone=second; }',
            'location = /peek { ratelimit zone=second cost=0; }',
    );
}

sub left     { return $_[0]->get($_[1])->header('X-RateLimit-Remaining') }
sub retry_of { return $_[0]->get($_[1])->header('Retry-After') // 0 }

# Waits until a key that was refused is blocked. A refusal that nothing counted elsewhere explains begins the block.
sub is_blocked {
    my ($node, $path, $what) = @_;
    my $retry = 0;
    return is eval { wait_until('a block', sub { ($retry = retry_of($node, $path)) > $block - 300 }); 1 }, 1, "$what ($retry)";
}

# Returns when a block of any key that was refused before would have begun: when other keys, most of which are on two
# servers, are blocked because of later requests. $quota: that of the second limit.
sub wait_for_other_blocks {
    my ($node, $prefix, $quota) = @_;
    my @keys = map { "$prefix-other$_" } 1 .. 8;
    for my $key (@keys) {
        $node->status("/both?a=$key-$_&b=$key") for 0 .. $quota;
    }
    is_blocked($node, "/both?a=$_-$quota&b=$_", 'another key is blocked') for @keys;
    return;
}

for my $topology ('ring', 'cluster', 'several') {
    # The blocks of all algorithms begin meanwhile.
    my @refused = map {
        my $zone  = "algorithm=$_";
        my @nodes = map {
            blocking_node($topology, first => "rate=9r/d $zone block=1h", second => "rate=2r/d $zone block=2d")
        } 1 .. 2;
        my $prefix = ($zone =~ tr/a-z//cdr) . $topology;
        my %passed;
        for my $key (map { "$prefix$_" } 1 .. 4) {
            # The first key is another, so that the second limit refuses.
            $passed{$key} = 0;
            ++$passed{$key} while $passed{$key} < 20 && $nodes[0]->status("/both?a=$key-$passed{$key}&b=x$key") == 200;
        }
        { zone => $zone, nodes => \@nodes, passed => \%passed }
    } 'fixed_window', 'gcra burst=8', 'sliding_window_log';
    for (@refused) {
        my ($zone, $passed, @nodes) = ($_->{zone}, $_->{passed}, @{ $_->{nodes} });
        subtest "only the refusing limit's key is blocked, on every node: $topology, $zone" => sub {
            my $node = $nodes[0];
            my $fits = $zone =~ /gcra/ ? 9 : 2;
            for my $key (sort keys %{$passed}) {
                my $query = "?a=$key&b=x$key";
                is $passed->{$key}, $fits, "key $key: the second limit";
                is_blocked($_, "/both$query", 'refused for two days') for @nodes;
                is eval { wait_until('refunds', sub { left($node, "/first?a=$key") == 9 }); 1 }, 1, 'the first limit is not blocked, nor counted';
                is $node->status("/both?a=$key&b=y$key"), 200, 'with another second key';
            }
        };
    }

    subtest "requests that another limit refuses block no victim: $topology" => sub {
        my @zones = (first => 'rate=3r/d', second => 'rate=10r/d block=2d');
        my @nodes = map { blocking_node($topology, @zones) } 1 .. 2;
        my $attacked = blocking_node($topology, @zones, listen => 'http2');
        my @keys  = map { "$topology$_" } 1 .. 8;
        for my $key (@keys) {
            is $nodes[0]->status("/both?a=attacker$key&b=own$_$key"), 200 for 1 .. 3;
            my @statuses = map { $_->status } http2($attacked->port, [("/both?a=attacker$key&b=victim$key") x 40]);
            push @statuses, burst([map { $_->port } @nodes], "/both?a=attacker$key&b=victim$key", 40, 40);
            is scalar(grep { $_ != 429 } @statuses), 0, 'all are refused';
        }
        wait_for_other_blocks($nodes[0], $topology, 10);
        for my $key (@keys) {
            for my $node (@nodes) {
                is eval { wait_until('refunds', sub { left($node, "/peek?b=victim$key") == 10 }); 1 }, 1, 'the victim is free';
            }
            is $nodes[0]->status("/second?b=victim$key"), 200;
        }
        is $nodes[0]->status('/second?b=victim' . $keys[0]), 200 for 1 .. 9;
        is_blocked($_, '/second?b=victim' . $keys[0], 'its own requests block it') for @nodes;
    };

    subtest "a burst of one client over HTTP/2 blocks no key of others: $topology" => sub {
        my @zones = (first => 'rate=20r/d', second => 'rate=30r/d block=2d');
        my $node = blocking_node($topology, @zones, listen => 'http2');
        my @keys = map { "h2$topology$_" } 1 .. 4;
        for my $key (@keys) {
            my @statuses = map { $_->status } http2($node->port, [("/both?a=client$key&b=$key") x 60]);
            cmp_ok scalar(grep { $_ == 200 } @statuses), '<=', 20;
        }
        wait_for_other_blocks(blocking_node($topology, @zones), "h2$topology", 30);
        for my $key (@keys) {
            my $left = sub { (http2($node->port, ["/peek?b=$key"]))[0]->header('X-RateLimit-Remaining') };
            is eval { wait_until('refunds', sub { $left->() >= 10 }); 1 }, 1, 'ten requests are left';
        }
    };

    subtest "keys that begin with a brace, as the bytes of 125.0.0.1 do: $topology" => sub {
        my $node = blocking_node($topology, first => 'rate=9r/d', second => 'rate=2r/d block=2d');
        $_->cmd('FLUSHALL') for @{$ring};    # the same keys were blocked in the topology before
        my @keys = ("}$topology", "}}$topology}", '}', '}}');
        for my $key (@keys) {
            is join(' ', map { $node->status("/both?a=$key&b=$key") } 1 .. 4), '200 200 429 429', $key;
        }
        is_blocked($node, "/both?a=$_&b=$_", 'blocked') for @keys;
    };
}

subtest 'a location with charge= blocks too' => sub {
    my $node = blocking_node('ring', first => 'rate=9r/d', second => 'rate=2r/d block=2d');
    for my $key (1 .. 4) {
        is $node->status("/charged?a=c$key&b=c$key&charge=2"), 200;
        wait_until('the charge', sub { left($node, "/peek?b=c$key") == 0 });
        is $node->status("/charged?a=c$key&b=c$key&charge=0"), 429;
    }
    for my $key (1 .. 4) {
        is_blocked($node, "/charged?a=c$key&b=c$key&charge=0", 'blocked');
        is_blocked($node, "/second?b=c$key", 'blocked');
    }
};

finish();

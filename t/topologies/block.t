# block= where keys are on several servers: a ring, a cluster, and several ratelimit_redis.

# needs: libprotocol-http2-perl

use Ratelimit::Test;

my $ring    = [map { redis() } 1 .. 2];
my $cluster = cluster();
my %servers = (
    ring    => join(' ', map { 'server ' . $_->addr . ';' } @{$ring}),
    cluster => 'topology cluster; ' . join(' ', map { "server $_;" } $cluster->addrs),
);
my $times = 'connect_timeout 300ms; timeout 300ms;';
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

# Longer than it takes until a block begins.
sub pause { select undef, undef, undef, 1; return }

for my $topology ('ring', 'cluster', 'several') {
    for my $zone (map { "algorithm=$_" } 'fixed_window', 'gcra burst=8', 'sliding_window_log') {
        subtest "only the refusing limit's key is blocked, on every node: $topology, $zone" => sub {
            my @nodes = map {
                blocking_node($topology, first => "rate=9r/d $zone block=1h", second => "rate=2r/d $zone block=2d")
            } 1 .. 2;
            my $node = $nodes[0];
            my $prefix = ($zone =~ tr/a-z//cdr) . $topology;
            my $fits = $zone =~ /gcra/ ? 9 : 2;
            for my $key (map { "$prefix$_" } 1 .. 4) {
                my $query = "?a=$key&b=x$key";
                # The first key is another, so that the second limit refuses.
                my $passed = 0;
                ++$passed while $passed < 20 && $node->status("/both?a=$key-$passed&b=x$key") == 200;
                is $passed, $fits, "key $key: the second limit";
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
        pause();
        for my $key (@keys) {
            is left($_, "/peek?b=victim$key"), 10, 'the victim is free' for @nodes;
            is $nodes[0]->status("/second?b=victim$key"), 200;
        }
        is $nodes[0]->status('/second?b=victim' . $keys[0]), 200 for 1 .. 9;
        is_blocked($_, '/second?b=victim' . $keys[0], 'its own requests block it') for @nodes;
    };

    subtest "a burst of one client over HTTP/2 blocks no key of others: $topology" => sub {
        my $node = blocking_node($topology, first => 'rate=20r/d', second => 'rate=30r/d block=2d', listen => 'http2');
        my @keys = map { "h2$topology$_" } 1 .. 4;
        for my $key (@keys) {
            my @statuses = map { $_->status } http2($node->port, [("/both?a=client$key&b=$key") x 60]);
            cmp_ok scalar(grep { $_ == 200 } @statuses), '<=', 20;
        }
        pause();
        for my $key (@keys) {
            my ($peek) = http2($node->port, ["/peek?b=$key"]);
            cmp_ok $peek->header('X-RateLimit-Remaining'), '>=', 10, 'ten requests are left';
        }
    };

    subtest "keys that begin with a brace, as the bytes of 125.0.0.1 do: $topology" => sub {
        my $node = blocking_node($topology, first => 'rate=9r/d', second => 'rate=2r/d block=2d');
        $_->cmd('FLUSHALL') for @{$ring};    # the same keys were blocked in the topology before
        for my $key ("}$topology", "}}$topology}", '}', '}}') {
            is join(' ', map { $node->status("/both?a=$key&b=$key") } 1 .. 4), '200 200 429 429', $key;
            is_blocked($node, "/both?a=$key&b=$key", 'blocked');
        }
    };
}

subtest 'a location with charge= blocks too' => sub {
    my $node = blocking_node('ring', first => 'rate=9r/d', second => 'rate=2r/d block=2d');
    for my $key (1 .. 4) {
        is $node->status("/charged?a=c$key&b=c$key&charge=2"), 200;
        wait_until('the charge', sub { left($node, "/peek?b=c$key") == 0 });
        is_blocked($node, "/charged?a=c$key&b=c$key&charge=0", 'blocked');
        is_blocked($node, "/second?b=c$key", 'blocked');
    }
};

finish();

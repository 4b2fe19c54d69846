# block= where keys are on several servers: a ring and a cluster.

use Ratelimit::Test;

my $ring    = [map { redis() } 1 .. 3];
my $cluster = cluster();
my %block   = (
    ring    => join(' ', map { 'server ' . $_->addr . ';' } @{$ring}),
    cluster => 'topology cluster; ' . join(' ', map { "server $_;" } $cluster->addrs),
);

# Limits by two keys, which may be on two servers.
sub blocking_node {
    my ($topology, $zone) = @_;
    return nginx(
        http => "ratelimit_redis main { $block{$topology} timeout 5s; connect_timeout 5s; }"
            . "ratelimit_zone \$arg_a zone=wide rate=9r/d block=1h $zone;"
            . "ratelimit_zone \$arg_b zone=narrow rate=2r/d block=10m $zone;",
        server => join '', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /both { ratelimit zone=wide; ratelimit zone=narrow; }',
            'location = /charged { ratelimit zone=wide; ratelimit zone=narrow charge=$arg_charge; }',
            'location = /wide { ratelimit zone=wide cost=0; }',
            'location = /narrow { ratelimit zone=narrow; }',
    );
}

sub retry_of { return $_[0]->status . ' ' . ($_[0]->header('Retry-After') // 0) }

for my $topology (sort keys %block) {
    for my $zone (map { "algorithm=$_" } 'fixed_window', 'gcra burst=8', 'sliding_window_log') {
        subtest "only the refusing limit's key is blocked, on every node: $topology, $zone" => sub {
            my ($node, $other) = map { blocking_node($topology, $zone) } 1 .. 2;
            my $prefix = ($zone =~ tr/a-z//cdr) . $topology;
            my $fits = $zone =~ /gcra/ ? 9 : 2;
            for my $key (map { "$prefix$_" } 1 .. 12) {
                my $query = "?a=$key&b=x$key";
                # The wide limit of the second key is another, so that the narrow one refuses.
                my $passed = 0;
                ++$passed while $passed < 20 && $node->status("/both?a=$key-$passed&b=x$key") == 200;
                is $passed, $fits, "key $key: the narrow limit";
                for my $at ($node, $other) {
                    for my $time (1 .. 6) {
                        my $answer = $at->get("/both$query");
                        like retry_of($answer), qr/^429 (?:600|5\d\d)$/, 'refused for the rest of ten minutes';
                    }
                }
                my $wide = sub { $node->get("/wide?a=$key")->header('X-RateLimit-Remaining') };
                is eval { wait_until('refunds', sub { $wide->() == 9 }); $wide->() }, 9, 'the wide limit is not blocked, nor counted';
                is $node->status("/both?a=$key&b=y$key"), 200, 'with another second key';
            }
        };
    }
}

subtest 'a location with charge= blocks too' => sub {
    my $node = blocking_node('ring', 'algorithm=fixed_window');
    for my $key (1 .. 6) {
        is $node->status("/charged?a=c$key&b=c$key&charge=2"), 200;
        wait_until('the charge', sub { $node->get("/narrow?b=c$key")->header('X-RateLimit-Remaining') == 0 });
        like retry_of($node->get("/charged?a=c$key&b=c$key&charge=0")), qr/^429 (?:600|5\d\d)$/;
        like retry_of($node->get("/narrow?b=c$key")), qr/^429 (?:600|5\d\d)$/;
    }
};

finish();

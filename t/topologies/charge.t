# charge= where keys are on several servers: a ring and a cluster.

use Ratelimit::Http qw(burst);
use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;
use Ratelimit::Process qw(wait_until);

my $ring    = [map { redis() } 1 .. 3];
my $cluster = cluster();
my %block   = (
    ring    => join(' ', map { 'server ' . $_->addr . ';' } @{$ring}),
    cluster => 'topology cluster; ' . join(' ', map { "server $_;" } $cluster->addrs),
);

# Limits by two keys, which may be on two servers; /peek/ZONE reports what remains.
sub charging_node {
    my ($topology, %options) = @_;
    return nginx(
        %options,
        http => "ratelimit_redis main { $block{$topology} timeout 5s; connect_timeout 5s; }"
            . "ratelimit_zone \$arg_a zone=one rate=10r/d $options{zone};"
            . "ratelimit_zone \$arg_b zone=two rate=10r/d $options{zone};",
        server => join '', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /single { ratelimit zone=one charge=$arg_charge; }',
            'location = /both { ratelimit zone=one charge=$arg_charge; ratelimit zone=two charge=$arg_other; }',
            'location = /peek/one { ratelimit zone=one cost=0; }',
            'location = /peek/two { ratelimit zone=two cost=0; }',
    );
}

for my $topology (sort keys %block) {
    for my $zone (map { "algorithm=$_" } 'fixed_window', 'gcra burst=9', 'sliding_window_log') {
        subtest "each key is settled on its server: $topology, $zone" => sub {
            my $node = charging_node($topology, zone => $zone);
            my $prefix = ($zone =~ tr/a-z//cdr) . $topology;
            for my $key (map { "$prefix$_" } 1 .. 12) {
                is $node->status("/single?a=$key&charge=0"), 200, "key $key";
                remains($node, 10, "/peek/one?a=$key", "/peek/one?a=$key");
                is $node->status("/both?a=$key&b=x$key&charge=3&other=12"), 200, 'two limits';
                remains($node, 7, "/peek/one?a=$key", "/peek/one?a=$key");
                remains($node, 0, "/peek/two?b=x$key", "/peek/two?b=x$key");
                is $node->status("/both?a=$key&b=x$key&charge=9&other=0"), 429, 'the second refuses';
                remains($node, 7, "/peek/one?a=$key", "/peek/one?a=$key");
            }
        };
    }
}

subtest 'requests in parallel are settled in a cluster' => sub {
    my $node = charging_node('cluster', zone => 'algorithm=gcra burst=9', workers => 2);
    for my $key (1 .. 20) {
        # Fewer clients than the limit: refunds of another worker may be behind.
        my @statuses = burst($node->port, "/single?a=load$key&charge=0", 50, 4);
        is scalar(grep { $_ == 200 } @statuses), 50, 'all pass';
        remains($node, 10, "/peek/one?a=load$key", "/peek/one?a=load$key");
    }
};

finish();

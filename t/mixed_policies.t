# One key under several policies, as limit_req's idiom has it: one zone, another burst= in each
# location. Whoever asks finds in full what the others counted, and a refusal gives nothing back.

use Ratelimit::Test;

my $redis = redis();
my %stores = (
    'in Redis'                => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }",
    "in this node's memory" => '',
);

# The number of requests that pass, of so many to a location.
sub passed {
    my ($node, $uri, $requests) = @_;
    return scalar grep { $node->status($uri) == 200 } 1 .. $requests;
}

for my $store (sort keys %stores) {
    for my $algorithm (qw(gcra leaky_bucket token_bucket)) {
        # What passes at once where burst=10 and where burst=1.
        my ($large, $small) = $algorithm eq 'token_bucket' ? (10, 1) : (11, 2);
        my $delay = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my $file = 'try_files /index.html =404;';
        $redis->cmd('FLUSHALL');
        my $cache = $stores{$store} ? "cache=off" : "";
        my $http = $stores{$store};
        my $node = nginx(
            http => "$http ratelimit_zone \$arg_k zone=t rate=\$rate algorithm=$algorithm $cache;"
                . "ratelimit_zone \$arg_k zone=other rate=1r/h algorithm=fixed_window $cache;"
                . 'map $arg_rate $rate { default 1r/h; slow 1r/2h; fast 100r/s; }',
            server => "location /a { ratelimit zone=t burst=10 $delay; $file }"
                . "location /b { ratelimit zone=t burst=1 $delay; $file }"
                . "location /shadow { ratelimit zone=t burst=1 $delay shadow; $file }"
                . "location /dry { ratelimit zone=t burst=1 $delay; ratelimit_dry_run on; $file }"
                . "location /beside { ratelimit zone=other; ratelimit zone=t burst=1 $delay; $file }",
        );
        subtest "$algorithm, counted $store" => sub {
            is passed($node, '/a?k=1', 15), $large, 'as many as the large burst lets in';
            is passed($node, '/b?k=1', 3), 0, 'the small burst refuses';
            is passed($node, '/a?k=1', 15), 0, 'and the large one still does';
            is passed($node, "/$_?k=1", 3), 3, "/$_ lets all through" for qw(shadow dry);
            is passed($node, '/beside?k=1', 3), 0, 'a second limit beside it refuses nothing more';
            is passed($node, "/b?k=1&rate=$_", 3), 0, "rate $_ refuses" for qw(slow fast);
            is passed($node, '/a?k=1', 15), 0, 'and nothing of all that has made room';

            is passed($node, '/b?k=2', 5), $small, 'the small burst first';
            is passed($node, '/a?k=2', 15), $large - $small, 'leaves the rest of the large one';

            my $mixed = 0;
            for (1 .. 20) {
                $mixed += passed($node, "/$_?k=3", 1) for qw(b a);
            }
            is $mixed, $large, 'any mix of the two lets in as many as the large one';
        };
    }
}

finish();

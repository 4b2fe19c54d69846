# One key under several policies, as with limit_req: one zone, another burst= in each location. Requests
# under each policy see the full count of the others, and a refusal gives nothing back.

use Ratelimit::Test;
use JSON::PP qw(decode_json);

my $redis = redis();
my %stores = (
    'in Redis'                => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }",
    "in this node's memory" => '',
);

# The number of $requests requests to a location that pass.
sub passed {
    my ($node, $uri, $requests) = @_;
    return scalar grep { $node->status($uri) == 200 } 1 .. $requests;
}

# One key under two windows: each limit is exact, independent of the requests under the other.
for my $store (sort keys %stores) {
    for my $algorithm (qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets)) {
        $redis->cmd('FLUSHALL');
        my $cache = $stores{$store} ? 'cache=off' : '';
        my $precision = $algorithm eq 'sliding_window_buckets' ? 'precision=1h' : '';
        my $node = nginx(
            http => "$stores{$store} map \$uri \$rate { ~^/short 5r/d; ~^/soon 3r/d; default 20r/2d; }"
                . "ratelimit_zone k\$arg_k zone=test rate=\$rate algorithm=$algorithm $precision $cache;",
            server => 'location / { ratelimit zone=test; ratelimit_headers x-ratelimit; try_files /index.html =404; }'
                . 'location /ops/ { ratelimit_api write=on; }',
        );
        my $state = sub {
            my ($rate) = @_;
            return decode_json($node->get("/ops/zones/test/keys/ka?rate=$rate")->body)->{remaining};
        };
        subtest "$algorithm, two windows, counted $store" => sub {
            my ($short, $long) = (0, 0);
            for (1 .. 40) {
                $short += passed($node, '/short?k=a', 1);
                $long  += passed($node, '/long?k=a', 1);
            }
            is $short, 5, 'alternating requests pass as often as the short window allows';
            is $long, 20, 'and as often as the long window allows';
            is passed($node, '/soon?k=a', 3), 0, 'another quota of the short window sees the same counts';
            is_deeply [map { $state->($_) } qw(5r/d 9r/d 20r/2d 30r/2d 4r/h)], [0, 4, 0, 10, 4],
                'the API shows the counts of the given rate';

            my $free = sub { return $node->status("/ops/zones/test/keys/ka$_[0]", method => 'DELETE') };
            if ($stores{$store}) {
                is_deeply [sort $redis->keys_like], ['rl:test:{ka}:172800', 'rl:test:{ka}:86400'],
                    'each window has a key';
                my $answer = $node->get('/ops/zones/test/keys/kother', method => 'DELETE');
                is $answer->status, 400, 'freeing a key that was never refused requires a rate';
                like $answer->body, qr/expected an argument rate=/;
                is $free->(''), 204, 'without one it is that of the last refusal';
                is_deeply [$redis->keys_like], ['rl:test:{ka}:172800'], 'the key is freed in one window';
                is passed($node, '/long?k=a', 1), 0;
                is passed($node, '/short?k=a', 6), 5;
                is $free->('?rate=20r/2d'), 204;
                is_deeply [$redis->keys_like], ['rl:test:{ka}:86400'], 'or the given one';
            }
            else {
                is $free->(''), 204;
                is passed($node, '/short?k=a', 6), 5, 'the key is freed in all windows';
                is passed($node, '/long?k=a', 21), 20;
            }
        };
    }
}

for my $store (sort keys %stores) {
    for my $algorithm (qw(gcra leaky_bucket token_bucket)) {
        # The requests that pass at once with burst=10 and with burst=1.
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
            is passed($node, '/a?k=1', 15), $large, 'the large burst admits its capacity';
            is passed($node, '/b?k=1', 3), 0, 'the small burst refuses';
            is passed($node, '/a?k=1', 15), 0, 'the large burst still refuses';
            is passed($node, "/$_?k=1", 3), 3, "/$_ admits all requests" for qw(shadow dry);
            is passed($node, '/beside?k=1', 3), 0, 'with a second limit beside it, the small burst still refuses';
            is passed($node, "/b?k=1&rate=$_", 3), 0, "rate $_ refuses" for qw(slow fast);
            is passed($node, '/a?k=1', 15), 0, 'none of these requests has made room';

            is passed($node, '/b?k=2', 5), $small, 'the small burst admits its capacity';
            is passed($node, '/a?k=2', 15), $large - $small, 'the large burst admits its capacity less that';

            my $mixed = 0;
            for (1 .. 20) {
                $mixed += passed($node, "/$_?k=3", 1) for qw(b a);
            }
            is $mixed, $large, 'any mix of the two admits the capacity of the large burst';
        };
    }
}

finish();

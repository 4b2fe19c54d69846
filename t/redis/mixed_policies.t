# One key under several policies, as limit_req's idiom has it: one zone, another burst= in each
# location. Whoever asks finds in full what the others counted, and a refusal gives nothing back.

use Ratelimit::Test;
use JSON::PP qw(decode_json);

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

# One key under two lengths of window: each limit is exact, whatever is asked under the other.
for my $store (sort keys %stores) {
    for my $algorithm (qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets)) {
        $redis->cmd('FLUSHALL');
        my $cache = $stores{$store} ? 'cache=off' : '';
        my $precision = $algorithm eq 'sliding_window_buckets' ? 'precision=1h' : '';
        my $node = nginx(
            http => "$stores{$store} map \$uri \$rate { ~^/short 5r/12h; ~^/soon 3r/12h; default 20r/d; }"
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
            is $long, 20, 'and the long one';
            is passed($node, '/soon?k=a', 3), 0, 'another quota of the short window finds its counts';
            is_deeply [map { $state->($_) } qw(5r/12h 9r/12h 20r/d 30r/d 4r/h)], [0, 4, 0, 10, 4],
                'the API shows the record of the rate that it is given';

            my $free = sub { return $node->status("/ops/zones/test/keys/ka$_[0]", method => 'DELETE') };
            if ($stores{$store}) {
                is_deeply [sort $redis->keys_like], ['rl:test:{ka}:43200', 'rl:test:{ka}:86400'],
                    'each window has a key';
                my $answer = $node->get('/ops/zones/test/keys/ka', method => 'DELETE');
                is $answer->status, 400, 'to free the key needs a rate';
                like $answer->body, qr/expected an argument rate=/;
                is $free->('?rate=5r/12h'), 204;
                is_deeply [$redis->keys_like], ['rl:test:{ka}:86400'], 'which frees the one window';
                is passed($node, '/long?k=a', 1), 0;
                is passed($node, '/short?k=a', 6), 5;
            }
            else {
                is $free->(''), 204;
                is passed($node, '/short?k=a', 6), 5, 'this node forgets all windows of the key';
                is passed($node, '/long?k=a', 21), 20;
            }
        };
    }
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

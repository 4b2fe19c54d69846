# hash_key: only the request has the key itself; logs, memory, the API and Redis have its hash.

use Digest::SHA qw(sha256_hex);
use JSON::PP qw(decode_json);
use Ratelimit::Test;

my $secret = 'gold-4711-secret';
my $api = 'location /ops/ { ratelimit off; ratelimit_api write=on; }';

sub hash_of { return substr sha256_hex($_[0]), 0, 32 }

# A location / limited to 2r/d by the header X-Key; zone: more of its parameters, redis => 0: no Redis.
sub hashed_node {
    my (%options) = @_;
    my $redis = $options{redis} // redis();
    my $block = $redis ? "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }" : '';
    my $zone = $options{zone} // '';
    my $node = nginx(
        %options,
        http => "$block ratelimit_zone \$http_x_key zone=test rate=2r/d algorithm=fixed_window hash_key $zone;"
            . ($options{http} // ''),
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }" . ($options{server} // ''),
    );
    $node->{redis} = $redis;
    return $node;
}

sub statuses {
    my ($node, $key, $count) = @_;
    return join ' ', map { $node->status('/', headers => ['X-Key', $key]) } 1 .. $count;
}

# The contents of the zones' shared memory, as mapped by a worker.
sub shared_memory {
    my ($node) = @_;
    my ($worker) = $node->workers;
    open my $memory, '<:raw', "/proc/$worker/mem" or die $!;
    my $all = '';
    for (grep { / rw-s / } split /\n/, read_file("/proc/$worker/maps")) {
        my ($from, $to) = map { no warnings 'portable'; hex } /^(\w+)-(\w+)/;
        sysseek $memory, $from, 0 or die $!;
        sysread $memory, $all, $to - $from, length $all or die $!;
    }
    return $all;
}

for my $options ([], ['cache=off'], ['lease=10'], ['without Redis', redis => 0], ['two workers', workers => 2]) {
    my ($what, %more) = @{$options};
    $what //= '';
    subtest "the secret is in no log, no memory, no answer and not in Redis $what" => sub {
        my $node = hashed_node(%more, zone => $what =~ /=/ ? $what : '');
        my $hash = hash_of($secret);
        is statuses($node, $secret, 5), '200 200 429 429 429';
        is statuses($node, 'another', 1), '200';
        $node->wait_for_log(qr/limiting requests, by zone "test", key "$hash"/);
        my %seen = (
            log     => $node->log,
            zones   => $node->get('/ops/zones')->body,
            metrics => $node->get('/ops/metrics')->body,
            memory  => shared_memory($node),
            $node->{redis} ? (redis => join ' ', @{ $node->{redis}->cmd('KEYS', '*') }) : (),
        );
        unlike $seen{$_}, qr/\Q$secret\E/, "not in $_" for sort keys %seen;
        like $seen{$_}, qr/$hash/, "its hash is in $_" for grep { $_ ne 'metrics' } sort keys %seen;
        is_deeply [sort split / /, $seen{redis}], [sort map { "rl:test:{$_}" } $hash, hash_of('another')],
            'Redis has no other key' if $seen{redis};
        my ($zone) = @{ decode_json($seen{zones})->{zones} };
        ok $zone->{hash_key}, 'the API shows that the zone hashes';
        is $zone->{busiest}[0]{$_}, $hash, "busiest: $_" for qw(key id);
    };
}

for my $redis (undef, 0) {
    subtest 'the API finds and frees a key by its name or its hash, counted ' . (defined $redis ? 'by the node' : 'in Redis') => sub {
        my $node = hashed_node(redis => $redis);
        my $hash = hash_of($secret);
        for my $path ("/$secret", "?key=$secret", "?hash=$hash", "?id=$hash") {
            is statuses($node, $secret, 4), '200 200 429 429', $path;
            my $state = decode_json($node->get("/ops/zones/test/keys$path")->body);
            is_deeply [@{$state}{qw(key remaining)}], [$hash, 0], 'the state of the key';
            is $node->status("/ops/zones/test/keys$path", method => 'DELETE'), 204, 'the key is freed';
        }
        is statuses($node, $secret, 1), '200';
        my $hashed_again = decode_json($node->get("/ops/zones/test/keys/$hash")->body);
        is_deeply [@{$hashed_again}{qw(key remaining)}], [hash_of($hash), 2], 'a hash in the path is taken as a key';
        for my $bad ('hash=', 'hash', 'hash=x', "hash=${hash}0", 'hash=' . uc $hash, 'hash=%00' . substr($hash, 1),
            'hash=' . substr($hash, 1)) {
            my $answer = $node->get("/ops/zones/test/keys?$bad");
            is $answer->status, 400, $bad;
            like $answer->body, qr/hash=/, 'the response names the argument';
        }
    };
}

subtest 'keys of any bytes and any length are counted separately' => sub {
    my $node = hashed_node(http => 'ratelimit_zone $uri zone=path rate=2r/d algorithm=fixed_window hash_key;'
            . 'ratelimit_zone $binary_remote_addr zone=address rate=2r/d hash_key;',
        server => 'location /path/ { ratelimit zone=path; try_files /index.html =404; }'
            . 'location /address/ { ratelimit zone=address; try_files /index.html =404; }');
    my $long = 'y' x 7900;
    for my $key ('{x}', '}', '{', 'a b', "\xff\xfe", 'x' x 128, 'x' x 129, $long, "${long}z") {
        is statuses($node, $key, 3), '200 200 429', substr $key, 0, 20;
        is $node->{redis}->cmd('EXISTS', 'rl:test:{' . hash_of($key) . '}'), 1;
    }
    for (['/path/a%0d%0ab', "/path/a\r\nb"], ['/path/%7b%7d', '/path/{}']) {
        my ($path, $key) = @{$_};
        is join(' ', map { $node->status($path) } 1 .. 3), '200 200 429', $path;
        is $node->{redis}->cmd('EXISTS', 'rl:path:{' . hash_of($key) . '}'), 1;
    }
    is join(' ', map { $node->status('/address/') } 1 .. 3), '200 200 429', 'a key with zero bytes';
    is $node->{redis}->cmd('EXISTS', 'rl:address:{' . hash_of("\x7f\0\0\1") . '}'), 1;
    is statuses($node, '', 4), '200 200 200 200', 'an empty key is not counted';
    is $node->{redis}->cmd('EXISTS', 'rl:test:{' . hash_of('') . '}'), 0;
};

subtest 'a long key of a zone without hash_key has the same hash' => sub {
    my $node = node(zone => 'rate=2r/d algorithm=fixed_window', key => '$http_x_key', server => $api);
    my $key = 'l' x 129;
    is statuses($node, $key, 3), '200 200 429';
    is $node->{redis}->cmd('EXISTS', 'rl:test:{' . hash_of($key) . '}'), 1;
    is $node->status('/ops/zones/test/keys?hash=' . hash_of($key), method => 'DELETE'), 204;
    is statuses($node, $key, 1), '200';
};

subtest 'who knows the hash of a key cannot use up its quota' => sub {
    my $node = node(zone => 'rate=2r/d algorithm=fixed_window', key => '$http_x_key', server => $api);
    my $key = 'l' x 129;
    is statuses($node, hash_of($key), 3), '200 200 429';
    is statuses($node, $key, 2), '200 200', 'the hash is another key';
    is statuses($node, uc hash_of($key), 1), '200';
    my ($zone) = @{ decode_json($node->get('/ops/zones')->body)->{zones} };
    is $zone->{busiest}[0]{id}, hash_of(hash_of($key)), 'it is known by its own hash';
    is $node->status('/ops/zones/test/keys?key=' . hash_of($key), method => 'DELETE'), 204;
    is statuses($node, hash_of($key), 1), '200', 'and found by itself';
};

for my $servers (1, 2) {
    subtest "zones with and without hash_key decide one request together, $servers server(s)" => sub {
        my @redis = map { redis() } 1 .. $servers;
        my $block = join ' ', map { "server @{[ $_->addr ]};" } @redis;
        my $node = nginx(http => <<"END", server => <<'END');
            ratelimit_redis main { $block timeout 5s; connect_timeout 5s; }
            ratelimit_zone \$http_x_key zone=plain rate=5r/d algorithm=fixed_window;
            ratelimit_zone \$http_x_key zone=hashed rate=2r/d algorithm=fixed_window hash_key;
            ratelimit_zone \$http_x_key zone=again rate=3r/d algorithm=fixed_window hash_key;
END
            location / { ratelimit zone=plain; ratelimit zone=hashed; ratelimit zone=again; try_files /index.html =404; }
            location /plain { ratelimit zone=plain cost=0; try_files /index.html =404; }
END
        is statuses($node, $secret, 4), '200 200 429 429';
        my $left = sub { $node->get('/plain', headers => ['X-Key', $secret])->header('X-RateLimit-Remaining') };
        wait_until('a request that one limit refuses is not counted in the other', sub { $left->() == 3 });
        my @keys = map { @{ $_->cmd('KEYS', '*') } } @redis;
        is_deeply [sort @keys], [sort "rl:plain:{$secret}", map { "rl:$_:{" . hash_of($secret) . '}' } qw(hashed again)];
    };
}

subtest 'nodes agree on the hash' => sub {
    my $redis = redis();
    my @nodes = map { hashed_node(redis => $redis) } 1 .. 2;
    is join(' ', map { statuses($_, $secret, 2) } @nodes), '200 200 429 429';
};

subtest 'streams of HTTP/2 are counted under one hash' => sub {
    my $node = hashed_node(listen => 'http2');
    my @statuses = map { $_->status } http2($node->port, [('/') x 6], headers => ['X-Key', $secret]);
    is join(' ', sort @statuses), '200 200 429 429 429 429';
    is_deeply $node->{redis}->cmd('KEYS', '*'), ['rl:test:{' . hash_of($secret) . '}'];
};

finish();

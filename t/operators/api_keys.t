# ratelimit_api: the state of a key, and freeing a key.
# needs: libprotocol-http2-perl

use Ratelimit::Http2 qw(http2_send http2_reset);
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(time);

my $api = 'location /ops/ { ratelimit_api write=on; } location /seen/ { ratelimit_api; }';
my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

sub key_of {
    my ($node, $key, %options) = @_;
    my $answer = $node->get("/ops/zones/test/keys/$key", %options);
    is $answer->status, 200, "the state of $key" or diag $answer->body;
    return decode_json($answer->body);
}

sub freed { my ($node, $path) = @_; return $node->status("/ops/zones/test/$path", method => 'DELETE') }

sub ended { my ($node) = @_; return scalar grep { /DELETE/ } split /\n/, $node->file('ended.log') }

subtest 'the API shows what the next request of a key would get, and counts nothing' => sub {
    for my $algorithm (@algorithms) {
        my $burst = $algorithm =~ /gcra|leaky/ ? 'burst=2' : '';
        my $node = node(zone => "rate=3r/d algorithm=$algorithm $burst", server => $api,
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '');
        my $new = key_of($node, 'ka');
        is_deeply $new, { zone => 'test', key => 'ka', id => 'ka', rate => '3r/d', limit => 3, remaining => 3, reset => 0,
            retry_after => 0, blocked => undef, source => 'redis', counted => JSON::PP::false,
            note => 'nothing is counted under this key now' } if $algorithm !~ /^fixed|counter$/;
        is_deeply [@{$new}{qw(limit remaining retry_after)}], [3, 3, 0], $algorithm;
        is $node->{redis}->cmd('DBSIZE'), 0, 'reading creates no key';
        $node->status('/?k=a') for 1 .. 2;
        is key_of($node, 'ka')->{remaining}, 1, 'the two requests are counted' for 1 .. 3;
        is $node->status('/?k=a'), 200;
        my $asked = time;
        my $full = key_of($node, 'ka');
        is_deeply [@{$full}{qw(remaining)}], [0];
        my $retry = $node->get('/?k=a')->header('Retry-After');
        cmp_ok abs($full->{retry_after} - $retry), '<=', 2 + time - $asked, 'retry_after is that of a refused request';
        cmp_ok $full->{reset}, '>=', $full->{retry_after};
    }
};

subtest 'reading a key in Redis changes nothing, with any rate or burst argument' => sub {
    my @questions = ('', '?rate=1r/s', '?rate=1r/366d', '?rate=1000r/d');
    for my $algorithm (@algorithms) {
        my $arrival = $algorithm =~ /gcra|leaky|token/;
        my $limit = $arrival ? 'burst=20 ' . ($algorithm eq 'leaky_bucket' ? 'nodelay' : '') : '';
        my $node = node(zone => "rate=10r/h algorithm=$algorithm cache=off", server => $api, limit => $limit);
        $node->status('/?k=a') for 1 .. 25;
        my $redis = $node->{redis};
        my $state = sub { return join ' ', $redis->cmd('GET', 'rl:test:{ka}'), $redis->cmd('PEXPIRETIME', 'rl:test:{ka}') };
        my $before = $state->();
        for my $question (@questions, $arrival ? ('?burst=1', '?burst=0&rate=1r/s') : ()) {
            next if $question =~ /burst=0/ && $algorithm eq 'token_bucket';
            is $node->status("/ops/zones/test/keys/ka$question"), 200, "$algorithm $question";
            is $state->(), $before, 'the state in Redis is unchanged';
        }
        is $node->status('/?k=a'), 429, 'the key is still refused';
    }
};

subtest 'reading a key in this node\'s memory changes nothing' => sub {
    for my $algorithm (@algorithms) {
        my $arrival = $algorithm =~ /gcra|leaky|token/;
        my $burst = $arrival ? 'burst=5' : '';
        my $delay = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my $node = nginx(http => "ratelimit_zone \$arg_k zone=test rate=2r/d algorithm=$algorithm $burst;",
            server => "$api location / { ratelimit zone=test $delay; try_files /index.html =404; }");
        $node->status('/?k=a') for 1 .. 8;
        for my $question ('', '?rate=1r/s', $arrival ? '?burst=1' : ()) {
            my $status = $question =~ /rate/ && $algorithm =~ /log|buckets/ ? 400 : 200;
            is $node->status("/ops/zones/test/keys/a$question"), $status, "$algorithm $question";
            is $node->status('/?k=a'), 429, 'the key is still refused';
        }
    }
};

subtest 'a freed key is admitted at once on this node' => sub {
    for my $algorithm (@algorithms) {
        my $node = node(zone => "rate=1r/d algorithm=$algorithm", server => $api, workers => 2,
            limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '');
        is_deeply [map { $node->status('/?k=a') } 1 .. 3], [200, 429, 429], "$algorithm refuses";
        is freed($node, 'keys/ka'), 204;
        is $node->{redis}->cmd('DBSIZE'), 0, 'the key is deleted in Redis';
        my $zone = decode_json($node->get('/ops/zones/test')->body);
        is_deeply $zone->{busiest}, [], 'it is no longer among the most refused';
        is $node->status('/?k=a'), 200, 'its cached refusal is dropped';
    }
};

subtest 'the leases of a freed key are dropped' => sub {
    my $node = node(zone => 'rate=100000r/d lease=100', server => $api);
    $node->status('/?k=a') for 1 .. 30;
    is freed($node, 'keys/ka'), 204;
    is $node->status('/?k=a'), 200;
    is key_of($node, 'ka')->{remaining}, 99_999, 'its count starts over';
};

subtest 'freeing needs write=on' => sub {
    my $node = node(zone => 'rate=1r/d', server => $api);
    $node->status('/?k=a');
    my $answer = $node->get('/seen/zones/test/keys/ka', method => 'DELETE');
    is $answer->status, 405;
    is $answer->header('Allow'), 'GET, HEAD';
    is $node->{redis}->cmd('DBSIZE'), 1;
    is $node->get('/ops/zones/test/keys/ka', method => 'POST')->header('Allow'), 'GET, HEAD, DELETE';
    is freed($node, 'keys/never-seen'), 200, 'freeing an unknown key succeeds, with a text';
    is freed($node, 'zones'), 404;
    is $node->status('/ops/zones/none/keys/ka', method => 'DELETE'), 404;
};

subtest 'any key can be read' => sub {
    my $node = node(zone => 'rate=2r/d', key => '$http_x_key', server => $api);
    my @keys = ('a b', 'a/b', '/lead//ing/', '../..', 'a?b#c', "\xff\xfe", 'a%2Fb', '{braces}', 'zones/test/keys/x',
        'a;b', 'x' x 128, '.');
    for my $key (@keys) {
        is $node->status('/', headers => ['X-Key' => $key]), 200;
        my $encoded = $key =~ s/([^A-Za-z0-9_-])/sprintf '%%%02X', ord $1/ger;
        is decode_json($node->get("/ops/zones/test/keys?key=$encoded")->body)->{remaining}, 1, "$key as argument";
        next if $key =~ /^\.|\.\./;    # nginx resolves dots in paths
        is key_of($node, $encoded)->{remaining}, 1, "$key in the path";
    }
    is $node->status('/', headers => ['X-Key' => 'y' x 500]), 200;
    is key_of($node, 'y' x 500)->{remaining}, 1, 'a long key';
    is $node->status('/', headers => ['X-Key' => '/']), 200;
    is key_of($node, '%2F')->{remaining}, 1, 'a slash';
    is freed($node, 'keys/a%2Fb'), 204;
    is key_of($node, 'a%2Fb')->{remaining}, 2;
};

subtest 'a key with dots never reaches another zone or page' => sub {
    my $node = node(zone => 'rate=1r/d', key => '$http_x_key', server => "$api location /admin/ { return 200 left; }"
            . ' rewrite ^/short/(.*)$ /ops/$1 last;',
        http => 'ratelimit_zone $http_x_key zone=other rate=1r/d;');
    my $evil = '../../other/keys/victim';
    $node->status('/', headers => ['X-Key' => $_]) for $evil, 'victim';
    for my $path ('..%2F..%2Fother%2Fkeys%2Fvictim', '%2e%2e/../other/keys/victim', '../../test/keys/victim') {
        is $node->status("/ops/zones/test/keys/$path"), 400, $path;
        is freed($node, "keys/$path"), 400;
        is $node->status("/short/zones/test/keys/$path", method => 'DELETE'), 400, 'refused through a rewrite too';
    }
    is $node->{redis}->cmd('DBSIZE'), 2, 'nothing was freed';
    is $node->status('/', headers => ['X-Key' => $evil]), 429;
    my ($busiest) = @{ decode_json($node->get('/ops/zones/test')->body)->{busiest} };
    is freed($node, "keys?id=$busiest->{id}"), 204, 'as an argument the key is taken as it is';
    is_deeply [$node->{redis}->keys_like], ['rl:test:{victim}'];
};

subtest 'keys with zero bytes can be read and freed' => sub {
    my $node = node(zone => 'rate=2r/d', key => '$binary_remote_addr$arg_k', server => $api);
    $node->status('/?k=x');
    for my $argument (qw(key id)) {
        my $answer = $node->get("/ops/zones/test/keys?$argument=%7f%00%00%01x");
        is_deeply [@{ decode_json($answer->body) }{qw(key id remaining)}], ['\x7f\x00\x00\x01x', '%7F%00%00%01x', 1];
    }
    is freed($node, 'keys?key=%7f%00%00%01x'), 204;
    is $node->{redis}->cmd('DBSIZE'), 0;
    is $node->status('/ops/zones/test/keys?id=' . 'x' x 129), 400, 'no counted key is as long';
};

# A node whose clients have the addresses of X-Real-IP.
sub of_addresses {
    my ($key, %options) = @_;
    return node(zone => "rate=2r/d algorithm=fixed_window $options{zone}", key => $key,
        http => 'set_real_ip_from 127.0.0.1; ratelimit_zone $arg_k$remote_addr zone=all rate=5r/d;',
        server => "$api location /all/ { ratelimit zone=all; try_files /index.html =404; }");
}
sub comes { my ($node, $address, $path) = @_; return $node->status($path // '/', headers => ['X-Real-IP' => $address]) }

my ($ipv4, $ipv6) = ('198.51.100.7', '2001:db8:1:2::5');

subtest 'keys that are addresses are shown and taken as people write them' => sub {
    my %bits = ('$ratelimit_client' => 64, '$ratelimit_net_32_64' => 64);
    for my $key (qw($binary_remote_addr ${binary_remote_addr} $remote_addr $ratelimit_client $ratelimit_net_32_64)) {
        my $node = of_addresses($key, zone => '');
        my $zone = sub { decode_json($node->get('/ops/zones/test')->body) };
        is_deeply $zone->()->{address_bits}, { ipv4 => 32, ipv6 => $bits{$key} // 128 }, $key;
        for my $address ($ipv4, '2001:DB8:1:2:0::5') {
            is_deeply [map { comes($node, $address) } 1 .. 3], [200, 200, 429];
            my $shown = $address eq $ipv4 ? $ipv4 : $bits{$key} ? '2001:db8:1:2::/64' : $ipv6;
            is $node->count_log(qr/limiting requests, by zone "test", key "\Q$shown\E", client: /), 1, "$shown in the log";
            my ($busiest) = grep { $_->{key} eq $shown } @{ $zone->()->{busiest} };
            ok $busiest, 'and in the API';
            for my $path ("/$address", "?key=$address", "/$shown", "?key=$shown", "?id=$busiest->{id}") {
                my $answer = $node->get("/ops/zones/test/keys$path");
                is_deeply [@{ decode_json($answer->body) }{qw(key id remaining)}], [$shown, $busiest->{id}, 0], $path;
            }
            is freed($node, "keys?key=$shown"), 204;
            is comes($node, $address), 200;
            is $node->count_log(qr/notice.*key freed, zone "test", key "\Q$shown\E", by/), 1, 'the change in the log';
        }
    }
};

subtest 'nothing typed as an address is guessed' => sub {
    my $node = of_addresses('$ratelimit_client', zone => '');
    for my $bad ('%7f%00%00%01', '1::2::3', '1..2.3', '01.2.3.4', '198.51.100', '198.51.100.7/31', '2001:db8::/48',
        '2001:db8::/64x', '2001:db8::/', 'host', '198.51.100.7%00') {
        my $answer = $node->get("/ops/zones/test/keys?key=$bad");
        is $answer->status, 400, $bad;
        like decode_json($answer->body)->{error}, qr/expected an address, or a network/;
        is freed($node, "keys?key=$bad"), 400;
    }
    is key_of($node, '198.51.100.7%2F32')->{key}, $ipv4, 'the length of an address';
    is decode_json($node->get('/ops/zones/all')->body)->{address_bits}, undef, 'a key of two variables is text';
    is decode_json($node->get('/ops/zones/all/keys?key=1.2')->body)->{key}, '1.2';
    comes($node, '::ffff:192.0.2.1') for 1 .. 2;
    is key_of($node, '192.0.2.1')->{remaining}, 0, 'a mapped address is an IPv4 address';
    is key_of($node, '::ffff:192.0.2.1')->{key}, '192.0.2.1';
};

subtest 'networks are shown and taken as networks' => sub {
    my $node = of_addresses('$ratelimit_net_24_48', zone => '');
    comes($node, $_) for $ipv4, '198.51.100.200', $ipv6;
    for (['198.51.100.9', '198.51.100.0/24', 0], ['198.51.100.0/24', '198.51.100.0/24', 0], ['2001:db8:1:ff::', '2001:db8:1::/48', 1]) {
        my ($typed, $shown, $left) = @{$_};
        is_deeply [@{ decode_json($node->get("/ops/zones/test/keys?key=$typed")->body) }{qw(key remaining)}], [$shown, $left], $typed;
    }
};

subtest 'an address of a zone with hash_key is found by the address or by the hash' => sub {
    my $node = of_addresses('$binary_remote_addr', zone => 'hash_key');
    comes($node, $ipv4) for 1 .. 2;
    my $state = key_of($node, $ipv4);
    is $state->{remaining}, 0;
    like $state->{key}, qr/^[0-9a-f]{32}$/;
    for my $argument ("hash=$state->{key}", "id=$state->{id}") {
        is decode_json($node->get("/ops/zones/test/keys?$argument")->body)->{remaining}, 0, $argument;
    }
};

subtest 'a variable rate or another burst is given by arguments' => sub {
    my $node = node(zone => 'rate=$arg_rate algorithm=gcra', server => $api);
    is $node->status('/?k=a&rate=10r/d'), 200;
    my $answer = $node->get('/ops/zones/test/keys/ka');
    is $answer->status, 400;
    like decode_json($answer->body)->{error}, qr/rate is a variable/;
    is $node->status('/ops/zones/test/keys/ka?rate=nonsense'), 400;
    is $node->status("/ops/zones/test/keys/ka?rate=10r/d&$_"), 400, $_
        for 'burst=-1', 'burst=%', 'burst=99999999999';
    is $node->status("/ops/zones/test/keys/ka?$_"), 400, "$_: nginx -t refuses the same"
        for 'rate=%zz', 'rate=1r/366d&burst=1000000000';
    is decode_json($node->get('/ops/zones/test/keys/ka?rate=10r/d&burst=4')->body)->{remaining}, 4;
    is freed($node, 'keys/ka'), 204, 'freeing needs no rate';
};

subtest 'a key whose rate is a variable is looked up and freed by the rate of its last refusal' => sub {
    for my $redis (0, 1) {
        my %options = (server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
        my $node = $redis ? node(zone => 'rate=$arg_rate algorithm=fixed_window', server => $api)
            : nginx(http => 'ratelimit_zone k$arg_k zone=test rate=$arg_rate algorithm=fixed_window;', %options);
        is_deeply [map { $node->status('/?k=a&rate=2r/h') } 1 .. 3], [200, 200, 429];
        is_deeply [@{ key_of($node, 'ka') }{qw(rate limit remaining)}], ['2r/h', 2, 0], $redis ? 'Redis' : 'memory';
        my ($busiest) = @{ decode_json($node->get('/ops/zones/test')->body)->{busiest} };
        is $busiest->{rate}, '2r/h';
        is key_of($node, 'ka?rate=3r/h')->{limit}, 3, 'another rate is given';
        is freed($node, 'keys/ka'), 204;
        is $node->status('/?k=a&rate=2r/h'), 200;
        is $node->status('/ops/zones/test/keys/ka'), 400, 'a freed key was not refused';
    }
};

subtest 'counts of this node under a variable rate are shown for the given rate' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=test rate=$arg_r algorithm=sliding_window_log;',
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
    is $node->status('/?k=a&r=1r/d'), 200;
    my $answer = $node->get('/ops/zones/test/keys/a');
    is $answer->status, 400;
    like decode_json($answer->body)->{error}, qr/rate is a variable/;
    for (['1r/d', 0], ['5r/d', 4], ['2r/s', 2], ['1r/d', 0]) {
        my ($rate, $remaining) = @{$_};
        is key_of($node, "a?rate=$rate")->{remaining}, $remaining, $rate;
    }
    is $node->status('/?k=a&r=1r/d'), 429, 'reading has changed nothing';
    is freed($node, 'keys/a'), 204;
    is $node->status('/?k=a&r=1r/d'), 200;
};

subtest 'keys of zones without Redis can be read and freed' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=test rate=2r/d;',
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
    $node->status('/?k=a') for 1 .. 3;
    my $state = key_of($node, 'a');
    is_deeply [@{$state}{qw(remaining source)}], [0, 'local'];
    cmp_ok $state->{retry_after}, '>', 0;
    is key_of($node, 'b')->{remaining}, 2;
    is freed($node, 'keys/a'), 204;
    is $node->status('/?k=a'), 200;
};

subtest 'when Redis is unavailable the API says so, and forgets nothing' => sub {
    my $redis = redis();
    my $node = nginx(http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 1s; connect_timeout 5s; }"
            . 'ratelimit_zone k$arg_k zone=test rate=1r/d;',
        server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
    $node->{redis} = $redis;
    # A refusal is cached for five seconds, of which the API waits for two. It is tried again if the machine takes the rest.
    my ($refused, $stays);
    for (1 .. 5) {
        $node->{redis}->resume;
        wait_until('a refusal', sub { $refused = time; $node->status('/?k=a') == 429 });
        $node->{redis}->pause;
        for my $method (qw(GET DELETE)) {
            my $answer = $node->get('/ops/zones/test/keys/ka', method => $method);
            is $answer->status, 503, $method;
            like decode_json($answer->body)->{error}, qr/Redis does not answer/;
        }
        $stays = $node->status('/?k=a');
        last if time - $refused < 5;
    }
    is $stays, 429, 'the cached refusal stays';
    $node->{redis}->resume;
    wait_until('the API answers', sub { $node->status('/ops/zones/test/keys/ka') == 200 });
    $node->{redis}->cmd('ACL', 'SETUSER', 'default', '-@scripting', '-del');
    for my $method (qw(GET DELETE)) {
        my $answer = $node->get('/ops/zones/test/keys/ka', method => $method);
        is $answer->status, 503, $method;
        like decode_json($answer->body)->{error}, qr/with an error/;
    }
    $node->{redis}->stop;
    wait_until('the API reports the stopped Redis', sub { $node->status('/ops/zones/test/keys/ka') == 503 });
    pass 'a stopped Redis is reported too';
};

subtest 'a client that leaves while it frees a key still frees it in Redis and on this node' => sub {
    my $h2   = free_port();
    my $node = node(zone => 'rate=1r/d', server => "listen 127.0.0.1:$h2 http2; access_log ended.log; $api");
    my %leave = (
        'HTTP/1' => sub { close $_[0] },
        'HTTP/2, a stream'     => sub { http2_reset($_[0], 1) },
        'HTTP/2, a connection' => sub { close $_[0] },
    );
    for my $way (sort keys %leave) {
        $node->status('/?k=l') for 1 .. 2;
        is $node->status('/?k=l'), 429, 'refused by the cache';
        my $path = '/ops/zones/test/keys/kl';
        my $ended = ended($node);
        $node->{redis}->pause;
        my $socket;
        if ($way eq 'HTTP/1') { http_send($socket = http_connect($node->port), $path, method => 'DELETE') }
        else                  { $socket = http2_send($h2, [$path], method => 'DELETE') }
        $node->get('/ops/zones') for 1 .. 2;
        $leave{$way}->($socket);
        $node->get('/ops/zones') for 1 .. 2;  # by then the worker has seen that the client left
        $node->{redis}->resume;
        wait_until('the key is deleted', sub { !$node->{redis}->cmd('EXISTS', 'rl:test:{kl}') });
        wait_until('the request has ended', sub { ended($node) > $ended });
        is $node->status('/?k=l'), 200, $way;
        $node->{redis}->cmd('FLUSHALL');
        is freed($node, 'keys/kl'), 200, 'nothing is left in Redis';
    }
};

subtest 'clients that leave during an API call do not affect the node' => sub {
    my $node = node(zone => 'rate=1r/d', server => $api);
    $node->status('/?k=a');
    $node->{redis}->pause;
    for my $method (qw(GET DELETE)) {
        for (1 .. 20) {
            my $socket = http_connect($node->port);
            http_send($socket, "/ops/zones/test/keys/k$_", method => $method);
            close $socket;
        }
    }
    is $node->status('/ops/redis'), 200;
    $node->{redis}->resume;
    is key_of($node, 'ka')->{remaining}, 0;
};

subtest 'keys can be read and freed in a cluster and a ring' => sub {
    my $cluster = cluster(replicas => 0);
    my @ring = map { redis() } 1 .. 3;
    for my $block ('topology cluster; ' . join('', map { "server $_;" } $cluster->addrs),
        join('', map { 'server ' . $_->addr . ';' } @ring)) {
        my $node = nginx(http => "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; }"
                . 'ratelimit_zone $arg_k zone=test rate=1r/d;',
            server => "$api location / { ratelimit zone=test; try_files /index.html =404; }");
        for my $key ('a' .. 'f') {
            is_deeply [map { $node->status("/?k=$key") } 1, 2], [200, 429];
            is key_of($node, $key)->{remaining}, 0;
            is freed($node, "keys/$key"), 204;
            is $node->status("/?k=$key"), 200;
        }
    }
};

finish();

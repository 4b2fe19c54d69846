# block=: a key that is refused stays refused for a time, on every node.

use JSON::PP qw(decode_json);
use Ratelimit::Test;
use Time::HiRes ();

# Blocks for an hour unless the options say otherwise; /big costs 5, /other has another burst.
sub blocking_node {
    my (%options) = @_;
    my $zone = $options{zone} // 'rate=2r/d algorithm=fixed_window';
    return node(
        %options,
        zone   => "$zone " . ($options{block_for} // 'block=1h'),
        block  => $options{redis_lines} // '',
        server => 'location = /big { ratelimit zone=test cost=5; try_files /index.html =404; }'
            . 'add_header X-Source $ratelimit_source always;' . ($options{server} // ''),
    );
}

# A node that counts in its own memory.
sub local_node {
    my (%options) = @_;
    return nginx(
        %options,
        http   => "ratelimit_zone k\$arg_k zone=test $options{zone};" . ($options{http} // ''),
        server => <<"END" . ($options{server} // ''),
        location / { ratelimit zone=test; }
        location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }
        location = /big { ratelimit zone=test cost=5; try_files /index.html =404; }
        add_header X-Source \$ratelimit_source always;
END
    );
}

# Tries until the node lets a request in; returns the seconds that it took.
sub seconds_until_free {
    my ($node, $path) = @_;
    my $start = Time::HiRes::time();
    wait_until('the key is free', sub { $node->status($path) == 200 });
    return Time::HiRes::time() - $start;
}

sub is_blocked {
    my ($answer, $what, $most, $least) = @_;
    is $answer->status, 429, $what;
    is $answer->header('X-RateLimit-Remaining'), 0, 'nothing remains';
    for my $name ('Retry-After', 'X-RateLimit-Reset') {
        cmp_ok $answer->header($name), '<=', $most, "$name is the rest of the block";
        cmp_ok $answer->header($name), '>', $least // $most - 120, 'and no less';
    }
    return;
}

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket burst=2', 'gcra burst=1', 'leaky_bucket burst=1',
);

for my $place ('Redis', 'Redis, by the clock of the node', 'memory') {
    for my $algorithm (map { "algorithm=$_" } @algorithms) {
        subtest "a refused key is blocked, in $place, $algorithm" => sub {
            my $zone = "rate=2r/d $algorithm" . ($place =~ /clock/ ? ' clock=local' : '');
            my %limit = (limit => $algorithm =~ /leaky/ ? 'nodelay' : '', zone => $zone);
            my $node = $place eq 'memory' ? local_node(zone => "$zone block=1h") : blocking_node(%limit);
            if ($place eq 'memory' && $algorithm =~ /leaky/) {
                $node = nginx(
                    http   => "ratelimit_zone k\$arg_k zone=test $zone block=1h;",
                    server => 'location / { ratelimit zone=test nodelay; }
                        location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }
                        location = /big { ratelimit zone=test cost=5; try_files /index.html =404; }');
            }
            is $node->status('/'), 200, "request $_ of two" for 1 .. 2;
            is_blocked($node->get('/'), 'the third begins the block', 3600);
            is_blocked($node->get('/'), 'the fourth', 3600);
            is_blocked($node->get('/big'), 'another cost', 3600);
            my $peek = $node->get('/peek');
            is $peek->status, 200, 'a request of cost 0 passes';
            is $peek->header('X-RateLimit-Remaining'), 0;
            cmp_ok $peek->header('X-RateLimit-Reset'), '>', 3480, 'it shows the block';
            is $node->status('/?k=other'), 200, 'other keys are free';
            is_blocked($node->get('/big?k=big'), 'a cost above the limit blocks too', 3600);
            is_blocked($node->get('/?k=big'), 'every request of the key', 3600);
        };
    }
}

subtest 'what a key asks during the block does not prolong it, and then nothing is counted' => sub {
    for my $cache ('on', 'off') {
        my $node = blocking_node(zone => "rate=3r/d cache=$cache", block_for => 'block=2s');
        is $node->status('/'), 200 for 1 .. 3;
        is $node->status('/'), 429;
        my $seconds = seconds_until_free($node, '/');
        cmp_ok $seconds, '>', 1.5, "cache=$cache: it lasted";
        cmp_ok $seconds, '<', 3.5, 'it was not prolonged';
        is $node->get('/')->header('X-RateLimit-Remaining'), 1, 'the key started with nothing counted';
    }
};

subtest 'in memory too' => sub {
    my $node = local_node(zone => 'rate=3r/d block=2s');
    is $node->status('/'), 200 for 1 .. 3;
    is $node->status('/'), 429;
    my $seconds = seconds_until_free($node, '/');
    cmp_ok $seconds, '>', 1.5, 'it lasted';
    cmp_ok $seconds, '<', 3.5, 'it was not prolonged';
    is $node->get('/')->header('X-RateLimit-Remaining'), 1;
};

subtest 'every node knows the block, whatever becomes free meanwhile' => sub {
    my $first  = blocking_node(zone => 'rate=2r/s', redis_lines => '');
    my $second = blocking_node(zone => 'rate=2r/s', redis => $first->{redis});
    wait_until('a refusal', sub { $first->status('/') == 429 });
    select undef, undef, undef, 2.2;    # the window has passed
    for my $node ($second, $first) {
        is_blocked($node->get('/'), 'refused, though the window is empty', 3600);
    }
    is $second->get('/')->header('X-Source'), 'cache', 'a node remembers the block';
    $first->reload(gone => 1);
    is_blocked($first->get('/'), 'also after a reload', 3600);
    my ($key) = $first->{redis}->keys_like('rl:test:*');
    my $left = $first->{redis}->cmd('PTTL', $key);
    cmp_ok $left, '<=', 3_600_000, 'the key expires with the block';
    cmp_ok $left, '>', 3_400_000;
};

subtest 'a reload keeps a block in memory' => sub {
    my $node = local_node(zone => 'rate=2r/s block=1h');
    wait_until('a refusal', sub { $node->status('/') == 429 });
    $node->reload(gone => 1);
    select undef, undef, undef, 2.2;    # the window has passed
    is_blocked($node->get('/'), 'after the reload', 3600);
};

subtest 'a shorter block holds after a reload, and a zone without a block knows none' => sub {
    my $redis = redis();
    my $node  = blocking_node(redis => $redis);
    is $node->status('/'), $_ for 200, 200, 429;
    my $shorter = blocking_node(redis => $redis, block_for => 'block=10m');
    is_blocked($shorter->get('/'), 'the shorter one', 600);
    my $without = blocking_node(redis => $redis, block_for => '');
    is $without->status('/'), 200, 'a zone without a block';
};

subtest 'a refusal by another limit does not block' => sub {
    my $node = blocking_node(
        zone   => 'rate=9r/d',
        http   => 'ratelimit_zone $arg_o zone=other rate=1r/d block=10m; ratelimit_zone $arg_s zone=trial rate=1r/d block=20m;',
        server => <<'END',
        location = /both { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }
        location = /other { ratelimit zone=other cost=0; try_files /index.html =404; }
        location = /shadow { ratelimit zone=test; ratelimit zone=trial shadow; try_files /index.html =404; }
        location = /trial { ratelimit zone=trial; try_files /index.html =404; }
        location = /dry { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }
END
    );
    is $node->status('/both?o=x'), 200;
    is_blocked($node->get('/both?o=x'), 'the other limit', 600) for 1 .. 5;
    is $node->get('/peek')->header('X-RateLimit-Remaining'), 8, 'nothing is counted in the first, nor is it blocked';
    is $node->status('/shadow?s=y'), 200, "a shadow limit refuses nothing" for 1 .. 3;
    is_blocked($node->get('/trial?s=y'), 'but its key is blocked', 1200);
    is $node->status('/dry?k=dry'), 200, 'a dry run refuses nothing' for 1 .. 10;
    is_blocked($node->get('/?k=dry'), 'but blocks', 3600);
    is_blocked($node->get('/both?k=dry&o=z'), 'a blocked key refuses', 3600);
    is $node->get('/other?o=z')->header('X-RateLimit-Remaining'), 1, 'and the other limit does not count';
};

subtest 'several limits in memory' => sub {
    my $node = local_node(
        zone   => 'rate=9r/d block=1h',
        http   => 'ratelimit_zone $arg_o zone=other rate=1r/d block=10m;',
        server => 'location = /both { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }',
    );
    is $node->status('/both?o=x'), 200;
    is_blocked($node->get('/both?o=x'), 'the other limit', 600) for 1 .. 5;
    is $node->get('/peek')->header('X-RateLimit-Remaining'), 8;
};

subtest 'many requests at once: exactly the limit passes, one block begins' => sub {
    my $node = blocking_node(zone => 'rate=50r/d', workers => 2, server => 'location /ops/ { ratelimit_api; }');
    my @statuses = burst($node->port, '/', 400, 40);
    is scalar(grep { $_ == 200 } @statuses), 50;
    is scalar(grep { $_ == 429 } @statuses), 350;
    like $node->get('/ops/metrics')->body, qr/^ratelimit_blocks_total\{zone="test"\} 1$/m;
};

subtest 'charges and refunds do not change a block' => sub {
    my $node = blocking_node(
        zone   => 'rate=2r/d algorithm=fixed_window cache=off',
        server => <<'END',
        location = /charged { ratelimit zone=test charge=$arg_charge; try_files /index.html =404; }
        location = /slow { ratelimit zone=test charge=$arg_charge; proxy_pass http://127.0.0.1:$server_port/rated; }
        location = /rated { limit_rate 100; return 200 "0123456789"; }
END
    );
    for my $charge (0, 9) {
        my $key = "c$charge";
        my $socket = http_connect($node->port);
        http_send($socket, "/slow?charge=$charge&k=$key");
        wait_until('the request is counted', sub { $node->get("/peek?k=$key")->header('X-RateLimit-Remaining') == 1 });
        is $node->status("/?k=$key"), $_ for 200, 429;
        http_read($socket);
        select undef, undef, undef, 0.3;
        is_blocked($node->get("/?k=$key"), "after a charge of $charge", 3600);
    }
    is $node->status("/charged?charge=3&k=debt"), 200;
    wait_until('the key owes', sub { $node->get('/peek?k=debt')->header('X-RateLimit-Remaining') == 0 });
    is_blocked($node->get('/?k=debt'), 'a debt refuses, which blocks', 3600);
};

subtest 'fail mode local blocks in the memory of the node' => sub {
    my $redis = redis();
    my $node  = blocking_node(zone => 'rate=2r/d', redis => $redis, location => 'ratelimit_fail_mode local;');
    is $node->status('/?k=before'), $_ for 200, 200, 429;
    $redis->stop;
    is $node->status('/?k=before'), 429, 'a remembered block refuses without Redis';
    is $node->status('/'), 200 for 1 .. 2;
    is_blocked($node->get('/'), 'local', 3600) for 1 .. 2;
    is $node->get('/')->header('X-Source'), 'local';
};

subtest 'with a variable rate each window of a key has its block' => sub {
    my $node = blocking_node(zone => 'rate=$arg_r', block_for => 'block=1h');
    is $node->status('/?r=2r/d'), $_ for 200, 200, 429;
    is_blocked($node->get('/?r=1000r/d'), 'a larger quota does not help', 3600);
    is $node->status('/?r=2r/2d'), 200, 'another window is counted by itself';
};

subtest 'problem details and headers tell a block from an exhausted quota' => sub {
    my $node = blocking_node(
        http   => 'ratelimit_zone q$arg_k zone=quota rate=2r/d;',
        server => <<'END',
        ratelimit_problem_details on; ratelimit_headers draft;
        location = /block { ratelimit zone=test; try_files /index.html =404; }
        location = /quota { ratelimit zone=quota; try_files /index.html =404; }
END
    );
    for my $case (['block', 'abnormal-usage-detected', 'Abnormal Usage Detected'], ['quota', 'quota-exceeded', 'Quota Exceeded']) {
        my ($path, $type, $title) = @{$case};
        is $node->status("/$path"), 200 for 1 .. 2;
        for my $time ('first', 'remembered') {
            my $answer  = $node->get("/$path");
            my $problem = decode_json($answer->body);
            is $problem->{type}, "https://iana.org/assignments/http-problem-types#$type", "$path, $time";
            is $problem->{title}, $title;
            like $answer->header('RateLimit'), qr/;r=0;t=@{[ $answer->header('Retry-After') ]}$/, 't is the retry time';
        }
    }
    my $peek = $node->get('/peek');
    like $peek->header('RateLimit'), qr/^"test";r=0;t=3[56]\d\d$/, 'a request of cost 0 has the rest of the block in its headers';
};

subtest 'the API shows a block and frees it' => sub {
    for my $place ('redis', 'local') {
        my %api = (server => 'location /ops/ { ratelimit_api write=on; ratelimit off; }');
        my $node = $place eq 'redis' ? blocking_node(%api) : local_node(zone => 'rate=2r/d algorithm=fixed_window block=1h', %api);
        my $key = sub { decode_json($node->get('/ops/zones/test/keys/k')->body) };
        is $node->status('/'), 200 for 1 .. 2;
        is $key->()->{blocked}, undef, "$place: a full key is not blocked yet";
        cmp_ok $key->()->{retry_after}, '!=', 3600, 'its retry time is that of the algorithm';
        is $key->()->{remaining}, 0;
        is $node->status('/'), 429, 'looking began no block, this does';
        my $state = $key->();
        cmp_ok $state->{blocked}, '>', 3400, 'blocked for an hour';
        is $state->{$_}, $state->{blocked}, $_ for 'reset', 'retry_after';
        my $zone = decode_json($node->get('/ops/zones/test')->body);
        is $zone->{block}, 3600;
        is $zone->{blocks}, 1;
        cmp_ok $zone->{busiest}[0]{blocked}, '>', 3400, 'the busiest keys too';
        is $node->status('/ops/zones/test/keys/k', method => 'DELETE'), 204;
        is $node->status('/'), 200, 'freed';
        is $key->()->{blocked}, undef;
        is $node->status('/?k=other'), $_ for 200, 200, 429;
        my $other = (grep { $_->{key} eq 'kother' } @{ decode_json($node->get('/ops/zones/test')->body)->{busiest} })[0];
        cmp_ok $other->{blocked}, '>', 3400;
    }
};

subtest 'a foreign value is no block, and an end that is too far ahead is a block at most' => sub {
    my $node = blocking_node(zone => 'rate=2r/d cache=off');
    is $node->status('/'), 200;
    my ($key) = $node->{redis}->keys_like('rl:test:*');
    my $block = sub { pack('n', 0xB10C) . substr pack('Q>', $_[0] * 1e6), 1 };
    for my $value ('blocked!!', "\xB1\x0C", "\xB1\x0C" . "\xff" x 7, $block->(0), $block->(time - 5)) {
        $node->{redis}->cmd('SET', $key, $value, 'EX', 60);
        is $node->get('/')->header('X-RateLimit-Remaining'), 1, 'a key without a state';
    }
    $node->{redis}->cmd('SET', $key, $block->(time + 1e8));
    is_blocked($node->get('/'), 'for years', 3600);
    cmp_ok $node->{redis}->cmd('PTTL', $key), '<=', 3_600_000, 'it gets an expiry';
};

finish();

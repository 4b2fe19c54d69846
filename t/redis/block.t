# block=: a key that is refused stays refused for a time, on every node.

use JSON::PP qw(decode_json);
use Ratelimit::Backend;
use Ratelimit::Test;
use Time::HiRes ();

# Longer than any algorithm refuses with rate=2r/d.
my $block = 2 * 86_400;

# Blocks for two days unless the options say otherwise; /big costs 5.
sub blocking_node {
    my (%options) = @_;
    my $zone = $options{zone} // 'rate=2r/d algorithm=fixed_window';
    return node(
        %options,
        zone   => "$zone " . ($options{block_for} // 'block=2d'),
        block  => $options{redis_lines} // '',
        server => 'location = /big { ratelimit zone=test cost=5$arg_none; try_files /index.html =404; }'
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
        location = /big { ratelimit zone=test cost=5\$arg_none; try_files /index.html =404; }
        add_header X-Source \$ratelimit_source always;
END
    );
}

# Exceeds a quota of a second, on a slow machine, too: by requests at the same time.
sub exceed {
    my ($node, $path) = @_;
    return wait_until('a refusal', sub { grep { $_ == 429 } burst($node->port, $path // '/', 12, 12) });
}

# Waits until a key of this Redis is blocked, which begins behind the decision.
sub begins {
    my ($redis) = @_;
    return wait_until('a block', sub { $redis->keys_like('rl:test:*:block') });
}

sub is_blocked {
    my ($answer, $what, $most, $least) = @_;
    is $answer->status, 429, $what;
    is $answer->header('X-RateLimit-Remaining'), 0, 'nothing remains';
    for my $name ('Retry-After', 'X-RateLimit-Reset') {
        cmp_ok $answer->header($name), '<=', $most, "$name is the rest of the block";
        cmp_ok $answer->header($name), '>', $least // $most - 300, 'and no less';
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
            my $node = $place eq 'memory' ? local_node(zone => "$zone block=2d") : blocking_node(%limit);
            if ($place eq 'memory' && $algorithm =~ /leaky/) {
                $node = nginx(
                    http   => "ratelimit_zone k\$arg_k zone=test $zone block=2d;",
                    server => 'location / { ratelimit zone=test nodelay; }
                        location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }
                        location = /big { ratelimit zone=test cost=5$arg_none; try_files /index.html =404; }');
            }
            is $node->status('/'), 200, "request $_ of two" for 1 .. 2;
            is_blocked($node->get('/'), 'the third begins the block', $block);
            is_blocked($node->get('/'), 'the fourth', $block);
            is $node->get('/big')->header('Retry-After'), undef, 'a cost above the limit would never pass';
            my $peek;
            wait_until('a request of cost 0 shows the block, which begins behind the decision',
                sub { ($peek = $node->get('/peek'))->header('X-RateLimit-Reset') > $block - 300 });
            is $peek->status, 200, 'it passes';
            is $peek->header('X-RateLimit-Remaining'), 0;
            is $node->status('/?k=other'), 200, 'other keys are free';
            is $node->status('/big?k=big'), 429;
            is_blocked($node->get('/?k=big'), 'a cost above the limit blocks every request of the key', $block);
        };
    }
}

for my $place ('memory', 'cache=on', 'cache=off') {
    subtest "what a key asks during the block does not prolong it, $place" => sub {
        my $zone = 'rate=2r/s algorithm=token_bucket';
        my $node = $place eq 'memory' ? local_node(zone => "$zone block=3s")
            : blocking_node(zone => "$zone $place", block_for => 'block=3s');
        my $before = Time::HiRes::time();
        exceed($node);
        my ($ends, $refused, $last) = (Time::HiRes::time() + 3, 0);
        wait_until('the key is free', sub {
            my $asked = Time::HiRes::time();
            return 1 if $node->status('/') == 200;
            ($refused, $last) = ($refused + 1, $asked);
            return 0;
        });
        cmp_ok $refused, '>', 0, 'it asked during the block';
        cmp_ok Time::HiRes::time() - $before, '>', 2.9, 'which lasted';
        cmp_ok $last, '<', $ends + 0.3, 'and was not prolonged';
    };

    subtest "a block lets no more through than the limit, and forgives no debt, $place" => sub {
        my @cases = map { { algorithm => $_ } } @algorithms;
        for my $case (@cases) {
            my $algorithm = $case->{algorithm};
            my $zone = "rate=2r/d algorithm=$algorithm";
            my $charged = 'location = /charged { ratelimit zone=test charge=$arg_charge nodelay; try_files /index.html =404; }';
            $charged =~ s/ nodelay// if $algorithm !~ /leaky/;
            my %more = (server => $charged, ($algorithm =~ /leaky/ ? (limit => 'nodelay') : ()));
            my $node = $place eq 'memory' ? local_node(zone => "$zone block=1s", %more)
                : blocking_node(zone => "$zone $place", block_for => 'block=1s', %more);
            my $path = $place eq 'memory' && $algorithm =~ /leaky/ ? '/charged?charge=1' : '/?';
            is $node->status("$path&k=a"), $_, $algorithm for 200, 200, 429;
            is $node->status('/charged?charge=9&k=debt'), 200;
            wait_until('the key owes', sub { $node->get('/peek?k=debt')->header('X-RateLimit-Remaining') == 0 });
            my $owed = $node->get("$path&k=debt")->header('Retry-After');
            cmp_ok $owed, '>', 86_400, 'refused until the debt is paid' if $algorithm =~ /bucket b|gcra/;
            @{$case}{qw(node path owed)} = ($node, $path, $owed);
        }
        select undef, undef, undef, 1.2;    # the blocks have ended
        for my $case (@cases) {
            my ($algorithm, $node, $path, $owed) = @{$case}{qw(algorithm node path owed)};
            is $node->status("$path&k=a"), 429, "the limit refuses after the block, $algorithm";
            cmp_ok $node->get("$path&k=debt")->header('Retry-After'), '>=', $owed - 60, 'the debt is kept' if $owed;
        }
    };
}

# These three wait for the same window.
my $first  = blocking_node(zone => 'rate=2r/s', redis_lines => '');
my $second = blocking_node(zone => 'rate=2r/s', redis => $first->{redis});
exceed($first);
my $local = local_node(zone => 'rate=2r/s block=1h');
exceed($local);
$local->reload(gone => 1);
my %zone = (zone => 'rate=2r/s', redis => redis());
my $longer = blocking_node(%zone);
exceed($longer);
begins($_) for $first->{redis}, $zone{redis};
undef $longer;
my $shorter = blocking_node(%zone, block_for => 'block=10m');
select undef, undef, undef, 2.2;    # the window has passed

subtest 'every node knows the block, whatever becomes free meanwhile' => sub {
    for my $node ($second, $first) {
        is_blocked($node->get('/'), 'refused, though the window is empty', $block);
    }
    ok wait_until('the memory', sub { $second->get('/')->header('X-Source') eq 'cache' }), 'a node remembers the block';
    $first->reload(gone => 1);
    is_blocked($first->get('/'), 'also after a reload', $block);
    my ($key) = $first->{redis}->keys_like('rl:test:*:block');
    my $left = $first->{redis}->cmd('PTTL', $key);
    cmp_ok $left, '<=', $block * 1000, 'the key expires with the block';
    cmp_ok $left, '>', ($block - 300) * 1000;
};

subtest 'a reload keeps a block in memory' => sub {
    is_blocked($local->get('/'), 'after the reload', 3600);
};

subtest 'a shorter block holds after a reload, and a zone without a block knows none' => sub {
    is_blocked($shorter->get('/'), 'the shorter one', 600);
    my $other = blocking_node(%zone, block_for => 'block=1d');
    is_blocked($other->get('/'), 'which every node knows', 600);
    my $without = blocking_node(%zone, block_for => '');
    is $without->status('/'), 200, 'a zone without a block';
};

subtest 'a refusal by another limit does not block' => sub {
    my $node = blocking_node(
        zone   => 'rate=9r/d',
        http   => 'ratelimit_zone $arg_o zone=other rate=1r/d block=3d; ratelimit_zone $arg_s zone=trial rate=1r/s block=20m;',
        server => <<'END',
        location = /both { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }
        location = /other { ratelimit zone=other cost=0; try_files /index.html =404; }
        location = /shadow { ratelimit zone=test; ratelimit zone=trial shadow; try_files /index.html =404; }
        location = /trial { ratelimit zone=trial; try_files /index.html =404; }
        location = /dry { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }
END
    );
    is $node->status('/both?o=x'), 200;
    is_blocked($node->get('/both?o=x'), 'the other limit', 3 * 86_400) for 1 .. 5;
    is $node->get('/peek')->header('X-RateLimit-Remaining'), 8, 'nothing is counted in the first, nor is it blocked';
    is $node->status('/?k=b'), $_ for (200) x 9, 429;
    is_blocked($node->get('/both?k=b&o=z'), 'a blocked key refuses', $block);
    is $node->get('/other?o=z')->header('X-RateLimit-Remaining'), 1, 'and the other limit does not count';
};

for my $place ('Redis', 'memory') {
    subtest "what only tries begins no block, $place" => sub {
        my %trial = (
            http   => 'ratelimit_zone $arg_s zone=trial rate=1r/s algorithm=token_bucket block=20m;',
            server => <<'END',
        location = /shadow { ratelimit zone=trial shadow; try_files /index.html =404; }
        location = /dry { ratelimit zone=trial; ratelimit_dry_run on; try_files /index.html =404; }
        location = /trial { ratelimit zone=trial; try_files /index.html =404; }
END
        );
        my $zone = 'rate=9r/d';
        my $node = $place eq 'memory' ? local_node(zone => $zone, %trial) : blocking_node(zone => $zone, %trial);
        for my $path ('/shadow', '/dry') {
            is $node->status("$path?s=$path"), 200, "$path refuses nothing" for 1 .. 5;
        }
        select undef, undef, undef, 1.1;
        is $node->status("/trial?s=$_"), 200, "the key of $_ is not blocked" for '/shadow', '/dry';
        exceed($node, '/trial?s=x');
        is $node->status("$_?s=x"), 200, "$_ passes during a block" for '/shadow', '/dry';
    };
}

subtest 'several limits in memory' => sub {
    my $node = local_node(
        zone   => 'rate=9r/d block=1h',
        http   => 'ratelimit_zone $arg_o zone=other rate=1r/d block=3d;',
        server => 'location = /both { ratelimit zone=test; ratelimit zone=other; try_files /index.html =404; }',
    );
    is $node->status('/both?o=x'), 200;
    is_blocked($node->get('/both?o=x'), 'the other limit', 3 * 86_400) for 1 .. 5;
    is $node->get('/peek')->header('X-RateLimit-Remaining'), 8;
};

subtest 'many requests at once: exactly the limit passes, one block begins' => sub {
    my $node = blocking_node(zone => 'rate=50r/d', workers => 2, server => 'location /ops/ { ratelimit_api; }');
    my @statuses = burst($node->port, '/', 400, 40);
    is scalar(grep { $_ == 200 } @statuses), 50;
    is scalar(grep { $_ == 429 } @statuses), 350;
    my $metrics = '';
    wait_until('the block is counted', sub { ($metrics = $node->get('/ops/metrics')->body) =~ /^ratelimit_blocks_total\{zone="test"\} [1-9]/m });
    like $metrics, qr/^ratelimit_blocks_total\{zone="test"\} 1$/m;
};

subtest 'charges and refunds do not change a block' => sub {
    my $backend = Ratelimit::Backend->new;
    my $node = blocking_node(
        zone   => 'rate=2r/d algorithm=fixed_window cache=off',
        server => <<"END",
        location = /charged { ratelimit zone=test charge=\$arg_charge; try_files /index.html =404; }
        location = /slow { ratelimit zone=test charge=\$arg_charge; proxy_pass http://@{[ $backend->addr ]}; }
END
    );
    for my $charge (0, 9) {
        my $key = "c$charge";
        my ($socket) = $backend->hold($node, "/slow?charge=$charge&k=$key");
        is $node->get("/peek?k=$key")->header('X-RateLimit-Remaining'), 1, 'the request is counted';
        is $node->status("/?k=$key"), $_ for 200, 429;
        $backend->finish;
        http_read($socket);
        select undef, undef, undef, 0.3;
        is_blocked($node->get("/?k=$key"), "after a charge of $charge", $block);
    }
    is $node->status("/charged?charge=3&k=debt"), 200;
    wait_until('the key owes', sub { $node->get('/peek?k=debt')->header('X-RateLimit-Remaining') == 0 });
    is_blocked($node->get('/?k=debt'), 'a debt refuses, which blocks', $block);
};

subtest 'fail mode local blocks in the memory of the node' => sub {
    my $redis = redis();
    my $node  = blocking_node(zone => 'rate=2r/d', redis => $redis, location => 'ratelimit_fail_mode local;');
    is $node->status('/?k=before'), $_ for 200, 200, 429;
    $redis->stop;
    is $node->status('/?k=before'), 429, 'a remembered block refuses without Redis';
    is $node->status('/'), 200 for 1 .. 2;
    is_blocked($node->get('/'), 'local', $block) for 1 .. 2;
    is $node->get('/')->header('X-Source'), 'local';
};

subtest 'a block is of the key, whatever its rate' => sub {
    for my $place ('Redis', 'memory') {
        my $node = $place eq 'memory' ? local_node(zone => 'rate=$arg_r block=2d') : blocking_node(zone => 'rate=$arg_r');
        is $node->status('/?r=2r/d'), $_, $place for 200, 200, 429;
        select undef, undef, undef, 0.3;    # the block begins behind the decision
        is_blocked($node->get('/?r=1000r/d'), 'a larger quota does not help', $block);
        is_blocked($node->get('/?r=1000r/m'), 'nor does another window', $block);
    }
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
    like $peek->header('RateLimit'), qr/^"test";r=0;t=172[78]\d\d$/, 'a request of cost 0 has the rest of the block in its headers';
};

subtest 'the API shows a block and frees it' => sub {
    for my $place ('redis', 'local') {
        my %api = (server => 'location /ops/ { ratelimit_api write=on; ratelimit off; }');
        my $node = $place eq 'redis' ? blocking_node(%api) : local_node(zone => 'rate=2r/d algorithm=fixed_window block=2d', %api);
        my $key = sub { decode_json($node->get('/ops/zones/test/keys/k')->body) };
        is $node->status('/'), 200 for 1 .. 2;
        is $key->()->{blocked}, undef, "$place: a full key is not blocked yet";
        cmp_ok $key->()->{retry_after}, '<=', 86_400, 'its retry time is that of the algorithm';
        is $key->()->{remaining}, 0;
        is $node->status('/'), 429, 'looking began no block, this does';
        my $state;
        wait_until('the block, which begins behind the decision', sub { ($state = $key->())->{blocked} });
        cmp_ok $state->{blocked}, '>', $block - 300, 'blocked for two days';
        is $state->{$_}, $state->{blocked}, $_ for 'reset', 'retry_after';
        my $zone;
        wait_until('it is counted', sub { ($zone = decode_json($node->get('/ops/zones/test')->body))->{blocks} });
        is $zone->{block}, $block;
        is $zone->{blocks}, 1;
        # Of the busiest keys the node shows what it remembers: for seconds, where a key can be freed elsewhere.
        my $rest = $zone->{busiest}[0]{blocked};
        wait_until('the block of the busiest key', sub {
            $rest //= $node->status('/') == 429 && decode_json($node->get('/ops/zones/test')->body)->{busiest}[0]{blocked};
        });
        cmp_ok $rest, '>', $block - 300, 'the busiest keys too';
        is $node->status('/ops/zones/test/keys/k', method => 'DELETE'), 204;
        is $node->status('/'), 200, 'freed';
        is $key->()->{blocked}, undef;
        is $node->status('/?k=other'), $_ for 200, 200, 429;
        my $other;
        wait_until('the other block', sub {
            $node->status('/?k=other');
            ($other) = grep { $_->{key} eq 'kother' } @{ decode_json($node->get('/ops/zones/test')->body)->{busiest} };
            return $other->{blocked};
        });
        cmp_ok $other->{blocked}, '>', $block - 300;
    }
};

subtest 'a foreign value is no block, and an end that is too far ahead is a block at most' => sub {
    my $node = blocking_node(zone => 'rate=5r/d cache=off');
    my $key  = 'rl:test:{k}:block';
    my $block_until = sub { pack 'd<4', time * 1e6 - 1e6, time * 1e6 - 1e6, $_[0] * 1e6, 0 };
    for my $value ('blocked!!', 'x' x 32, pack('d<4', ('nan') x 4), $block_until->(0), $block_until->(time - 5)) {
        $node->{redis}->cmd('SET', $key, $value, 'EX', 60);
        is $node->status('/'), 200, 'a key without a block';
    }
    $node->{redis}->cmd('SET', $key, $block_until->(time + 1e8));
    is_blocked($node->get('/'), 'for years', $block);
    my $life = 0;
    is eval { wait_until('an expiry', sub { ($life = $node->{redis}->cmd('PTTL', $key)) > 0 }); 1 }, 1;
    cmp_ok $life, '<=', $block * 1000, 'it gets an expiry';
};

finish();

# Overrides and counts: nothing of an override outlasts it, for each algorithm, with fixed and variable rates.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

# The key's state, under the rate of the zone's own limit if that is a variable.
sub state_of {
    my ($node, $key, $rate) = @_;
    my $answer = $node->get("/ops/zones/test/keys/$key?rate=$rate");
    is $answer->status, 200, "the state of $key" or diag $answer->body;
    return decode_json($answer->body);
}

# Waits until the key has an override ("rate"), or none (undef).
sub has_override {
    my ($node, $key, $rate, $kind) = @_;
    return wait_until("$key: " . ($kind // 'none'), sub {
        my $state = decode_json($node->get("/ops/zones/test/keys/$key?rate=$rate")->body);
        return ($state->{override} // '') eq ($kind // '');
    });
}

# A zone whose rate is $rate, or a variable of that value; a request of the key a is "$path".
sub zone_of {
    my ($algorithm, $variable, $rate, %options) = @_;
    my $arrival = $algorithm =~ /leaky|gcra/;
    my $node = member(zone => "rate=@{[ $variable ? '$arg_r' : $rate ]} algorithm=$algorithm"
            . ($arrival ? ' burst=4' : ''), limit => $algorithm eq 'leaky_bucket' ? 'nodelay' : '', %options);
    return ($node, sub {
        my ($key, $times) = @_;
        return scalar grep { $node->status("/?k=$key&r=$rate") == 200 } 1 .. $times;
    });
}

for my $algorithm (@algorithms) {
    my @burst = $algorithm =~ /leaky|gcra/ ? (burst => 19) : ();
    for my $variable (0, 1) {
        my $of = $algorithm . ($variable ? ', a variable rate' : '');
        subtest "$of: what a customer used of a raised limit does not count later" => sub {
            my ($node, $passed) = zone_of($algorithm, $variable, '5r/d');
            is $passed->('a', 6), 5, 'the own limit is used up';
            override($node, 'ka', { rate => '20r/d', @burst });
            has_override($node, 'ka', '5r/d', 'rate');
            is $passed->('a', 22), 20, 'the raised one is not';
            override($node, 'kb', { rate => '20r/d', @burst });
            has_override($node, 'kb', '5r/d', 'rate');
            is $passed->('b', 22), 20;
            for my $key (qw(ka kb)) {
                is take_back($node, $key), 204;
                has_override($node, $key, '5r/d', undef);
            }
            is $passed->('a', 2), 0, 'the own limit is used up as before';
            is $passed->('b', 6), 5, 'and untouched where it was not used';
        };
        subtest "$of: a tightened limit refuses nobody after it was taken back" => sub {
            my ($node, $passed) = zone_of($algorithm, $variable, '5r/d');
            override($node, 'override', { rate => '2r/2d', @burst ? (burst => 1) : () });
            has_override($node, 'ka', '5r/d', 'rate');
            is $passed->('a', 4), 2, 'tightened';
            is take_back($node, 'override'), 204;
            has_override($node, 'ka', '5r/d', undef);
            is state_of($node, 'ka', '5r/d')->{remaining}, 5;
            is $passed->('a', 6), 5, 'its own limit';
        };
    }
}

subtest 'another burst at the same rate counts apart, too' => sub {
    for my $algorithm (qw(token_bucket leaky_bucket gcra)) {
        my ($node, $passed) = zone_of($algorithm, 0, '10r/m');
        override($node, 'ka', { rate => '10r/m', burst => 200 });
        has_override($node, 'ka', '10r/m', 'rate');
        cmp_ok $passed->('a', 203), '>=', 200, $algorithm;
        is take_back($node, 'ka'), 204;
        has_override($node, 'ka', '10r/m', undef);
        is $node->status('/?k=a'), 200, 'taken back';
    }
};

subtest 'an override ends by itself, and nothing of it stays in the memory of the node' => sub {
    my ($node, $passed) = zone_of('token_bucket', 1, '5r/m', server => 'ratelimit_fail_mode local;',
        block => 'breaker failures=1 open=1h;');
    override($node, 'ka', { rate => '2r/d' });
    has_override($node, 'ka', '5r/m', 'rate');
    $node->{redis}->stop('KILL');
    wait_until('the fail mode', sub { $node->get('/?k=x&r=1r/s'); $node->count_log(qr/is away/) });
    is $passed->('a', 4), 2, 'in memory';
    $node->{redis}->start;
    wait_until('no override', sub { ($node->get('/?k=a&r=5r/m')->header('X-RateLimit-Limit') // 0) == 5 });
    is $node->status('/?k=a&r=5r/m'), 200, 'the own limit';
};

subtest 'the state of a key under an override is that of the override, whatever rate is asked for' => sub {
    for my $variable (0, 1) {
        my ($node, $passed) = zone_of('sliding_window_counter', $variable, '5r/d');
        override($node, 'ka', { rate => '20r/2d' });
        has_override($node, 'ka', '5r/d', 'rate');
        is $passed->('a', 3), 3;
        for my $question ('', '?rate=5r/d', '?rate=7r/s') {
            my $state = decode_json($node->get("/ops/zones/test/keys/ka$question")->body);
            is_deeply [@{$state}{qw(limit remaining override)}], [20, 17, 'rate'], "GET keys/ka$question";
        }
        is $node->status('/ops/zones/test/keys/ka?rate=fast'), 400, 'a bad argument is named all the same';
    }
};

my $records = sub { my @keys = $_[0]{redis}->keys_like('rl:test:{ka}*'); return scalar @keys };

subtest 'freeing a key frees the override in force, the own limit, and with its rate an earlier override' => sub {
    for my $algorithm (qw(gcra fixed_window)) {
        my ($node, $passed) = zone_of($algorithm, 0, '5r/d');
        my @burst = $algorithm eq 'gcra' ? (burst => 1) : ();
        is $passed->('a', 6), 5;
        override($node, 'ka', { rate => '2r/2d', @burst });
        has_override($node, 'ka', '5r/d', 'rate');
        is $passed->('a', 3), 2;
        is $node->status('/ops/zones/test/keys/ka', method => 'DELETE'), 204;
        is $passed->('a', 3), 2, "$algorithm: the override's count is free";
        is take_back($node, 'ka'), 204;
        has_override($node, 'ka', '5r/d', undef);
        is $passed->('a', 6), 5, 'and the own one';
        is $records->($node), 2;
        is $node->status('/ops/zones/test/keys/ka', method => 'DELETE'), 204;
        is $records->($node), 1, 'what the earlier override left';
        my $rate = 'rate=2r/2d' . (@burst ? '&burst=1' : '');
        is $node->status("/ops/zones/test/keys/ka?$rate", method => 'DELETE'), 204;
        is $records->($node), 0, 'is free with its rate and burst';
    }
};

subtest 'a block under an override ends with it, and that of the own limit does not hold under an override' => sub {
    my ($node, $passed) = zone_of('fixed_window', 0, '5r/d', zone => 'rate=5r/d algorithm=fixed_window block=2d');
    my $blocks = sub { my @keys = $node->{redis}->keys_like('rl:test:{ka}:block*'); return scalar @keys };
    override($node, 'ka', { rate => '2r/d' });
    has_override($node, 'ka', '5r/d', 'rate');
    is $passed->('a', 4), 2, 'tightened';
    wait_until('the block', sub { $blocks->() == 1 });
    is take_back($node, 'ka'), 204;
    has_override($node, 'ka', '5r/d', undef);
    is $passed->('a', 7), 5, 'the own limit, which blocks then';
    wait_until('its block', sub { $blocks->() == 2 });
    override($node, 'ka', { rate => '20r/d' });
    has_override($node, 'ka', '5r/d', 'rate');
    is $passed->('a', 3), 3, 'raised';
    is take_back($node, 'ka'), 204;
    has_override($node, 'ka', '5r/d', undef);
    is $node->get('/?k=a')->header('X-RateLimit-Reset') > 86_400, 1, 'the block of the own limit holds again';
    is $node->status('/ops/zones/test/keys/ka?rate=2r/d', method => 'DELETE'), 204;
    is $blocks->(), 0, 'freeing the key lifts both';
};

finish();

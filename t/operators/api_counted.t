# ratelimit_api: keys under which nothing is counted, addresses inside keys, and overrides that are set as they are read.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json encode_json);

my ($ipv4, $ipv6) = ('198.51.100.7', '2001:db8:1:2::5');
my $real = 'set_real_ip_from 127.0.0.1;';
my $map = 'map $request_method $from_map { default $ratelimit_client_text; OPTIONS ""; } ';
sub comes { my ($node, $address, $path) = @_; return $node->status($path // '/', headers => ['X-Real-IP' => $address]) }

# The state of a key of the zone test, as typed.
sub state_of {
    my ($node, $typed, %options) = @_;
    my $answer = $node->get("/ops/zones/test/keys?key=$typed", %options);
    return [$answer->status, $answer->body eq '' ? undef : decode_json($answer->body)];
}

my %keys = (
    '$ratelimit_client'            => sub { $_[0] =~ /:/ ? '2001:db8:1:2::/64' : $_[0] },
    '$ratelimit_client_text'       => sub { $_[0] =~ /:/ ? '2001:db8:1:2::/64' : $_[0] },
    'free:$ratelimit_client_text'  => sub { 'free:' . ($_[0] =~ /:/ ? '2001:db8:1:2::/64' : $_[0]) },
    '$from_map'                    => sub { $_[0] =~ /:/ ? '2001:db8:1:2::/64' : $_[0] },
    '$host$ratelimit_client_text'  => sub { 'localhost' . ($_[0] =~ /:/ ? '2001:db8:1:2::/64' : $_[0]) },
);

for my $key (sort keys %keys) {
    subtest "an address in the key \"$key\" is seen and typed as text" => sub {
        my $node = member(zone => 'rate=2r/d algorithm=fixed_window', key => $key, http => "$real $map");
        for my $address ($ipv4, $ipv6) {
            my $shown = $keys{$key}->($address);
            is_deeply [map { $node->status('/', headers => ['X-Real-IP' => $address]) } 1 .. 3], [200, 200, 429];
            is $node->count_log(qr/limiting requests, by zone "test", key "\Q$shown\E", client: /), 1, "$shown in the log";
            my ($status, $state) = @{ state_of($node, $shown) };
            is_deeply [$status, @{$state}{qw(key remaining counted note)}], [200, $shown, 0, JSON::PP::true, undef];
            my $set = decode_json($node->get("/ops/zones/test/keys/override?key=$shown", method => 'PUT', body => '{"unlimited":true}')->body);
            is_deeply [@{$set}{qw(key counted note)}], [$shown, JSON::PP::true, undef], 'an override says that it is counted';
            wait_until('no limit', sub { $node->status('/', headers => ['X-Real-IP' => $address]) == 200 });
            is $node->status("/ops/zones/test/keys/override?key=$shown", method => 'DELETE'), 204;
            wait_until('the limit', sub { $node->status('/', headers => ['X-Real-IP' => $address]) == 429 });
            is state_of($node, $shown, method => 'DELETE')->[0], 204;
            is $node->status('/', headers => ['X-Real-IP' => $address]), 200, 'freed';
        }
    };
}

subtest 'the text of a client\'s address' => sub {
    for my $prefix (64, 48, 128) {
        my $node = nginx(http => "$real ratelimit_ipv6_prefix $prefix;",
            server => 'location / { add_header X-Client $ratelimit_client_text; return 200; }');
        my %of = ($ipv4 => $ipv4, '::ffff:192.0.2.1' => '192.0.2.1', '::1' => $prefix == 128 ? '::1' : "::/$prefix",
            $ipv6 => { 64 => '2001:db8:1:2::/64', 48 => '2001:db8:1::/48', 128 => $ipv6 }->{$prefix});
        is $node->get('/', headers => ['X-Real-IP' => $_])->header('X-Client'), $of{$_}, "$_ with $prefix bits" for sort keys %of;
    }
};

# All that people must not take for "not limited", "in force" or "freed".
for (['addresses that are typed where a key is binary text', 'free:$ratelimit_client', '198.51.100.7', qr/the keys of this zone are "free:\$ratelimit_client"/],
    ['addresses that are typed where they are part of a text', 'free:$ratelimit_client_text', '198.51.100.7', qr/the keys of this zone are/],
    ['a network that is typed so', '$from_map', '2001:db8:9::/64', qr/the keys of this zone are "\$from_map"/],
    ['half a key', '$http_x_key', 'gold-47', qr/^nothing is counted under this key now$/],
    ['an address without requests', '$ratelimit_client', '192.0.2.99', qr/^nothing is counted under this key now$/]) {
    my ($name, $key, $typed, $note) = @{$_};
    subtest "of $name all answers say that nothing is counted" => sub {
        my $node = member(zone => 'rate=2r/d', key => $key, http => "$real $map");
        my $path = "/ops/zones/test/keys?key=$typed";
        comes($node, $ipv4) for 1 .. 3;
        my $state = decode_json($node->get($path)->body);
        is_deeply [@{$state}{qw(remaining counted)}], [2, JSON::PP::false], 'GET';
        like $state->{note}, $note;
        my $freed = $node->get($path, method => 'DELETE');
        is $freed->status, 200, 'DELETE has a text';
        is decode_json($freed->body)->{counted}, JSON::PP::false;
        like decode_json($freed->body)->{note}, $note;
        is $node->count_log(qr/key freed, under which nothing was counted, zone "test"/), 1, 'and the log';
        my $blocked = $node->get($path =~ s/keys/keys\/override/r, method => 'PUT', body => '{"block":true}');
        is $blocked->status, 200, 'PUT is legal: a block before it comes';
        is decode_json($blocked->body)->{counted}, JSON::PP::false;
        like decode_json($blocked->body)->{note}, $note;
        my $in_force = wait_until('the block', sub { my $now = decode_json($node->get($path)->body); $now->{source} eq 'override' && $now });
        is $in_force->{counted}, JSON::PP::false, 'GET of a blocked key says so, too';
    };
}

subtest 'a zone without Redis says the same' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=test rate=2r/d;',
        server => 'location / { ratelimit zone=test; try_files /index.html =404; } location /ops/ { ratelimit_api write=on; }');
    $node->status('/?k=a');
    is state_of($node, 'a')->[1]{counted}, JSON::PP::true;
    is state_of($node, 'b')->[1]{counted}, JSON::PP::false;
    is state_of($node, 'b', method => 'DELETE')->[0], 200;
    is state_of($node, 'a', method => 'DELETE')->[0], 204;
    is state_of($node, 'a')->[1]{counted}, JSON::PP::false, 'nothing is counted any more';
};

subtest 'every algorithm says whether anything is counted' => sub {
    for my $algorithm (qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets token_bucket leaky_bucket gcra)) {
        my $limit = $algorithm eq 'leaky_bucket' ? 'nodelay' : '';
        my $node = member(zone => "rate=3r/d algorithm=$algorithm", limit => $limit);
        is state_of($node, 'ka')->[1]{counted}, JSON::PP::false, $algorithm;
        $node->status('/?k=a');
        is state_of($node, 'ka')->[1]{counted}, JSON::PP::true;
    }
};

subtest 'an override whose zone has a Redis that is away is set, and it is not known what is counted' => sub {
    my ($near, $far) = (redis(), redis());
    my $node = nginx(http => "ratelimit_redis far { server @{[ $far->addr ]}; timeout 200ms; } ratelimit_redis near { server @{[ $near->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_fleet redis=near; ratelimit_zone $arg_k zone=test rate=2r/d redis=far;',
        server => 'location / { ratelimit zone=test; } location /ops/ { ratelimit_api write=on; }');
    $far->stop('KILL');
    my $set = decode_json($node->get('/ops/zones/test/keys/a/override', method => 'PUT', body => '{"block":true}')->body);
    is_deeply [@{$set}{qw(counted note)}], [undef, undef];
    wait_until('the block', sub { state_of($node, 'a')->[0] == 200 && state_of($node, 'a')->[1]{source} eq 'override' });
    is state_of($node, 'a')->[1]{counted}, undef;
};

# The overrides of all zones, by key.
sub listed {
    my ($node, $arguments) = @_;
    my $list = decode_json($node->get('/ops/overrides' . ($arguments // ''))->body)->{overrides};
    return { map { ($_->{key} // '' => $_) } @{$list} };
}

subtest 'GET of an override and the lists say whether anything is counted under its key' => sub {
    my $redis = redis();
    my $node = member(redis => $redis, zone => 'rate=2r/d', key => 'free:$arg_k',
        http => 'ratelimit_zone $arg_other zone=other rate=2r/d;');
    my $read = sub { return decode_json($node->get("/ops/zones/test/keys/override?key=$_[0]")->body) };
    my %changes = ('free:used' => { block => \1 }, 'free:more' => { rate => '9r/d' }, 'free:never' => { block => \1 }, '198.51.100.7' => { unlimited => \1 });
    $node->status("/?k=$_") for qw(used more);
    override($node, $_, $changes{$_}) for sort keys %changes;
    override($node, 'override', { rate => '5r/d' });
    wait_until('the changes', sub { $node->status('/?k=used') == 429 && keys %{ listed($node) } == 5 });
    is $read->('free:more')->{counted}, JSON::PP::false, 'under another rate nothing is counted yet';
    is $node->status('/?k=plain'), 200;
    is $read->('free:plain')->{counted}, JSON::PP::true, 'a key that is counted under the rate of the whole zone';
    is $node->status('/?k=more'), 200;
    my $of_address = qr/^nothing is counted under this key now: the keys of this zone are "free:\$arg_k"/;
    for my $get ($read, sub { listed($node)->{ $_[0] } }, sub { listed($node, '?limit=1000&search=test')->{ $_[0] } }) {
        is_deeply [map { $get->($_)->{counted} } 'free:used', 'free:more'], [(JSON::PP::true) x 2];
        is_deeply [$get->('free:never')->{counted}, $get->('free:never')->{note}], [JSON::PP::false, 'nothing is counted under this key now'];
        like $get->('198.51.100.7')->{note}, $of_address;
    }
    is_deeply [@{ listed($node)->{''} }{qw(counted note)}], [undef, undef], 'a whole zone has no key';
    $redis->cmd('DEL', grep { !/\{fleet\}/ } $redis->keys_like);
    is $read->('free:used')->{counted}, JSON::PP::true, 'a blocked key whose requests this node refuses';
    is $read->('unused')->{override}, undef;
    is $read->('unused')->{counted}, JSON::PP::false, 'also where nothing is changed';
};

subtest 'it is not known what is counted under an override that no longer fits its zone' => sub {
    my $node = member(redis => redis(), zone => 'rate=$arg_rate algorithm=token_bucket burst=3', key => '$arg_k');
    override($node, 'k', { rate => '9r/d', burst => 3 });
    $node->configure(http => $node->{http} =~ s/algorithm=token_bucket burst=3/algorithm=fixed_window/r)->reload(gone => 1);
    wait_until('the node knows the change', sub { listed($node)->{k} });
    is listed($node)->{k}{counted}, undef, 'in the list';
    is decode_json($node->get('/ops/zones/test/keys/override?key=k')->body)->{counted}, undef, 'and alone';
    is $node->count_log(qr/ is away|reply/), 0, 'no connection was closed';
};

subtest 'the busiest keys have what was changed for them' => sub {
    my $node = member(zone => 'rate=1r/d', key => '$arg_k');
    $node->status("/?k=$_") for (('busy') x 5, ('other') x 3);
    override($node, 'busy', { block => \1, for => '1h' });
    override($node, 'override', { rate => '1r/h' });
    my $of = sub { my ($busiest) = @_; return { map { ($_->{key} => $_->{override}) } @{$busiest} } };
    for (sub { decode_json($node->get('/ops/zones/test')->body)->{busiest} }, sub { decode_json($node->get('/ops/fleet')->body)->{busiest} }) {
        my $now = wait_until('the block', sub { my $now = $of->($_->()); $now->{busy} && $now });
        ok $now->{busy}{block} && $now->{busy}{for_seconds_left} > 3000 && $now->{busy}{until};
        ok exists $now->{other} && !defined $now->{other}, 'a change of the whole zone is not one of the key';
    }
    is take_back($node, 'busy'), 204;
    wait_until('nothing changed', sub { !defined $of->(decode_json($node->get('/ops/fleet')->body)->{busiest})->{busy} });
};

subtest 'a list counts a hundred keys, and the rest is not known' => sub {
    my $node = member(zone => 'rate=2r/d', key => '$arg_k');
    override($node, "k$_", { block => \1 }) for 1 .. 102;
    my $list = decode_json($node->get('/ops/overrides?limit=1000')->body)->{overrides};
    is_deeply [map { scalar @{$_} } [grep { defined $_->{counted} } @{$list}], [grep { !defined $_->{counted} } @{$list}]], [100, 2];
};

subtest 'a list whose zone has a Redis that is away does not know what is counted' => sub {
    my ($near, $far) = (redis(), redis());
    my $node = nginx(http => "ratelimit_redis far { server @{[ $far->addr ]}; timeout 200ms; } ratelimit_redis near { server @{[ $near->addr ]}; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_fleet redis=near; ratelimit_zone $arg_k zone=test rate=2r/d redis=far; ratelimit_zone $arg_k zone=near rate=2r/d redis=near;',
        server => 'location / { ratelimit zone=test; } location /near/ { ratelimit zone=near; } location /ops/ { ratelimit_api write=on; }');
    $node->status("/ops/zones/$_/keys/a/override", method => 'PUT', body => '{"block":true}') for qw(test near);
    $far->stop('KILL');
    my %counted = map { ($_->{zone} => $_->{counted}) } @{ decode_json($node->get('/ops/overrides')->body)->{overrides} };
    is_deeply \%counted, { test => undef, near => JSON::PP::false };
};

subtest 'an override is set as it is read' => sub {
    my $node = member(zone => 'rate=9r/d algorithm=gcra');
    my $path = '/ops/zones/test/keys/ka/override';
    my $put = sub { my ($body) = @_; return $node->get($path, method => 'PUT', body => ref $body ? encode_json($body) : $body) };
    for my $change ({ rate => '5r/d', burst => 3, for => '1h', reason => 'ticket' }, { block => JSON::PP::true }, { unlimited => JSON::PP::true, for => '1d' }) {
        my $set = decode_json($put->($change)->body);
        my $read = decode_json($node->get($path)->body);
        is_deeply [map { [sort keys %{$_}] } $set->{override}], [[sort keys %{ $read->{override} }]], 'one form';
        is_deeply [@{$read}{qw(zone key id)}], [@{$set}{qw(zone key id)}];
        my $again = decode_json($put->($read->{override})->body);
        delete @{ $_->{override} }{qw(at by for_seconds_left)} for $read, $again;
        is_deeply $again->{override}, $read->{override}, 'put as it was read';
    }
    my $now = $node->{redis}->cmd('TIME')->[0];
    my $until = $now + 600.25;
    is decode_json($put->({ block => JSON::PP::true, until => $until })->body)->{override}{until}, $until, 'an end';
    is $put->(qq({"block":true,"until":$until,"for":null,"reason":null,"burst":null,"rate":null}))->status, 200, 'null is as if missing';
    my $soon;
    wait_until('an end that is near', sub {
        $soon = $put->({ block => JSON::PP::true, until => $node->{redis}->cmd('TIME')->[0] + 1.5 });
        return $soon->status == 200;
    });
    is decode_json($soon->body)->{override}{block}, JSON::PP::true;
    wait_until('its end', sub { !defined decode_json($node->get($path)->body)->{override} });
    for (['"until":1', qr/a time that is to come/], ['"until":' . ($now + 367 * 86_400), qr/at most 366 days/], ['"until":"tomorrow"', qr/invalid "until"/],
        ['"until":1e300', qr/invalid "until"/], ['"until":9007199254740992', qr/invalid "until"/], ["\"until\":$until,\"for\":\"1h\"", qr/one of for and until/],
        ['"later":null', qr/unknown member/], ['"rate":"5r/d"', qr/one of rate, concurrency, block and unlimited/]) {
        my ($members, $error) = @{$_};
        my $answer = $put->("{\"block\":true,$members}");
        is $answer->status, 400, $members;
        like decode_json($answer->body)->{error}, $error;
    }
};

subtest 'a change whose members are arguments, or whose key has no value, is not made' => sub {
    my $node = member(zone => 'rate=1r/d', key => '$arg_k');
    $node->status('/?k=a');
    for (['PUT', 'keys/a/override?for=1h', qr/in the body, not as arguments/], ['PUT', 'keys/override?key=a&until=1', qr/in the body/],
        ['PUT', 'override?user=ann&reason', qr/in the body/], ['PUT', 'override?key', qr/no key/], ['DELETE', 'override?key', qr/no key/],
        ['DELETE', 'keys/a?rate', qr/invalid rate/]) {
        my ($method, $path, $error) = @{$_};
        my $answer = $node->get("/ops/zones/test/$path", method => $method, body => $method eq 'PUT' ? '{"block":true}' : '');
        is $answer->status, 400, "$method $path";
        like decode_json($answer->body)->{error}, $error;
    }
    is_deeply decode_json($node->get('/ops/overrides')->body)->{overrides}, [], 'no override is set';
    is $node->status('/?k=a'), 429, 'the key is not freed';
    is $node->status('/ops/zones/test/keys/a/override?user=ann', method => 'PUT', body => '{"unlimited":true}'), 200, 'other arguments are passed over';
};

finish();

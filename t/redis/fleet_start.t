# How a node of a fleet starts: the initial load over TLS and with rights, without a master process, reloads that
# change the fleet, and overrides of another version of the module.

use Ratelimit::Certificates;
use Ratelimit::Fleet;
use Ratelimit::Test;
use Ratelimit::Build qw(top);

my $blocked = '{"block":true';

# For what does not depend on them: the machine may be busy.
my $times = 'timeout 5s; connect_timeout 5s;';

# A node without Ratelimit::Test's defaults: $block is what its ratelimit_redis has.
sub plain_member {
    my ($block, %options) = @_;
    return nginx(http => "ratelimit_redis main { $block } ratelimit_fleet; ratelimit_zone k\$arg_k zone=test rate=9r/d;",
        server => 'location / { ratelimit zone=test; } location /ops/ { ratelimit_api write=on; }', %options);
}

subtest 'the initial load uses TLS and passwords, and is over before the first decision' => sub {
    my $certificates = Ratelimit::Certificates->new;
    $certificates->authority('ours');
    $certificates->certificate('good', 'ours', 'DNS:redis.test,IP:127.0.0.1');
    my $redis = redis(tls => $certificates->redis_lines('good', 'ours') . "tls-auth-clients no\n");
    change($redis, 'set', "ktest\0ka", $blocked);
    my $trusted = 'tls on; tls_trusted_certificate ' . $certificates->folder . '/ours.pem;';
    my $server = 'server ' . $redis->public_addr . "; $times";
    my $node = plain_member("$server $trusted");
    is $node->status('/?k=a'), 429, 'over TLS';
    is $node->count_log(qr/the overrides follow/), 0;
    my $wrong = plain_member("$server tls on; tls_trusted_certificate /etc/ssl/certs/ca-certificates.crt;")
        if -e '/etc/ssl/certs/ca-certificates.crt';
    $wrong->wait_for_log(qr/the overrides follow when redis "main" answers \(.*certificate/) if $wrong;
};

subtest 'the rights of doc/operations.md are enough for a fleet, and no more is used' => sub {
    my $redis = redis();
    my @rights = map { split ' ' } read_file(top() . '/doc/operations.md')
        =~ /^ACL SETUSER ratelimit (?:on >password )?((?:~rl:\* )?\+(?:evalsha|zadd).*)$/mg;
    cmp_ok scalar(grep { /^\+/ } @rights), '>', 20, 'the rights are found';
    $redis->cmd('ACL', 'SETUSER', 'limiter', 'on', '>secret', @rights);
    my $node = plain_member('server ' . $redis->addr . "; $times username limiter; password secret;");
    override($node, 'ka', { block => \1 });
    wait_until('the block', sub { $node->status('/?k=a') == 429 });
    is scalar(@{ overrides($node)->{overrides} }), 1;
    override($node, 'ka', { block => \1, for => '2s' });
    wait_until('its end', sub { $redis->cmd('ZCOUNT', 'rl:{fleet}:changes', 0, 'inf') == 0 });
    override($node, 'kb', { block => \1 });
    is take_back($node, 'kb'), 204;
    is $node->status('/ops/zones/test/keys/kb', method => 'DELETE'), 200;
    is $node->count_log(qr/NOPERM/), 0;
    my $away = plain_member('server ' . $redis->addr . "; $times username limiter; password wrong;");
    $away->wait_for_log(qr/the overrides follow when redis "main" answers \(\S+: .*WRONGPASS/);
};

for (['without a master', single => 1], ['as a daemon', daemon => 1]) {
    my ($name, @options) = @{$_};
    subtest "a node that runs $name" => sub {
        my $redis = redis();
        change($redis, 'set', "ktest\0ka", $blocked);
        my $node = plain_member('server ' . $redis->addr . "; $times", @options);
        is $node->status('/?k=a'), 429, 'the first decision';
        override($node, 'kb', { block => \1 });
        wait_until('another', sub { $node->status('/?k=b') == 429 });
        return if $name =~ /master/;    # after a reload such an nginx does not serve
        $node->reload(gone => 1);
        is $node->status('/?k=a'), 429, 'the first decision after a reload';
        change($redis, 'set', "ktest\0kc", $blocked);
        wait_until('after a reload', sub { $node->status('/?k=c') == 429 });
    };
}

subtest 'reloads that add a fleet, change its prefix or its size, or remove it' => sub {
    my $redis = redis();
    change($redis, 'set', "ktest\0ka", $blocked);
    change($redis, 'set', "ktest\0kb", $blocked, 'other:');
    my $http = sub {
        my ($block, $fleet) = @_;
        return "ratelimit_redis main { server @{[ $redis->addr ]}; $times $block } $fleet ratelimit_zone k\$arg_k zone=test rate=99r/d;";
    };
    my $node = plain_member('', http => $http->('', ''));
    is $node->status('/?k=a'), 200, 'no fleet';
    for (
        ['a fleet',        '',                'ratelimit_fleet;',          429, 200],
        ['another prefix', 'prefix other:;',  'ratelimit_fleet;',          200, 429],
        ['another size',   'prefix other:;',  'ratelimit_fleet size=1m;',  200, 429],
        ['the first one',  '',                'ratelimit_fleet size=1m;',  429, 200],
        ['no fleet',       '',                '',                          200, 200],
    ) {
        my ($name, $block, $fleet, @expected) = @{$_};
        $node->configure(http => $http->($block, $fleet));
        $node->reload(gone => 1);
        is_deeply [map { $node->status("/?k=$_") } qw(a b)], \@expected, $name;
    }
};

subtest 'a zone that a reload adds has its overrides at once' => sub {
    my $node = member(zone => 'rate=99r/d');
    change($node->{redis}, 'set', "klater\0ka", $blocked);
    override($node, 'kx', { block => \1 });
    wait_until('all is known', sub { $node->status('/?k=x') == 429 });
    $node->configure(http => $node->{http} . 'ratelimit_zone k$arg_k zone=later rate=99r/d;',
        server => $node->{server} . 'location /later { ratelimit zone=later; try_files /index.html =404; }');
    $node->reload(gone => 1);
    is $node->status('/later?k=a'), 429;
};

subtest 'overrides of a later version: unknown members are passed over, unknown kinds change nothing' => sub {
    my $node = member(zone => 'rate=9r/d');
    my $redis = $node->{redis};
    change($redis, 'set', "ktest\0ka", '{"rate":"3r/d","reason":{"ticket":7},"by":"later"');
    change($redis, 'set', "ktest\0kb", '{"delay":"3s","by":"later"');
    change($redis, 'set', "ktest\0kc", 'no JSON at all');
    change($redis, 'set', "wtest\0kd", '{"block":true');
    change($redis, 'set', "ktest\0ke", '{"block":true');
    in_force($node, 'ka', 3);
    wait_until('the last', sub { $node->status('/?k=e') == 429 });
    is $node->status("/?k=$_"), 200, "$_ has the zone's limit" for qw(b c d);
    my %listed = map { $_->{key} => $_ } @{ overrides($node)->{overrides} };
    is_deeply [sort keys %listed], [qw(ka kb kc ke)], 'all are listed';
    ok $listed{kb}{unknown}, 'as unknown';
    is take_back($node, "k$_"), 204, 'and can be taken back' for qw(b c);
};

subtest 'over a slow line a node reads all overrides, and hears of changes' => sub {
    my $redis = redis();
    my $near = plain_member('server ' . $redis->addr . "; $times");
    my $reason = 'x' x 200;
    change($redis, 'set', "ktest\0k$_", qq({"rate":"${_}r/h","by":"edge-1 127.0.0.1","reason":"$reason")) for 1 .. 3000;
    my $proxy = proxy(to => $redis->addr);
    $proxy->narrow(2_000_000);
    my $far = plain_member('server ' . $proxy->addr . ';', workers => 2);
    wait_until('all are known', sub { metric($far, 'ratelimit_overrides{zone="test"}') == 3000 }, 30);
    override($near, 'knew', { block => \1 });
    wait_until('a change', sub { $far->status('/?k=new') == 429 }, 30);
    is $near->status('/?k=new'), 429;
};

finish();

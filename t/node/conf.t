# nginx -t: every bad value gives one clear line that names it; every good value passes.

use Ratelimit::Test;

my $redis = 'ratelimit_redis main { server 127.0.0.1:6379; }';
my $zone  = "$redis ratelimit_zone k zone=z rate=1r/s;";
my $leaky = "$redis ratelimit_zone k zone=z rate=1r/s algorithm=leaky_bucket;";
my $gcra  = "$redis ratelimit_zone k zone=z rate=1r/s algorithm=gcra;";
my $token = "$redis ratelimit_zone k zone=z rate=1r/s algorithm=token_bucket;";
my $held  = "$redis ratelimit_zone k zone=z concurrency=2;";

sub zone_with  { return "$redis ratelimit_zone k zone=z rate=10r/m $_[0];" }
sub block_with { return "ratelimit_redis main { server 127.0.0.1:6379; $_[0] }" }
sub first_word { return (split ' ', $_[0])[0] }
sub limit_with { return ($_[1] // $zone, "ratelimit $_[0];") }

# [lines in http {}, lines in server {}, the complaint]
my @bad = (
    # ratelimit_zone
    (map { ["$redis ratelimit_zone k zone=z rate=$_;", '', qr/"ratelimit_zone": invalid "rate=\Q$_\E", expected a rate such as/] }
        qw(-1r/s 5 r/s 5r 5r/ 5r/x 5r/s2 1.5r/s 5req/s)),
    (map { ["$redis ratelimit_zone k zone=z rate=$_;", '',
            qr/"ratelimit_zone": invalid "rate=\Q$_\E", expected 1 to 1000000000 requests in 1s to 366d/] }
        qw(0r/s 5r/0s 10r/400d 5r/367d 1000000001r/s 100000000000000000000r/m)),
    (map { [zone_with($_->[0]), '', qr/"ratelimit_zone": invalid "\Q$_->[0]\E", expected $_->[1]/] }
        ['algorithm=sliding', 'fixed_window, sliding_window_counter'],
        ['algorithm=',        'fixed_window'],
        ['burst=x',           'a number of requests'],
        ['burst=-1',          'a number of requests'],
        ['burst=1000000001',  'a number of requests from 0 to 1000000000'],
        ['burst=5',           'no burst, which only token_bucket'],
        ['precision=1s',      'no precision, which only sliding_window_buckets'],
        (map { ["precision=$_", 'a time from 1s to 366d, such as 10s or 1m'] } qw(1ms 0 400d)),
        ['clock=mine',        'clock=redis or clock=local'],
        (map { ["cache=$_", 'cache=on or cache=off'] } 'yes', '', 'ON'),
        (map { ["lease=$_", 'a number of requests from 1 to 1000000, or lease=off'] }
            '0', '-1', 'on', '', '1000001', '5r'),
        (map { ["ahead=$_", 'a number of requests from 1 to 1000000, or ahead=off'] }
            '0', '-1', 'on', '', '1000001', '5r'),
        ['ahead=11',          'at most what passes at once: the quota, or what the burst admits'],
        (map { ["block=$_", 'a time from 1s to 366d, such as 10m or 1h'] }
            '', '0', '0s', '-5s', '500ms', '1.5m', '10x', '10m5s', '367d', 'on', '$arg_block'),
        ['speed=5',           'zone=, rate=, algorithm='],
        ['hash_keys',         'hash_key alone, without a value'],
        ['hash_key=on',       'hash_key alone, without a value'],
        ['nodelay',           'zone=, rate=, algorithm='],
        ['rate=5r/s',         'each parameter once']),
    (map { [zone_with("algorithm=$_ burst=5"), '', qr/invalid "burst=5", expected no burst/] }
        qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets)),
    (map { [zone_with("algorithm=$_ precision=5s"), '', qr/invalid "precision=5s", expected no precision/] }
        qw(fixed_window sliding_window_counter sliding_window_log token_bucket leaky_bucket gcra)),
    [zone_with('algorithm=sliding_window_log') =~ s/rate=\S+/rate=10000001r\/d/r, '', qr{invalid "rate=10000001r/d", expected at most 10000000}],
    [zone_with('algorithm=gcra burst=60000') =~ s/rate=\S+/rate=1r\/d/r, '', qr/invalid "burst=60000", expected a burst that refills at this rate/],
    (map { [zone_with($_), '', qr/"ratelimit_zone": invalid "lease=5", expected no lease in a zone with block=/] }
        'lease=5 block=10m', 'block=10m lease=5'),
    (map { [zone_with("ahead=5 $_->[0]"), '', qr/"ratelimit_zone": invalid "$_->[1]", expected $_->[2]/] }
        ['block=10m',            'ahead=5',     'no ahead in a zone with block='],
        ['lease=5',              'ahead=5',     'no ahead in a zone with lease='],
        ['clock=local',          'clock=local', 'clock=redis in a zone with ahead='],
        ['algorithm=gcra',       'ahead=5',     'at most what passes at once'],
        ['algorithm=token_bucket burst=4', 'ahead=5', 'at most what passes at once'],
        ['ahead=6',              'ahead=6',     'each parameter once']),
    (map { [limit_with("zone=z $_->[0]", "$redis ratelimit_zone k zone=z rate=9r/m ahead=2 $_->[1];"),
            qr/"ratelimit zone=z": invalid "$_->[2]", expected $_->[3]/] }
        ['',             'algorithm=leaky_bucket burst=5', 'zone=z',  'nodelay for a zone with ahead='],
        ['burst=3',      'algorithm=leaky_bucket burst=5', 'zone=z',  'nodelay for a zone with ahead='],
        ['delay=1',      'algorithm=leaky_bucket burst=5', 'delay=1', 'nodelay for a zone with ahead=']),
    [zone_with('block=10m block=5m'), '', qr/invalid "block=5m", expected each parameter once/],
    [zone_with('hash_key hash_key'), '', qr/invalid "hash_key", expected each parameter once/],
    [zone_with('algorithm=token_bucket burst=0'), '', qr/invalid "burst=0", expected a bucket that holds/],
    [zone_with('algorithm=sliding_window_buckets precision=2m'), '', qr/invalid "precision=2m", expected at most the window/],
    ["$redis ratelimit_zone k rate=1r/s;", '', qr/"ratelimit_zone" must have a "zone=" parameter/],
    ["$redis ratelimit_zone k zone=z;", '', qr/"ratelimit_zone" must have a "rate=" or "concurrency=" parameter/],
    (map { ["$redis ratelimit_zone zone=z $_;", '',
            qr/"ratelimit_zone": invalid "zone=z", expected the key first, such as \$ratelimit_client/] }
        'rate=1r/s', 'concurrency=5', 'rate=1r/s burst=5 algorithm=gcra'),
    ["$redis ratelimit_zone;", '', qr/invalid number of arguments in "ratelimit_zone"/],
    ["$redis ratelimit_zone k;", '', qr/invalid number of arguments in "ratelimit_zone"/],
    (map { ["$redis ratelimit_zone k '$_->[0]' rate=1r/s;", '', qr/"ratelimit_zone": invalid "\Q$_->[0]\E", expected $_->[1]/] }
        ['zone=',       'zone=name'],
        ['zone=:1m',    'zone=name'],
        ['zone=a b',    'zone=name'],
        ['zone=a"b',    'zone=name'],
        ['zone=a{b',    'zone=name'],
        ['zone=a/b',    'zone=name'],
        ['zone=a@b',    'zone=name'],
        ['zone=.a',     'zone=name'],
        ["zone=\xc3\xa9", 'zone=name'],
        ['zone=z:',     'a size such as'],
        ['zone=z:x',    'a size such as'],
        ['zone=z:16k',  'a size of at least']),
    ["$zone ratelimit_zone k zone=z rate=1r/s;", '', qr/duplicate "ratelimit_zone" "z"/],
    ["limit_req_zone k zone=z:1m rate=1r/s; $zone", '', qr/shared memory zone "z" is already declared|conflicts/],
    ["$redis ratelimit_zone k\$nonsense zone=z rate=1r/s;", '', qr/unknown "nonsense" variable/],
    ["$redis ratelimit_zone k zone=z rate=\$nonsense;", '', qr/unknown "nonsense" variable/],
    (map { ["ratelimit_zone k zone=z rate=1r/s $_;", '', qr/"ratelimit_zone" "z": invalid "$_", expected only with a "ratelimit_redis" block/] }
        qw(nodes=2 cache=on cache=off lease=5 lease=off ahead=1 ahead=off)),
    (map { [zone_with("nodes=$_"), '', qr/"ratelimit_zone": invalid "nodes=$_", expected a number of nodes from 1/] }
        '0', '10001', 'x', ''),
    ["ratelimit_zone k zone=z:64k rate=100000r/m algorithm=sliding_window_log;", '',
        qr/"ratelimit_zone" "z": size is too small for one key of this rate/],
    ["$redis ratelimit_zone k zone=z rate=1r/s redis=other;", '', 
        qr/"ratelimit_zone" "z": invalid "redis=other", expected the name of a "ratelimit_redis" in .*nginx\.conf:\d+/],
    ["$zone ratelimit_redis second { server 127.0.0.1; }", '', qr/several "ratelimit_redis" blocks, expected "redis=name"/],

    # concurrency
    (map { ["$redis ratelimit_zone k zone=z concurrency=$_;", '',
            qr/"ratelimit_zone": invalid "concurrency=\Q$_\E", expected a number of requests at one time from 1/] }
        qw(0 -1 x 1000000001 2r/s $arg_n), ''),
    (map { ["$redis ratelimit_zone k zone=z concurrency=2 hold=$_;", '',
            qr/"ratelimit_zone": invalid "hold=\Q$_\E", expected a time from 1s to 1d/] }
        qw(0 500ms 2d x -1s), ''),
    (map { ["$redis ratelimit_zone k zone=z concurrency=2 $_;", '',
            qr/"ratelimit_zone": invalid "\Q$_\E", expected no such parameter beside concurrency=/] }
        qw(rate=5r/s rate=$arg_r algorithm=gcra burst=5 precision=5s lease=5 lease=off ahead=5 ahead=off cache=on cache=off block=5s)),
    [zone_with('hold=5s'), '', qr/"ratelimit_zone": invalid "hold=5s", expected no hold, which only concurrency= has/],
    ["$redis ratelimit_zone k concurrency=2;", '', qr/"ratelimit_zone" must have a "zone=" parameter/],
    ['ratelimit_zone k zone=z concurrency=2 nodes=2;', '', qr/invalid "nodes=2", expected only with a "ratelimit_redis" block/],
    [limit_with('zone=z charge=$arg_c', $held), qr/"ratelimit zone=z": invalid "charge=", expected no charge/],
    [limit_with('zone=z burst=5', $held), qr/"ratelimit zone=z": invalid "burst=5", expected no burst/],
    [limit_with('zone=z nodelay', $held), qr/"ratelimit zone=z": invalid "nodelay", expected no delay/],

    # ratelimit
    [$zone, 'ratelimit;', qr/invalid number of arguments in "ratelimit"/],
    [limit_with('zone=other'), qr/"ratelimit zone=other": invalid "zone=other", expected the name of a "ratelimit_zone" in .*nginx.conf:\d+/],
    [limit_with('burst=5'), qr/"ratelimit" must have a "zone=" parameter/],
    [limit_with('on'), qr/"ratelimit": invalid "on", expected zone=name/],
    (map { [limit_with("zone=z $_->[0]", $leaky), qr/"ratelimit": invalid "\Q$_->[0]\E", expected $_->[1]/] }
        ['burst=x',         'a number of requests'],
        ['burst=-5',        'a number of requests'],
        ['delay=x',         'a number of requests'],
        (map { ["cost=$_", 'a number from 0 to 1000000000 or a variable'] } qw(x -1 1.5 1000000001 99999999999)),
        ['rate=5r/s',       'zone=name, burst=number'],
        ['off',             'zone=name, burst=number']),
    [limit_with('zone='), qr/"ratelimit": invalid "zone=", expected zone=name/],
    [limit_with('zone=z burst=5 burst=6', $leaky), qr/"ratelimit": invalid "burst=6", expected each parameter once/],
    [limit_with('zone=z nodelay delay=5', $leaky), qr/"ratelimit": invalid "nodelay", expected either nodelay or delay=/],
    [limit_with('zone=z cost=$nonsense'), qr/unknown "nonsense" variable/],
    [limit_with('zone=z burst=5'), qr/"ratelimit zone=z": invalid "burst=5", expected no burst, which only token_bucket/],
    [limit_with('zone=z burst=0', $token), qr/"ratelimit zone=z": invalid "burst=0", expected a bucket/],
    (map { [limit_with("zone=z $_", $gcra), qr/"ratelimit zone=z": invalid "$_", expected no delay, which only leaky_bucket/] }
        qw(nodelay delay=5)),
    [$zone, 'ratelimit zone=z; ratelimit zone=z;', qr/duplicate "ratelimit" of zone "z"/],
    [$zone, 'ratelimit zone=z; ratelimit off;', qr/"ratelimit off" excludes other/],
    [$zone, 'ratelimit off; ratelimit zone=z;', qr/"ratelimit off" excludes other/],

    # ratelimit_redis
    ['ratelimit_redis main { }', '', qr/"ratelimit_redis" "main" has no "server"/],
    ['ratelimit_redis { server 127.0.0.1; }', '', qr/invalid number of arguments in "ratelimit_redis"/],
    ["$redis $redis", '', qr/duplicate "ratelimit_redis" "main"/],
    (map { ["ratelimit_redis '$_' { server 127.0.0.1; }", '',
            qr/"ratelimit_redis": invalid "\Q$_\E", expected a name of letters, digits, _ \. or -, not starting with a dot/] }
        '', 'a b', 'a"b', 'a{b', 'a/b', 'a@b', '.a', "\xc3\xa9"),
    [block_with('server 127.0.0.1:6379;'), '', qr/"main" has a duplicate "server"/],
    (map { [block_with("server 127.0.0.2 $_;"), '', qr/"server": invalid "\Q$_\E", expected weight= with a number/] }
        qw(weight=0 weight=1001 weight=x weight= 5)),
    (map { [block_with("topology $_->[0];"), '', qr/"topology": invalid "\Q$_->[1]\E", expected ring, cluster or sentinel master=name/] }
        ['star', 'star'], ['sentinel', 'sentinel'], ['sentinel master=', 'master='], ['sentinel x', 'x'],
        ['ring master=x', 'master=x'], ['cluster 5', '5'], ['sentinels master=m', 'sentinels']),
    [block_with('topology cluster; database 1;'), '', qr/"main" has a "database", which a cluster does not have/],
    [block_with('topology cluster; server unix:/tmp/x;'), '', qr/"main" has a unix socket, which nodes of a cluster/],
    (map { [block_with("topology $_; server 127.0.0.2 weight=2;"), '', qr/"main" has a "weight", which only/] }
        'cluster', 'sentinel master=m'),
    [block_with('sentinel_password x;'), '', qr/"main" has a "sentinel_username" or "sentinel_password", but no/],
    [block_with('topology sentinel master=m; sentinel_username x;'), '', qr/"main" has a "sentinel_username" but no/],
    (map { ["ratelimit_redis main { server $_; }", '', qr/"server": invalid "\Q$_\E", expected host:port, \[ipv6\]:port or unix:/] }
        '127.0.0.1:x', '127.0.0.1:0', '127.0.0.1:65536', 'no-such-host.invalid', '[::1', 'unix:'),
    [block_with('nonsense 5;'), '', qr/unknown directive "nonsense" in "ratelimit_redis"/],
    [block_with('database 1 2;'), '', qr/invalid number of arguments in "database" of "ratelimit_redis"/],
    [block_with('database;'), '', qr/invalid number of arguments in "database" of "ratelimit_redis"/],
    [block_with('database 1; database 2;'), '', qr/"database" is duplicate in "ratelimit_redis"/],
    (map { [block_with("$_->[0];"), '', qr/"\Q$_->[2]\E": invalid "\Q$_->[3]\E", expected $_->[1]/] }
        map { [@{$_}, split / /, $_->[0]] }
        ['database x', 'a number'], ['database -1', 'a number'],
        ['connections 0', 'a number from 1 to 128'], ['connections 129', 'a number from 1 to 128'],
        ['timeout 0', 'a time from 1ms to 1d'], ['timeout -5', 'a time from 1ms to 1d'], ['timeout fast', 'a time from 1ms to 1d'],
        ['timeout 25h', 'a time from 1ms to 1d'], ['timeout 99999999999d', 'a time from 1ms to 1d'],
        ['connect_timeout 0', 'a time from 1ms to 1d'], ['connect_timeout x', 'a time from 1ms to 1d'],
        ['password_file /nonexistent/file', 'a readable file']),
    [block_with('prefix "a{b";'), '', qr/"prefix": invalid "a\{b", expected text without braces/],
    [block_with('prefix "}";'), '', qr/"prefix": invalid "}", expected text without braces/],
    (map { [block_with("breaker $_;"), '', qr/"breaker": invalid "\Q$_\E", expected failures= with a number from 1 to 1000000/] }
        qw(5 failures=0 failures=x failures=-1 open=0 open=x open= open=2d now)),
    [block_with('breaker failures=1 open=1s 5;'), '', qr/invalid number of arguments in "breaker"/],
    [block_with('password x; password_file /tmp/x;'), '', qr/"password_file" is duplicate in "ratelimit_redis"/],
    (map { [block_with($_->[0]), '', qr/"ratelimit_redis" "main" has "$_->[1]" but no "tls on"/] }
        ['tls_verify off;', 'tls_verify'], ['tls_verify on; password x;', 'tls_verify'],
        ['tls_server_name x;', 'tls_server_name'], ['tls off; tls_server_name x;', 'tls_server_name'],
        (map { ["$_ /etc/passwd;", $_] } 'tls_trusted_certificate', 'tls_certificate', 'tls_certificate_key')),
    (map { [block_with(qq{tls on; tls_server_name "$_";}), '', qr/"tls_server_name": invalid "\Q$_\E", expected the name of one host/] }
        '', '.redis.test', '*.redis.test', 'redis test', 'x' x 256),
    (map { [block_with("tls on; $_ /nonexistent.pem;"), '',
            qr{"$_": could not open "/nonexistent.pem" \(2: No such file or directory\) in .*nginx\.conf:\d+}] }
        'tls_trusted_certificate', 'tls_certificate', 'tls_certificate_key'),
    [block_with('username me;'), '', qr/has a "username" but no "password"/],

    # ratelimit_api
    ['', 'location /r/ { ratelimit_api; proxy_pass http://127.0.0.1:1; }',
        qr{"ratelimit_api" stands beside another directive that answers in location "/r/" in \S+nginx.conf:\d+$}],
    ['', 'location = /x { ratelimit_api; }', qr{or exact and ends in /metrics, /zones, /redis, /fleet, /history, /overrides or /}],
    ['', 'location /r/ { proxy_pass http://127.0.0.1:1; ratelimit_api; }',
        qr/"ratelimit_api" directive stands beside another directive that answers in this location/],
    ['', 'location /r/ { ratelimit_api; ratelimit_api; }', qr/"ratelimit_api" directive is duplicate/],

    # ratelimit_usage
    ['', 'ratelimit_usage $tokens json=usage.total_tokens; ratelimit_usage $other json=x;', qr/"ratelimit_usage" directive is duplicate/],
    ['', 'ratelimit_usage tokens json=x;', qr/"ratelimit_usage": invalid "tokens", expected a variable, such as \$tokens/],
    (map { ['', "ratelimit_usage \$tokens $_;", qr/"ratelimit_usage": invalid "\Q$_\E", expected json= with names between dots/] }
        'json=', 'json=a..b', 'json=.a', 'xml=a', 'usage.total_tokens', 'json=$.usage.total_tokens', 'json=usage[0].x', 'json=usage/total_tokens',
        'json=usage.*', 'json=usage->total_tokens', "json=usage['total']"),
    ['', 'set $tokens 1; ratelimit_usage $tokens json=x;', qr/"ratelimit_usage" directive has a variable that another directive sets/],
    ['', 'ratelimit_usage $uri json=x;', qr/the duplicate "uri" variable/],

    # ratelimit_check
    [$zone, 'location /c/ { ratelimit_check; }', qr{"ratelimit_check" in location "/c/" has no limit to check in \S+nginx.conf:\d+$}],
    [$zone, 'ratelimit zone=z; location /c/ { ratelimit off; ratelimit_check; }', qr/has no limit to check/],
    [$zone, 'ratelimit zone=z; location /c/ { ratelimit_check poke; }', qr/"ratelimit_check": invalid "poke", expected peek, or nothing/],
    [$zone, 'ratelimit zone=z; location /c/ { ratelimit_check; ratelimit_check; }', qr/"ratelimit_check" directive is duplicate/],
    [$zone, 'ratelimit zone=z charge=$bytes_sent; location /c/ { ratelimit_check; }', qr/cannot have a limit with charge=/],
    ["$leaky", 'ratelimit zone=z burst=5; location /c/ { ratelimit_check; }', qr/cannot have a limit that delays, only one with nodelay/],
    [$zone, 'ratelimit zone=z; location /c/ { ratelimit_check; proxy_pass http://127.0.0.1:1; }',
        qr{"ratelimit_check" stands beside another directive that answers in location "/c/" in \S+nginx.conf:\d+$}],
    [$zone, 'ratelimit zone=z; location /c/ { proxy_pass http://127.0.0.1:1; ratelimit_check; }',
        qr/"ratelimit_check" directive stands beside another directive/],
    [$zone, 'ratelimit_check; ratelimit zone=z;', qr/"ratelimit_check" directive is not allowed here/],

    # directives with one value
    (map { [$zone, "$_->[0];", qr/"\Q$_->[2]\E": invalid "\Q$_->[3]\E", expected $_->[1]/] }
        map { [@{$_}, split / /, $_->[0]] }
        (map { ["$_ 200", 'a status from 400 to 599'], ["$_ 600", 'a status from 400 to 599'],
            ["$_ x", 'a status from 400 to 599'] } qw(ratelimit_status ratelimit_fail_status)),
        ['ratelimit_fail_mode maybe', 'open, closed or local'],
        ['ratelimit_dry_run yes', 'on or off'], ['ratelimit_problem_details yes', 'on or off'],
        (map { ["ratelimit_retry_jitter $_", 'a share from 0% to 100%'] } '10', '101%', '-1%', '5.5%', '%', 'off'),
        ['ratelimit_log_level debug', 'info, notice, warn or error'],
        ['ratelimit_headers all', 'off alone, or each of']),
    [$zone, 'ratelimit_headers off draft;', qr/"ratelimit_headers": invalid "off"/],
    [$zone, 'ratelimit_headers draft off;', qr/"ratelimit_headers": invalid "off"/],
    [$zone, 'ratelimit_headers draft draft;', qr/"ratelimit_headers": invalid "draft"/],
    (map { ["ratelimit_ipv6_prefix $_;", '', qr/"ratelimit_ipv6_prefix": invalid "$_", expected a number of bits/] } 0, 129, 'x'),
    (map { ["map \$ratelimit_net_$_ \$v { }", '', qr/invalid "\$ratelimit_net_$_", expected \$ratelimit_net_A_B with 1 to 32 bits/] }
        '24', '24_', '0_48', '33_48', '24_129', '24_0', '024_48', '24_48_', 'a_b', ''),
    ['', 'location /a { ratelimit_phase content; }',
        qr/"ratelimit_phase": invalid "content", expected access or preaccess/],
    ['ratelimit_phase rewrite;', '', qr/"ratelimit_phase": invalid "rewrite", expected access or preaccess/],
    (map { [$zone, "$_; $_;", qr/"@{[ first_word($_) ]}" directive is duplicate/] }
        'ratelimit_status 429', 'ratelimit_fail_status 503', 'ratelimit_fail_mode open',
        'ratelimit_dry_run on', 'ratelimit_log_level info', 'ratelimit_headers off',
        'ratelimit_phase access', 'ratelimit_problem_details on', 'ratelimit_retry_jitter 10%'),
    (map { ["$_; $_;", '', qr/"@{[ first_word($_) ]}" directive is duplicate/] }
        'ratelimit_ipv6_prefix 64', 'ratelimit_phase access'),
    (map { ['', "$_;", qr/"@{[ first_word($_) ]}" directive is not allowed here/] }
        'ratelimit_zone k zone=z rate=1r/s', 'ratelimit_ipv6_prefix 64'),
);

for (@bad) {
    my ($http, $server, $expected) = @{$_};
    my ($exit, @lines) = conf_test(http => $http, server => $server);
    my $what = "$http $server";
    isnt $exit, 0, "refused: $what";
    is scalar(@lines), 1, 'with one line' or diag join "\n", @lines;
    like $lines[0] // '', $expected;
}

my @good = (
    (map { [zone_with("algorithm=$_"), 'ratelimit zone=z;'] }
        qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
        token_bucket leaky_bucket gcra)),
    (map { ["$redis ratelimit_zone k zone=z rate=$_;", 'ratelimit zone=z;'] }
        qw(100r/s 5r/10s 1000r/15m 1r/d 1r/366d 1000000000r/s $arg_rate 10r/$arg_window)),
    [zone_with('algorithm=sliding_window_buckets precision=60s'), 'ratelimit zone=z;'],
    [zone_with('algorithm=token_bucket burst=1 clock=local redis=main'), 'ratelimit zone=z burst=7;'],
    [zone_with('algorithm=gcra burst=0'), 'ratelimit zone=z burst=0;'],
    ["$zone ratelimit_usage \$tokens json=a.b; log_format u '\$tokens';",
        'location /a { ratelimit_usage $tokens json=c; ratelimit zone=z charge=$tokens; location /a/b { ratelimit off; } }'
            . 'location /b { ratelimit_usage $more json=x-y.d_1; location /b/c { ratelimit zone=z; } } location /c { ratelimit zone=z; }'],
    ["$leaky", 'ratelimit zone=z nodelay; location /c/ { ratelimit_check; if ($arg_x) { set $v 1; } }'
        . 'location /d/ { ratelimit_check peek; limit_except GET { deny all; } }'],
    ["$redis ratelimit_zone \$arg_k\$uri zone=z.-_1:32k rate=1r/s;", ''],
    (map { ["$leaky", "ratelimit zone=z $_;"] } 'burst=5', 'burst=5 nodelay', 'burst=5 delay=3',
        'cost=0', 'cost=$arg_c', 'shadow'),
    ["server { listen 127.0.0.1:18098; ratelimit zone=z; } $zone", ''],    # before its zone
    [$zone, 'ratelimit zone=z; location /a { ratelimit off; } location /b { ratelimit zone=z; }'],
    ["$zone ratelimit zone=z; ratelimit_status 503; ratelimit_headers off; ratelimit_dry_run on;"
        . 'ratelimit_log_level warn; ratelimit_fail_mode closed; ratelimit_fail_status 500;'
        . 'ratelimit_ipv6_prefix 56; ratelimit_phase preaccess; ratelimit_retry_jitter 100%;',
        'ratelimit_headers x-ratelimit draft legacy; location / { ratelimit_status 400; }'],
    [$zone, 'ratelimit zone=z; ratelimit_phase access; location /login { ratelimit_phase preaccess; }'],
    [block_with('database 15; username u; password p; connections 128; connect_timeout 1s;'
            . "timeout 10ms; prefix ''; breaker failures=9 open=10s;"), ''],
    [block_with('breaker open=100ms;'), ''],
    ['ratelimit_redis main { server unix:/tmp/x.sock; }', ''],
    ['ratelimit_redis main { server [::1]:6380; }', ''],
    ['ratelimit_redis main { server localhost; }', ''],
    ['ratelimit_redis Z9.-_ { server 127.0.0.1; }', ''],
    [block_with('server 127.0.0.2 weight=1000; server [::1]; server unix:/tmp/x; topology ring;'), ''],
    [block_with('server 127.0.0.1:6380; topology cluster;'), ''],
    ['ratelimit_redis a { server 127.0.0.1; } ratelimit_redis b { server 127.0.0.1; }'
        . 'ratelimit_zone k zone=z rate=1r/s redis=a; ratelimit_zone k zone=y rate=1r/s redis=b;',
        'ratelimit zone=z; ratelimit zone=y;'],
    ['ratelimit_zone k zone=z rate=1r/s; ratelimit_fail_mode local;', 'ratelimit zone=z;'],
    (map { [zone_with($_), 'ratelimit zone=z;'] } 'cache=on', 'cache=off', 'lease=off', 'lease=1',
        'lease=1000000', 'cache=off lease=100', 'ahead=1', 'ahead=10', 'ahead=off block=1m', 'ahead=off lease=5',
        'ahead=5 cache=off nodes=2 hash_key', 'ahead=off clock=local'),
    ["$redis ratelimit_zone k zone=z rate=\$arg_r ahead=1000;", 'ratelimit zone=z cost=$arg_c shadow;'],
    ["$redis ratelimit_zone k zone=z rate=9r/m algorithm=leaky_bucket burst=5 ahead=2;", 'ratelimit zone=z nodelay;'],
    ["$redis ratelimit_zone k zone=z rate=9r/m algorithm=leaky_bucket burst=5 ahead=2;", 'ratelimit zone=z cost=0;'],
    (map { ["$redis ratelimit_zone k zone=z concurrency=$_;", 'ratelimit zone=z;'] }
        '1', '1000000000', '5 hold=1s', '5 hold=1d hash_key redis=main nodes=4'),
    ['ratelimit_zone k zone=z concurrency=3;', 'ratelimit zone=z cost=$arg_c shadow;'],
    [zone_with('hash_key'), 'ratelimit zone=z;'],
    (map { [zone_with("block=$_"), 'ratelimit zone=z;'] } '90', '1s', '10m', '366d lease=off', '1h cache=off clock=local'),
    ['ratelimit_zone k zone=z rate=$arg_rate block=10m;', 'ratelimit zone=z charge=$arg_c; ratelimit_problem_details on;'],
    ['ratelimit_zone k zone=z rate=1r/s hash_key;', 'ratelimit zone=z;'],
    [zone_with('nodes=4'), 'ratelimit zone=z; ratelimit_fail_mode local;'],
    [block_with('server 127.0.0.2; topology sentinel master=m; sentinel_username a; sentinel_password b;'), ''],
    ['', ''],
);

for (@good) {
    my ($http, $server) = @{$_};
    my ($exit, @lines) = conf_test(http => $http, server => $server);
    is $exit, 0, "accepted: $http $server" or diag join "\n", @lines;
}

# [lines in http {}, lines in server {}, the warning; undef: none]
for (
    [block_with('timeout 100;'),          '', qr/"timeout 100" is 100 s, for which each request may wait for Redis in /],
    [block_with('connect_timeout 10500ms;'), '', qr/"connect_timeout 10500ms" is 11 s, for which/],
    [block_with('timeout 10s;'),          '', undef],
    [limit_with('zone=z; return 204'),    qr/"ratelimit zone=z": "return" of the same block answers before any limit in /],
    [$zone, 'location / { return 200 ok; ratelimit zone=z; }', qr/"return" of the same block answers/],
    [$zone, 'location / { ratelimit zone=z; if ($arg_a) { return 403; } try_files /a =404; }', undef],
    [$zone, 'ratelimit zone=z; location = /health { return 200; }', undef],
    [$zone, 'location / { ratelimit off; return 200; }', undef],
    [$zone, 'ratelimit zone=z; error_page 404 429 = /a; location /c/ { ratelimit_check; if ($arg_a) { set $b 1; } }',
        qr{"ratelimit_check" in location "/c/": refused requests get the status of the page of "error_page 429 =" in \S+nginx.conf:\d+$}],
    [$zone, 'ratelimit zone=z; ratelimit_fail_mode closed; error_page 503 =200 @a; location @a { return 200; } location /c/ { ratelimit_check; }',
        qr/"error_page 503 ="/],
    [$zone, 'ratelimit zone=z; error_page 429 /a; error_page 404 503 = /a; location /c/ { ratelimit_check; }', undef],
    [$zone, 'ratelimit zone=z; error_page 429 =403 /a; location /c/ { ratelimit_check; }', undef],
    [$zone, 'ratelimit zone=z; error_page 429 = /a; location /c/ { }', undef],
    [$zone, 'ratelimit zone=z; error_page 403 = /a; location /c/ { ratelimit_check; }', qr/"error_page 403 ="/],
    [zone_with('nodes=4'), 'ratelimit zone=z; location /c/ { ratelimit zone=z; ratelimit_fail_mode closed; }',
        qr/"ratelimit_zone" "z": "nodes=" changes nothing, since no limit of it has "ratelimit_fail_mode local" in \S+nginx.conf:\d+$/],
    [zone_with('nodes=4'), 'ratelimit zone=z; location /c/ { ratelimit_fail_mode local; }', undef],
    [zone_with('nodes=4'), '', undef],
    [zone_with('nodes=1'), 'ratelimit zone=z;', undef],
) {
    my ($http, $server, $warning) = @{$_};
    my ($exit, @lines) = conf_test(http => $http, server => $server);
    is $exit, 0, "accepted: $http $server" or diag join "\n", @lines;
    is scalar(@lines), $warning ? 1 : 0, 'lines' or diag join "\n", @lines;
    like $lines[0] // '', $warning, 'with a warning' if $warning;
}

subtest 'ratelimit_redis includes files, by paths relative to nginx.conf and by masks' => sub {
    my $redis = redis(password => 'secret');
    my $node = nginx;
    mkdir "$node->{folder}/redis.d";
    write_file("$node->{folder}/redis.d/1.conf", "server @{[ $redis->addr ]};\ninclude password.conf;\n");
    write_file("$node->{folder}/redis.d/2.conf", "prefix here:;\n# a comment\n");
    write_file("$node->{folder}/password.conf",  "password secret;\n");
    $node->configure(
        http   => 'ratelimit_redis main { include redis.d/*.conf; include none/*.conf; timeout 5s; }'
            . 'ratelimit_zone $arg_k zone=z rate=1r/d;',
        server => 'location / { ratelimit zone=z; try_files /index.html =404; }');
    $node->reload(gone => 1);
    is join(' ', map { $node->status('/?k=a') } 1 .. 2), '200 429';
    is_deeply $redis->cmd('KEYS', '*'), ['here:z:{a}'];
};

subtest 'an error in an included file is reported with its file and line' => sub {
    my $folder = Ratelimit::Process::temp_folder();
    write_file("$folder/database.conf", "database 1;\n");
    for (
        ["\nnonsense 5;\n",        qr/unknown directive "nonsense" in "ratelimit_redis" in \S+part\.conf:2$/],
        ["\n\ntimeout fast;\n",    qr/"timeout": invalid "fast", expected a time from 1ms to 1d, such as .* in \S+part\.conf:3$/],
        ["include $folder/database.conf; include $folder/database.conf;",
            qr/"database" is duplicate in "ratelimit_redis" in \S+database\.conf:1$/],
        ["include $folder/missing.conf;", qr/open\(\) "\S+missing\.conf" failed .* in \S+part\.conf:1$/],
        (map { ["include$_;", qr/invalid number of arguments in "include" of "ratelimit_redis" in \S+part\.conf:1$/] }
            '', " $folder/database.conf $folder/database.conf"),
        ['}',                      qr/unexpected "}" in \S+part\.conf:1$/],
    ) {
        my ($text, $expected) = @{$_};
        write_file("$folder/part.conf", $text);
        my ($exit, @lines) = conf_test(http => block_with("include $folder/part.conf;"));
        isnt $exit, 0, $text;
        is scalar(@lines), 1, 'one line';
        like $lines[0], $expected;
    }
};

finish();

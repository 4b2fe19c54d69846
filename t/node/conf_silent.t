# nginx -t refuses what looks right and limits nothing, everybody together, or every request, with one clear line.
# It never prints a password.

use Ratelimit::Test;

my $redis = 'ratelimit_redis main { server 127.0.0.1:6379; }';
my $zone  = "$redis ratelimit_zone k zone=z rate=1r/s;";

sub zone_with  { return "$redis ratelimit_zone k zone=z rate=10r/m $_[0];" }
sub block_with { return "ratelimit_redis main { server 127.0.0.1:6379; $_[0] }" }
sub limit_with { return ($_[1] // $zone, "ratelimit $_[0];") }

# [lines in http {}, lines in server {}, the complaint]
my @bad = (
    # What is known only with the response, and costs that never fit.
    (map { [limit_with("zone=z cost=$_"), qr/"ratelimit": invalid "cost=\Q$_\E", expected charge=, since the value is known only with the response/] }
        '$bytes_sent', '${body_bytes_sent}', '1$status', '$arg_a$upstream_response_length', '$upstream_http_x_cost', '$sent_http_x', '$request_time'),
    (map { ["$redis ratelimit_zone $_ zone=z rate=1r/s;", '',
            qr/"ratelimit_zone": invalid "\Q$_\E", expected variables that are known when the limit is decided/] }
        '$upstream_http_x', '$sent_http_etag', '$Sent_HTTP_etag', '$sent_trailer_x', '$binary_remote_addr$status', '${upstream_addr}', '$upstream_cookie_a',
        '$request_completion', '$proxy_host', '$gzip_ratio', '$uid_set', '$upstream_trailer_a', '$upstream_cache_status', '$ratelimit_status'),
    ["$redis ratelimit_zone k zone=z rate=\$upstream_http_x;", '', qr/invalid "rate=\$upstream_http_x", expected variables that are known/],
    ["$redis ratelimit_zone k zone=z rate=10r/\$status;", '', qr/invalid "rate=10r\/\$status", expected variables that are known/],
    [limit_with('zone=z reserve=$sent_http_x'), qr/invalid "reserve=\$sent_http_x", expected variables that are known/],
    (map { ["$redis ratelimit_zone $_ zone=z rate=1r/s;", '', qr/"ratelimit_zone": invalid "\Q$_\E", expected a name without "-", such as \$http_x_api_key/] }
        '$http_x-api-key', '$http_X-Api-Key', '$remote_addr$cookie_my-id', '$arg_api-key'),
    (map { ["$redis ratelimit_zone $_ zone=z rate=1r/s;", '', qr/"ratelimit_zone": invalid "\Q$_\E", expected variables that requests of a client share/] }
        '$request_id', '$binary_remote_addr$connection', '$remote_addr:${remote_port}', '$msec', '$proxy_protocol_port', '$REQUEST_ID', '${realip_remote_port}'),
    ["$redis ratelimit_zone '' zone=z rate=1r/s;", '', qr/"ratelimit_zone": invalid "", expected a key, since a request with an empty one is not limited in/],
    [limit_with('zone=z charge=$upstream_http_x-cost'), qr/"ratelimit": invalid "charge=\$upstream_http_x-cost", expected a name without "-"/],
    (map { ["$redis ratelimit_zone $_ zone=z rate=1r/s;", '', qr/"ratelimit_zone": invalid "$_", expected "\$" before the name of a variable/] }
        qw(remote_addr binary_remote_addr ratelimit_client ratelimit_net_24_48 http_x_api_key arg_k cookie_id)),
    (map { [limit_with("zone=z $_->[1]", "$redis ratelimit_zone k zone=z $_->[0];"),
            qr/"ratelimit zone=z": invalid "$_->[2]", expected at most what passes at once: the quota, or what the burst admits, less the reserve/] }
        ['rate=10r/m', 'cost=11', 'cost=11'], ['rate=10r/m algorithm=gcra', 'cost=2', 'cost=2'],
        ['rate=10r/m algorithm=gcra burst=3', 'cost=5', 'cost=5'], ['rate=10r/m algorithm=gcra burst=9', 'burst=1 cost=3', 'cost=3'],
        ['rate=10r/m algorithm=token_bucket burst=20', 'cost=21', 'cost=21'], ['concurrency=5', 'cost=20', 'cost=20'],
        ['rate=10r/m', 'reserve=20% cost=9', 'cost=9'], ['rate=10r/m', 'cost=11 shadow', 'cost=11']),
    ["$redis ratelimit_zone k zone=z rate=1r/s redis=;", '', qr/"ratelimit_zone": invalid "redis=", expected the name of a "ratelimit_redis"/],
    (map { ["$redis ratelimit_zone k zone = z rate=1r/s;", '', qr/"ratelimit_zone": invalid "zone", expected "=" and a value directly behind/],
        [zone_with('burst = 5'), '', qr/"ratelimit_zone": invalid "burst", expected "=" and a value directly behind/],
        [limit_with('zone=z cost = 5'), qr/"ratelimit": invalid "cost", expected "=" and a value directly behind/] } 1),
    [limit_with('zone=z what'), qr/reserve=share, shadow, or off alone/],

    # Logins.
    (map { ["ratelimit_redis main { server $_; }", '',
            qr/^nginx: \[emerg\] "server": invalid URL, expected host:port, \[ipv6\]:port or unix:\/path, and the login in "username" and "password"/] }
        'rediss://user:pw@host', 'redis://:pw@127.0.0.1:6379/0', ':pw@127.0.0.1', 'unix:/tmp/x?password=pw'),
    (map { my $name = $_; (map { [block_with("$name '$_'; topology sentinel master=m;"), '',
            qr/^nginx: \[emerg\] "$name" of "ratelimit_redis" has a variable, which is not replaced here, expected the text itself in \S+:\d+$/] }
            '${REDIS_PASSWORD}', '$REDIS_PASSWORD', '{{ redis_password }}', '${redis:-x}'),
        [block_with("$name '';"), '', qr/"$name" of "ratelimit_redis" is empty, expected a text in/] }
        qw(username password sentinel_username sentinel_password)),

    # ratelimit_usage
    ["$zone ratelimit_usage \$tokens json=a.b;", 'location /a { ratelimit_usage $other json=c; } location /b { ratelimit zone=z; }',
        qr/"ratelimit_usage \$other": no limit in its location, whose charge= would have it in \S+:\d+$/],
    ['ratelimit_usage $tokens json=a.b;', '', qr/"ratelimit_usage \$tokens": no limit in its location/],
    [$zone, 'ratelimit zone=z; location /a { ratelimit off; ratelimit_usage $tokens json=a; }', qr/"ratelimit_usage \$tokens": no limit/],
    [$zone, 'ratelimit_usage $tokens json=a; ratelimit zone=z cost=$tokens;',
        qr/"ratelimit zone=z": invalid "cost=\$tokens", expected no variable of "ratelimit_usage", which only charge= can have in \S+:\d+$/],
    ["$redis ratelimit_zone \$arg_k\$tokens zone=z rate=1r/s; ratelimit_usage \$tokens json=a;", 'ratelimit zone=z;',
        qr/"ratelimit_zone" "z": invalid "\$arg_k\$tokens", expected no variable of "ratelimit_usage"/],
);

for (@bad) {
    my ($http, $server, $expected) = @{$_};
    my ($exit, @lines) = conf_test(http => $http, server => $server);
    isnt $exit, 0, "refused: $http $server";
    is scalar(@lines), 1, 'with one line' or diag join "\n", @lines;
    like $lines[0] // '', $expected;
    unlike "@lines", qr/:pw\b|=pw\b/, 'without a password';
}

my @good = (
    ["$zone ratelimit_zone '\${http_x}-api' zone=y rate=1r/s; ratelimit_zone \$http_x-\$arg_a zone=x rate=1r/s; ratelimit_zone remote zone=w rate=1r/s;"
        . 'ratelimit_zone $connection_requests zone=v rate=1r/s; ratelimit_zone $arg_request_id zone=u rate=1r/s;',
        'ratelimit zone=y; ratelimit zone=z charge=$bytes_sent cost=$content_length; location /a { ratelimit zone=x charge=$upstream_http_x; }'],
    ["$redis ratelimit_zone k zone=z rate=10r/m; ratelimit_zone k zone=c concurrency=5; ratelimit_zone k zone=g rate=10r/m algorithm=gcra burst=1;"
        . 'ratelimit_zone k zone=v rate=$arg_r;',
        'ratelimit zone=z cost=10; ratelimit zone=c cost=5; ratelimit zone=g cost=2; ratelimit zone=v cost=1000;'
        . 'location /a { ratelimit zone=z cost=$arg_c; ratelimit zone=g burst=9 cost=10; } location /b { ratelimit zone=z reserve=2 cost=8; }'],
    ['', 'location = /x/history { ratelimit_api; } location = /x/overrides { ratelimit_api; }'],
    (map { [block_with("password '$_';"), ''] } 'pa$$word', '$ecret', '${', 'a${B}', '{x}'),
);

for (@good) {
    my ($http, $server) = @{$_};
    my ($exit, @lines) = conf_test(http => $http, server => $server);
    is $exit, 0, "accepted: $http $server" or diag join "\n", @lines;
}

finish();

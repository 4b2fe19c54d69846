# The configurations that ratelimit-rehearse reads: includes, servers, locations, variables, and one clear
# error for what it cannot follow.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $zone = "ratelimit_zone \$remote_addr zone=z rate=1r/d;\n";

# "refused/requests" of each limit by its location.
sub by_location {
    my ($conf, @lines) = @_;
    my $report = report(conf => $conf, logs => [log_file(@lines)]);
    return { map { $_->{location} => "$_->{refused}/$_->{requests}" } @{ $report->{limits} } };
}

# The requests of the limit by its keys.
sub by_key {
    my ($conf, @lines) = @_;
    my $report = report(conf => $conf, logs => [log_file(@lines)]);
    return { map { $_->{key} => $_->{requests} } @{ $report->{limits}[0]{busiest} } };
}

sub paths { return map { line(path => $_) } @_ }

subtest 'locations are found as nginx finds them' => sub {
    my $conf = "$zone server {\n" . join('', map { "location $_->[0] { ratelimit zone=z; $_->[1] }\n" }
        ['/', ''], ['= /', ''], ['/api/', 'location /api/deep/ { ratelimit zone=z; } location ~ \.xml$ { ratelimit zone=z; }'],
        ['^~ /static/', ''], ['~ \.php$', ''], ['~* "^/IMG/[a-z]{2}"', ''], ['@named', ''], ['=/login', '']) . '}';
    my %expected = (
        '/'             => '/other /lognn /static /.x /xstatic/ /%2e/',
        '= /'           => '/ //',
        '/api/'         => '/api/ /api/x /api//y /%61pi/z /x/../api/w',
        '/api/deep/'    => '/api/deep/',
        '~ \.xml$'      => '/api/a.xml',
        '^~ /static/'   => '/static/ /static/x.php',
        '~ \.php$'      => '/x.php /x.php?a=.html /a/b%2ephp /other.php#x',
        '~* ^/IMG/[a-z]{2}' => '/img/ab /IMG/xyz',
        '= /login'      => '/login /login?x /./login',
    );
    $expected{'= /'} .= ' /%2e/';
    $expected{'/'} =~ s{ /%2e/}{};
    my @paths = map { split / / } values %expected;
    my %requests = map { $_ => scalar(my @all = split / /, $expected{$_}) } keys %expected;
    my $found = by_location($conf, paths(@paths));
    is $found->{$_} =~ s{.*/}{}r, $requests{$_}, $_ for sort keys %requests;
    is $found->{'@named'}, '0/0', 'a named location is not reached';
    my $unreached = "no request reached the limit \"z\" at ";
    my @two = (conf => "$zone location /a { ratelimit zone=z; } location /b { ratelimit zone=z; }", logs => [log_file(paths('/a'))]);
    is_deeply report(@two)->{problems}, ["${unreached}/b"], 'which is said of each limit';
    my ($exit, $out) = rehearse(@two);
    is $exit, 2;
    like $out, qr{^NOT USABLE: \Q${unreached}\E/b\n.*^z at /b\n  sliding_window_counter, 1r/d\n  no request reached it\n\z}ms;
    is((rehearse(@two, options => ['--allow-unreached']))[0], 0, '--allow-unreached');
};

subtest 'an absolute URI, and a location that answers by itself' => sub {
    my $found = by_location("$zone server { location / { ratelimit zone=z; } location /moved { ratelimit zone=z; return 301 /x; } }",
        paths('http://a.example/x?y', '/moved', '/moved', 'http://a.example'));
    is_deeply $found, { '/' => '1/2', '/moved' => '0/0' };
};

subtest 'servers are chosen by the host of the log' => sub {
    my $server = sub { "server { server_name $_[0]; $_[1] location / { ratelimit zone=z; } }\n" };
    my $conf = $zone . "server { listen 80; server_name a.example; return 301 https://\$host; }\n"
        . $server->('a.example www.a.example', '') . $server->('*.b.example', '') . $server->('mail.*', '')
        . $server->('"~^c\d+\.example$"', '') . $server->('other.example', 'listen 443 ssl default_server;');
    my $count = sub {
        my ($variable, @hosts) = @_;
        my $report = report(conf => $conf, options => ['--format', "\$msec \$remote_addr \$$variable"],
            logs => [log_file(map { "1795000000.0 10.0.0.1 $_\n" } @hosts)]);
        return join ' ', map { $_->{requests} } @{ $report->{limits} };
    };
    is $count->('host', qw(a.example www.a.example x.b.example mail.z c12.example what.ever -)), '2 1 1 1 2';
    is $count->('http_host', qw(A.Example:443 X.B.EXAMPLE b.example [::1]:80)), '1 1 0 0 2';
    my $log = log_file(line());
    my ($exit, undef, $err) = rehearse(conf => $conf, logs => [$log]);
    isnt $exit, 0;
    like $err, qr/several servers have limits \(a\.example, \*\.b\.example, .*choose one with --server$/;
    my $chosen = report(conf => $conf, logs => [$log], options => ['--server', 'a.example']);
    is $chosen->{limits}[0]{requests}, 1, '--server';
    is $chosen->{limits}[0]{location}, 'a.example /';
    is_deeply by_location("$zone ratelimit zone=z; server { server_name a; } server { server_name b; }", line()),
        { http => '0/1' }, 'no choice is needed where all have the same limits';
    is_deeply by_location("$zone server { server_name a; } server { server_name b; ratelimit zone=z; }", line()),
        { 'server b' => '0/1' }, 'nor where one has limits';
};

subtest 'a whole nginx.conf with includes' => sub {
    mkdir folder() . "/$_" for 'conf.d', 'sites';
    write_file(folder() . '/conf.d/a.conf', $zone);
    write_file(folder() . '/conf.d/b.conf', 'map $status $bad { 401 1; default 0; }');
    write_file(folder() . '/sites/one', "server { listen 80; location / { ratelimit zone=z; } }\n");
    my $conf = <<'END';
user www-data;  # a comment; with { a brace
events { worker_connections 1024; }
stream { server { listen 1; } }
http {
    log_format main '$remote_addr - $remote_user [$time_local] "$request" '
                    "$status";
    access_log /var/log/nginx/access.log main;
    content_by_lua_block { -- it's a comment with {
        if x then return "{\"" .. '{' .. [[ { ]] .. [=[ ]] { ]=] end --[[ {
        ]] }
    upstream backend { server 127.0.0.1:80; }
    ratelimit_redis main { server 127.0.0.1; }
    include conf.d/*.conf;
    include sites/one;
    include none/*.conf;
}
END
    is_deeply by_location($conf, line()), { '/' => '0/1' };
    my $main = report(conf => $conf, options => ['--format', 'main'], logs => [log_file(line() =~ s/ 12 .*//r)]);
    is $main->{skipped}, 0, 'a format of it';
};

subtest 'map, geo and set are followed' => sub {
    my %maps = (
        'exact, whatever the case' => ['map $arg_x $v { A one; default two; }', { one => 2, two => 3 }, qw(a A b ba), ''],
        'regular expressions'      => ['map $arg_x $v { ~^a+$ "as"; "~*^(?<first>.)b(.)" "$first-$2"; default none; }',
            { as => 2, 'x-y' => 1, 'q-z' => 1, none => 1 }, qw(a aaa xby qBz zz)],
        'hostnames'                => ['map $arg_x $v { hostnames; default d; .e.org e; *.f.org f; www.g.* g; exact.f.org x; }',
            { e => 2, f => 2, g => 1, x => 1, d => 2 }, qw(e.org a.e.org b.f.org a.b.f.org www.g.net exact.f.org f.org org)],
        'hostnames with a dot at the end' => ['map $arg_x $v { hostnames; default d; ~^(.*)\.com$ "r-$1"; .e.org e; }', { e => 1, 'r-shop' => 2, d => 1 },
            qw(e.org. shop.com. shop.com shop.com..)],
        'a map of a map'           => ['map $arg_x $w { 1 one; default ""; } map "$w-$arg_x" $v { one-1 yes; default "no $arg_x"; }',
            { yes => 1, 'no 2' => 1 }, 1, 2],
        'escaped keys'             => ['map $arg_x $v { volatile; \default d; \~x t; default o; }', { d => 1, t => 1, o => 1 }, 'default', '~x', 'q'],
        'set'                      => ['set $base "a"; set $v "${base}b"; set $v "$v$arg_x";', { abc => 1, ab => 1 }, 'c', ''],
    );
    for (sort keys %maps) {
        my ($conf, $expected, @values) = @{ $maps{$_} };
        is_deeply by_key("$conf ratelimit_zone \$v zone=z rate=1r/d; ratelimit zone=z;", paths(map { "/?x=$_" } @values)),
            $expected, $_;
    }
    my $geo = 'geo $v { default d; 10.0.0.0/8 ten; 010.1.0.0/16 inner; 2001:db8::/32 six; 127.0.0.1 one; 192.168.0.0/16 no; delete 192.168.0.0/16; }';
    my $ranges = 'geo $remote_addr $v { ranges; default d; 10.0.0.0-10.0.255.255 ten; 10.1.0.0-10.1.255.255 inner; '
        . '2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff six; 127.0.0.1-127.0.0.1 one; }';
    is_deeply by_key("$_ ratelimit_zone \$v zone=z rate=1r/d; ratelimit zone=z;",
        map { line(ip => $_) } qw(10.0.9.9 10.1.2.3 10.1.255.255 127.0.0.1 127.0.0.2 2001:db8::1 2001:db9::1 192.168.1.1)),
        { ten => 1, inner => 2, one => 1, six => 1, d => 3 } for $geo, $ranges;
};

subtest 'variables of the request' => sub {
    my %expected = (
        '$request_method $uri'   => 'POST /a/b',
        '$request_uri'           => '/a//%62?x=1&Y=2&z',
        '$args|$query_string'    => 'x=1&Y=2&z|x=1&Y=2&z',
        '$arg_x$arg_y$arg_z.'    => '12.',
        '$is_args$server_protocol' => '?HTTP/2.0',
        '$http_user_agent'       => 'it\'s "me"',
        '$remote_addr'           => '10.0.0.1',
        '$remote_user.$http_referer' => '.',
        '${arg_x}0'              => 10,
    );
    for (sort keys %expected) {
        is_deeply by_key("ratelimit_zone '$_' zone=z rate=1r/d; ratelimit zone=z;",
            line(method => 'POST', request => 'POST /a//%62?x=1&Y=2&z HTTP/2.0', agent => 'it\'s \x22me\x22')), { $expected{$_} => 1 }, $_;
    }
    my $of = sub {
        my ($key, $format, @lines) = @_;
        my $report = report(conf => "ratelimit_zone $key zone=z rate=1r/d; ratelimit zone=z;",
            options => ['--format', "\$msec $format"], logs => [log_file(map { "1795000000 $_\n" } @lines)]);
        return { map { $_->{key} => $_->{requests} } @{ $report->{limits}[0]{busiest} } };
    };
    is_deeply $of->('$cookie_sid', '"$http_cookie"', '"a=b; SID=x1; c=d"', '"sid=x1"', '"xsid=2"', '"-"'), { x1 => 2 }, 'a cookie';
    is_deeply $of->('$cookie_sid', '"$http_cookie"', '"a=b,sid=1,2; c"', '"a,,sid=1,2"'), { '1,2' => 2 }, 'which may follow a comma';
    is_deeply $of->('$host', '$http_host', 'A.example:80', 'a.example', '[::1]:8080'), { 'a.example' => 2, '[::1]' => 1 }, '$host';
    my $host = report(conf => 'ratelimit_zone $host zone=z rate=1r/d; server { server_name first second; ratelimit zone=z; }',
        options => ['--format', '$msec $http_host'], logs => [log_file(map { "1795000000 $_\n" } '-', 'second', '-')]);
    is_deeply { map { $_->{key} => $_->{requests} } @{ $host->{limits}[0]{busiest} } }, { first => 2, second => 1 },
        "\$host is the server's name where a client sends none";
    is_deeply $of->('$http_x_api_key', '"$http_x_api_key"', '"k"', '"-"', '""'), { k => 1 }, 'a header; an empty one is no key';
    is_deeply $of->('$uri', '$request_uri', '/%61', '/a?b'), { '/a' => 2 }, 'parts of the request line';
    is_deeply $of->('"$uri:$args"', '$request_uri', '/a#b?c', '/a?b#c?d'), { '/a:' => 1, '/a:b' => 1 }, 'a fragment is none';
    is_deeply by_key('ratelimit_zone $user zone=z rate=1r/d; location ~ "^/u/(?<user>\w+)" { ratelimit zone=z; }',
        paths('/u/ann/x', '/u/bob', '/u/ann')), { ann => 2, bob => 1 }, 'a named capture';
};

subtest 'addresses' => sub {
    my @lines = map { line(ip => $_) } qw(10.0.0.1 2001:db8:1:2::1 2001:db8:1:2:ffff::2 2001:db8:1:3::1 ::ffff:10.0.0.1 unix:);
    is_deeply by_key('ratelimit_zone $ratelimit_client zone=z rate=1r/d; ratelimit zone=z;', @lines),
        { '10.0.0.1' => 2, '2001:db8:1:2::/64' => 2, '2001:db8:1:3::/64' => 1, 'unix:' => 1 };
    is_deeply by_key('ratelimit_ipv6_prefix 48; ratelimit_zone $ratelimit_client zone=z rate=1r/d; ratelimit zone=z;', @lines),
        { '10.0.0.1' => 2, '2001:db8:1::/48' => 3, 'unix:' => 1 };
    is_deeply by_key('ratelimit_zone $ratelimit_net_7_46 zone=z rate=1r/d; ratelimit zone=z;', @lines),
        { '10.0.0.0/7' => 2, '2001:db8::/46' => 3, 'unix:' => 1 };
    is_deeply by_key('ratelimit_zone ${ratelimit_net_32_128} zone=z rate=1r/d; ratelimit zone=z;', @lines[0 .. 1]),
        { '10.0.0.1' => 1, '2001:db8:1:2::1' => 1 };
    is_deeply by_key('ratelimit_zone $binary_remote_addr zone=z rate=1r/d; ratelimit zone=z;', @lines[0 .. 1], @lines[4 .. 5]),
        { '10.0.0.1' => 1, '2001:db8:1:2::1' => 1, '::ffff:10.0.0.1' => 1, 'unix:' => 1 };
};

# A configuration, and the error for it without the place, which is line 1 unless the error says another.
my @errors = (
    ['worker_processes 1;', qr/^\S+limits\.conf has no "ratelimit" or "limit_req" directive$/],
    ['ratelimits zone=z;', qr/^\S+limits\.conf has no "ratelimit" or "limit_req" directive; unknown directive "ratelimits" in \S+:1$/],
    ['split_clients $remote_addr $v { 60% a; 50% b; } ratelimit_zone $v zone=z rate=1r/s; ratelimit zone=z;', 'invalid percent value "50%" in FILE:1'],
    ["$zone location / { allow 10.0.0.0/40; ratelimit zone=z; }", 'invalid parameter "10.0.0.0/40" in FILE:2'],
    ['ratelimit_zone $http_x_api_key zone=k rate=1r/s; ratelimit zone=k;',
        'the variable "$http_x_api_key" is not in the log format "combined", and cannot be computed from what is there, in FILE:1'],
    ["map \$geoip_country \$c { a b; }\nratelimit_zone \$c zone=k rate=1r/s;\nratelimit zone=k;",
        'the variable "$geoip_country" is not in the log format "combined", and cannot be computed from what is there, in FILE:1'],
    ["$zone\n\nratelimit zone=z cost=\$upstream_cost;",
        'the variable "$upstream_cost" is not in the log format "combined", and cannot be computed from what is there, in FILE:4'],
    ["ratelimit_zone \$x zone=k rate=1r/s;\nserver { if (\$geoip_city = x) {\n set \$x 1; }\n ratelimit zone=k; }",
        'the variable "$x" is set within "if", which cannot be followed, in FILE:3'],
    ['map $a $b { } map $b $a { } ratelimit_zone $a zone=z rate=1r/s; ratelimit zone=z;', 'the variable "$a" depends on itself in FILE:1'],
    ['ratelimit_zone k zone=z concurrency=5; ratelimit zone=z;',
        '"concurrency=" needs the variable "$request_time", which is not in the log format "combined", in FILE:1'],
    ["ratelimit_zone k zone=z concurrency=5;\nratelimit zone=z charge=\$status;",
        '"ratelimit zone=z": invalid "charge=", expected no charge, which concurrency= does not have in FILE:2'],
    ["ratelimit_zone k zone=z concurrency=5;\nratelimit zone=z burst=1;",
        '"ratelimit zone=z": invalid "burst=1", expected no burst, which only token_bucket, leaky_bucket and gcra have in FILE:2'],
    ['ratelimit_zone k zone=z; ratelimit zone=z;', '"ratelimit_zone" must have a "rate=" or "concurrency=" parameter in FILE:1'],
    ['ratelimit_zone k concurrency=5; ratelimit zone=z;', '"ratelimit_zone" must have a "zone=" parameter in FILE:1'],
    ['ratelimit zone=z;', '"ratelimit zone=z": invalid "zone=z", expected the name of a "ratelimit_zone" in FILE:1'],
    ["$zone\nratelimit zone=z;\nratelimit off;", '"ratelimit off" excludes other "ratelimit" directives at the same level in FILE:4'],
    ["$zone ratelimit zone=z; ratelimit zone=z;", 'duplicate "ratelimit" of zone "z" in FILE:2'],
    ["$zone $zone ratelimit zone=z;", 'duplicate "ratelimit_zone" "z" in FILE:2'],
    ["$zone ratelimit zone=z burst=5;",
        '"ratelimit zone=z": invalid "burst=5", expected no burst, which only token_bucket, leaky_bucket and gcra have in FILE:2'],
    ["$zone server {\n location / { ratelimit zone=z nodelay; } }",
        '"ratelimit zone=z": invalid "nodelay", expected no delay, which only leaky_bucket has in FILE:3'],
    ["server {\n", 'unexpected end of file, expecting "}" in FILE:2'],
    ["}\n", 'unexpected "}" in FILE:1'],
    ["x \"y\"z;\n", 'unexpected "z" in FILE:1'],
    ["x 'y", 'unexpected end of file, expecting a quotation mark in FILE:1'],
    ["$zone location ~ '(' { ratelimit zone=z; }", qr/^invalid regular expression "\(" \(missing closing parenthesis\) in \S+:2$/],
    ['geo $v { 10.0.0.0/33 a; } ratelimit_zone $v zone=z rate=1r/s; ratelimit zone=z;', 'invalid network "10.0.0.0/33" in FILE:1'],
    ['include limits.conf;', qr/^blocks and includes are nested too deeply in \S+limits\.conf:1$/],
);
# Each value that nginx -t refuses, too.
push @errors, map { ["ratelimit_zone k zone=z $_->[0]; ratelimit zone=z;", qr/^"ratelimit_zone": invalid "\Q$_->[1]\E", expected /] }
    ['rate=1', 'rate=1'], ['rate=0r/s', 'rate=0r/s'], ['rate=1r/s algorithm=x', 'algorithm=x'], ['rate=1r/s burst=1', 'burst=1'],
    ['rate=1r/s burst=0 algorithm=token_bucket', 'burst=0'], ['rate=1r/s precision=1s', 'precision=1s'],
    ['rate=1r/s precision=2s algorithm=sliding_window_buckets', 'precision=2s'], ['rate=1r/s rate=1r/s', 'rate=1r/s'],
    ['rate=99999999r/s algorithm=sliding_window_log', 'rate=99999999r/s'], ['rate=1r/s what=x', 'what=x'], ['rate=1r/s block=x', 'block=x'],
    ['concurrency=0', 'concurrency=0'], ['concurrency=x', 'concurrency=x'], ['concurrency=1000000001', 'concurrency=1000000001'],
    ['concurrency=1 hold=0', 'hold=0'], ['concurrency=1 hold=25h', 'hold=25h'], ['rate=1r/s hold=1m', 'hold=1m'],
    map { ["concurrency=1 $_", $_] } 'rate=1r/s', 'algorithm=gcra', 'burst=1', 'precision=1s', 'lease=5', 'cache=off', 'block=1m';

# The message about a value that is out of range names the range, as that of nginx -t does.
push @errors, map { ["$_->[0]; ratelimit zone=z;", qr/^"ratelimit_zone": invalid "\Q$_->[1]\E", expected \Q$_->[2]\E in /] }
    (map { ["ratelimit_zone k zone=z rate=$_", "rate=$_", '1 to 1000000000 requests in 1s to 366d'] } '0r/s', '10r/400d', '1000000001r/s'),
    ['ratelimit_zone k zone=z rate=1r/s block=400d', 'block=400d', 'a time from 1s to 366d, such as 10m or 1h'],
    ['ratelimit_zone k zone=z rate=10r/m precision=5m algorithm=sliding_window_buckets', 'precision=5m', 'at most the window of the rate'],
    ['ratelimit_zone zone=z rate=1r/s', 'zone=z', 'the key first, such as $ratelimit_client'];

subtest 'one clear line says what cannot be followed, and where' => sub {
    my $log = log_file(line());
    for (@errors) {
        my ($conf, $expected) = @{$_};
        my ($exit, $out, $err) = rehearse(conf => $conf, logs => [$log]);
        isnt $exit, 0;
        is $out, '';
        my $file = folder() . '/limits.conf';
        if (ref $expected) {
            is scalar(() = $err =~ /\n/g), 1;
            like $err =~ s/^ratelimit-rehearse: |\n\z//gr, $expected;
        } else {
            is $err, 'ratelimit-rehearse: ' . $expected =~ s/FILE/$file/r . "\n";
        }
    }
    my ($exit, undef, $err) = rehearse(conf => "$zone location /a { ratelimit zone=z; } location /b { }",
        logs => [$log], options => ['--format', '$msec $remote_addr $args']);
    is $err, 'ratelimit-rehearse: locations have different limits, and the log format has no $request, $request_uri or $uri'
        . " to tell the location of a request\n";
};

subtest 'what cannot be followed is named, with its place' => sub {
    my $log = log_file(line());
    my $file = folder() . '/limits.conf';
    for (
        ['if ($geoip_city = x) { rewrite ^ /x last; } ratelimit zone=z;',
            "\"if\" is not followed in FILE:2: the variable \"\$geoip_city\" is not in the log format \"combined\", and cannot be computed from what is there, in FILE:2"],
        ['if (-f /maintenance) { rewrite ^ /x last; } ratelimit zone=z;', '"if" is not followed in FILE:2: this condition cannot be followed in FILE:2'],
        ['if (-f /srv/members$uri) { rewrite ^ /x last; } ratelimit zone=z;', '"if" is not followed in FILE:2: this condition cannot be followed in FILE:2'],
        ["location / {\nindex \$geoip_city.html; ratelimit zone=z; }",
            '"index" is not followed to "$geoip_city.html": the variable "$geoip_city" is not in the log format "combined", and cannot be computed from what is there, in FILE:3'],
        ["location / {\nerror_page 404 /\$geoip_city; ratelimit zone=z; }",
            '"error_page" is not followed to "/$geoip_city": the variable "$geoip_city" is not in the log format "combined", and cannot be computed from what is there, in FILE:3'],
        ["location / {\nlimit_req zone=own; ratelimit zone=z; }", '"limit_req" in FILE:3: there is no limit_req_zone of its name; what it refused is seen in $status'],
        ["limit_req_zone \$geoip_city zone=own:1m rate=1r/s;\nlimit_req zone=own; ratelimit zone=z;",
            '"limit_req" in FILE:3: the variable "$geoip_city" is not in the log format "combined", and cannot be computed from what is there, in FILE:2; what it refused is seen in $status'],
        ["limit_req_zone \$remote_addr zone=own:1m rate=1r/s;\nlimit_req zone=own; ratelimit zone=z;", '"limit_req" in FILE:3 counts milliseconds, and the log has no $msec: '
            . 'with a small burst it refuses more here than in nginx; which requests went on to other limits is seen in $status'],
        ['rewrite ^ /$geoip_city; ratelimit zone=z;',
            "\"rewrite\" is not followed in FILE:2: the variable \"\$geoip_city\" is not in the log format \"combined\", and cannot be computed from what is there, in FILE:2"],
        ["ratelimit zone=z; location /x { ratelimit off;\nif (\$arg_a) { set \$a 1; } if (\$arg_b) { return 404; } try_files \$uri /index.php; }",
            '"try_files" is followed where the "if" in FILE:3 holds, and nginx forgets it there'],
        ['set $args $args&c=$geoip_city; ratelimit zone=z; location /x { ratelimit off; try_files $uri /i.php?$args; }',
            "\"set\" is not followed in FILE:2: the variable \"\$geoip_city\" is not in the log format \"combined\", and cannot be computed from what is there, in FILE:2"],
        ["location / {\n access_by_lua_block { ngx.exit(403) }\n ratelimit zone=z; }", '"access_by_lua_block" is not followed in FILE:3'],
        ["location / {\n ratelimit_check peek;\n ratelimit zone=z; }", '"ratelimit_check" is not followed in FILE:3'],
        ["location / {\n modsecurity on;\n ratelimit zone=z; }", '"modsecurity" is not followed in FILE:3'],
        ["ratelimits zone=z;\nratelimit zone=z;", 'unknown directive "ratelimits" in FILE:2'],
    ) {
        my $report = report(conf => "$zone $_->[0]", logs => [$log]);
        is $report->{warnings}, 'ratelimit-rehearse: ' . $_->[1] =~ s/FILE/$file/gr . "\n";
        is $report->{limits}[0]{requests}, 1;
    }
    my $unknown = report(conf => "ratelimit_zone k zone=z rate=1r/d;\nlocation / {\n auth_basic x;\n deny 10.0.0.1; ratelimit zone=z; }",
        logs => [log_file("1795000000 /\n")], options => ['--format', '$msec $request_uri']);
    like $unknown->{warnings}, qr/^ratelimit-rehearse: "auth_basic" in \S+:3 is not followed: the log has no \$status$/m;
    like $unknown->{warnings}, qr/^ratelimit-rehearse: "allow" and "deny" of \S+:2 are not followed: the log has no \$remote_addr$/m;
};

subtest 'a condition that only answers is seen in the status' => sub {
    for my $condition ('-f /maintenance', '-d $request_filename', '$invalid_referer', '$geoip_city = x') {
        my $report = report(conf => "$zone if ($condition) { return 403; } ratelimit zone=z;", logs => [log_file(map { line(status => $_) } 200, 403, 429)]);
        is $report->{warnings}, '';
        is $report->{limits}[0]{requests}, 2;
        is $report->{requests}{rewrite}, 1;
    }
};

subtest 'captures are keys' => sub {
    is_deeply by_key("ratelimit_zone \$$_->[0] zone=z rate=1r/d; location ~ ^/(\\w+)/(?<two>\\w+) { $_->[1] ratelimit zone=z; }",
        paths('/a/b', '/a/b', '/a/c')), $_->[2] for
        ['1', '', { a => 3 }], ['2', '', { b => 2, c => 1 }], ['two', '', { b => 2, c => 1 }], ['{1}0', '', { a0 => 3 }],
        ['1', 'if ($uri ~ (.)$) { set $x 1; }', { b => 2, c => 1 }], ['1', 'rewrite ^/a/(b)$ /a/b break;', { b => 2 }],
        ['1', 'location /a/b { }', { a => 3 }];
};

subtest 'a body that is too long is answered before' => sub {
    my $too_large = sub {
        my ($conf, $format, @lines) = @_;
        my $report = report(conf => "$zone $conf location / { ratelimit zone=z; }", logs => [log_file(@lines)], options => ['--format', $format]);
        return "$report->{requests}{too_large} $report->{requests}{limits}";
    };
    my $format = '$msec "$request" $status $remote_addr';
    my @lines = map { qq{1795000000 "POST / HTTP/1.1" $_\n} } '200 a', '413 a', '200 a';
    is $too_large->('', $format, @lines), '1 2', 'the status tells it';
    is $too_large->('client_max_body_size 5000000000;', $format, @lines), '1 2', 'also of more than 2^32 bytes';
    is $too_large->('client_max_body_size 0;', $format, @lines), '0 3', 'unless every length is allowed';
    is $too_large->('', "$format \$upstream_status", map { s/\n/ 413\n/r } @lines), '0 3', 'or an upstream has answered it';
    @lines = map { qq{1795000000 "POST / HTTP/1.1" 413 a $_\n} } '-', 10, 2048, 2049;
    is $too_large->('client_max_body_size 2k;', "$format \$content_length", @lines), '1 3', '$content_length tells it exactly';
};

subtest 'missing includes are all named, and passed over' => sub {
    my $report = report(conf => "include mime.types;\n$zone include a/b.conf;\nserver {\n include c.conf;\n ratelimit zone=z; }", logs => [log_file(line())]);
    my $folder = folder();
    is $report->{warnings}, join '', map { "ratelimit-rehearse: \"include\" in $folder/limits.conf:$_->[0] is passed over, because \"$folder/$_->[1]\" cannot be read\n" }
        [1, 'mime.types'], [3, 'a/b.conf'], [5, 'c.conf'];
    is $report->{limits}[0]{requests}, 1;
    ok $report->{usable};
};

subtest 'every directive of the module is known' => sub {
    my @names = read_file(Ratelimit::Build::top() . '/doc/reference.md') =~ /^### (ratelimit\w*)$/mg;
    cmp_ok @names, '>=', 14;
    my $report = report(conf => "$zone ratelimit zone=z;\n" . join("\n", map { "# $_\nlocation /$_ { $_ off; }" } grep { !/^ratelimit_(?:zone|ipv6_prefix)$/ } @names),
        logs => [log_file(line())], options => ['--allow-unreached']);
    unlike $report->{warnings}, qr/unknown directive/;
};

subtest 'keys of split_clients, of a server name, and of set within if' => sub {
    my %count = %{ by_key('split_clients "$remote_addr-x" $v { 20% a; 0.5% b; 30.25% c; * d; } ratelimit_zone $v zone=z rate=1r/d; ratelimit zone=z;',
        map { line(ip => "10.0." . ($_ >> 8) . '.' . ($_ & 255)) } 0 .. 9_999) };
    my %share = (a => 2000, b => 50, c => 3025, d => 4925);
    cmp_ok abs($count{$_} - $share{$_}), '<', 200, "$_: $count{$_} of about $share{$_}" for sort keys %share;
    my $tenants = report(conf => 'ratelimit_zone $tenant zone=z rate=1r/d; server { server_name ~^(?<tenant>[^.]+)\.shop$; ratelimit zone=z; } server { server_name other; }',
        options => ['--format', '$msec $http_host'], logs => [log_file(map { "1795000000 $_\n" } qw(a.shop b.shop:80 A.shop other))]);
    is_deeply { map { $_->{key} => $_->{requests} } @{ $tenants->{limits}[0]{busiest} } }, { a => 2, b => 1 };
    my $named = report(conf => 'ratelimit_zone "$tenant:$server_name" zone=z rate=1r/d; ratelimit zone=z; server { server_name shop ~^(?<tenant>[^.]+)\.shop$; }'
            . 'server { server_name other ~^(?<tenant>[^.]+)\.other$; }', options => ['--format', '$msec $server_name $host'],
        logs => [log_file(map { "1795000000 $_\n" } 'shop shop', 'shop a.shop', 'shop b.shop', 'other a.other', 'other a.shop', 'other x')]);
    is_deeply { map { $_->{key} => $_->{requests} } @{ $named->{limits}[0]{busiest} } },
        { ':shop' => 1, 'a:shop' => 1, 'b:shop' => 1, 'a:other' => 1, ':other' => 2 }, 'by another name than the first, which nginx logs';
    is_deeply by_key('ratelimit_zone $v zone=z rate=1r/d; set $v other; if ($arg_x ~ ^(.)b$) { set $v "is $1"; } if ($arg_x = c) { set $v "$v c"; } ratelimit zone=z;',
        paths(map { "/?x=$_" } qw(ab ab zb c d))), { 'is a' => 2, 'is z' => 1, 'other c' => 1, other => 1 };
};

finish();

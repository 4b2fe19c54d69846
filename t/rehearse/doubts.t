# What ratelimit-rehearse makes of requests of which the log does not tell enough: files that were there or not, and a
# server that redirects to the one with limits.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(folder log_file line rehearse report);

my $zone = "ratelimit_zone \$remote_addr zone=z rate=1r/d;\n";

subtest 'what the log does not tell is counted, and the result is a range' => sub {
    my $limited = "ratelimit_zone \$remote_addr zone=z rate=2r/m algorithm=fixed_window;";
    my $warning = sub { my ($name, $line, $count) = @_; "ratelimit-rehearse: \"$name\" in @{[folder()]}/limits.conf:$line: the log does not tell of $count requests which files exist (log \$upstream_status to know)\n" };
    my @asked   = ((map { ['/style.css', 200] } 1 .. 4), (map { ['/app', 200] } 1 .. 3), ['/gone', 404]);
    my $conf    = "$limited\nlocation / { try_files \$uri \@app; } location \@app { ratelimit zone=z; proxy_pass http://x; }";
    my $log     = log_file(map { line(path => $_->[0], status => $_->[1]) } @asked);
    my $report  = report(conf => $conf, logs => [$log]);
    is $report->{warnings}, $warning->('try_files', 2, 7), 'a file cannot be answered with 404';
    is_deeply [@{ $report->{total} }{qw(requests refused doubtful)}], [4, 2, 7], 'a path such as /style.css is likely a file, every other none';
    is_deeply [@{ $report->{total}{refused_between} }, $report->{total}{may_meet}], [0, 6, 8], 'none of them reached the limit, or all did';
    like((rehearse(conf => $conf, logs => [$log]))[1], qr/^  refused       2 of 4 requests \(50 %\).*\n +between 0 and 6 of 8 that may meet a limit \(0 and 75 %\): the log does not tell enough of 7 requests$/m);
    $report = report(conf => $conf, options => ['--format', '$msec $remote_addr "$request" $status $upstream_status'],
        logs => [log_file(map { qq{1795000000 10.0.0.1 "GET $_->[0] HTTP/1.1" $_->[1] } . ($_->[0] eq '/style.css' ? "-\n" : "$_->[1]\n") } @asked)]);
    is $report->{warnings}, '';
    ok !exists $report->{total}{refused_between}, 'with $upstream_status there is no range';
    $report = report(conf => $conf, options => ['--format', '$msec $remote_addr "$request" $status $uri'], logs => [log_file(qq{1795000000 10.0.0.1 "GET /app HTTP/1.1" 200 /app\n})]);
    is $report->{total}{doubtful}, 1, 'a named location does not change $uri';
    for (['-f', 200], ['!-d', 301], ['-e', 200], ['-x', 200]) {
        my ($test, $status) = @{$_};
        $report = report(conf => "$limited\nlocation / { if ($test \$request_filename) { rewrite ^ /x last; } ratelimit zone=z; proxy_pass http://x; } location /x { }",
            logs => [log_file(line(path => '/a.css', status => $status))], options => ['--allow-unreached']);
        is $report->{warnings}, $warning->('if', 2, 1), $test;
    }
    $report = report(conf => "ratelimit_zone \$arg_k zone=k rate=1r/d;\n$limited\nlocation / { ratelimit zone=k; try_files \$uri \@app; } location \@app { ratelimit zone=z; proxy_pass http://x; }",
        logs => [log_file(map { line(path => $_) } '/app', '/app?k=1')], options => ['--allow-unreached']);
    is $report->{warnings}, $warning->('try_files', 3, 1), 'a limit whose key is empty does not answer it';
    $report = report(conf => "$limited\nlocation / { error_page 404 = \@app; } location \@app { ratelimit zone=z; proxy_pass http://x; }", logs => [log_file(map { line(path => '/app') } 1 .. 4)]);
    is $report->{warnings}, $warning->('error_page', 2, 4) =~ s/which files exist/whether there was the error/r;
    is_deeply [@{ $report->{total} }{qw(requests refused)}, @{ $report->{total}{refused_between} }], [4, 2, 0, 2];
};

subtest 'the page of an error that an upstream may have answered with' => sub {
    my $limited = 'ratelimit_zone $remote_addr zone=z rate=2r/m algorithm=fixed_window; location @other { ratelimit zone=z; proxy_pass http://y; }';
    my @asked   = (200, 200, 200, 404, 502);
    for (['error_page 502 504 = @other;', 4], ['error_page 404 = @other;', undef], ['proxy_intercept_errors on; error_page 404 = @other;', 4], ['error_page 502 @other;', undef]) {
        my ($pages, $doubtful) = @{$_};
        my $report = report(conf => "$limited location / { $pages proxy_pass http://x; }", logs => [log_file(map { line(status => $_) } @asked)], options => ['--allow-unreached']);
        is $report->{total}{doubtful}, $doubtful, "$pages: a status that `=` may have changed, and no other";
        next if !$doubtful;
        like $report->{warnings}, qr/^ratelimit-rehearse: "error_page" in \S+:1: the log does not tell of $doubtful requests whether there was the error \(log \$upstream_status to know\)$/;
        is_deeply [@{ $report->{total} }{qw(requests refused may_meet)}, @{ $report->{total}{refused_between} }], [1, 0, 5, 0, 3], 'the one with the status of the error met the limit, or all did';
    }
};

subtest 'a request that a limit may have refused then does not tell which files exist' => sub {
    my $limited = 'ratelimit_zone $remote_addr zone=z rate=2r/m algorithm=fixed_window;';
    my @format  = ('--format', '$msec $remote_addr "$request" $status $upstream_status');
    for (
        ['if (!-e $request_filename) { return 404; } ratelimit zone=z;', '/style.css', 429, 404],
        ['ratelimit_status 503; if (!-f $request_filename) { return 404; } ratelimit zone=z;', '/style.css', 503, 404],
        ['location / { try_files $uri $uri/ @app; } location ~ \.html$ { ratelimit zone=z; } location @app { proxy_pass http://x; }', '/docs/', 429, 403],
        ['ratelimit_status 503; location / { error_page 404 /page; } location /page { ratelimit zone=z; proxy_pass http://x; }', '/gone', 503, 200],
    ) {
        my ($conf, $path, @statuses) = @{$_};
        my @lines  = map { my $asked = $_; map { qq{1795000000 10.0.0.1 "GET $path HTTP/1.1" $asked -\n} } 1 .. 3 } @statuses;
        my $report = report(conf => "$limited\n$conf", logs => [log_file(@lines)], options => [@format, '--allow-unreached']);
        my @between = @{ $report->{total}{refused_between} // [$report->{total}{refused}, $report->{total}{refused}] };
        is $between[1], 1, "$conf: of three with the status of a refusal, one may be refused, and none of the others";
    }
};

subtest 'ways that open where limit_req decides otherwise than it did' => sub {
    my $conf = 'limit_req_zone $remote_addr zone=q:1m rate=1000r/s; ratelimit_zone $remote_addr zone=z rate=2r/d; limit_req zone=q burst=1000;
        location / { try_files $uri @app; } location @app { ratelimit zone=z; proxy_pass http://x; }';
    my @lines = map { qq{1795000000 10.0.0.1 "GET $_\n} } ('/page HTTP/1.1" 503 -') x 10, ('/api HTTP/1.1" 200 200') x 10, '/x HTTP/1.1" 400 -';
    my $report = report(conf => $conf, logs => [log_file(@lines)], options => ['--format', '$msec $remote_addr "$request" $status $upstream_status']);
    is_deeply $report->{total}{refused_between}, [0, 19], 'all before the first doubt may have met the limit, or none';
};

subtest 'a way that the configuration does not show' => sub {
    my $conf = 'ratelimit_zone $remote_addr zone=z rate=2r/m algorithm=fixed_window; location / { try_files $uri @app; } location @app { ratelimit zone=z; proxy_pass http://x; }';
    my @lines  = map { qq{1795000000 10.0.0.1 "GET /page HTTP/1.1" 200 200 $_\n} } ('/page') x 3, ('/files/x') x 2;
    my $report = report(conf => $conf, logs => [log_file(@lines)], options => ['--format', '$msec $remote_addr "$request" $status $upstream_status $uri', '--allow-unreached']);
    is $report->{warnings}, "ratelimit-rehearse: 2 requests, the first of which is /page 200, went a way that the configuration does not show: which limits they met is not known\n", 'X-Accel-Redirect';
    is_deeply [@{ $report->{total} }{qw(requests refused doubtful)}, @{ $report->{total}{refused_between} }], [5, 3, 2, 1, 3];
    @lines  = map { qq{1795000000 10.0.0.1 "$_\n} } 'TRACE /page HTTP/1.1" 405 - /page', map { qq{GET /page HTTP/1.1" $_ - /page} } 499, 502, 503;
    $report = report(conf => $conf, logs => [log_file(@lines)], options => ['--format', '$msec $remote_addr "$request" $status $upstream_status $uri', '--allow-unreached']);
    unlike $report->{warnings}, qr{went a way}, 'statuses that fit any way';
};

subtest 'a server that redirects to the one with limits' => sub {
    my $tls = 'server { listen 443 ssl; listen [::]:443 ssl http2; server_name shop.example; location / { ratelimit zone=z; proxy_pass http://x; } }';
    my $format = 'log_format full \'$remote_addr [$time_local] "$request" $status $host $scheme $upstream_status\';';
    my @answers = (['http', 301, '-'], ['https', 200, 200], ['https', 301, 301], ['https', 301, '-']);
    my @short   = map { "10.0.0.1 [18/Nov/2026:11:06:40 +0000] \"GET / HTTP/1.1\" $_->[1] shop.example $_->[0] $_->[2]\n" } @answers;
    my $common  = log_file(map { line(status => $_->[1]) } @answers);
    for my $plain ('server_name shop.example; return 301 https://$host$request_uri;', 'listen 80 default_server; return 301 https://$host$request_uri;',
        'listen [::]:80; server_name shop.example; location /.well-known/ { } location / { rewrite ^ https://$host$request_uri permanent; }',
        'server_name shop.example; if ($host = shop.example) { return 301 https://$host$request_uri; } return 404;') {
        my $conf = "$zone server { $plain } $tls";
        my $with = sub { my ($format, $log) = @_; return report(conf => "$conf $format", logs => [$log], options => ['--format', 'full']) };
        my $report = $with->($format, log_file(@short));
        is_deeply $report->{requests}, { %{ $report->{requests} }, limits => 3, rewrite => 1 }, "$plain: \$scheme tells";
        is $report->{warnings}, '';
        $report = $with->($format =~ s/ \$scheme//r, log_file(map { s/ https?//r } @short));
        is_deeply $report->{requests}, { %{ $report->{requests} }, limits => 2, rewrite => 2 }, 'else the status, where no upstream was asked';
        like $report->{warnings}, qr/: the server in \S+:2 may have answered 2 requests with a redirect \(log \$scheme to know\)$/;
        $report = report(conf => $conf, logs => [$common]);
        is_deeply $report->{requests}, { %{ $report->{requests} }, limits => 1, rewrite => 3 }, 'also if the log has no host';
    }
    for my $other ('server_name other.example; return 301 https://$host$request_uri; }', 'listen 80 default_server; access_log off; return 301 /x; }',
        'server_name shop.example; location / { } }', 'listen 443 ssl; server_name www.shop.example; return 301 /; }') {
        my $conf   = "$zone server { listen 80; server_name first; } server { $other $tls";
        my $report = report(conf => "$conf @{[$format =~ s/ \$scheme//r]}", logs => [log_file(map { s/ https?//r } @short)], options => ['--format', 'full']);
        is $report->{requests}{limits}, 4, "$other: it is none";
        is $report->{warnings}, '';
        $report = report(conf => "$conf $format", logs => [log_file(@short)], options => ['--format', 'full']);
        is $report->{requests}{limits}, 3, 'a server of TLS alone answers nothing else';
    }
};

finish();

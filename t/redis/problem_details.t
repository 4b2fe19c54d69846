# ratelimit_problem_details: the body of a refusal for programs (RFC 9457).
# needs: libprotocol-http2-perl

use JSON::PP qw(decode_json);
use Ratelimit::Test;

my $type = 'https://iana.org/assignments/http-problem-types#';

# Checks that a response is a whole problem with these members.
sub is_problem {
    my ($answer, $status, $name, $title, $policies, $what) = @_;
    is $answer->status, $status, $what;
    is $answer->header('Content-Type'), 'application/problem+json';
    is $answer->header('Content-Length') // length $answer->body, length $answer->body;
    is_deeply decode_json($answer->body || '{}'),
        { type => "$type$name", title => $title, status => $status, 'violated-policies' => $policies };
    return;
}

sub is_quota_exceeded {
    my ($answer, $status, $policies, $what) = @_;
    return is_problem($answer, $status, 'quota-exceeded', 'Quota Exceeded', $policies, $what);
}

# A node that counts in its own memory: zones "test" of 1r/d and "wide" of 3r/d; these lines of server {}.
sub local_node {
    my ($server, %options) = @_;
    return nginx(
        %options,
        http => <<"END" . ($options{http} // ''),
        ratelimit_zone k\$arg_k zone=test rate=1r/d algorithm=fixed_window;
        ratelimit_zone w\$arg_w zone=wide rate=3r/d algorithm=fixed_window;
        ratelimit_problem_details on;
END
        server => $server,
    );
}

subtest 'a refusal of Redis, of the denial cache and of memory is a problem that names its zone' => sub {
    my $node = node(
        zone   => 'rate=1r/d algorithm=fixed_window', location => 'ratelimit_problem_details on;',
        server => 'location /silent { ratelimit zone=test; try_files /index.html =404; }'
            . 'add_header X-Source $ratelimit_source always;',
    );
    is $node->get('/')->header('Content-Type'), 'text/html', 'an admitted response is unchanged';
    for my $source ('redis', 'cache') {
        my $answer = $node->get('/');
        is_quota_exceeded($answer, 429, ['test'], $source);
        is $answer->header('X-Source'), $source;
        cmp_ok $answer->header('Retry-After'), '>', 0;
        is $answer->header('X-RateLimit-Remaining'), 0;
    }
    like $node->get('/silent')->body, qr/<h1>429/, 'off is the default';
    my $local = local_node('ratelimit zone=test;');
    is $local->status('/'), 200;
    is_quota_exceeded($local->get('/'), 429, ['test'], 'local');
};

subtest 'problem details are inherited, can be switched off, and have the configured status' => sub {
    my $node = local_node(<<'END');
        ratelimit zone=test;
        location /off { ratelimit_problem_details off; try_files /index.html =404; }
        location /599 { ratelimit_status 599; try_files /index.html =404; }
        location /500 { ratelimit_status 500; try_files /index.html =404; }
        location /401 { ratelimit_status 401; try_files /index.html =404; }
        location /444 { ratelimit_status 444; try_files /index.html =404; }
END
    is $node->status('/off'), 200;
    like $node->get('/off')->body, qr/<h1>429/;
    is_quota_exceeded($node->get("/$_"), $_, ['test'], "status $_") for 599, 500, 401;
    my $socket = http_connect($node->port);
    http_send($socket, '/444');
    is http_read($socket), undef, 'with 444 the connection is closed, as by nginx';
};

subtest 'problem details name the refusing zones, and no others' => sub {
    my $node = local_node(
        'ratelimit zone=wide; ratelimit zone=test; ratelimit zone=quiet shadow; ratelimit zone=absent;',
        http => 'ratelimit_zone q zone=quiet rate=1r/d algorithm=fixed_window;'
            . 'ratelimit_zone $arg_none zone=absent rate=1r/d algorithm=fixed_window;',
    );
    is $node->status("/?k=$_"), 200 for 1 .. 2;
    is_quota_exceeded($node->get('/?k=1'), 429, ['test'], 'one');
    is $node->status('/?k=3'), 200;
    is_quota_exceeded($node->get('/?k=4'), 429, ['wide'], 'the other');
    is_quota_exceeded($node->get('/?k=1'), 429, ['wide', 'test'], 'both, in order');
};

subtest 'fail mode closed replies with a temporarily reduced capacity' => sub {
    my $node = nginx(
        http => "ratelimit_redis main { server 127.0.0.1:@{[ free_port() ]}; connect_timeout 50ms; }"
            . 'ratelimit_zone k zone=test rate=1r/d; ratelimit_zone k zone=other rate=1r/d;'
            . 'ratelimit_zone k zone=quiet rate=1r/d;',
        server => 'ratelimit zone=test; ratelimit zone=quiet shadow; ratelimit zone=other;'
            . 'ratelimit_fail_mode closed; ratelimit_problem_details on;'
            . 'location /status { ratelimit_fail_status 599; }'
            . 'location /page { error_page 503 /index.html; } location = /index.html { ratelimit off; }',
    );
    my @reduced = ('temporary-reduced-capacity', 'Temporary Reduced Capacity', ['test', 'other']);
    is_problem($node->get('/'), 503, @reduced);
    is_problem($node->get('/status'), 599, @reduced);
    like $node->get('/page')->body, qr/^(?!\{)/, 'an error page';
    is $node->get('/')->header('Retry-After'), undef;
};

subtest 'an error_page of the status replaces problem details, one of another status does not' => sub {
    my $node = local_node(<<'END');
        ratelimit zone=test;
        location /uri   { error_page 429 /page.html; }
        location /named { error_page 429 = @named; }
        location /away  { error_page 429 https://example.org/; }
        location /other { error_page 404 503 /page.html; }
        location /found { error_page 404 = @limited; try_files /absent =404; ratelimit off; }
        location /again { recursive_error_pages on; error_page 404 = @inner; try_files /absent =404; ratelimit off; }
        location @named { return 200 named; }
        location @inner { error_page 429 /page.html; try_files /index.html =404; }
        location @limited { error_page 429 /page.html; try_files /index.html =404; }
        location = /page.html { return 200 page; }
END
    is $node->status('/?k=all'), 200;
    is $node->get('/uri?k=all')->body, 'page';
    is $node->get('/named?k=all')->body, 'named';
    my $away = $node->get('/away?k=all');
    is $away->status . $away->header('Location'), '302https://example.org/';
    is_quota_exceeded($node->get('/other?k=all'), 429, ['test'], 'of another status');
    is $node->get('/again?k=all')->body, 'page', 'after another error page, where nginx follows both';
    is_quota_exceeded($node->get('/found?k=all'), 429, ['test'], 'where it follows the first alone');
    is $node->status('/found?k=once'), 200;
    is_quota_exceeded($node->get('/found?k=once'), 429, ['test'], 'counted once');
};

subtest 'in each phase, with satisfy any, and after an internal redirect' => sub {
    my $node = local_node(<<'END');
        location /early { ratelimit zone=test; ratelimit_phase preaccess; deny all; }
        location /any   { ratelimit zone=test; satisfy any; allow all; try_files /index.html =404; }
        location /try   { try_files /absent /inner; }
        location /inner { ratelimit zone=test; try_files /index.html =404; }
END
    for my $path (qw(early any try)) {
        is $node->status("/$path?k=$path"), $path eq 'early' ? 403 : 200, $path;
        is_quota_exceeded($node->get("/$path?k=$path"), 429, ['test'], $path) for 1 .. 2;
    }
};

subtest 'a dry run and a shadow limit change no answer' => sub {
    my $node = local_node('location /dry { ratelimit zone=test; ratelimit_dry_run on; try_files /index.html =404; }'
            . 'location /shadow { ratelimit zone=test shadow; try_files /index.html =404; }');
    is $node->status($_), 200, $_ for ('/dry') x 3, ('/shadow') x 3;
};

subtest 'connections stay open: HEAD has no body, bodies are not read, and no 100 Continue is sent' => sub {
    my $redis = redis();
    my $node = node(redis => $redis, zone => 'rate=1r/d algorithm=fixed_window cache=off',
        location => 'ratelimit_problem_details on;', http => "log_format v '\$status \$body_bytes_sent';",
        server => 'access_log details.log v;');
    is $node->status('/'), 200;
    my $length = length $node->get('/')->body;
    my $socket = http_connect($node->port);
    for my $method ('GET', 'HEAD', 'POST', 'HEAD', 'POST', 'GET') {
        http_send($socket, '/', method => $method, $method eq 'POST' ? (body => 'x' x 100_000) : ());
        my $answer = http_read($socket, $method);
        is $answer->status, 429, $method;
        is $answer->header('Content-Length'), $length;
        is length $answer->body, $method eq 'HEAD' ? 0 : $length;
    }
    http_send($socket, '/', method => 'POST', headers => ['Content-Length', 5, 'Expect', '100-continue']);
    is_quota_exceeded(http_read($socket), 429, ['test'], 'at once');
    wait_until('nine lines in the access log', sub { (() = $node->file('details.log') =~ /\n/g) == 9 });
    is join(' ', map { (split)[0] } (split /\n/, $node->file('details.log'))[1 .. 8]), '429 ' x 7 . '429';
    my $old = http_connect($node->port);
    print {$old} "GET / HTTP/1.0\r\n\r\n";
    is_quota_exceeded(http_read($old), 429, ['test'], 'HTTP/1.0');
};

subtest 'streams of HTTP/2, with bodies and without' => sub {
    my $node = node(zone => 'rate=1r/d algorithm=fixed_window', listen => 'http2',
        location => 'ratelimit_problem_details on;');
    is $node->{redis}->cmd('PING'), 'PONG';
    my ($passed) = http2($node->port, ['/']);
    is $passed->status, 200;
    is_quota_exceeded($_, 429, ['test'], 'a stream') for http2($node->port, [('/') x 4]);
    is_quota_exceeded($_, 429, ['test'], 'with a body')
        for http2($node->port, [('/') x 4], method => 'POST', body => 'x' x 10_000);
    my ($head) = http2($node->port, ['/'], method => 'HEAD');
    is $head->status . '|' . ($head->body // ''), '429|', 'HEAD';
};

finish();

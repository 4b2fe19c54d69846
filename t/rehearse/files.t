# Which files existed, as ratelimit-rehearse sees it: of all ways that a request can go, those are possible that end with the
# path, the status and the upstream that nginx logged.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(log_file report);

my $limited = 'ratelimit zone=z; proxy_pass http://x;';
my $program = "index index.php; location / { } location ~ \\.php\$ { $limited }";
my $pages   = "location / { try_files \$uri \$uri/ /index.php?\$args; } location = /index.php { proxy_pass http://x; } $program" =~ s/location \/ \{ \} //r;
my $named   = "location \@app { $limited }";
my $spa     = 'location / { error_page 404 =200 /index.html; } location = /index.html { ratelimit zone=z; }';

# What it is, a server, its request's path, $status, $upstream_status and $uri, and whether it met the limit.
my @cases = (
    ['a folder with a program as its index',  $pages, '/admin/', 200, 200, '/admin/index.php', 1],
    ['no folder: the last of try_files',      $pages, '/admin/', 200, 200, '/index.php', 0],
    ['a file of a location with an upstream', "location ~ \\.php\$ { try_files \$uri /index.php; proxy_pass http://x; } location = /index.php { $limited }", '/a.php', 200, 200, '/a.php', 0],
    ['a file with another name',              "location / { try_files \$uri \$uri.html \@app; } $named", '/page', 200, '-', '/page.html', 0],
    ['a folder without an index',             "location / { error_page 404 = \@app; } $named", '/dir/', 403, '-', '/dir/', 0],
    ['an index that answers 404',             $program, '/', 404, 404, '/index.php', 1],
    ['an index whose error has a page',       "proxy_intercept_errors on; error_page 500 /page.html; $program", '/', 500, 500, '/page.html', 1],
    ['an index that a limit refused',         "error_page 429 /page.html; $program", '/', 429, '-', '/page.html', 1],
    ['a refusal that its page hides',          "error_page 429 =404 /page.html; $program", '/', 404, '-', '/page.html', 1],
    ['the page of a file that is missing',    $spa, '/route', 200, '-', '/index.html', 1],
    ['a file that is there',                  $spa, '/style.css', 200, '-', '/style.css', 0],
    ['a folder that is redirected to',        "location / { try_files \$uri \$uri/ \@app; } $named", '/dir', 301, '-', '/dir', 0],
    ['`=404` of try_files',                   "location / { try_files \$uri =404; error_page 404 = \@app; } $named", '/none', 200, 200, '/none', 1],
    ['the page of an error that tries files', "proxy_intercept_errors on; location / { error_page 404 /page.html; proxy_pass http://y; } location = /page.html { try_files \$uri \@app; } $named", '/q', 404, 404, '/page.html', 0],
    ['a refusal whose page redirects',        "location / { try_files \$uri \$uri/ /index.php; } location ~ \\.php\$ { error_page 429 \@slow; $limited } location \@slow { return 302 /slow; }", '/d', 302, '-', '/index.php', 1],
    ['a failed password whose page is a URL', "location / { auth_basic x; error_page 401 https://sso/; $limited }", '/q', 302, '-', '/q', 0],
    ['a failed password with a limited page', "location / { auth_basic x; error_page 401 = /login; proxy_pass http://y; } location /login { $limited }", '/q', 200, 200, '/login', 1],
    ['a limited page that refused it',        "location / { auth_basic x; error_page 401 /login; proxy_pass http://y; } location /login { $limited }", '/q', 429, '-', '/login', 1],
    ['auth_request that fails',               "location / { auth_request /a; $limited } location /a { proxy_pass http://y; }", '/q', 500, '-', '/q', 0],
    ['the page of a malformed request',       "error_page 400 /page.html; location / { proxy_pass http://y; } location = /page.html { ratelimit zone=z; }", '/q', 400, '-', '/page.html', 1],
    ['the page of a plain request to TLS',    "error_page 497 /to.html; location / { proxy_pass http://y; } location = /to.html { ratelimit zone=z; }", '/q', 400, '-', '/to.html', 1],
    ['a handler without an upstream',         "location = / { empty_gif; } location / { ratelimit zone=z; }", '/', 200, '-', '/', 0],
    ['a folder that is listed',               "location / { autoindex on; } location ~ \\.html\$ { ratelimit zone=z; }", '/dir/', 200, '-', '/dir/', 0],
    ['the page of an error that redirects',   "location / { error_page 403 \@g; } location \@g { return 302 /login; } location = /a/index.html { $limited }", '/a/', 302, '-', '/a/', 0],
    ['a refusal of limit_conn',               "limit_conn c 1; error_page 404 /x; location / { $limited }", '/q', 503, '-', '/q', 0],
    ['limits before a failed password',       "location / { try_files \$uri \@app; } location \@app { ratelimit_phase preaccess; auth_basic x; $limited }", '/q', 401, '-', '/q', 1],
    ['limits before an address is refused',   "location / { } location = /index.html { ratelimit_phase preaccess; deny all; ratelimit zone=z; }", '/', 403, '-', '/index.html', 1],
    ['limit_conn_dry_run',                    "limit_conn c 1; limit_conn_dry_run on; location / { $limited }", '/q', 503, '-', '/q', 1],
);

# The same, where no log tells.
my @never_told = (
    ['a folder without an index beside it',   "location / { auth_request /a; ratelimit zone=z; } location /a { proxy_pass http://y; }", '/dir/', 403, '-', '/dir/', 1],
    ['a body that its client broke off',      "location / { $limited }", '/q', 400, '-', '/q', 1],
    ['a client that left in auth_request',    "location / { auth_request /a; $limited } location /a { proxy_pass http://y; }", '/q', 499, '-', '/q', 0],
    ['a malformed request',                   "location / { $limited }", '/q', 400, '-', '/q', 0],
    ['an error that is cached',               "proxy_cache c; proxy_intercept_errors on; location / { error_page 404 = \@app; proxy_pass http://y; } $named", '/q', 200, 200, '/q', 1],
);

# The same, where only the upstream tells.
my @by_upstream = (
    ['a status that auth_request has, too',   "location / { auth_request /a; $limited } location /a { proxy_pass http://y; }", '/q', 403, 403, '/q', 1],
    ['a client that left before the answer',  "location / { auth_request /a; $limited } location /a { proxy_pass http://y; }", '/q', 499, 499, '/q', 1],
    ['a protocol that nginx does not know',   "location / { $limited }", '/q', 505, '-', '/q', 0],
    ['a status that limit_conn has, too',     "limit_conn c 1; location / { $limited }", '/q', 503, 503, '/q', 1],
);

# The requests that a limit of one refuses of three such requests, at least and at most.
sub refused_between {
    my ($format, $server, @line) = @_;
    my $log   = log_file(map { qq{1795000000 10.0.0.1 "GET $line[0] HTTP/1.1" $line[1] $line[2] $line[3]\n} } 1 .. 3);
    my $total = report(conf => "ratelimit_zone \$remote_addr zone=z rate=1r/d algorithm=fixed_window; server { $server }", logs => [$log],
        options => ['--allow-unreached', '--format', $format])->{total};
    return @{ $total->{refused_between} // [$total->{refused}, $total->{refused}] };
}

subtest 'a log with all of it tells' => sub {
    for (@cases, @by_upstream) {
        my ($name, $server, @line) = @{$_};
        my $met = pop @line;
        is_deeply [refused_between('$msec $remote_addr "$request" $status $upstream_status $uri', $server, @line)], [(2 * $met) x 2], $name;
    }
};

subtest 'with less of it, the range has the result' => sub {
    for my $format ('$status $upstream_status $uri', '$status $upstream_status $other', '$status $other $uri') {
        for (@cases, @never_told) {
            my ($name, $server, @line) = @{$_};
            my $refused = 2 * pop @line;
            my ($least, $most) = refused_between("\$msec \$remote_addr \"\$request\" $format", $server, @line);
            ok $least <= $refused && $refused <= $most, "$format: $name" or diag "$refused is not in $least-$most";
        }
    }
};

subtest 'a refusal that may be of limit_conn or of the module' => sub {
    my $server = "limit_conn c 1; limit_conn_status 429; location / { $limited }";
    is_deeply [refused_between('$msec $remote_addr "$request" $status $upstream_status $uri', $server, '/q', 429, '-', '/q')], [0, 2];
    is_deeply [refused_between('$msec $remote_addr "$request" $status $upstream_status $uri', $server =~ s/429/444/r, '/q', 429, '-', '/q')], [2, 2];
};

finish();

# ratelimit-rehearse beside nginx, as in rehearsal.t: configurations as sites have them.
# needs: gcc libc6-dev

use Ratelimit::BesideNginx qw(same requests compared);
use Ratelimit::Test;

my $zones = 'ratelimit_zone $remote_addr zone=z rate=6r/m; ratelimit_zone $remote_addr zone=y rate=9r/m algorithm=gcra burst=4;'
    . 'log_format full \'$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" \''
    . ' \'"$http_host" $upstream_status "$http_x_api_key" $content_length\';';

# Sends 400 requests to these paths and compares.
sub site {
    my ($what, $server, $paths, %o) = @_;
    return same($what, format => 'full', options => ['--format', 'full', '--allow-unreached'], http => $zones . ($o{http} // ''),
        server => $server, requests => [requests(400, @{$paths})], refused => $o{refused});
}

srand 2824;

site('a PHP framework with a front controller', <<'END', [qw(/ /users /users?page=2 /users/7/edit /index.php /index.php/route /style.css /none.css /favicon.ico /docs/ /docs /empty/ /.env /.well-known/x /robots.txt /admin.php)]);
    index index.php;
    charset utf-8;
    location / { try_files $uri $uri/ /index.php?$query_string; }
    location = /favicon.ico { access_log off; log_not_found off; ratelimit off; }
    location = /robots.txt { ratelimit zone=z; }
    error_page 404 /index.php;
    location ~ \.php(/|$) { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location ~ /\.(?!well-known).* { deny all; }
END

site('a reverse proxy with auth_request', <<'END', ['/', '/app', '/public/x', '/public/missing', '/oauth2/start', '/oauth2/auth', '/api/me', { line => 'OPTIONS /api/me HTTP/1.1' }]);
    location /oauth2/ { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location = /oauth2/auth { internal; proxy_pass http://UPSTREAM; proxy_pass_request_body off; }
    location = /oauth2/login { internal; proxy_pass http://UPSTREAM/login; }
    location / { auth_request /oauth2/auth; error_page 401 =302 /oauth2/start; ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /api/ { auth_request /oauth2/login; ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /public/ { auth_request off; ratelimit zone=y; proxy_pass http://UPSTREAM; }
END

site('pages of errors, one behind another', <<'END', [qw(/shop/a /shop/missing /single/missing /double/missing /docs/a.png /old/x /gone)]);
    recursive_error_pages on;
    proxy_intercept_errors on;
    location /shop/ { error_page 404 = @archive; proxy_pass http://UPSTREAM; }
    location @archive { ratelimit zone=z; error_page 404 = @last; proxy_pass http://UPSTREAM; }
    location @last { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /single/ { recursive_error_pages off; error_page 404 = @unlimited; proxy_pass http://UPSTREAM; }
    location /double/ { error_page 404 = @unlimited; proxy_pass http://UPSTREAM; }
    location @unlimited { error_page 404 = @last; proxy_pass http://UPSTREAM; }
    location /old/ { error_page 404 /gone; return 404; }
    location /gone { error_page 410 /sorry; return 410; }
    location /sorry { ratelimit zone=z; proxy_pass http://UPSTREAM; }
END

site('a static site', <<'END', [qw(/none /none /none.css / /about /about.html /docs/ /docs /docs/a.png /style.css /none /none.css /feed /404.html)]);
    index index.html;
    error_page 404 /404.html;
    location / { try_files $uri $uri.html $uri/ =404; }
    location = /404.html { internal; ratelimit zone=z; }
    location ~* \.(css|png)$ { expires 30d; ratelimit zone=y; try_files $uri =404; }
    location = /feed { return 301 /feed.xml; }
END

site('an application of one page', <<'END', [qw(/ /cart /cart/7 /style.css /assets/x.css /index.html /api/cart /api/missing)]);
    location / { try_files $uri $uri/ /index.html; }
    location = /index.html { ratelimit zone=y; add_header Cache-Control no-store; }
    location /assets/ { try_files $uri =404; }
    location /api/ { ratelimit zone=z; proxy_pass http://UPSTREAM; }
END

my @keys = map { +{ line => "GET $_->[0] HTTP/1.1", headers => $_->[1] eq '' ? '' : "X-Api-Key: $_->[1]\r\n" } }
    map { my $path = $_; map { [$path, $_] } 'gold-1', 'free-1', 'free-2', 'bad', '' } '/v1/items', '/v1/items/3', '/v2/search?q=x', '/health';
site('an API gateway with keys from maps', <<'END', [@keys, map { +{ %{$_}, line => $_->{line} =~ s/GET/POST/r } } @keys], http => <<'END2');
    if ($refuse) { return 401; }
    location /v1/ { ratelimit zone=plan; ratelimit zone=writes; proxy_pass http://UPSTREAM/; }
    location /v2/ { ratelimit zone=plan cost=$cost; proxy_pass http://UPSTREAM; }
    location = /health { access_log off; return 200; }
END
    map $http_x_api_key $plan { default ""; ~^gold- gold; ~^free- free; }
    map $plan $rate { gold 60r/m; free 4r/m; default 1r/m; }
    map "$plan:$uri" $refuse { default 0; ~^:/health 0; ~^: 1; }
    map $uri $cost { default 1; ~search 3; }
    map $request_method $writer { default ""; POST $http_x_api_key; }
    ratelimit_zone $http_x_api_key zone=plan rate=$rate;
    ratelimit_zone $writer zone=writes rate=3r/m algorithm=token_bucket burst=2;
END2

site('lists of allowed networks', <<'END', [qw(/ /admin /admin/x /status /internal /partner/x /partner/login)], http => <<'END2');
    if ($blocked) { return 444; }
    location / { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /admin { if ($office = 0) { return 403; } ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /status { allow 192.0.2.0/30; allow 10.0.0.0/8; deny all; ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /internal { internal; ratelimit zone=y; }
    location /partner/ { satisfy any; allow 192.0.2.5; deny all; auth_request /ask; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location = /ask { internal; proxy_pass http://UPSTREAM/login; }
END
    geo $office { default 0; 192.0.2.1 1; 192.0.2.4/31 1; }
    geo $blocked { default 0; 192.0.2.6 1; }
END2

my @bodies = map { +{ line => "POST $_->[0] HTTP/1.1", headers => "Content-Length: $_->[1]\r\n", body => 'x' x $_->[1] } }
    ['/upload/a', 10], ['/upload/a', 1024], ['/upload/a', 1025], ['/big/a', 3000], ['/any/a', 3000], ['/page', 3000], ['/items', 5];
site('bodies and methods', <<'END', [@bodies, qw(/upload/a /items /items/3), map { +{ line => "$_ /items HTTP/1.1" } } qw(PUT DELETE HEAD PATCH)]);
    client_max_body_size 1k;
    error_page 413 = @large;
    location /upload/ { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /big/ { client_max_body_size 1m; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /any/ { client_max_body_size 0; ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /page { error_page 413 /too-large; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /too-large { ratelimit zone=y; return 413 "too large"; }
    location @large { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /items { limit_except GET POST { allow 192.0.2.1; allow 192.0.2.2; deny all; } ratelimit zone=z; proxy_pass http://UPSTREAM; }
END

site('rewritten addresses', <<'END', [qw(/blog/wp-login.php /wp-login.php /blog/about /blog/style.css /style.css /old/5 /old/6.html /item-7-blue /dir/ /docs/ /docs/a.png /m/page /none), { line => 'GET /page HTTP/1.1', headers => "User-Agent: Mobile\r\n" }, '/page']);
    rewrite ^(/[^/]+)?(/wp-.*) $2 last;
    rewrite ^/item-(\d+)-(\w+)$ /shop.php?id=$1&colour=$2;
    if ($http_user_agent ~* mobile) { rewrite ^/page$ /m/page break; }
    location / { if (!-e $request_filename) { rewrite ^ /front.php last; } }
    location /old/ { rewrite ^/old/(\d+)$ /shop.php?id=$1? break; rewrite ^ /front.php last; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /m/ { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location ~ \.php$ { ratelimit zone=y; proxy_pass http://UPSTREAM; }
END

site('locations in locations', <<'END', [qw(/users/ann/ /users/ann/posts /users/bob/posts /users/bob/a.png /users/ /static/a.php /static/deep/x /api/v1/x /api/v1/x.json /api/v2/y /x.json)], http => <<'END2');
    location ~ ^/users/(\w+)/ { ratelimit zone=user; proxy_pass http://UPSTREAM; location ~ /posts$ { ratelimit zone=owner; proxy_pass http://UPSTREAM; } location ~ \.png$ { } }
    location ^~ /static/ { ratelimit zone=z; location /static/deep/ { ratelimit off; } }
    location /api/ { ratelimit zone=z; location ~ \.json$ { ratelimit zone=y; proxy_pass http://UPSTREAM; } location /api/v2/ { deny 192.0.2.2; proxy_pass http://UPSTREAM; } proxy_pass http://UPSTREAM; }
    location ~ \.php$ { ratelimit zone=y; }
    location / { }
END
    ratelimit_zone $1 zone=user rate=7r/m; ratelimit_zone $remote_addr$1 zone=owner rate=2r/m;
END2

site('files, and a program for the others', <<'END', [qw(/docs /docs/ /style.css /none /none.css /empty /about.html /missing)]);
    index index.html;
    error_page 404 = @program;
    location @program { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location ~ \.css$ { ratelimit zone=z; }
END

site('keys of captures, after regular expressions that do not match', <<'END', [qw(/users/ann/ /users/bob/x /teams/ann/ /teams/bob /shops/ann /shops/bob)], http => 'ratelimit_zone $1 zone=capture rate=3r/m;');
    location ~ ^/users/(\w+) { rewrite ^/none /x; ratelimit zone=capture; proxy_pass http://UPSTREAM; }
    location ~ ^/teams/(\w+) { if ($http_user_agent ~ none) { set $unused 1; } ratelimit zone=capture; proxy_pass http://UPSTREAM; }
    location ~ ^/shops/(\w+) { ratelimit zone=capture; proxy_pass http://UPSTREAM; }
END

site('keys of addresses as they were sent', <<'END', ['/a', '/a?', '/a?x', '/a#f', '/%61', '//a', '/', '/?x', 'GET http://localhost/a?x HTTP/1.1', 'GET http://localhost HTTP/1.1', 'GET http://localhost?x HTTP/1.1'], http => 'ratelimit_zone $request_uri zone=sent rate=3r/m;');
    location / { ratelimit zone=sent; proxy_pass http://UPSTREAM; }
END

diag compared();
finish();

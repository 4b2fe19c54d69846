# ratelimit-rehearse beside nginx: the requests of logs are sent to a real nginx with the module, whose clock
# the test moves to each line's time. What nginx then did with each request, ratelimit-rehearse says of the
# log that this nginx wrote, line by line.
# needs: gcc libc6-dev

use Ratelimit::BesideNginx qw(same requests faster compared);
use Ratelimit::Test;

# What a log needs besides the combined format, to tell which files exist and whether there was a Host.
my $detailed = 'log_format detailed \'$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent \''
    . ' \'"$http_referer" "$http_user_agent" "$http_host" $upstream_status\';';
my @detailed = (format => 'detailed', options => ['--format', 'detailed']);

my $zones = $detailed . 'ratelimit_zone $remote_addr zone=z rate=6r/m; ratelimit_zone $remote_addr zone=y rate=9r/m algorithm=gcra burst=4;';

srand 28;
my @requests;

@requests = requests(500, qw(/ /in /in/x /none /.git/config /any /write /pre /inherit/ /inherit/own),
        'POST /write HTTP/1.1', 'HEAD /write HTTP/1.1', { line => 'GET / HTTP/1.1', ip => '2001:db8::5' }, { line => 'GET /in HTTP/1.1', ip => '2001:db8::5' });
same('allow, deny, satisfy and limit_except', http => $zones, requests => [@requests], server => <<'END');
    location / { ratelimit zone=z; }
    location /in { allow 192.0.2.1; allow 192.0.2.4/31; allow 2001:db8::/32; deny all; ratelimit zone=z; }
    location /none { deny all; ratelimit zone=z; }
    location ~ /\. { deny all; ratelimit zone=z; }
    location /any { satisfy any; allow 192.0.2.2; deny all; ratelimit zone=y; }
    location /write { ratelimit zone=y; limit_except GET { allow 192.0.2.3; deny all; } }
    location /pre { ratelimit_phase preaccess; deny 192.0.2.5; ratelimit zone=y; }
    location /inherit/ { deny 192.0.2.6; location /inherit/own { deny 192.0.2.1; ratelimit zone=z; } location /inherit/ { ratelimit zone=z; } }
END

@requests = requests(400, '/', '/basic', '/asked', { line => 'GET /basic HTTP/1.1', headers => "Authorization: Basic YW5uOnNlY3JldA==\r\n" },
        { line => 'GET /any HTTP/1.1' }, { line => 'GET /any HTTP/1.1', headers => "Authorization: Basic YW5uOnNlY3JldA==\r\n" });
same('auth_basic and auth_request', http => $zones, requests => [@requests], server => <<'END');
    location / { ratelimit zone=z; }
    location /basic { auth_basic x; auth_basic_user_file USERS; ratelimit zone=z; }
    location /any { satisfy any; allow 192.0.2.2; deny all; auth_basic x; auth_basic_user_file USERS; ratelimit zone=y; }
    location /asked { auth_request /login; ratelimit zone=y; }
    location = /login { internal; proxy_pass http://UPSTREAM; }
END

@requests = requests(600, qw(/ /blog/post /blog/post?p=1 /index.php /index.php?x /other.php /style.css /about.html /docs/ /docs/a.png
        /missing.png /missing/page /wp-login.php /.htaccess));
same('the usual PHP site', @detailed, http => $zones, requests => [@requests], server => <<'END');
    index index.php index.html;
    location / { try_files $uri $uri/ /index.php?$args; }
    location ~ /\.ht { deny all; }
    location = /wp-login.php { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location ~ \.php$ { ratelimit zone=y; proxy_pass http://UPSTREAM; }
END

@requests = requests(600, qw(/ /app /app/x /style.css /about.html /files/nothing /files/style.css /secret /gone /old/nothing /old/none.css /docs/a.png /boom));
same('try_files with a named location, and error_page', @detailed, http => $zones, requests => [@requests], server => <<'END');
    error_page 404 /404page;
    location / { try_files $uri @app; }
    location @app { ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /files/ { }
    location /old/ { error_page 404 = @app; }
    location /secret { deny all; error_page 403 = @app; }
    location /gone { return 410; error_page 410 = @app; }
    location /404page { ratelimit zone=y; return 404 "none"; }
    location /boom { error_page 418 = @app; if ($request_method = GET) { return 418; } }
END

@requests = requests(800, qw(/old/a /old/b?x=1 /new/c /stay/x /moved /loop /t/ann/x /t/bob /t/ann?v=2
        /break/x /plain /mobile /chain/1 /flag?f=1 /flag?f=0 /flag), 'POST /plain HTTP/1.1', { line => 'GET /mobile HTTP/1.1', headers => "User-Agent: Mobile\r\n" });
same('rewrite, if, set and return', http => $zones . 'ratelimit_zone $tenant zone=t rate=4r/m;', requests => [@requests], server => <<'END');
    if ($request_method = POST) { return 405; }
    if ($uri ~ ^/old/) { rewrite ^/old/(.*)$ /new/$1 last; }
    rewrite ^/chain/(\d)$ /chain2/$1;
    rewrite ^/chain2/ /new/chain;
    location / { ratelimit zone=z; }
    location /new/ { ratelimit zone=y; }
    location /stay/ { rewrite ^/stay/(.*)$ /new/$1 break; ratelimit zone=z; }
    location /moved { rewrite ^ /new/ permanent; ratelimit zone=z; }
    location /loop { rewrite ^ /loop last; ratelimit zone=z; }
    location /break/ { break; rewrite ^ /new/ last; ratelimit zone=z; }
    location /t/ { set $tenant none; if ($uri ~ ^/t/(?<who>[a-z]+)) { set $tenant $who; } if ($arg_v) { set $tenant "$tenant-$arg_v"; } ratelimit zone=t; }
    location /mobile { set $agent desktop; if ($http_user_agent ~* mobile) { set $agent phone; } if ($agent = phone) { rewrite ^ /new/phone last; } ratelimit zone=z; }
    location /flag { if ($arg_f) { return 204; } ratelimit zone=z; }
END

@requests = requests(700, qw(/api /api/ /api/x /exact /exact/ /internal/x / //slashes //api/x /a/../api/x /%61pi/y /..), 'TRACE / HTTP/1.1', 'CONNECT /api/ HTTP/1.1',
        'OPTIONS /api/ HTTP/1.1', 'FOO /api/ HTTP/1.1', 'GET /api/', 'POST /api/', 'GET /api/ HTTP/1.12', 'GET /api/ HTTP', 'GET /api/x%00 HTTP/1.1', 'GET api HTTP/1.1',
        'GET http://localhost/api/z HTTP/1.1', { line => 'GET /api/ HTTP/1.1', host => '' }, { line => 'GET /api/ HTTP/1.0', host => '' });
same('what nginx answers by itself', @detailed, http => $zones, requests => [@requests], server => <<'END');
    location / { ratelimit zone=z; }
    location /api/ { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location = /exact/ { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /internal/ { internal; ratelimit zone=z; }
END

# Made after the configurations that WordPress and nginx-boilerplate publish, with a limit of each algorithm. Blocks in
# memory last their time by the monotonic clock.
@requests = requests(800, qw(/ /index.php /2026/11/hello/ /wp-login.php /wp-admin/ /wp-admin/admin-ajax.php?action=x /wp-json/v2/posts
    /wp-content/uploads/x.php /wp-content/a.css /xmlrpc.php /feed/ /?s=find /.git/config /readme.html /cart/?add=3), 'POST /wp-login.php HTTP/1.1',
    { line => 'GET /wp-json/v2/posts HTTP/1.1', headers => "User-Agent: GoodBot\r\n" });
same('a WordPress site with limits of each algorithm', @detailed, monotonic => 1, requests => [@requests], http => $zones . <<'END', server => <<'END2');
    map $http_user_agent $bot { default ""; ~*bot $remote_addr; }
    map $request_method $tries { default ""; POST $remote_addr; }
    geo $trusted { default 0; 192.0.2.6 1; }
    map $trusted $client { 0 $remote_addr; 1 ""; }
    map $kind $room { search 50%; default ""; }
    ratelimit_zone $tries   zone=login  rate=3r/m algorithm=sliding_window_log block=30s;
    ratelimit_zone $client  zone=json   rate=5r/m algorithm=token_bucket burst=4;
    ratelimit_zone $bot     zone=bots   rate=2r/m algorithm=fixed_window;
    ratelimit_zone $client  zone=search rate=4r/30s algorithm=sliding_window_buckets precision=5s;
    ratelimit_zone $client  zone=pages  rate=20r/m algorithm=leaky_bucket burst=3;
END
    index index.php;
    location / { try_files $uri $uri/ /index.php?$args; }
    location = /xmlrpc.php { deny all; }
    location ~ /\. { deny all; }
    location ~* /uploads/.*\.php$ { deny all; }
    location ^~ /wp-json/ { ratelimit zone=json cost=2 reserve=25%; ratelimit zone=bots; rewrite ^ /index.php break; proxy_pass http://UPSTREAM; }
    location = /wp-login.php { ratelimit zone=login; proxy_pass http://UPSTREAM; }
    location /wp-admin/ { allow 192.0.2.1; deny all; location ~ \.php$ { ratelimit zone=pages burst=1 nodelay; proxy_pass http://UPSTREAM; } try_files $uri /index.php; }
    location /cart/ { if ($arg_add) { rewrite ^ /index.php?cart=$arg_add last; } }
    location ~ \.php$ { set $kind page; if ($args ~ "(^|&)s=") { set $kind search; } ratelimit zone=pages nodelay reserve=$room; ratelimit zone=search reserve=1; proxy_pass http://UPSTREAM; }
END2

@requests = requests(600, map { my $host = $_; map { { line => $_, host => $host } } 'GET / HTTP/1.1', 'GET /api/x HTTP/1.1' } qw(
    shop.example SHOP.example:8080 shop.example. www.shop.example a.www.shop.example mail.example mail.other.net b.mail.example
    t1.tenants.example t22.tenants.example t1.tenants.example.org other.net [2001:db8::1]:80 x.both.example both.example));
my @hosts = ({ line => 'GET / HTTP/1.0', host => '' }, { line => 'GET http://shop.example/ HTTP/1.1', host => 'other.net' },
    { line => 'GET / HTTP/1.1', host => '' }, { line => 'GET / HTTP/1.1', host => 'a b' }, { line => 'GET / HTTP/1.1', host => 'shop/x' });
push @requests, map { +{ t => $requests[-1]{t} + $_, ip => '192.0.2.1', %{ $hosts[$_ % 5] } } } 0 .. 59;
my $several = <<'END';
    server { LISTEN_DEFAULT server_name fallback; location / { ratelimit zone=y; } }
    server { LISTEN server_name shop.example; location / { ratelimit zone=z; } location /api/ { ratelimit zone=y; } }
    server { LISTEN server_name *.shop.example; ratelimit zone=y; location / { } }
    server { LISTEN server_name mail.*; location / { } location /api/ { ratelimit zone=z; } }
    server { LISTEN server_name ~^(?<tenant>t\d+)\.tenants\.example$; ratelimit zone=t; location / { } location ~ ^/api/(.*) { ratelimit zone=one; } }
    server { LISTEN server_name ~^t(\d+)\.tenants\. mail.example; ratelimit zone=one; location / { } }
    server { LISTEN server_name .both.example; deny 192.0.2.3; location / { ratelimit zone=z; } }
    server { LISTEN server_name ""; location / { ratelimit zone=z; } }
END
my $tenants = $zones . 'ratelimit_zone $tenant zone=t rate=8r/m; ratelimit_zone $1 zone=one rate=5r/m;';
same('several servers by $http_host', @detailed, http => $tenants, requests => [@requests], servers => $several);
same('several servers by $server_name', http => "$tenants log_format named '\$time_iso8601 \$remote_addr \"\$request\" \$status \$server_name \$upstream_status \$http_host';",
    format => 'named', options => ['--format', 'named'], requests => [@requests], servers => $several);

# nginx's own limits, with its monotonic clock moved, too.
my $own = 'limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req_zone $binary_remote_addr zone=b:1m rate=30r/m;'
    . 'limit_req_zone $server_name zone=c:1m rate=2r/s; limit_req_zone $arg_k zone=k:1m rate=7r/m; limit_req_zone $binary_remote_addr zone=d:1m rate=2r/s;'
    . 'log_format timed \'$msec $request_time $remote_addr "$request" $status $upstream_status\';';
my @timed = (monotonic => 1, http => $zones . $own, format => 'timed', options => ['--format', 'timed', '--arrival']);

@requests = faster(5, requests(900, qw(/one /burst /two /two /dry /both /pre /status /keys?k=1 /keys?k=2 /keys /none /inherited /off /closed)));
same('limit_req', @timed, requests => [@requests], refused => 100, server => <<'END');
    limit_req zone=a burst=2 nodelay;
    location /inherited { proxy_pass http://UPSTREAM; }
    location /one { limit_req zone=a; proxy_pass http://UPSTREAM; }
    location /burst { limit_req zone=a burst=3 nodelay; proxy_pass http://UPSTREAM; }
    location /two { limit_req zone=b burst=2 nodelay; limit_req zone=c burst=5 nodelay; proxy_pass http://UPSTREAM; }
    location /dry { limit_req zone=b; limit_req_dry_run on; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /both { limit_req zone=b burst=4 nodelay; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /pre { ratelimit_phase preaccess; limit_req zone=b burst=1 nodelay; ratelimit zone=z; proxy_pass http://UPSTREAM; }
    location /status { limit_req zone=a; limit_req_status 429; error_page 429 = /busy; proxy_pass http://UPSTREAM; }
    location /busy { ratelimit zone=y; proxy_pass http://UPSTREAM; }
    location /keys { limit_req zone=k burst=1 nodelay; proxy_pass http://UPSTREAM; }
    location /closed { limit_req zone=b burst=1 nodelay; deny all; }
    location /none { return 204; }
END
@requests = faster(60, requests(300, qw(/delay /some /hasty)));
same('limit_req that delays', @timed, waits => 1, requests => [@requests], server => <<'END');
    location /delay { limit_req zone=d burst=3; proxy_pass http://UPSTREAM; }
    location /some { limit_req zone=d burst=4 delay=2; proxy_pass http://UPSTREAM; }
    location /hasty { limit_req zone=a burst=1 nodelay; limit_req zone=c burst=8; proxy_pass http://UPSTREAM; }
END

diag compared();

finish();

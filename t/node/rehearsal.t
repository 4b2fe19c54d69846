# ratelimit-rehearse beside nginx: the requests of logs are sent to a real nginx with the module, whose clock
# the test moves to each line's time. What nginx then did with each request, ratelimit-rehearse says of the
# log that this nginx wrote, line by line.
# needs: gcc libc6-dev

use Ratelimit::Rehearse qw(rehearse);
use Ratelimit::Test;
use Ratelimit::Process qw(temp_folder);

use IO::Socket::INET;

my $start = 1_795_000_000;
my $moved = moved_clock();

# A library that gives a process the time in a file, in microseconds since the epoch: (library, file).
sub moved_clock {
    my $folder = temp_folder();
    write_file("$folder/clock.c", <<'END');
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now;

__attribute__((constructor)) static void open_clock(void)
{
    int file = open(getenv("MOVED_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*now), PROT_READ, MAP_SHARED, file, 0);
    now = at == MAP_FAILED ? NULL : at;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (now == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) {
        return (int)syscall(SYS_clock_gettime, clock, out);
    }
    out->tv_sec = *now / 1000000;
    out->tv_nsec = *now % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    out->tv_sec = time.tv_sec;
    out->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now_spec;
    clock_gettime(CLOCK_REALTIME, &now_spec);
    if (out != NULL) {
        *out = now_spec.tv_sec;
    }
    return now_spec.tv_sec;
}
END
    system('cc', '-shared', '-fPIC', '-O1', '-o', "$folder/clock.so", "$folder/clock.c") == 0 or die 'cc';
    write_file("$folder/now", pack 'q', $start * 1_000_000);
    return { library => "$folder/clock.so", file => "$folder/now", folder => $folder };
}

sub set_clock {
    my ($seconds) = @_;
    open my $file, '+<:raw', $moved->{file} or die $!;
    syswrite $file, pack 'q', ($start + $seconds) * 1_000_000;
    close $file or die $!;
    return;
}

# The files that the servers have, and an upstream that answers as the path says.
sub start_nginx {
    my (%conf) = @_;
    my $upstream = free_port();
    my $folder   = temp_folder();
    my $server   = $conf{server} =~ s/UPSTREAM/127.0.0.1:$upstream/gr =~ s/USERS/$folder\/users/gr;
    local @ENV{qw(LD_PRELOAD MOVED_CLOCK ASAN_OPTIONS)} =
        ($moved->{library}, $moved->{file}, join ':', 'verify_asan_link_order=0', $ENV{ASAN_OPTIONS} // ());
    my $format = $conf{format} // 'combined';
    my $node = nginx(
        listen => 'proxy_protocol', level => 'crit',
        http => <<"END", server => <<"END2");
    log_format truth '\$ratelimit_status';
    lingering_close off;
    set_real_ip_from 127.0.0.1;
    real_ip_header proxy_protocol;
    server {
        listen 127.0.0.1:$upstream;
        location / { return 200 "ok"; }
        location ~ missing { return 404; }
        location ~ login { return 401; }
    }
    $conf{http}
END
    access_log $folder/access.log $format;
    access_log $folder/truth.log truth;
    $server
END2
    my $html = "$node->{folder}/html";
    mkdir "$html/$_" for 'docs', 'empty';
    write_file("$html/$_", "$_\n") for 'index.php', 'style.css', 'about.html', 'docs/index.html', 'docs/a.png';
    write_file("$folder/users", "ann:{PLAIN}secret\n");
    $node->{logs} = $folder;
    return ($node, $server);
}

# Sends one request from an address; the answer is read to its end, so that it is in the log.
sub send_from {
    my ($node, $request) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $node->port, Timeout => 10) or die $!;
    my $family = $request->{ip} =~ /:/ ? 'TCP6' : 'TCP4';
    my $own    = $family eq 'TCP6' ? '::1' : '127.0.0.1';
    my $host   = $request->{host} // 'localhost';
    print {$socket} "PROXY $family $request->{ip} $own 4000 80\r\n$request->{line}\r\n"
        . ($host eq '' ? '' : "Host: $host\r\n") . ($request->{headers} // '') . "Connection: close\r\n\r\n" or die $!;
    local $SIG{ALRM} = sub { die "no answer to $request->{line}" };
    alarm 20;
    1 while sysread $socket, my $answer, 65_536;
    alarm 0;
    close $socket;
    return;
}

my ($all, $refused) = (0, 0);

# Sends the requests, [t, ip, line, host, headers], and compares what nginx did with what is rehearsed.
sub same {
    my ($what, %o) = @_;
    my ($node, $server) = start_nginx(%o);
    for my $request (@{ $o{requests} }) {
        set_clock($request->{t});
        send_from($node, $request);
    }
    $node->stop;
    my @truth = map { { PASSED => 'passed', DELAYED => 'passed', REJECTED => 'refused', '-' => '-', '' => '-' }->{$_} // "($_)" }
        split /\n/, read_file("$node->{logs}/truth.log");
    my @lines = split /\n/, read_file("$node->{logs}/access.log");
    my ($exit, undef, $err) = rehearse(conf => "http { $o{http} server { listen 80; index index.html; $server } }",
        logs => ["$node->{logs}/access.log"], options => ['--decisions', "$node->{logs}/decisions.csv", @{ $o{options} // [] }]);
    cmp_ok $exit, '!=', 1, "$what: it is rehearsed" or diag $err;
    my (undef, @said) = map { /,([a-z_]+)$/ ? $1 : () } split /\n/, read_file("$node->{logs}/decisions.csv");
    my @short = map { $_ eq 'passed' || $_ eq 'refused' ? $_ : '-' } @said;
    is scalar @short, scalar @truth, "$what: each line";
    my @wrong = grep { ($short[$_] // '?') ne $truth[$_] } 0 .. $#truth;
    my $count = grep { $_ eq 'refused' } @truth;
    is scalar @wrong, 0, "$what: " . @truth . " requests, of which nginx refused $count";
    diag "$lines[$_]\n    nginx: $truth[$_], rehearsed: " . ($said[$_] // '?') for grep { defined } @wrong[0 .. 9];
    cmp_ok $count, '>=', $o{refused} // 5, "$what: enough were refused";
    $all += @truth;
    $refused += $count;
    return $err;
}

# Requests of a few clients to these paths, in an order by chance and with pauses.
sub requests {
    my ($count, @paths) = @_;
    my $t = 0;
    return map {
        $t += int rand 4 if rand() < 0.4;
        my $path = $paths[rand @paths];
        my $one = ref $path ? {%{$path}} : { line => $path =~ /^[A-Z]+ / ? $path : "GET $path HTTP/1.1" };
        +{ t => $t, ip => '192.0.2.' . (1 + int rand 6), %{$one} };
    } 1 .. $count;
}

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

# Made after the configurations that WordPress and nginx-boilerplate publish, with a limit of each algorithm.
@requests = requests(800, qw(/ /index.php /2026/11/hello/ /wp-login.php /wp-admin/ /wp-admin/admin-ajax.php?action=x /wp-json/v2/posts
    /wp-content/uploads/x.php /wp-content/a.css /xmlrpc.php /feed/ /?s=find /.git/config /readme.html /cart/?add=3), 'POST /wp-login.php HTTP/1.1',
    { line => 'GET /wp-json/v2/posts HTTP/1.1', headers => "User-Agent: GoodBot\r\n" });
same('a WordPress site with limits of each algorithm', @detailed, requests => [@requests], http => $zones . <<'END', server => <<'END2');
    map $http_user_agent $bot { default ""; ~*bot $remote_addr; }
    map $request_method $tries { default ""; POST $remote_addr; }
    geo $trusted { default 0; 192.0.2.6 1; }
    map $trusted $client { 0 $remote_addr; 1 ""; }
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
    location ^~ /wp-json/ { ratelimit zone=json cost=2; ratelimit zone=bots; rewrite ^ /index.php break; proxy_pass http://UPSTREAM; }
    location = /wp-login.php { ratelimit zone=login; proxy_pass http://UPSTREAM; }
    location /wp-admin/ { allow 192.0.2.1; deny all; location ~ \.php$ { ratelimit zone=pages burst=1 nodelay; proxy_pass http://UPSTREAM; } try_files $uri /index.php; }
    location /cart/ { if ($arg_add) { rewrite ^ /index.php?cart=$arg_add last; } }
    location ~ \.php$ { set $kind page; if ($args ~ "(^|&)s=") { set $kind search; } ratelimit zone=pages nodelay; ratelimit zone=search; proxy_pass http://UPSTREAM; }
END2

diag "$all requests, $refused refusals";

finish();

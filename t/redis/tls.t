# TLS to Redis: which servers are trusted, and what is logged about the others.

use Ratelimit::Test;
use Ratelimit::Certificates;

my $certificates = Ratelimit::Certificates->new;
my $folder = $certificates->folder;
$certificates->authority($_) for qw(ours theirs);
for (
    ['good',    'ours',   'DNS:redis.test,IP:127.0.0.1'],
    ['expired', 'ours',   'DNS:redis.test,IP:127.0.0.1', 0],
    ['named',   'ours',   'DNS:other.test'],
    ['cn.test', 'ours',   ''],
    ['client',  'ours',   'DNS:nginx.test'],
    ['foreign', 'theirs', 'DNS:nginx.test'],
) {
    $certificates->certificate(@{$_});
}

# A Redis with a TLS port, and that port.
sub tls_redis {
    my ($certificate, $clients) = @_;
    my $redis = redis(tls => $certificates->redis_lines($certificate, 'ours') . "tls-auth-clients $clients\n");
    return ($redis, $redis->public_port);
}

sub node_to {
    my ($port, $lines, $rate) = @_;
    $rate //= '2r/d';
    return nginx(
        http => "ratelimit_redis main { server 127.0.0.1:$port; tls on; timeout 5s; "
            . "connect_timeout 5s; $lines } ratelimit_zone k\$arg_k zone=test rate=$rate algorithm=fixed_window;",
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
    );
}

my $trusted = "tls_trusted_certificate $folder/ours.pem;";
my ($good, $good_port) = tls_redis('good', 'no');

for (
    ['with its address in the certificate',       $trusted],
    ['with its name in the certificate',            "$trusted tls_server_name redis.test;"],
    ['without verification', 'tls_verify off;'],
    ['without verification, under any name', 'tls_verify off; tls_server_name x.test;'],
) {
    my ($what, $lines) = @{$_};
    $good->cmd('FLUSHALL');
    my $node = node_to($good_port, $lines);
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429], "a server $what is used";
}

subtest 'each step of a connection has the whole connect_timeout' => sub {
    my $proxy = proxy(to => "127.0.0.1:$good_port");
    $proxy->delay(0.4);
    my $node = nginx(
        http => "ratelimit_redis main { server 127.0.0.1:@{[ $proxy->port ]}; tls on; timeout 5s; "
            . "connect_timeout 600ms; $trusted } ratelimit_zone k\$arg_k zone=test rate=2r/d algorithm=fixed_window;",
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
    );
    wait_until('it is connected', sub { $node->status('/?k=first') == 200 });
    is_deeply [map { $node->status('/?k=steps') } 1 .. 3], [200, 200, 429], 'TLS, and then the first replies, take longer';
};

subtest 'many concurrent checks are counted exactly over TLS' => sub {
    my $node = node_to($good_port, $trusted, '500r/d');
    is scalar(grep { $_ == 200 } burst($node->port, '/?k=many', 600, 32)), 500;
};

for my $version ('TLSv1.2', 'TLSv1.3') {
    subtest "the second connection resumes the first one's TLS session, $version" => sub {
        my $redis = redis(tls => $certificates->redis_lines('good', 'ours')
            . "tls-auth-clients no\ntls-protocols \"$version\"\n");
        my $proxy = proxy(to => '127.0.0.1:' . $redis->public_port);
        my $node  = node_to($proxy->port, $trusted, '1000r/d');
        is $node->status('/'), 200;
        my $first = $proxy->seen->{answers};
        for my $time (2, 3) {
            my $before = $proxy->seen->{answers};
            $proxy->cut;
            wait_until('the node is connected again', sub { $node->status('/') == 200 });
            cmp_ok $proxy->seen->{answers} - $before, '<', $first - 600,
                "connection $time transferred no certificate";
        }
        $redis->stop('KILL');
        $redis->{tls} = $certificates->redis_lines('expired', 'ours') . "tls-auth-clients no\n";
        $redis->configure;
        my $before = $proxy->seen->{answers};
        $redis->start;
        wait_until('the server has sent its certificate', sub { $proxy->seen->{answers} > $before + 600 });
        is $node->status('/'), 503, 'a server that restarted with an expired certificate is refused' for 1 .. 3;
    };
}

subtest 'a Redis that restarts is used again over TLS' => sub {
    my $node = node_to($good_port, $trusted);
    is $node->status('/?k=before'), 200;
    $good->stop('KILL');
    $node->wait_for_log(qr/is away/);
    $good->start;
    $node->wait_for_log(qr/is up/, 2);
    is $node->status('/?k=after'), 200;
};

my ($expired, $expired_port) = tls_redis('expired', 'no');
my ($named,   $named_port)   = tls_redis('named',   'no');
my ($cn_only, $cn_port)      = tls_redis('cn.test', 'no');
my ($strict,  $strict_port)  = tls_redis('good',    'yes');

for (
    ['signed by another authority', $good_port, "tls_trusted_certificate $folder/theirs.pem;",
        qr/certificate was refused: self-signed certificate in certificate chain/],
    ['that the system does not trust', $good_port, '', qr/certificate was refused: self-signed certificate in/],
    ['that has expired', $expired_port, $trusted, qr/certificate was refused: certificate has expired/],
    ['for another address', $named_port, $trusted, qr/certificate was refused: IP address mismatch/],
    ['with its name as CN only', $cn_port, "$trusted tls_server_name cn.test;",
        qr/certificate was refused: hostname mismatch/],
    ['for another name', $good_port, "$trusted tls_server_name x.test;", qr/certificate was refused: hostname mismatch/],
) {
    my ($what, $port, $lines, $message) = @{$_};
    my $node = node_to($port, $lines);
    $node->wait_for_log(qr/is away/);
    is $node->count_log($message), 1, "a certificate $what is refused, in one line";
    is $node->status('/'), 503;
}

# A program that starts nginx with the functions of $folder/$name.c before those of libraries.
sub nginx_with {
    my ($name) = @_;
    is system("cc -shared -fPIC -w -o $folder/$name.so $folder/$name.c -lcrypto"), 0 or return;
    my $program = Ratelimit::Nginx::program();
    my $path = write_file("$folder/nginx-$name", <<"END");
#!/bin/sh
export LD_PRELOAD=$folder/$name.so ASAN_OPTIONS="\${ASAN_OPTIONS:-}:verify_asan_link_order=0"
exec $program "\$@"
END
    chmod 0755, $path;
    return $path;
}

subtest 'an error that another connection left in OpenSSL breaks no connection' => sub {
    # Pushes such an error after each wait for events, and splits records, so that reads are incomplete.
    write_file("$folder/left.c", <<'END');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t read(int file, void *to, size_t most)
{
    static int times;
    int type;
    socklen_t size = sizeof(type);
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    if (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && ++times % 2 == 0) {
        errno = EAGAIN;
        return -1;
    }
    return real(file, to, most);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    int (*real)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
    int got = real(epoll, events, most, timeout);
    ERR_put_error(ERR_LIB_SSL, 0, 1, __FILE__, __LINE__);
    return got;
}
END
    local $ENV{RATELIMIT_NGINX} = nginx_with('left') or return;
    my $node = node_to($good_port, $trusted, '1000r/d');
    wait_until('the node is connected', sub { $node->status('/?k=left') == 200 });
    my $connections = sub { ($good->cmd('INFO', 'stats') =~ /total_connections_received:(\d+)/)[0] };
    my $before = $connections->();
    is $node->status('/?k=left'), 200 for 1 .. 20;
    # One more at most: that of the test's own INFO.
    cmp_ok $connections->(), '<=', $before + 1, 'the connection is kept';
    is $node->count_log(qr/is away/), 0;
};

subtest 'nginx -t refuses TLS if nginx has an OpenSSL of another major version inside' => sub {
    # As an nginx does that is linked statically: it exports the functions.
    write_file("$folder/other.c", <<'END');
unsigned long OpenSSL_version_num(void) { return 0x1010117fL; }
const char *OpenSSL_version(int what) { return "OpenSSL 1.1.1w  11 Sep 2023"; }
END
    local $ENV{RATELIMIT_NGINX} = nginx_with('other') or return;
    my $with = sub { return conf_test(http => "ratelimit_redis main { server 127.0.0.1; $_[0] } ratelimit_zone k zone=z rate=1r/s;") };
    my ($exit, @complaints) = $with->('tls on;');
    is $exit, 1;
    is scalar(@complaints), 1, 'in one line';
    like $complaints[0], qr/could not use TLS: this nginx has OpenSSL 1\.1\.1w .* inside, the module was built for OpenSSL 3\./;
    is_deeply [$with->('')], [0], 'without TLS it passes';
};

subtest 'a client certificate is sent, and refused if Redis does not trust it' => sub {
    my $ours = node_to($strict_port,
        "$trusted tls_certificate $folder/client.pem; tls_certificate_key $folder/client.key;");
    is $ours->status('/?k=client'), 200, 'a certificate that Redis trusts';
    for my $lines ('', "tls_certificate $folder/foreign.pem; tls_certificate_key $folder/foreign.key;") {
        my $node = node_to($strict_port, "$trusted $lines");
        $node->wait_for_log(qr/is away/);
        is $node->status('/?k=client'), 503, 'a certificate that Redis does not trust, or none';
    }
};

subtest 'with tls on, a server without TLS is unavailable' => sub {
    my $node = nginx(
        http => "ratelimit_redis main { server 127.0.0.1:@{[ $good->port ]}; tls on; $trusted } ratelimit_zone k zone=test rate=1r/d;",
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
    );
    $node->wait_for_log(qr/is away.*timed out while connecting, no answer to TLS: is the port one without TLS\?/);
    is $node->status('/'), 503;
};

subtest 'nginx -t checks the TLS directives and files' => sub {
    system(qw(openssl pkey -aes256 -passout pass:secret -in), "$folder/client.key", '-out', "$folder/locked.key") == 0
        or die 'openssl';
    my $zone = 'ratelimit_zone k zone=z rate=1r/s;';
    for (
        ['tls maybe;', qr/"tls": invalid "maybe", expected on or off/],
        ['tls_verify 1;', qr/"tls_verify": invalid "1", expected on or off/],
        ['tls on; tls_trusted_certificate /nonexistent;', qr/could not open "\/nonexistent" \(2: No such file or directory\)/],
        ["tls on; tls_certificate $folder/client.pem;", qr/has only one of "tls_certificate" and/],
        ["tls on; tls_certificate $folder/client.pem; tls_certificate_key $folder/good.key;",
            qr/could not use "[^"]*good.key": key values mismatch/],
        ["tls on; tls_certificate $folder/log; tls_certificate_key $folder/good.key;",
            qr/could not use "[^"]*log"/],
        ["tls on; tls_certificate $folder/client.pem; tls_certificate_key $folder/locked.key;",
            qr/cannot use "[^"]*locked.key": it has a passphrase, expected a key without one/],
    ) {
        my ($lines, $message) = @{$_};
        my ($exit, @complaints) =
            conf_test(http => "ratelimit_redis main { server 127.0.0.1; $lines } $zone");
        is $exit, 1, $lines;
        is scalar(@complaints), 1;
        like $complaints[0], $message;
    }
    my ($exit, @complaints) = conf_test(
        http => "ratelimit_redis main { server unix:/tmp/x; tls on; } $zone");
    like "@complaints", qr/has a unix socket and TLS, but no "tls_server_name"/;
};

finish();

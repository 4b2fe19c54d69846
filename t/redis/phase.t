# ratelimit_phase: each location chooses whether its limits are decided before or after authentication.

use MIME::Base64 qw(encode_base64);
use Ratelimit::Process qw(temp_folder);
use Ratelimit::Test;

my $redis = redis();
my $folder = temp_folder();
my @known = (headers => ['Authorization', 'Basic ' . encode_base64('user:secret', '')]);

# Two zones of 2r/d: "test" by the argument k, and "user" by the authenticated name. Options: http, server;
# USERS in server becomes the directives of auth_basic.
sub phase_node {
    my (%options) = @_;
    $redis->cmd('FLUSHALL');
    write_file("$folder/users", "user:{PLAIN}secret\n");
    my $users = "auth_basic x; auth_basic_user_file $folder/users;";
    return nginx(
        %options,
        http => <<"END" . ($options{http} // ''),
        ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }
        ratelimit_zone k\$arg_k zone=test rate=2r/d algorithm=fixed_window;
        ratelimit_zone \$remote_user zone=user rate=2r/d algorithm=fixed_window;
END
        server => $options{server} =~ s/USERS/$users/gr,
    );
}

sub statuses { my ($node, $path, @more) = @_; return join ' ', map { $node->status($path, @more) } 1 .. 4 }

subtest 'one nginx can limit a login before authentication and an account after it' => sub {
    my $node = phase_node(server => <<'END');
        location /login { ratelimit zone=test; ratelimit_phase preaccess; USERS try_files /index.html =404; }
        location /api { ratelimit zone=user; USERS try_files /index.html =404; }
END
    is statuses($node, '/login'), '401 401 429 429', 'attempts without a password are counted';
    is statuses($node, '/login', @known), '429 429 429 429', 'then the right password is refused too';
    is statuses($node, '/api'), '401 401 401 401', 'requests that authentication refuses are not counted there';
    is statuses($node, '/api', @known), '200 200 429 429';
};

subtest 'a phase is inherited, and each level may choose another' => sub {
    my $node = phase_node(http => 'ratelimit zone=test; ratelimit_phase preaccess;', server => <<'END');
        USERS
        location /above { }
        location /own { ratelimit_phase access; location /own/inner { }
            location /own/back { ratelimit_phase preaccess; } }
        location /if { ratelimit_phase access; if ($arg_k) { set $x y; } }
        location /except { ratelimit_phase access; limit_except GET { deny all; } }
END
    is statuses($node, "$_->[0]?k=$_->[1]"), $_->[2], "$_->[0]?k=$_->[1]" for (
        ['/above',     'above', '401 401 429 429'],
        ['/own',       'own',   '401 401 401 401'],
        ['/own/inner', 'inner', '401 401 401 401'],
        ['/own/back',  'back',  '401 401 429 429'],
        ['/if',        'if',    '401 401 401 401'],
        ['/except',    'get',   '401 401 401 401'],
    );
    is statuses($node, '/except?k=put', method => 'PUT'), '403 403 403 403', 'another method';
};

subtest 'with satisfy any, preaccess counts every request and access only authenticated ones' => sub {
    my $node = phase_node(server => <<'END');
        satisfy any; deny all;
        location /before { ratelimit zone=test; ratelimit_phase preaccess; USERS try_files /index.html =404; }
        location /after { ratelimit zone=test; USERS try_files /index.html =404; }
END
    is statuses($node, '/before?k=before'), '401 401 429 429';
    is statuses($node, '/before?k=known', @known), '200 200 429 429';
    is statuses($node, '/after?k=after'), '401 401 401 401';
    is statuses($node, '/after?k=after', @known), '200 200 429 429';
};

# A redirect leads to a location of the other phase; either limit would refuse a request counted twice.
subtest 'a request redirected to a location of the other phase is counted once' => sub {
    my $node = phase_node(server => <<'END');
        location /before { ratelimit zone=test; ratelimit_phase preaccess; error_page 404 = @after; try_files /x =404; }
        location @after { ratelimit zone=test; try_files /index.html =404; }
        location /after { ratelimit zone=test; error_page 404 = @before; try_files /x =404; }
        location @before { ratelimit zone=test; ratelimit_phase preaccess; try_files /index.html =404; }
        location /denied { ratelimit zone=test; deny all; error_page 403 = @before; }
        location /try { ratelimit zone=test; try_files /x /before/y; }
        location /auth { ratelimit zone=test; auth_request /check; try_files /index.html =404; }
        location /check { ratelimit zone=test; ratelimit_phase preaccess; try_files /index.html =404; }
END
    is statuses($node, "/$_?k=$_"), '200 200 429 429', $_ for qw(before after denied try auth);
};

subtest 'a request delayed before authentication is authenticated afterwards' => sub {
    my $node = phase_node(
        http   => 'ratelimit_zone $arg_k zone=slow rate=10r/s algorithm=leaky_bucket burst=9;',
        server => <<'END');
        location / { ratelimit zone=slow; ratelimit_phase preaccess; USERS try_files /index.html =404;
            add_header X-Result $ratelimit_status always; }
END
    for my $client (['401', 'stranger'], ['200', 'user', @known]) {
        my ($status, $key, @headers) = @{$client};
        my $expected = join ' ', map { "$status$_" } qw(DELAYED DELAYED DELAYED PASSED);
        my $seen;
        for my $try (1 .. 8) {    # retried: a busy machine may delay requests
            my @sockets = map { http_connect($node->port) } 1 .. 4;
            http_send($_, "/?k=$key$try", @headers) for @sockets;
            $seen = join ' ', sort map { my $answer = http_read($_); $answer->status . $answer->header('X-Result') } @sockets;
            last if $seen eq $expected;
        }
        is $seen, $expected, $key;
    }
};

subtest 'HTTP/2 streams are limited in either phase' => sub {
    my $node = phase_node(listen => 'http2', server => <<'END');
        location /before { ratelimit zone=test; ratelimit_phase preaccess; deny all; }
        location /after { ratelimit zone=test; try_files /index.html =404; }
END
    for (['before', '403 403 429 429'], ['after', '200 200 429 429']) {
        my ($path, $expected) = @{$_};
        is join(' ', sort map { $_->status } http2($node->port, [("/$path?k=$path") x 4])), $expected, $path;
    }
};

finish();

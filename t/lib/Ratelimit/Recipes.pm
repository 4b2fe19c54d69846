package Ratelimit::Recipes;

# Runs recipes of doc/recipes.md: each on a node with a Redis and a backend, as the test says, and then once more with
# clients that leave before the answer.

use strict;
use warnings;

use Exporter 'import';
use Ratelimit::Backend;
use Ratelimit::Build qw(top);
use Ratelimit::Http2 qw(http2_one http2_reset);
use Ratelimit::Process qw(read_file free_port);
use Ratelimit::Test;
use Socket qw(SOL_SOCKET SO_LINGER);

our @EXPORT_OK = qw(run_recipes recipes leave slow_backend);

my ($redis, $slow, $backend);

# The backend answers requests with X-Slow when the test says so (slow_backend()->finish). A request with X-Tokens is answered
# as by a language model. It names its path in X-Path, refuses X-Password, lacks pages for X-Missing, and says at /auth that everyone is who X-Account says.
sub start_servers {
    $redis   = redis();
    $slow    = Ratelimit::Backend->new;
    $backend = nginx(
        module => 0,
        server => "client_max_body_size 100m;
        location / {
            add_header X-Path \$request_uri;
            error_page 418 = \@slow;
            if (\$http_x_slow) { return 418; }
            if (\$http_x_tokens) { rewrite ^ /model last; }
            if (\$http_x_password = redirect) { return 302 /login; }
            if (\$http_x_password) { return 401 wrong; }
            if (\$http_x_missing) { return 404; }
            return 200 backend;
        }
        location = /model {
            internal; default_type application/json;
            return 200 '{\"choices\":[],\"usage\":{\"total_tokens\":\$http_x_tokens}}';
        }
        location = /auth {
            add_header X-Account \$http_x_account;
            add_header X-Plan \$http_x_plan;
            return 200;
        }
        location \@slow { proxy_pass http://@{[ $slow->addr ]}; }",
    );
    return;
}

sub slow_backend { return $slow }

# [name, text] of each recipe.
sub recipes {
    my (undef, @parts) = split /^## (.+)\n/m, read_file(top() . '/doc/recipes.md');
    my @recipes = map { [@parts[2 * $_, 2 * $_ + 1]] } 0 .. $#parts / 2;
    return grep { $_->[1] =~ /^```nginx$/m } @recipes;    # not those for a shell
}

# A node with a recipe, split into its parts of http {} and server {}.
sub node_of {
    my $recipe = without_other_modules($_[0]);
    my ($http, $server) = $recipe =~ /^(.*?)^server \{\n(.*)^\}/ms or return;
    s{http://backend}{http://127.0.0.1:@{[ $backend->port ]}}g for $server;
    s{/var/log/nginx/}{logs-} for $server;
    # The addresses of the test's clients, and windows and queues that do not end during the test.
    s{10\.0\.0\.0/8}{127.0.0.0/24}, s{192\.0\.2\.7}{127.0.1.7} for $http;
    s{\d+r/\Kh}{d}g, s{\d+r/\Km\b}{d}g, s{\b5r/s}{2r/s} for $http;
    $http = "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } $http";
    my $h2 = free_port();
    my $node = nginx(http => $http, server => "listen 127.0.0.1:$h2 http2; ratelimit_headers x-ratelimit draft; $server");
    $node->{h2} = $h2;
    return $node;
}

# Requests that reach the backend and whose clients leave before its answer: a third closes its connection, a third
# resets it, and a third resets its HTTP/2 stream.
sub leave {
    my ($node, $path, $count, %options) = @_;
    $options{headers} = ['X-Slow' => 1, @{ $options{headers} // [] }];
    my $before = $slow->begun;
    my @sockets = map {
        my $socket;
        if ($_ % 3 == 0 && !$options{from}) {
            $socket = http2_one($node->{h2}, $path, %options);
        } else {
            $socket = http_connect($node->port, undef, $options{from});
            http_send($socket, $path, %options);
        }
        $socket;
    } 1 .. $count;
    wait_until('the backend has them', sub { $slow->begun - $before == $count });
    for my $i (1 .. $count) {
        my $socket = $sockets[$i - 1];
        if ($i % 3 == 0 && !$options{from}) {
            http2_reset($socket, 1);
            next;
        }
        setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0 if $i % 3 == 1;
        close $socket;
    }
    $node->get('/no-such-page') for 1 .. 2;  # by then the worker has seen that the clients left
    return if $options{stays};
    wait_until('their requests have ended', sub { $slow->now == 0 });
    return;
}

# Whether a request like those of the clients that left finds nothing left.
sub used_up {
    my ($node, $way, $method) = @_;
    my $answer = $node->get($way->{path}, map({ $_ => $way->{$_} } qw(headers from)), method => $method // $way->{method});
    return $answer->status == 429 || ($answer->header('grpc-status') // '') eq '8'
        || ($answer->header('RateLimit') // '') =~ /;r=0\b/
        || $node->count_log(qr/limiting requests, dry run, by zone/) > 0;    # clients do not see it
}

sub gains_nothing {
    my ($node, $way) = @_;
    return $way->($node) if ref $way eq 'CODE';
    leave($node, $way->{path}, $way->{count}, map { $_ => $way->{$_} } qw(headers from method stays));
    if ($way->{path} eq '/reports/') {
        ok used_up($node, $way), 'the reports still run';
        $slow->finish;
        wait_until('they make room when they end', sub { !used_up($node, $way) });
        return;
    }
    $slow->finish;
    wait_until('what they took is counted', sub { used_up($node, $way) });
    ok used_up($node, $way, $_), $_ for $way->{method} ? 'PUT' : ('GET', 'HEAD');
    return;
}

# run_recipes(\%try, \%leaving): `try` has a function for each recipe, which gets the node, the recipe's configuration and
# its text. `leaving` has requests that use up a limit (path, count, and options of leave), or a function that gets a node.
sub run_recipes {
    my ($try, $leaving) = @_;
    start_servers();
    for (grep { $try->{ $_->[0] } } recipes()) {
        my ($name, $part) = @{$_};
        subtest $name => sub {
            for my $recipe ($part =~ /^```nginx\n(.*?)^```/msg) {
                $redis->cmd('FLUSHALL');
                my $node = node_of($recipe);
                $try->{$name}->($node, $recipe, $part);
                $node->stop('QUIT') if $node;    # what it still charges must not come behind this
                $redis->cmd('FLUSHALL');
                subtest 'clients that leave before the answer gain nothing' =>
                    sub { gains_nothing(node_of($recipe), $leaving->{$name}) };
            }
        };
    }
    return;
}

1;

# concurrency=: at most n requests of a key at one time, in the whole fleet, released however they end.
# needs: libprotocol-http2-perl

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Backend;
use Ratelimit::Http2 qw(http2_send http2_reset);
use Ratelimit::Remaining qw(remaining remains);
use Ratelimit::Redis;
use Ratelimit::Test;
use Time::HiRes qw(sleep);

my $backend = Ratelimit::Backend->new;

# A node with a zone "test" by the argument k: / passes requests to the backend, /peek reports the state.
sub limited_node {
    my (%options) = @_;
    my $zone = $options{zone} // 'concurrency=2';
    return node(
        %options,
        zone     => $zone,
        key      => 'k$arg_k',
        location => "proxy_pass http://@{[ $backend->addr ]}; " . ($options{location} // ''),
        server   => 'location /ops/ { ratelimit_api write=on; }' . ($options{server} // ''),
    );
}

sub send_request {
    my ($node, $path, %options) = @_;
    my $socket = http_connect($node->port);
    http_send($socket, $path, %options);
    return $socket;
}

sub in_flight {
    my ($node) = @_;
    my ($count) = $node->get('/ops/metrics')->body =~ /^ratelimit_in_flight\{zone="test"\} (\d+)$/m;
    return $count;
}

subtest 'two nodes let in n requests of a key at one time' => sub {
    my $one = limited_node();
    my $two = limited_node(redis => $one->{redis});
    my @sockets = ($backend->hold($one, '/'), $backend->hold($two, '/'));
    for my $node ($one, $two) {
        my $refused = $node->get('/');
        is $refused->status, 429, 'a third is refused';
        is $refused->header('Retry-After'), 1;
        is $refused->header('X-RateLimit-Limit'), 2;
        is $refused->header('X-RateLimit-Remaining'), 0;
        is $refused->header('X-RateLimit-Reset'), 1;
        is in_flight($node), 1, 'each node says what its requests hold';
    }
    my @other = $backend->hold($one, '/?k=other');
    is scalar(@other), 1, 'another key is not concerned';
    $backend->finish;
    is http_read($_)->status, 200, 'it is served' for @sockets, @other;
    remains($two, 2, 'afterwards');
    is in_flight($one), 0;
    # 9/8 of the default of hold=.
    my @left = map { $one->{redis}->cmd('PTTL', $_) } $one->{redis}->keys_like;
    is scalar(grep { $_ < 0 || $_ > 68_000 } @left), 0, 'a key of which nothing is held expires';
    is $one->status('/?for=0'), 200, 'requests one after another' for 1 .. 5;
};

subtest 'a key whose value says that it lasts for ever expires nevertheless' => sub {
    my $node = limited_node();
    my $forever = 'HELD' . pack('L<d<d<d<', 1, 0, 0, 'inf') . "\0" x 32;
    $node->{redis}->cmd('SET', 'rl:test:{kx}', $forever);
    is $node->status('/?k=x&for=0'), 200;
    cmp_ok $node->{redis}->cmd('PTTL', 'rl:test:{kx}'), '>', 0;
};

for my $place ('Redis', 'memory') {
    subtest "a request is released however it ends: $place" => sub {
        my %options = (
            listen => 'http2',
            zone   => 'concurrency=2 hold=1h',
            location => 'proxy_read_timeout 1s;',
            server => <<"END",
            location = /unbuffered { ratelimit zone=test; proxy_buffering off; proxy_pass http://@{[ $backend->addr ]}; }
            location = /ignored { ratelimit zone=test; proxy_ignore_client_abort on; proxy_pass http://@{[ $backend->addr ]}; }
            location = /redirected { ratelimit zone=test; error_page 404 = /again?k=\$arg_k; try_files /none =404; }
            location = /again { ratelimit zone=test; try_files /index.html =404; }
            location = /errors { ratelimit zone=test; proxy_pass http://127.0.0.1:1; }
            location = /static { ratelimit zone=test; try_files /index.html =404; }
            location = /none { ratelimit zone=test; }
            location = /patient { ratelimit zone=test; proxy_pass http://@{[ $backend->addr ]}; }
            location = /subrequests { ratelimit zone=test; mirror /mirrored; proxy_pass http://@{[ $backend->addr ]}; }
            location = /mirrored { internal; ratelimit zone=test; proxy_pass http://@{[ $backend->addr ]}; }
END
        );
        my $plain = { %options, listen => '' };
        my $node = $place eq 'memory' ? memory_node(%{$plain}) : limited_node(%{$plain});
        my $rounds = 3;
        for (1 .. $rounds) {
            is $node->status('/static'), 200, 'a response';
            is $node->status('/none'), 404, 'an error';
            is $node->status('/errors'), 502, 'no upstream';
            is $node->status('/'), 504, 'an upstream that does not answer';
            is $node->get('/static', method => 'HEAD')->status, 200, 'HEAD';
            is $node->status('/redirected'), 200, 'an internal redirect';
            is $node->status('/subrequests?for=0'), 200, 'a subrequest is not counted';
            my $keep = http_connect($node->port);
            for (1 .. 4) { http_send($keep, '/?for=0'); is http_read($keep)->status, 200, 'keep-alive' }
            for my $path ('/', '/unbuffered') {
                my ($socket) = $backend->hold($node, $path);
                close $socket;
                remains($node, 2, "a client that leaves, $path");
            }
            my ($ignored) = $backend->hold($node, '/ignored');
            close $ignored;
            sleep 0.05;
            is remaining($node), 1, 'proxy_ignore_client_abort: it still runs';
            $backend->finish;
            remains($node, 2, 'until it ends');
            my ($dropped) = $backend->hold($node, '/patient');
            $backend->drop;
            is http_read($dropped)->status, 502, 'an upstream that closes';
        }
        remains($node, 2, 'afterwards');
        wait_until('nothing is in flight', sub { in_flight($node) == 0 });
        return if $place eq 'memory';
        my $streams = limited_node(%options, redis => $node->{redis});
        my $socket = http2_send($streams->port, [('/patient') x 4]);
        wait_until('two streams pass', sub { remaining($node) == 0 });
        http2_reset($socket, 4);
        remains($node, 2, 'streams that are reset');
        $socket = http2_send($streams->port, [('/patient') x 2]);
        wait_until('two streams pass', sub { remaining($node) == 0 });
        close $socket;
        remains($node, 2, 'a connection of streams that closes');
    };
}

# A node without Redis.
sub memory_node {
    my (%options) = @_;
    return nginx(
        %options,
        http   => "ratelimit_zone k\$arg_k zone=test $options{zone};",
        server => "location / { ratelimit zone=test; proxy_pass http://@{[ $backend->addr ]}; "
            . ($options{location} // '') . ' }'
            . 'location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }'
            . 'location /ops/ { ratelimit_api write=on; }' . ($options{server} // ''),
    );
}

subtest 'an upgraded connection is held while it lasts, longer than hold' => sub {
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = limited_node(
        redis       => Ratelimit::Redis->new(environment => $clock->environment),
        environment => $clock->environment,
        zone     => 'concurrency=1 hold=1h',
        location => 'proxy_read_timeout 1d; proxy_send_timeout 1d; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;',
    );
    my $socket = send_request($node, '/', headers => [Upgrade => 'websocket', Connection => 'upgrade']);
    is http_read($socket)->status, 101;
    my %seen;
    for (1 .. 16) {
        $clock->step(900);
        $node->get('/ops/metrics') for 1 .. 2;    # by then the worker has sent what is due
        $seen{ remaining($node) }++;
    }
    is_deeply [keys %seen], [0], 'it counts at every moment of four times hold';
    close $socket;
    remains($node, 1, 'when it closes');
};

subtest 'cost= holds several units, and a shadow limit and a dry run hold what passes' => sub {
    my $node = limited_node(
        zone   => 'concurrency=3',
        server => <<"END",
        location = /heavy { ratelimit zone=test cost=\$arg_c; proxy_pass http://@{[ $backend->addr ]}; }
        location = /shadow { ratelimit zone=test shadow; proxy_pass http://@{[ $backend->addr ]}; }
        location = /dry { ratelimit zone=test; ratelimit_dry_run on; proxy_pass http://@{[ $backend->addr ]}; }
END
    );
    my @two = $backend->hold($node, '/heavy?c=2');
    is remaining($node), 1;
    is $node->status('/heavy?c=2'), 429, 'two more do not fit';
    is $node->status('/heavy?c=0&for=0'), 200, 'a cost of 0 holds nothing';
    my @four = map { $backend->hold($node, $_) } '/shadow', '/shadow', '/dry';
    is remaining($node), 0, 'what a shadow limit and a dry run let in is held, the rest is not';
    $backend->finish;
    remains($node, 3, 'all is released once');
};

subtest 'with several limits a request holds units of all or of none' => sub {
    my $node = limited_node(
        http   => 'ratelimit_zone $arg_b zone=other concurrency=1; ratelimit_zone r$arg_k zone=rate rate=3r/d algorithm=fixed_window;',
        server => <<"END",
        location = /both { ratelimit zone=test; ratelimit zone=other; proxy_pass http://@{[ $backend->addr ]}; }
        location = /rate { ratelimit zone=test; ratelimit zone=rate; proxy_pass http://@{[ $backend->addr ]}; }
        location = /peek_other { ratelimit zone=other cost=0; try_files /index.html =404; }
END
    );
    my @held = $backend->hold($node, '/both?b=1');
    is $node->status('/both?b=1'), 429, 'the other refuses';
    is remaining($node), 1, 'so it holds nothing of the first';
    $backend->finish;
    remains($node, 2, 'released');
    remains($node, 1, 'the other, too', '/peek_other?b=1');
    is $node->status('/rate?for=0'), 200 for 1 .. 3;
    is $node->status('/rate?for=0'), 429, 'beside a rate' for 1 .. 3;
    remains($node, 2, 'released');
};

subtest 'requests of a busy key share calls, and at most n run at one time' => sub {
    my $one = limited_node(zone => 'concurrency=5', workers => 2);
    my $two = limited_node(zone => 'concurrency=5', workers => 2, redis => $one->{redis});
    my @loads = map { load(port => $_->port, path => '/?k=busy&for=0.005', clients => 20) } $one, $two;
    $_->wait_for_more(2000) for @loads;
    $_->stop for @loads;
    is $backend->most('busy'), 5, 'five at one time, and never six';
    remains($one, 5, 'afterwards', '?k=busy');
    wait_until('nothing is in flight', sub { in_flight($one) + in_flight($two) == 0 });
};

subtest 'DELETE frees a key, and GET shows it' => sub {
    my $node = limited_node();
    my @held = $backend->hold($node, ('/') x 2);
    is $node->status('/'), 429;
    my $shown = $node->get('/ops/zones/test/keys/k')->body;
    like $shown, qr/"limit":2,"remaining":0,"reset":1/;
    is $node->get('/ops/zones/test/keys/k', method => 'DELETE')->status, 204;
    is remaining($node), 2, 'it is free';
    is $node->status('/'), 429, 'what its requests hold is counted again with the next one';
    $backend->finish;
    remains($node, 2, 'and released once');
};

subtest 'headers name the unit, and no window' => sub {
    my $node = limited_node(location => 'ratelimit_headers draft;');
    my @held = $backend->hold($node, '/');
    my @more = $backend->hold($node, '/');
    my $refused = $node->get('/');
    is $refused->header('RateLimit-Policy'), '"test";q=2;qu="concurrent-requests"';
    is $refused->header('RateLimit'), '"test";r=0;t=1';
    $backend->finish;
    is http_read($held[0])->header('RateLimit'), '"test";r=1';
};

finish();

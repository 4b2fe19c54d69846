# A reply is lost with its connection, and the check is sent again: Redis has executed it before.

use Ratelimit::Http qw(http_connect http_send http_read);
use Ratelimit::Test;
use Time::HiRes qw(sleep);

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket burst=1', 'gcra burst=0', 'leaky_bucket burst=0',
);
my $headers = join '', map { "add_header X-$_ \$ratelimit_\L$_ always;" } qw(Status Remaining);

# A node that reaches Redis through a proxy. Zones, their parameters, and the server's locations.
sub proxied_node {
    my ($redis, $zones, $server) = @_;
    my $proxy = proxy(to => $redis->addr);
    my $lines = join '', map { "ratelimit_zone \$arg_$_->[0] zone=$_->[0] cache=off $_->[1];" } @{$zones};
    my $node = nginx(
        http   => "ratelimit_redis main { server @{[ $proxy->addr ]}; timeout 5s; connect_timeout 5s; } $lines",
        server => $headers . $server,
    );
    wait_until('the node has a connection', sub { $node->get('/warm?a=warm&c=warm')->header('X-Status') eq 'PASSED' });
    return ($node, $proxy);
}

# The results of requests, when the reply to the first one is lost.
sub after_a_loss {
    my ($node, $proxy, @paths) = @_;
    $proxy->lose;
    my @results = map { my $answer = $node->get($_); $answer->status . ' ' . $answer->header('X-Status') } @paths;
    ok $proxy->lost, 'a reply was lost';
    return \@results;
}

for my $clock ('', ' clock=local') {
    for my $algorithm (@algorithms) {
        subtest "the only request of a key passes, and no other one: $algorithm$clock" => sub {
            my $redis = redis();
            my ($node, $proxy) = proxied_node($redis, [[a => "rate=1r/d algorithm=$algorithm$clock"]],
                'location / { ratelimit zone=a; } location = /warm { ratelimit zone=a cost=0; }'
                    =~ s/zone=a;/$algorithm =~ m{leaky} ? 'zone=a nodelay;' : 'zone=a;'/er);
            is_deeply after_a_loss($node, $proxy, ('/?a=one') x 2), ['200 PASSED', '429 REJECTED'], 'no more than one';
        };
    }
}

subtest 'several limits: a request passes all, and no other one does' => sub {
    my $redis = redis();
    my ($node, $proxy) = proxied_node($redis,
        [[a => 'rate=1r/d algorithm=fixed_window'], [b => 'rate=1r/d algorithm=gcra'], [c => 'rate=9r/d']],
        'location / { ratelimit zone=a; ratelimit zone=b; ratelimit zone=c; } location = /warm { ratelimit zone=c cost=0; }');
    is_deeply after_a_loss($node, $proxy, ('/?a=1&b=1&c=1') x 2), ['200 PASSED', '429 REJECTED'], 'together';
    is_deeply after_a_loss($node, $proxy, '/?a=1&b=2&c=2', '/?a=2&b=2&c=2'), ['200 PASSED', '200 PASSED'],
        'a request that another limit had refused passes, at most one for each loss';
};

subtest 'requests of one key that share a call: as many pass as the limit admits' => sub {
    my $redis = redis();
    my ($node, $proxy) = proxied_node($redis, [[a => 'rate=5r/d algorithm=fixed_window']],
        'location / { ratelimit zone=a; } location = /warm { ratelimit zone=a cost=0; }');
    my @sockets = map { http_connect($node->port) } 1 .. 12;
    for (@sockets) { http_send($_, '/warm?a=warm'); http_read($_) }
    # They come to the worker in one turn. The first check is in flight, the other requests wait for its reply and share
    # the next call.
    my ($worker) = $node->workers;
    pause_processes($worker);
    http_send($_, '/?a=hot') for @sockets;
    $proxy->delay(0.3);
    $proxy->lose(2);
    kill CONT => $worker;
    my %results;
    $results{ http_read($_)->status }++ for @sockets;
    ok $proxy->lost, 'the reply to the shared call was lost';
    $proxy->pass;
    cmp_ok $results{200}, '>=', 5, 'all that Redis had admitted passed';
    cmp_ok $results{200}, '<=', 6, 'and at most one call more than the limit';
    is $node->status('/?a=hot'), 429, 'the limit is used up';
};

subtest 'all connections are lost at once: no request is left to the fail mode' => sub {
    my $redis = redis();
    my $proxy = proxy(to => $redis->addr);
    my $node  = nginx(
        workers => 1,
        http    => "ratelimit_redis main { server @{[ $proxy->addr ]}; connections 3; timeout 5s; connect_timeout 5s; }"
            . 'ratelimit_zone $arg_k zone=held concurrency=1; ratelimit_zone $arg_k zone=rate rate=1000000r/m;',
        server => $headers . 'location = /held { ratelimit zone=held; } location = /rate { ratelimit zone=rate; }'
            . 'location = /both { ratelimit zone=held; ratelimit zone=rate; }',
    );
    my @paths = map { ("/held?k=a$_", "/rate?k=b$_", "/both?k=c$_") } 1 .. 3;
    my $send  = sub {
        return map { my $socket = http_connect($node->port); http_send($socket, $_, close => 1); $socket } @paths;
    };
    my %results;
    for my $round (1 .. 20) {
        wait_until('all connections are ready', sub {
            3 == grep { /name=nginx-ratelimit/ } split /\n/, $redis->cmd(qw(CLIENT LIST)) });
        $proxy->delay(0.1);
        http_read($_) for $send->();    # each connection has worked
        my @sockets = $send->();
        sleep 0.02;
        $proxy->pass;
        $proxy->cut;
        $results{ http_read($_)->header('X-Status') }++ for @sockets;
    }
    is_deeply \%results, { PASSED => 180 }, 'each is sent again on a new connection';
    $node->stop;    # without Redis it would state until `hold` that it holds nothing
};

subtest 'a block begins only if the key was refused before' => sub {
    my $redis = redis();
    my ($node, $proxy) = proxied_node($redis, [[a => 'rate=1r/d algorithm=token_bucket block=1h']],
        'location / { ratelimit zone=a; } location = /warm { ratelimit zone=a cost=0; }');
    is_deeply after_a_loss($node, $proxy, '/?a=1'), ['200 PASSED'], 'the only request passes';
    my $peek = $node->get('/warm?a=1');
    is $peek->header('X-Status'), 'PASSED';
    is_deeply [map { $node->status('/?a=1') } 1 .. 2], [429, 429], 'the next one begins the block';
};

finish();

# Redis stands still, the fail mode decides, and Redis executes the checks afterwards. The next requests may be refused
# because of what these counted, but no block (block=) begins, and no client is answered that one has.

use Ratelimit::Http qw(http_connect http_send http_read);
use Ratelimit::Test;
use Time::HiRes qw(time sleep);

my $day = 86_400;

# A node with one zone, keyed by the argument k.
sub blocking_node {
    my ($redis, $zone, $times) = @_;
    my $now = $zone =~ /leaky/ ? 'nodelay' : '';
    return nginx(
        http   => "ratelimit_redis main { server @{[ $redis->addr ]}; $times } ratelimit_zone \$arg_k zone=z block=5d $zone;",
        server => <<"END",
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z $now; ratelimit_fail_mode open; try_files /index.html =404; }
        location = /closed { ratelimit zone=z $now; ratelimit_fail_mode closed; try_files /index.html =404; }
        location = /peek { ratelimit zone=z $now cost=0; ratelimit_fail_mode closed; try_files /index.html =404; }
END
    );
}

sub status_of { return $_[0]->get($_[1])->header('X-Status') }
sub left      { return $_[0]->get("/peek?k=$_[1]")->header('X-RateLimit-Remaining') // '' }

# The answer to a request that reaches Redis behind all that was sent before: Redis goes on after it.
sub first_answer {
    my ($node, $redis, $path) = @_;
    my $socket = http_connect($node->port);
    my $unread = $redis->unread;
    http_send($socket, $path);
    wait_until('the request is sent', sub { $redis->unread > $unread });
    $redis->resume;
    return http_read($socket);
}

# The same, if the node may have given its connection up.
sub first_answer_after {
    my ($node, $redis, $path) = @_;
    $redis->resume;
    return wait_until('an answer of Redis', sub {
        my $answer = $node->get($path);
        return $answer->header('X-Status') =~ /FAILED/ ? undef : $answer;
    });
}

# Waits until Redis has refused a key of two requests.
sub exhaust {
    my ($node, $path) = @_;
    return ok eval { wait_until('a refusal', sub { grep { $_ == 429 } burst($node->port, $path, 6, 6) }); 1 }, 'a key is refused';
}

sub is_not_blocked {
    my ($answer, $what) = @_;
    return cmp_ok $answer->header('Retry-After') // 0, '<=', 2 * $day, $what;
}

my %stalls = (
    'and its connection stays' => ['timeout 400ms; connect_timeout 2s; breaker failures=100 open=20s;', \&first_answer],
    'and its connection is given up' => ['timeout 400ms; connect_timeout 400ms; breaker failures=2 open=300ms;', \&first_answer_after],
);
for my $stall (sort keys %stalls) {
    my ($times, $first) = @{ $stalls{$stall} };
    my %nodes;
    for my $zone ('fixed_window', 'sliding_window_log', 'gcra burst=1', 'token_bucket burst=2 clock=local') {
        subtest "a refusal because of late checks begins no block: $zone, $stall" => sub {
            my $redis = redis();
            my $node  = $nodes{$zone} = blocking_node($redis, "rate=2r/d algorithm=$zone", $times);
            exhaust($node, '/closed?k=warm');
            my $retry = 0;
            ok eval { wait_until('a block', sub { ($retry = $node->get('/closed?k=warm')->header('Retry-After') // 0) > 4 * $day }); 1 },
                'and blocked' or diag $retry;

            $redis->pause;
            is status_of($node, '/closed?k=refused'), 'FAILED_CLOSED', 'no answer' for 1 .. 2;
            if ($first == \&first_answer_after) {
                $node->wait_for_log(qr/is away/);
            }
            is_not_blocked($first->($node, $redis, '/closed?k=refused'), 'the next request finds no block');
            ok eval { wait_until('refunds', sub { left($node, 'refused') >= 1 }, 5); 1 }, 'what was refused is returned';
            ok eval { wait_until('a pass', sub { $node->status('/closed?k=refused') == 200 }); 1 }, 'and the key is free';

            $redis->pause;
            is status_of($node, '/?k=passed'), 'FAILED_OPEN', 'without an answer it passes' for 1 .. 2;
            my $answer = $first->($node, $redis, '/closed?k=passed');
            is_not_blocked($answer, 'the next request finds no block');
        };
    }
    for (1 .. 2) {
        sleep 1;
        is_not_blocked($nodes{$_}->get('/closed?k=passed'), "nor do later ones: $_, $stall") for sort keys %nodes;
    }
}

# What the first loss counts does not count any longer when the second one does. All algorithms at once, since they wait.
my @losses = map { { zone => $_, redis => redis() } } 'fixed_window', 'sliding_window_log', 'gcra burst=1';
sub subtest_of_each {
    my ($what, $code) = @_;
    for my $of (@losses) {
        subtest "losses in several windows, one after the other: $of->{zone}, clock=local: $what" => sub { $code->(@{$of}{qw(node redis)}) };
    }
    return;
}
$_->{node} = blocking_node($_->{redis}, "rate=2r/2s algorithm=$_->{zone} clock=local",
    'timeout 300ms; connect_timeout 100ms; breaker failures=100 open=20s;') for @losses;
subtest_of_each('the first', sub {
    my ($node, $redis) = @_;
    exhaust($node, '/closed?k=warm');
    $redis->pause;
    is status_of($node, '/?k=passed'), 'FAILED_OPEN', 'the first loss';
});
# Longer than two windows and the longest time of a call; then in a new window.
sleep 4.5;
subtest_of_each('the second', sub {
    my ($node, $redis) = @_;
    sleep 0.02 while time - 2 * int(time / 2) > 0.2;
    is status_of($node, '/?k=passed'), 'FAILED_OPEN', 'the second loss' for 1 .. 2;
    is_not_blocked(first_answer($node, $redis, '/closed?k=passed'), 'the next request finds no block');
    sleep 0.6;    # longer than until a block begins
    is_not_blocked($node->get('/closed?k=passed'), 'nor does a later one');
});
sleep 2;
subtest_of_each('the end', sub {
    my ($node) = @_;
    ok eval { wait_until('a pass', sub { $node->status('/closed?k=passed') == 200 }); 1 }, 'after the window it passes';
});

finish();

# ahead=n in two regions, behind slow links that are cut and healed while both nodes ask for one key: what passes
# beyond the limit is at most n for each worker, and all that passed is counted.

use JSON::PP qw(decode_json);
use Ratelimit::Test;
use Time::HiRes qw(sleep);

my ($limit, $n, $workers, $clients) = (300, 10, 2, 6);

my $redis = redis();
my @links = map { proxy(to => $redis->addr) } 1 .. 2;
my @nodes = map { region($_) } @links;
my $beside = region($redis);    # to look at the counts

# A node whose Redis is at the end of this link.
sub region {
    my ($link) = @_;
    return nginx(
        workers => $workers, expected => qr/exited on signal 9/,
        http => "keepalive_requests 100000; ratelimit_redis world { server @{[ $link->addr ]}; timeout 400ms;"
            . ' connect_timeout 400ms; breaker failures=3 open=300ms; }'
            . "ratelimit_zone k\$arg_k zone=test algorithm=token_bucket rate=1r/d burst=$limit ahead=$n;",
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }'
            . 'location /rl/ { ratelimit_api; }',
    );
}

# How much Redis has counted for a key: all of it is in the time until the bucket is full.
sub counted {
    my ($key) = @_;
    my $state = decode_json($beside->get("/rl/zones/test/keys?key=k$key")->body);
    return sprintf '%.0f', $state->{reset} / 86_400;
}

sub far_away { $_->delay(0.08) for @links; return }

# Both nodes get requests of a key for as long as $fault takes, and then until the limit is used up. Returns how
# many passed.
sub passed_during {
    my ($key, $fault) = @_;
    far_away();
    my @loads = map { load(port => $_->port, path => "/?k=$key", clients => $clients) } @nodes;
    $fault->();
    far_away();
    wait_until('the limit is used up', sub { counted($key) >= $limit }, 30);
    sleep 0.6;    # reports that failed are sent again
    my $passed = 0;
    for my $load (@loads) {
        my $seen = $load->stop;
        $passed += $seen->{200} // 0;
    }
    return $passed;
}

# A check whose reply is lost with its connection may pass, although it is not counted (doc/algorithms.md, "Messages
# that are lost"): of each client one for each time that a link is cut.
my $sent_again = $clients;

for my $case (
    ['nothing happens',              0, sub { sleep 0.5 }],
    ['a link is cut before',         1, sub { $links[0]->drop; sleep 1.5 }],
    ['a link is cut for a while',    1, sub { sleep 0.3; $links[1]->drop; sleep 1.5 }],
    ['both links are cut in turn',   2, sub { for (@links) { sleep 0.2; $_->drop; sleep 0.8; $_->delay(0.08) } }],
    ['connections break',            4, sub { for (1 .. 2) { sleep 0.2; $_->cut for @links; far_away() } }],
    ['Redis stands still',           2, sub { sleep 0.2; $redis->pause; sleep 1.2; $redis->resume }],
    ['a worker is killed',           0, sub { sleep 0.2; kill KILL => ($nodes[0]->workers)[0]; sleep 0.3 }, $n],
) {
    my ($what, $cuts, $fault, $more) = @{$case};
    subtest "at most n for each worker pass beyond the limit: $what" => sub {
        my $key = $what =~ tr/a-zA-Z//cdr;
        my $passed = passed_during($key, $fault);
        cmp_ok $passed, '<=', $limit + $n * $workers * @nodes + $cuts * $sent_again + ($more // 0), "$passed passed";
        # A killed worker has counted requests that it does not answer.
        my $unanswered = $more ? $clients : 0;
        cmp_ok $passed, '>=', $limit - $cuts * $sent_again - $n * $workers * @nodes * $cuts - $unanswered,
            'the limit was there to be used';
        # What a cut link lost is sent again, but only when its late reply need not be expected any longer.
        my $least = $passed - $cuts * $sent_again - ($more // 0);
        ok eval { wait_until('the reports', sub { counted($key) >= $least }, 20); 1 }, 'all that passed is counted';
    };
}

finish();

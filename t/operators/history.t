# The history of a zone: what it passed and refused, in the API and over reloads.

use Ratelimit::Test;
use JSON::PP qw(decode_json);
use List::Util qw(max sum0);
use Time::HiRes qw(time);

my $api = 'location /ops/ { ratelimit_api; }';

# {step => {start, passed, ...}} of a zone, and the node's time.
sub history {
    my ($node, $zone, $arguments) = @_;
    my $answer = $node->get("/ops/zones/$zone/history" . ($arguments // ''));
    is $answer->status, 200, "history of $zone";
    is $answer->header('Content-Type'), 'application/json';
    my $json = decode_json($answer->body);
    is $json->{zone}, $zone;
    return ({ map { $_->{step} => $_ } @{ $json->{steps} } }, $json->{now});
}

sub total { return sum0 map { $_ // 0 } @{ $_[0] } }

subtest 'requests are in the steps of their time' => sub {
    my $node = node(zone => 'rate=3r/d', server => $api);
    my $before = time;
    $node->status('/?k=a') for 1 .. 7;
    my $after = time;
    my ($steps, $now) = history($node, 'test');
    ok $after - 2 < $now && $now < time + 2, 'the answer has the node\'s time' or diag "$now is not $after or later";
    is_deeply [sort { $a <=> $b } keys %{$steps}], [10, 300];
    for my $step (10, 300) {
        my $scale = $steps->{$step};
        is $scale->{start} % $step, 0, 'steps begin at round times';
        my @passed = @{ $scale->{passed} };
        is_deeply [map { scalar @{ $scale->{$_} } } qw(refused would_refuse undecided)], [(scalar @passed) x 3];
        is total(\@passed), 3, "$step s: passed";
        is total($scale->{refused}), 4, "$step s: refused";
        my $last = $scale->{start} + $step * $#passed;
        ok $last <= $now && $now < $last + $step, 'the last step is the current one';
        my ($first) = grep { $passed[$_] } 0 .. $#passed;
        my $begun = $scale->{start} + $step * $first;
        ok $begun <= $after && $before < $begun + $step, 'the requests are in the step of their time';
    }
};

subtest 'a request counts as let in or refused, whatever decided it' => sub {
    my $redis = redis();
    my $node = node(redis => $redis, zone => 'rate=1r/d cache=off', server => "$api
        location /dry/ { ratelimit zone=dry; ratelimit_dry_run on; try_files /index.html =404; }
        location /shadow/ { ratelimit zone=shade shadow; try_files /index.html =404; }
        location /open/ { ratelimit zone=open; try_files /index.html =404; }
        location /closed/ { ratelimit zone=closed; ratelimit_fail_mode closed; try_files /index.html =404; }",
        http => join '', map { "ratelimit_zone \$arg_k zone=$_ rate=\$arg_rate;" } qw(dry shade open closed));
    my %sent = (dry => '&rate=1r/d', shade => '&rate=1r/d', open => '&rate=x', closed => '&rate=x');
    for my $zone (sort keys %sent) {
        my $path = $zone eq 'shade' ? 'shadow' : $zone;
        $node->status("/$path/?k=a$sent{$zone}") for 1 .. 3;
    }
    my $numbers = sub {
        my ($steps) = history($node, $_[0]);
        return [map { total($steps->{10}{$_}) } qw(passed refused would_refuse undecided)];
    };
    is_deeply $numbers->('dry'),    [3, 0, 2, 0], 'dry run';
    is_deeply $numbers->('shade'),  [3, 0, 2, 0], 'shadow';
    is_deeply $numbers->('open'),   [3, 0, 0, 3], 'fail mode open';
    is_deeply $numbers->('closed'), [0, 3, 0, 0], 'fail mode closed';
};

subtest 'workers roll the history without being asked, and a reload keeps it' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api, workers => 2);
    burst($node->port, '/', 60, 20);
    my ($before) = history($node, 'test');
    is total($before->{10}{passed}), 60;
    my $start = $before->{10}{start};
    # No answer of the API is needed for a step to exist.
    wait_until('the next two steps', sub { time >= $start + 10 * @{ $before->{10}{passed} } + 12 }, 40);
    $node->reload(gone => 1);
    $node->status('/');
    my ($after) = history($node, 'test');
    is $after->{10}{start}, $start, 'the first step is still there';
    is total($after->{10}{passed}), 61;
    is scalar(grep { !defined } @{ $after->{10}{passed} }), 0, 'every step is known';
    cmp_ok scalar @{ $after->{10}{passed} }, '>=', @{ $before->{10}{passed} } + 2;

    my $since = $start + 10 * $#{ $after->{10}{passed} };
    my ($late, $now) = history($node, 'test', "?since=$since");
    is scalar @{ $late->{10}{passed} }, 1 + int(($now - $since) / 10), 'since= leaves out the steps before';
    my ($none) = history($node, 'test', '?since=99999999999');
    is scalar @{ $none->{$_}{passed} }, 0, 'a time to come' for 10, 300;
};

subtest 'the long steps have the highest use of a key' => sub {
    my $node = node(zone => 'rate=10r/d', server => $api);
    my $use = sub { my ($steps) = history($node, 'test'); return max(grep { defined } @{ $steps->{300}{highest_use} }) };
    $node->status('/?k=a') for 1 .. 4;
    $node->status('/?k=b');
    is $use->(), 40, '4 of 10, whatever another key uses';
    $node->status('/?k=c') for 1 .. 10;
    is $use->(), 100, 'nothing is left';
    ok !exists((history($node, 'test'))[0]{10}{highest_use}), 'the short steps have none';
    is decode_json($node->get('/ops/zones/test')->body)->{highest_use}, 100;
    like $node->get('/ops/metrics')->body, qr/^ratelimit_zone_highest_use_ratio\{zone="test"\} 1\.0+$/m;
    ok !exists(decode_json($node->get('/ops/history')->body)->{steps}[1]{highest_use}), 'requests have no limit of their own';
};

subtest 'a zone of the smallest size has a history' => sub {
    my $node = nginx(http => 'ratelimit_zone $arg_k zone=small:32k rate=2r/d;',
        server => "$api location / { ratelimit zone=small; try_files /index.html =404; }");
    $node->status("/?k=$_") for (1 .. 300) x 3;
    my ($steps) = history($node, 'small');
    is_deeply [sort grep { ref $steps->{10}{$_} } keys %{ $steps->{10} }], [qw(passed refused)];
    is total($steps->{10}{passed}) + total($steps->{10}{refused}), 900;
};

subtest 'bad requests are refused' => sub {
    my $node = node(zone => 'rate=3r/d', server => $api);
    is $node->status('/ops/zones/other/history'), 404, 'an unknown zone';
    is $node->status('/ops/zones/test/history/x'), 404;
    is $node->status('/ops/zones/test/histories'), 404;
    is $node->status("/ops/zones/test/history?since=$_"), 400, "since=$_" for qw(x -1 1.5 %zz 99999999999999999999), '';
    is $node->status('/ops/zones/test/history', method => 'DELETE'), 405;
};

finish();

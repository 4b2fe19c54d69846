# What a reload keeps of a zone: all that still means the same, and nothing else.

use Ratelimit::Test;

my $window = 'rate=2r/d algorithm=fixed_window';

# The configuration of one zone without Redis, for configure or nginx().
sub lines {
    my ($key, $parameters, $more) = @_;
    return (
        http   => "ratelimit_zone $key zone=test $parameters;" . ($more // ''),
        server => 'location / { ratelimit zone=test; try_files /index.html =404; }'
            . 'location /ops/ { ratelimit_api; }',
    );
}

sub statuses { my ($node, $count) = @_; return join ' ', map { $node->status('/?k=a') } 1 .. $count }

my $told = qr/\[warn\].*"ratelimit_zone" "test" had another key, hash_key or algorithm: .* starts empty in .*nginx\.conf:\d+/;

subtest 'a rate and other zones change nothing that is counted' => sub {
    my $node = nginx(lines('$arg_k', $window));
    is statuses($node, 3), '200 200 429';
    $node->configure(lines('$arg_k', 'rate=3r/d algorithm=fixed_window', 'ratelimit_zone x zone=more rate=1r/d;'));
    $node->reload(gone => 1);
    is statuses($node, 1), '200', 'one more';
    is statuses($node, 1), '429', 'and no other';
    is $node->count_log($told), 0;
};

subtest 'another key, algorithm or hash_key starts empty, and one line says so' => sub {
    my $node = nginx(lines('$arg_k', $window), workers => 2);
    is statuses($node, 3), '200 200 429';
    my $lines = 0;
    for my $meaning (
        ['$arg_k$arg_none', $window],
        ['$arg_k',          $window],
        ['$arg_k',          "$window hash_key"],
        ['$arg_k',          $window],
        ['$arg_k',          'rate=2r/d algorithm=sliding_window_counter'],
        ['$arg_k',          'rate=2r/d algorithm=token_bucket'],
        ['$arg_k',          'rate=2r/d algorithm=gcra burst=1'],
    ) {
        $node->configure(lines(@{$meaning}))->reload(gone => 1);
        is statuses($node, 3), '200 200 429', "@{$meaning}";
        is $node->count_log($told), ++$lines;
        $node->reload(gone => 1);
        is statuses($node, 1), '429', 'a reload that changes nothing keeps it';
        is $node->count_log($told), $lines;
    }
};

subtest 'a key that becomes hashed is not in the API any more' => sub {
    my $node = nginx(lines('secret$arg_k', $window));
    statuses($node, 4);
    like $node->get('/ops/zones')->body, qr/"key":"secreta"/;
    $node->configure(lines('secret$arg_k', "$window hash_key"))->reload(gone => 1);
    unlike $node->get('/ops/zones')->body, qr/secreta/;
};

subtest 'a reload that fails keeps what was counted' => sub {
    my $node = nginx(lines('$arg_k', $window), expected => qr/nonsense/);
    is statuses($node, 3), '200 200 429';
    $node->configure(lines('$uri', $window, 'nonsense;'));
    kill HUP => $node->pid;
    $node->wait_for_log(qr/\[emerg\].*nonsense/);
    is statuses($node, 2), '429 429';
};

finish();

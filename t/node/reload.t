# A reload keeps the counts of a zone whose meaning stays the same, and no others.

use Ratelimit::Backend;
use Ratelimit::Test;
use Time::HiRes qw(time);

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

my $line = qr/\[warn\].*"ratelimit_zone" "test" had another key, hash_key or algorithm: .* starts empty in .*nginx\.conf:\d+/;

subtest 'a new rate or zone does not change the counts' => sub {
    my $node = nginx(lines('$arg_k', $window));
    is statuses($node, 3), '200 200 429';
    $node->configure(lines('$arg_k', 'rate=3r/d algorithm=fixed_window', 'ratelimit_zone x zone=more rate=1r/d;'));
    $node->reload(gone => 1);
    is statuses($node, 1), '200', 'one more passes';
    is statuses($node, 1), '429', 'and no other one';
    is $node->count_log($line), 0;
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
        is $node->count_log($line), ++$lines;
        $node->reload(gone => 1);
        is statuses($node, 1), '429', 'a reload without a change keeps the counts';
        is $node->count_log($line), $lines;
    }
};

subtest 'after hash_key is added the API no longer shows plain keys' => sub {
    my $node = nginx(lines('secret$arg_k', $window));
    statuses($node, 4);
    like $node->get('/ops/zones')->body, qr/"key":"secreta"/;
    $node->configure(lines('secret$arg_k', "$window hash_key"))->reload(gone => 1);
    unlike $node->get('/ops/zones')->body, qr/secreta/;
};

subtest 'a request that is held counts for its own hold=, also when a reload makes it shorter' => sub {
    my $backend = Ratelimit::Backend->new;
    my $with = sub {
        my ($hold) = @_;
        return (http => "ratelimit_zone k\$arg_k zone=test concurrency=1 hold=$hold;",
            server => "location / { ratelimit zone=test; proxy_pass http://@{[ $backend->addr ]}; }");
    };
    my $node = nginx($with->('8s'));
    my ($held) = $backend->hold($node, '/?k=a');
    my $reloaded = time;
    $node->configure($with->('1s'))->reload;
    my %statuses;
    wait_until('the second renewal', sub { ++$statuses{ $node->status('/?k=a&for=0') }; time - $reloaded > 9 });
    is_deeply [keys %statuses], [429], 'no second request is let in';
    is $node->status('/?k=b&for=0'), 200, 'another key is not concerned';
    $backend->finish;
    is http_read($held)->status, 200;
    wait_until('its worker has exited', sub { !$node->workers(1) });
    is $node->status('/?k=a&for=0'), 200, 'what is released does not count';
    my @next = $backend->hold($node, '/?k=a');
    is $node->status('/?k=a&for=0'), 429;
    $backend->finish;
    is http_read($_)->status, 200 for @next;
};

subtest 'a reload that fails keeps the counts' => sub {
    my $node = nginx(lines('$arg_k', $window), expected => qr/nonsense/);
    is statuses($node, 3), '200 200 429';
    $node->configure(lines('$uri', $window, 'nonsense;'));
    kill HUP => $node->pid;
    $node->wait_for_log(qr/\[emerg\].*nonsense/);
    is statuses($node, 2), '429 429';
};

finish();

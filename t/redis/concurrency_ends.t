# What doc/algorithms.md says about the end of a request with concurrency=, and about a key that holds nothing.

use Ratelimit::Backend;
use Ratelimit::Test;

my $slow = Ratelimit::Backend->new;
my $node = node(
    key  => 'k$arg_k', zone => 'concurrency=1',
    location => 'try_files /index.html =404;',
    server   => "location = /mirrored { ratelimit zone=test; mirror /copy; alias html/index.html; }
        location = /copy { internal; proxy_pass http://@{[ $slow->addr ]}; }
        location = /acted { ratelimit zone=test; post_action /copy; alias html/index.html; }
        location = /large { ratelimit zone=test cost=3\$arg_none; }",
);

for (['mirror', '/mirrored?k=m'], ['post_action', '/acted?k=p']) {
    my ($directive, $path) = @{$_};
    subtest "a request with $directive holds its unit until that has ended, though its response is complete" => sub {
        my ($key) = $path =~ /(k=.*)/;
        my $begun = $slow->begun;
        my $socket = http_connect($node->port);
        http_send($socket, $path);
        is http_read($socket)->status, 200;
        wait_until('the backend has the subrequest', sub { $slow->begun > $begun });
        is $node->status("/?$key"), 429;
        $slow->finish;
        wait_until('the unit is free', sub { $node->status("/?$key") == 200 });
        close $socket;
    };
}

subtest 'the reset is a second while anything is held, and else 0' => sub {
    my $answer = $node->get('/?k=held');
    is $answer->status . ' ' . $answer->header('X-RateLimit-Reset'), '200 1';
    wait_until('nothing is held', sub { $node->get('/peek?k=held')->header('X-RateLimit-Remaining') == 1 });
    $answer = $node->get('/large?k=held');
    is $answer->status . ' ' . $answer->header('X-RateLimit-Reset'), '429 0', 'a cost above the limit';
    is $node->get('/peek?k=held')->header('X-RateLimit-Reset'), 0;
};

finish();

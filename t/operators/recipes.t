# doc/recipes.md: nginx accepts every configuration there, and it limits as described, also clients that leave before
# the answer: they gain nothing. recipes_who.t has the other recipes.

use Ratelimit::Recipes qw(run_recipes recipes leave slow_backend);
use Ratelimit::Test;
use Ratelimit::Build qw(top);
use Time::HiRes qw(time);

my %try = (
    'Dry run first' => sub {
        my ($node, $recipe) = @_;
        is $node->status('/api/'), 200 for 1 .. 100;
        is $node->status('/api/'), $recipe =~ /ratelimit_dry_run/ ? 200 : 429;
    },
    'Plans' => sub {
        my ($node) = @_;
        my $tries = sub {
            my ($key, $count) = @_;
            return scalar grep { $node->status('/api/', headers => ['X-API-Key' => $key]) == 200 } 1 .. $count;
        };
        is $tries->('unknown', 12), 10, 'the free plan';
        is $tries->('gold-4711', 1000), 1000, 'gold';
        is $tries->($_, 1), 0, 'no more under another spelling' for 'gold-4711', 'Gold-4711', 'GOLD-4711';
        is $tries->('internal-99', 30), 30, 'no limit';
        is $tries->("invented$_", 1), 0, 'an invented key is refused' for 1 .. 3;
        is $node->status('/api/'), 429, 'a request without a key is refused too';
    },
    'Login protection' => sub {
        my ($node) = @_;
        my $post = sub {
            my ($account, @password) = @_;
            return $node->status('/login', method => 'POST', headers => ['X-Account' => $account, @password]);
        };
        my @wrong = ('X-Password' => 'wrong');
        is_deeply [map { $post->('ann') } 1 .. 12], [(200) x 12], 'successful logins are not counted';
        is_deeply [map { $post->('ann', @wrong) } 1 .. 6], [(401) x 5, 429], 'a limit of failures for each account';
        is $post->('ann', @wrong), 429, 'until the window has passed';
        is $node->status('/login?user=ann'), 200, 'the form is not limited';
        is_deeply [map { $post->('eve', 'X-Password' => 'redirect') } 1 .. 6], [(302) x 5, 429],
            'a redirect to the form is a failure, too';
        is_deeply [map { $post->("user$_", @wrong) } 1 .. 11], [(401) x 10, 429], 'a limit for each address';
    },
    'At most n reports at one time' => sub {
        my ($node) = @_;
        my @slow = (headers => ['X-API-Key' => 'ann', 'X-Slow' => 1]);
        my @reports = map { my $socket = http_connect($node->port); http_send($socket, '/reports/', @slow); $socket } 1 .. 2;
        my $status = sub { $node->status('/reports/', headers => ['X-API-Key' => $_[0]]) };
        wait_until('two reports run', sub { slow_backend()->now == 2 });
        is $status->('ann'), 429;
        is $status->('bob'), 200, 'another customer';
        slow_backend()->finish;
        wait_until('reports that end make room', sub { $status->('ann') == 200 });
    },
    'Room for what matters' => sub {
        my ($node, $recipe) = @_;
        my $passed = sub {
            my ($key, $count) = @_;
            return scalar grep { $node->status('/', headers => ['X-API-Key' => $key]) == 200 } 1 .. $count;
        };
        return is_deeply [$passed->('k', 260), $passed->('gold-1', 70)], [240, 60], 'gold has its 20 %' if $recipe =~ /gold/;
        my @held;
        my $begin = sub {
            my ($path, $count) = @_;
            my $before = slow_backend()->now;
            for (1 .. $count) {
                push @held, http_connect($node->port);
                http_send($held[-1], $path, headers => ['X-Slow' => 1]);
            }
            wait_until("$count of $path run", sub { slow_backend()->now == $before + $count });
        };
        $begin->(@{$_}) for ['/', 10], ['/search/', 6];
        is_deeply [map { $node->status($_) } '/', '/search/'], [503, 503], 'the search leaves a fifth';
        $begin->('/checkout/', 4);
        is_deeply [map { $node->status($_) } '/', '/search/', '/checkout/'], [503, 503, 503], 'the checkout uses all';
        slow_backend()->finish;
        wait_until('there is room again', sub { $node->status('/') == 200 });
    },
    'By address and by key together' => sub {
        my ($node) = @_;
        is $node->status('/api/', headers => ['X-API-Key' => 'k']), 200 for 1 .. 100;
        is $node->status('/api/', headers => ['X-API-Key' => 'k']), 429;
        is $node->status('/api/'), 200, 'another client without a key passes';
    },
    'Allow lists' => sub {
        my ($node) = @_;
        for my $address ('127.0.2.1', '127.0.2.2') {
            is $node->status('/', from => $address), 200 for 1 .. 100;
            is $node->status('/', from => $address), 429, 'other addresses are limited';
        }
        is $node->status('/', from => '127.0.0.9'), 200 for 1 .. 101;
        is $node->status('/', from => '127.0.1.7'), 200 for 1 .. 101;
    },
    'Behind a CDN or a load balancer' => sub {
        my ($node) = @_;
        my $status = sub {
            my ($forwarded, @from) = @_;
            return $node->status('/', headers => ['X-Forwarded-For' => $forwarded], @from);
        };
        for my $client ('198.51.100.1', '198.51.100.2') {
            is $status->("192.0.2.$_, $client"), 200 for 1 .. 100;
            is $status->("192.0.2.101, $client"), 429, 'the client cannot avoid it by a forged header';
        }
        is $status->("192.0.2.$_", from => '127.0.2.1'), 200 for 1 .. 100;
        is $status->('192.0.2.101', from => '127.0.2.1'), 429, 'a client that is no proxy cannot forge its address';
    },
    'Costly requests' => sub {
        my ($node) = @_;
        my @key = (headers => ['X-API-Key' => 'k']);
        is_deeply [map { $node->status('/api/export', @key) } 1 .. 5], [(200) x 4, 429];
        is $node->get('/api/limits', @key)->header('X-RateLimit-Remaining'), 1;
        is $node->status('/api/EXPORT', @key), 429, 'some backends take it for an export';
        is $node->get('/api/export/..%2Flimits', @key)->header('X-Path'), '/api/limits', 'what costs nothing is no export';
    },
    'Tokens of a language model' => sub {
        my ($node) = @_;
        my $ask = sub { $node->get('/v1/', headers => ['X-API-Key' => $_[1] // 'k', 'X-Tokens' => $_[0]]) };
        # Whether this answer leaves what this much use leaves of the limit, and what has come back since the first use.
        my $leaves = sub {
            my ($answer, $name, $limit, $used, $first) = @_;
            my ($left) = $answer->header('RateLimit') =~ /"$name";r=(\d+)/ or return 0;
            return $left >= $limit - $used && $left <= $limit - $used + (time - $first) * $limit / 60 + 1;
        };
        my ($first, $used) = (time, 20_000);
        is $ask->(20_000)->header('RateLimit') =~ /"tokens";r=(\d+)/ ? $1 : -1, 96_000, 'a request reserves 4000';
        wait_until('it is charged what the answer names',
            sub { $leaves->($ask->(4000), 'tokens', 100_000, $used += 4000, $first) });
        $ask->(90_000);
        wait_until('beyond the limit', sub { $ask->(4000)->status == 429 });
        ($first, $used) = (time, 4000);
        is $ask->(4000, 'a-key')->status, 200, 'another key';
        wait_until('the keys of a team share its tokens',
            sub { $leaves->($ask->(4000, 'a-other'), 'team_tokens', 400_000, $used += 4000, $first) });
        $ask->(999_999_999, 'wrong');
        my $wait;
        wait_until('it is charged', sub { $wait = $ask->(0, 'wrong')->header('Retry-After') });
        cmp_ok $wait, '<=', 86_400, 'one answer costs at most the whole limit';
    },
    'Bytes a day' => sub {
        my ($node) = @_;
        my $get = sub { $node->get('/downloads/')->header('RateLimit') =~ /"traffic";r=(\d+)/ ? $1 : undef };
        is $get->(), 999_999_999, 'the first download';
        my $begun = 1;
        wait_until('its bytes are charged', sub { $begun++; $get->() < 999_999_800 });
        is $node->status('/downloads/'), 200 for $begun + 1 .. 60;
        is $node->status('/downloads/'), 429, 'at most 60 begin in a minute';
    },
    'A penalty for scrapers' => sub {
        my ($node) = @_;
        is $node->status('/catalogue/'), 200 for 1 .. 120;
        for (1 .. 3) {
            my $answer = $node->get('/catalogue/');
            is $answer->status, 429;
            like $answer->body, qr/#abnormal-usage-detected"/;
            cmp_ok $answer->header('Retry-After'), '>', 500, 'ten minutes, or until the window has passed';
        }
        is $node->status('/catalogue/', from => '127.0.2.1'), 200, 'another client';
        is $node->status('/index.html'), 200, 'another location';
    },
    'Several APIs under one quota' => sub {
        my ($node) = @_;
        my @key = (headers => ['X-API-Key' => 'k']);
        is $node->status('/search/', @key), 200 for 1 .. 60;
        is $node->status('/search/', @key), 429;
        is $node->get('/', @key)->header('X-RateLimit-Remaining'), 939;
        is $node->get('/search/..%2Fpage?a=%2F', @key)->header('X-Path'), '/page?a=%2F', 'what is no search is not taken for one';
    },
    'An answer that says why' => sub {
        my ($node) = @_;
        $node->status('/') for 1 .. 100;
        my $answer = $node->get('/');
        is $answer->status, 429;
        like $answer->body, qr/^\{"error":"rate limit","zone":"per_client","retry_after":\d+\}$/;
    },
    'An answer for programs' => sub {
        my ($node) = @_;
        $node->status('/api/') for 1 .. 100;
        my $answer = $node->get('/api/');
        is $answer->status . $answer->header('Content-Type'), '429application/problem+json';
        like $answer->body, qr/"violated-policies":\["per_client"\]/;
        like $answer->header('RateLimit'), qr/^"per_client";r=0;t=@{[ $answer->header('Retry-After') ]}$/;
    },
    'gRPC clients' => sub {
        my ($node) = @_;
        is $node->get('/')->header('grpc-status'), undef for 1 .. 100;
        my $answer = $node->get('/');
        is $answer->status . $answer->header('Content-Type'), '200application/grpc';
        is $answer->header('grpc-status') . length $answer->body, '80';
        cmp_ok $answer->header('Retry-After'), '>', 0;
    },
    'Spans for OpenTelemetry' => sub {
        my ($node) = @_;
        my $attributes = sub {
            my $answer = $node->get('/');
            return join ' ', map { $answer->header("ratelimit.$_") // 'none' } qw(status source zone remaining);
        };
        is $attributes->(), 'PASSED redis per_client 99';
        $attributes->() for 2 .. 100;
        is $attributes->(), 'REJECTED redis per_client 0';
        like $node->get('/')->header('ratelimit.time'), qr/^0\.\d{3}$/;
    },
);

# For each recipe: requests that use up a limit, whose clients all leave. `stays`: they last until the backend answers.
my @key = (headers => ['X-API-Key' => 'k']);
my %leaving = (
    'Dry run first'                 => { path => '/api/', count => 100 },
    'Plans'                         => { path => '/api/', count => 10 },
    'Login protection'              => { path => '/login', count => 5, method => 'POST', headers => ['X-Account' => 'ann'] },
    'At most n reports at one time' => { path => '/reports/', count => 2, @key, stays => 1 },
    'Room for what matters'         => sub {
        my ($node) = @_;
        my $by_rate = $node->get('/')->header('X-RateLimit-Limit') > 20;
        leave($node, '/', $by_rate ? 239 : 10, stays => !$by_rate);
        is $node->status('/'), $by_rate ? 429 : 503, 'what they took is taken';
        slow_backend()->finish;
        wait_until('what runs makes room when it ends', sub { $by_rate || $node->status('/') == 200 });
    },
    'By address and by key together' => { path => '/api/', count => 100, @key },
    'Allow lists'                    => { path => '/', count => 100, from => '127.0.2.1' },
    'Behind a CDN or a load balancer' => { path => '/', count => 100, headers => ['X-Forwarded-For' => '198.51.100.1'] },
    'Costly requests'                => { path => '/api/export', count => 4, @key },
    'Tokens of a language model'     => { path => '/v1/', count => 25, @key },
    'Bytes a day'                   => { path => '/downloads/', count => 60 },
    'A penalty for scrapers'        => { path => '/catalogue/', count => 120 },
    'Several APIs under one quota'  => { path => '/search/', count => 60, @key },
    'An answer for programs'        => { path => '/api/', count => 100 },
    map { $_ => { path => '/', count => 100 } } 'An answer that says why', 'gRPC clients', 'Spans for OpenTelemetry',
);

my $other = read_file(top() . '/t/operators/recipes_who.t');
is_deeply [grep { !$try{$_} && $other !~ /^    '\Q$_\E' => sub/m } map { $_->[0] } recipes()], [], 'every recipe is tested';
run_recipes(\%try, \%leaving);
finish();

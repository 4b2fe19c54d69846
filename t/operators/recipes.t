# doc/recipes.md: every configuration there is one that nginx takes, and limits.

use Ratelimit::Test;
use Ratelimit::Process qw(read_file free_port);
use Ratelimit::Build qw(top);

my $text = read_file(top() . '/doc/recipes.md');
my @parts = split /^## (.+)\n/m, $text;
shift @parts;
my $redis   = redis();
my $backend = nginx(module => 0, server => 'location / { return 200 backend; }');

# What of http {} a recipe is, and what of server {}.
sub node_of {
    my ($recipe) = @_;
    my ($http, $server) = $recipe =~ /^(.*?)^server \{\n(.*)^\}/ms or return;
    s{http://backend}{http://127.0.0.1:@{[ $backend->port ]}}g for $server;
    s{/var/log/nginx/}{logs-} for $server;
    # Where clients of the test are; and windows that do not end while it runs.
    s{10\.0\.0\.0/8}{127.0.0.0/24}, s{192\.0\.2\.7}{127.0.1.7} for $http;
    s{\d+r/\Kh}{d}g, s{\d+r/\Km\b}{d}g for $http;
    $http = "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } $http";
    return nginx(http => $http, server => $server);
}

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
        is $tries->('gold-4711', 30), 30, 'gold';
        is $tries->('internal-99', 30), 30, 'no limit';
        is $tries->("invented$_", 1), 0, 'one of many invented keys' for 1 .. 3;
        is $node->status('/api/'), 429, 'nor is none a way around';
    },
    'Login protection' => sub {
        my ($node) = @_;
        my $post = sub { $node->status('/login', method => 'POST', headers => ['X-Account' => $_[0]]) };
        is_deeply [map { $post->('ann') } 1 .. 6], [(200) x 5, 429], 'an account';
        is $node->status('/login?user=ann'), 200, 'the form itself';
        is_deeply [map { $post->("user$_") } 1 .. 16], [(200) x 15, 429], 'an address';
    },
    'By address and by key together' => sub {
        my ($node) = @_;
        is $node->status('/api/', headers => ['X-API-Key' => 'k']), 200 for 1 .. 100;
        is $node->status('/api/', headers => ['X-API-Key' => 'k']), 429;
        is $node->status('/api/'), 200, 'without a key';
    },
    'Allow lists' => sub {
        my ($node) = @_;
        for my $address ('127.0.2.1', '127.0.2.2') {
            is $node->status('/', from => $address), 200 for 1 .. 100;
            is $node->status('/', from => $address), 429, 'others are';
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
            is $status->("192.0.2.101, $client"), 429, 'whatever the client has put before it';
        }
        is $status->("192.0.2.$_", from => '127.0.2.1'), 200 for 1 .. 100;
        is $status->('192.0.2.101', from => '127.0.2.1'), 429, 'nor is one believed who is no proxy';
    },
    'Costly requests' => sub {
        my ($node) = @_;
        my @key = (headers => ['X-API-Key' => 'k']);
        is_deeply [map { $node->status('/api/export', @key) } 1 .. 5], [(200) x 4, 429];
        is $node->get('/api/limits', @key)->header('X-RateLimit-Remaining'), 1;
    },
    'Several APIs under one quota' => sub {
        my ($node) = @_;
        my @key = (headers => ['X-API-Key' => 'k']);
        is $node->status('/search/', @key), 200 for 1 .. 60;
        is $node->status('/search/', @key), 429;
        is $node->get('/', @key)->header('X-RateLimit-Remaining'), 939;
    },
    'An answer that says why' => sub {
        my ($node) = @_;
        $node->status('/') for 1 .. 100;
        my $answer = $node->get('/');
        is $answer->status, 429;
        like $answer->body, qr/^\{"error":"rate limit","zone":"per_client","retry_after":\d+\}$/;
    },
);

is_deeply [map { $parts[2 * $_] } 0 .. $#parts / 2], [grep { $try{$_} } map { $parts[2 * $_] } 0 .. $#parts / 2],
    'every recipe is tried';

while (my ($name, $part) = splice @parts, 0, 2) {
    subtest $name => sub {
        for my $recipe ($part =~ /^```nginx\n(.*?)^```/msg) {
            $redis->cmd('FLUSHALL');
            $try{$name}->(node_of($recipe), $recipe);
        }
    };
}

finish();

# Limits around ratelimit_api: who is refused elsewhere can still read the dashboard and the metrics.

use Ratelimit::Test;

my $zone = 'ratelimit_zone all zone=z rate=2r/d algorithm=fixed_window;';

for (['http', 'ratelimit zone=z;', ''], ['server', '', 'ratelimit zone=z;']) {
    my ($level, $http, $server) = @{$_};
    subtest "a limit in $level {} does not limit the API" => sub {
        my $node = nginx(http => "$zone $http", server => "$server location / { try_files /index.html =404; }"
                . 'location /ratelimit/ { limit_except GET { allow all; } if ($arg_x) { set $x 1; } ratelimit_api; }'
                . 'location = /own/metrics { ratelimit_api; }');
        is $node->status("/$_"), 200 for 1 .. 2;
        is $node->status('/3'), 429;
        is $node->status($_), 200 for qw(/ratelimit/ /ratelimit/metrics /ratelimit/zones /ratelimit/zones?x=1 /own/metrics);
        is $node->get('/ratelimit/zones')->header('X-RateLimit-Limit') // '', '', 'without headers of a limit';
    };
}

subtest 'a limit of the location itself holds' => sub {
    my $node = nginx(http => "$zone ratelimit zone=z;", server => 'location /ratelimit/ { ratelimit zone=z; ratelimit_api; }');
    is join(' ', map { $node->status('/ratelimit/metrics') } 1 .. 3), '200 200 429';
};

finish();

# Connections to Redis count against worker_connections, like those of clients.

use Ratelimit::Test;

my $zone = 'ratelimit_zone $arg_k zone=test rate=100r/d;';
my $limited = 'location / { ratelimit zone=test; try_files /index.html =404; }';

sub block { return "ratelimit_redis main { $_[0] }" }

subtest 'nginx warns when Redis takes most of worker_connections' => sub {
    for (
        [8,  'server 127.0.0.1; connections 5;',                    5],
        [16, 'server 127.0.0.1; server 127.0.0.2; connections 128;', 256],
        [6,  'server 127.0.0.1; topology sentinel master=m; connections 3;', 4],
        [8,  'server 127.0.0.1; server 127.0.0.2; connections 2;'],
        [16, 'server 127.0.0.1; topology cluster; connections 8;'],
    ) {
        my ($connections, $lines, $taken) = @{$_};
        my ($exit, @complaints) =
            conf_test(connections => $connections, level => 'error', http => block($lines) . $zone, server => $limited);
        is $exit, 0;
        my $expected = defined $taken
            ? qr/\[warn\] ratelimit: connections to Redis take $taken or more of the $connections worker_connections$/
            : qr/^$/;
        like "@complaints", $expected, "$connections: $lines";
    }
    my ($exit, @complaints) = conf_test(connections => 8, http => block('server 127.0.0.1; connections 9;') . $zone);
    is "$exit @complaints", '0 ', 'a ratelimit_redis that no limit uses takes none';
};

subtest 'when clients use all worker_connections, one line says so, and Redis is not reported as unavailable' => sub {
    my $redis = redis();
    my $node = nginx(connections => 10, expected => qr/worker_connections are not enough/, server => $limited,
        http => block("server @{[ $redis->addr ]}; timeout 1s;") . $zone);
    is $node->status('/?k=a'), 200;
    $redis->stop('KILL');
    $node->wait_for_log(qr/redis "main" at \S+ is away/);
    # Clients with a partial request, so that nginx does not reuse their connections.
    my @clients = map { http_connect($node->port) } 1 .. 12;
    print {$_} "GET / HTTP/1.1\r\n" for @clients;
    my $line = qr/\[error\].*ratelimit: no connection to Redis can be made, the fail mode decides: all 10 worker_connections are in use$/;
    $node->wait_for_log($line);
    $redis->start;
    wait_until('the node has tried to connect several times', sub {
        return $redis->cmd('INFO', 'stats') =~ /total_connections_received:(\d+)/ && $1 > 6;
    });
    is $node->count_log($line), 1, 'one line for all attempts';
    is $node->count_log(qr/redis "main" at \S+ is away/), 1, 'Redis is reported only for the time when it was stopped';
    is $node->count_log(qr/worker_connections are not enough$/), 0, 'nginx logs no line for each attempt';
    close $_ for @clients;
    $node->wait_for_log(qr/redis "main" at \S+ is up/, 2);
    is $node->status('/?k=a'), 200;
};

finish();

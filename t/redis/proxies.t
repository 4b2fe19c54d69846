# Redis behind proxies: those that pass no SCRIPT, no TIME and no CLIENT, or pass commands without a key to another
# server than the scripts.
# needs: nutcracker haproxy

use Ratelimit::Test;
use Ratelimit::Hostile qw(hostile);
use Ratelimit::Http qw(http_connect http_read http_send);
use Ratelimit::Process qw(free_port start_process stop_process temp_folder write_file);
use IO::Socket::INET;

sub node_of {
    my ($addr, %options) = @_;
    return nginx(
        workers => $options{workers} // 1,
        http => "ratelimit_redis main { server $addr; timeout 5s; connect_timeout 5s; } ratelimit_fail_mode closed;"
            . 'ratelimit_zone $arg_k zone=test rate=2r/d; ratelimit_zone $arg_k zone=held concurrency=9;'
            . ($options{http} // ''),
        server => 'location / { ratelimit zone=test; } location /api/ { ratelimit_api write=on; }'
            . 'location /both/ { ratelimit zone=test; ratelimit zone=held; try_files /index.html =404; }',
    );
}

# Each of these keys is limited, and no request failed or waited.
sub limits {
    my ($node, $prefix, $count) = @_;
    my @wrong = grep { $_ !~ /: 200 200 429$/ }
        map { my $key = "$prefix$_"; "$key: " . join ' ', map { $node->status("/?k=$key") } 1 .. 3 } 1 .. $count;
    is_deeply \@wrong, [], "$count keys are limited";
    return;
}

# Nothing but what says that a server is up, or was away.
sub says { return [grep { !/ is up$/ } $_[0]->log =~ /ratelimit: (.*)/g] }

sub evals { return $_[0]->calls('eval') }

# Reads one whole reply.
sub read_reply {
    my ($socket) = @_;
    my $line = <$socket> // return '';
    if ($line =~ /^\$(\d+)/) {
        read $socket, my $text, $1 + 2;
        return $line . $text;
    }
    return join '', $line, map { read_reply($socket) } 1 .. ($line =~ /^\*(\d+)/ ? $1 : 0);
}

# A proxy of two servers that sends a command to the server of its first key. $without: the reply to a command without
# a key, or code; nothing: the connection is closed.
sub proxy_of {
    my ($servers, $without) = @_;
    my %sockets;
    my $ask = sub {
        my ($number, @words) = @_;
        my $socket = $sockets{$number} //= IO::Socket::INET->new(PeerAddr => $servers->[$number]->addr) or die $!;
        $socket->print('*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words);
        return read_reply($socket);
    };
    my $of = sub { return unpack('%32C*', $_[0]) % 2 };
    my $script = sub {
        my @words = @_;
        my %all = map { $of->($_) => 1 } @words[3 .. 2 + $words[2]];
        return "-CROSSSLOT Keys in request don't hash to the same server\r\n" if keys %all > 1;
        return %all ? $ask->(keys %all, @words) : "-ERR no key\r\n";
    };
    my $keyless = sub { return ref $without ? $without->($ask, @_) : $without };
    return hostile({
        EVAL => $script, EVALSHA => $script, DEL => sub { return $ask->($of->($_[1]), @_) },
        map { $_ => $keyless } qw(SCRIPT TIME CLIENT SELECT ROLE),
    });
}

for (
    ['sends what has no key to one of them', sub { my ($ask, @words) = @_; return $ask->(0, @words) }],
    ['refuses what has no key', "-ERR unsupported command\r\n"],
    ['closes the connection at what has no key', sub { return }],
) {
    my ($does, $without) = @{$_};
    subtest "a proxy of two servers that $does" => sub {
        my @servers = map { redis() } 1 .. 2;
        my $proxy = proxy_of(\@servers, $without);
        my $node = node_of($proxy->{addr});
        limits($node, 'a', 20);
        $_->cmd('SCRIPT', 'FLUSH') for @servers;
        limits($node, 'b', 20);
        for my $expected (200, 200, 429) {
            my @sockets = map { http_connect($node->port) } 1 .. 20;
            http_send($sockets[$_ - 1], "/?k=c$_") for 1 .. 20;
            is_deeply [map { http_read($_)->status } @sockets], [($expected) x 20], 'also with many at once';
        }
        cmp_ok $_->cmd('DBSIZE'), '>', 5, 'either server has keys' for @servers;
        is_deeply says($node), [], 'no line is logged';
        my ($zone) = $node->get('/api/zones/test/keys/c1')->body =~ /"remaining":\s*(\d+)/;
        is $zone, 0, 'the API sees the key';
        is $node->status('/api/zones/test/keys/c1', method => 'DELETE'), 204, 'it is freed';
        is $node->status('/?k=c1'), 200;
        stop_process($proxy->{pid}, 'KILL');
    };
}

subtest 'twemproxy' => sub {
    my ($redis, $folder, $port) = (redis(), temp_folder(), free_port());
    write_file("$folder/conf", join "\n", 'pool:', "  listen: 127.0.0.1:$port", '  redis: true', '  servers:',
        "   - @{[ $redis->addr ]}:1", '');
    my $pid = start_process('nutcracker', "$folder/out", 'nutcracker', '-c', "$folder/conf", '-s', free_port(), '-a', '127.0.0.1');
    wait_until('it listens', sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") });
    my $node = node_of("127.0.0.1:$port", http => 'ratelimit_fleet;');
    limits($node, 'a', 10);
    is $node->status('/both/?k=b'), 200, 'several limits';
    my $used = evals($redis);
    limits($node, 'c', 10);
    cmp_ok evals($redis) - $used, '<=', 20, 'the texts of the scripts are sent once';
    is $node->get('/api/zones/test/keys/kc/override', method => 'PUT', body => '{"block":true}')->status, 200;
    wait_until('the override is in force', sub { $node->status('/?k=kc') == 429 });
    is_deeply [grep { !/fleet|override/ } @{ says($node) }], [], 'no line is logged';
    stop_process($pid, 'KILL');
};

subtest 'HAProxy' => sub {
    my ($redis, $folder, $port) = (redis(), temp_folder(), free_port());
    write_file("$folder/conf", "defaults\n mode tcp\n timeout connect 1s\n timeout client 10s\n timeout server 10s\n"
        . "listen redis\n bind 127.0.0.1:$port\n server one @{[ $redis->addr ]}\n");
    my $pid = start_process('haproxy', "$folder/out", 'haproxy', '-db', '-f', "$folder/conf");
    wait_until('it listens', sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") });
    my $node = node_of("127.0.0.1:$port");
    limits($node, 'a', 10);
    $redis->cmd('SCRIPT', 'FLUSH');
    limits($node, 'b', 10);
    is_deeply says($node), [], 'no line is logged';
    like $redis->cmd('CLIENT', 'LIST'), qr/name=nginx-ratelimit-/, 'the connection has its name';
    stop_process($pid, 'KILL');
};

subtest 'a proxy without EVAL is one line that names it' => sub {
    for (["-ERR unknown command 'EVAL'\r\n", qr/away, the fail mode decides: ERR unknown command 'EVAL'/],
        [sub { return }, qr/away, the fail mode decides: Server closed the connection at EVAL/]) {
        my ($reply, $line) = @{$_};
        my $proxy = hostile({ EVAL => $reply, CLIENT => sub { return } });
        my $node = node_of($proxy->{addr});
        is $node->status('/?k=a'), 503, 'the fail mode decides';
        $node->wait_for_log($line);
        $node->status('/?k=a') for 1 .. 20;
        is scalar(@{ says($node) }), 1, 'and no other line';
        stop_process($proxy->{pid}, 'KILL');
    }
};

finish();

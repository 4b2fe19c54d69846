# A server in Redis's place that tries to crash nginx, to fill its memory, to take its connections, or to write into
# its log.

use Ratelimit::Test;
use Ratelimit::Hostile qw(bulk hostile map_of);
use Ratelimit::Process qw(stop_process alive temp_folder);
use Time::HiRes qw(time);

sub node_of {
    my ($block, %options) = @_;
    my $node = nginx(
        http => "ratelimit_redis main { $block timeout 1s; } ratelimit_zone k\$arg_k zone=test rate=9r/d; "
            . ($options{http} // ''),
        server => 'location / { ratelimit zone=test; } location /api/ { ratelimit_api write=on; }',
        workers => $options{workers} // 1,
        map { exists $options{$_} ? ($_ => $options{$_}) : () } qw(main events)
    );
    wait_until('its workers run', sub { scalar(my @workers = $node->workers) == ($options{workers} // 1) });
    return $node;
}

# The nesting that overflows the stack of what frees it by recursion.
my $deep = "*1\r\n" x 400_000;
my $large = '$8000000000' . "\r\n" . 'x' x 3_000_000;

for (['nested 400 000 deep', $deep, qr/nested too deep/], ['without an end', $large, qr/larger than any/]) {
    my ($name, $reply, $reason) = @{$_};
    subtest "a reply $name closes its connection, and the worker goes on" => sub {
        my $server = hostile({ EVALSHA => $reply });
        my $node = node_of("server $server->{addr};");
        my @workers = $node->workers;
        my @statuses;
        # The first ones may be decided before there is a connection.
        wait_until("the log has $reason", sub { push @statuses, $node->status('/'); return $node->count_log($reason) });
        is_deeply [grep { $_ != 200 } @statuses], [], 'the fail mode decides';
        is_deeply [$node->workers], \@workers, 'no worker died';
        stop_process($server->{pid}, 'KILL');
    };
}

subtest 'a reply that nobody asked for closes its connection, and the worker goes on' => sub {
    my $server = hostile({ later => ":1\r\n" });
    my $node = node_of("server $server->{addr};", workers => 2);
    my @workers = $node->workers;
    my $made = sub {
        my ($count) = $node->get("/api/redis")->body =~ /"reconnects":\s*(\d+)/;
        return $count // 0;
    };
    wait_until('connections were closed and made again', sub { $made->() >= 4 });
    is_deeply [$node->workers], \@workers, 'no worker died';
    stop_process($server->{pid}, 'KILL');
};

# Valkey 9.1 can be built or started without its Lua module. It then answers so.
subtest 'a server without Lua is one line of the log, and the fail mode decides' => sub {
    my $server = hostile({
        EVALSHA => "-NOSCRIPT No matching script. Please use EVAL.\r\n",
        EVAL    => "-ERR Could not find scripting engine 'lua'\r\n",
    });
    my $node = node_of("server $server->{addr}; connect_timeout 5s;");
    my $from = time;
    while (time - $from < 3) {
        is_deeply [map { $node->status('/') } 1 .. 10], [(200) x 10], 'requests pass';
    }
    is $node->count_log(qr/redis "main" at \S+ is away, the fail mode decides: ERR Could not find scripting engine 'lua'/), 1,
        'it says what is missing';
    is $node->count_log(qr/ratelimit: /), 1, 'and nothing else';
    stop_process($server->{pid}, 'KILL');
};

subtest 'the master survives the initial load of a fleet' => sub {
    my $port = free_port();
    my $node = node_of("server 127.0.0.1:$port;", http => 'ratelimit_fleet;');
    for my $reply ($deep, $large) {
        my $server = hostile({ EVALSHA => $reply }, $port);
        my $size = $reply eq $deep ? '2m' : '3m';
        $node->configure(http => $node->{http} =~ s/ratelimit_fleet[^;]*;/ratelimit_fleet size=$size;/r)->reload;
        ok alive($node->pid), 'the master runs';
        is $node->status('/'), 200;
        stop_process($server->{pid}, 'KILL');
    }
};

subtest 'a fleet whose changes have no end does not keep a worker busy' => sub {
    my $folder = temp_folder();
    my $calls = "$folder/calls";
    open my $log, '>>', $calls or die $!;
    my $last = 0;
    my $server = hostile({ EVALSHA => sub {
        syswrite $log, '.';
        my $cursor = ++$last;
        return "*8\r\n:1700000000000000\r\n:$cursor\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n:@{[ $cursor - 1 ]}\r\n";
    } });
    my $node = node_of("server $server->{addr};", http => 'ratelimit_fleet;');
    is $node->status('/'), 200, 'the workers run';
    my ($before, $from) = (-s $calls, time);
    wait_until('two seconds', sub { time - $from > 2 });
    cmp_ok +(-s $calls) - $before, '<', 2000, 'they come in small parts';
    cmp_ok -s $calls, '>', $before, 'and go on';
    stop_process($server->{pid}, 'KILL');
};

subtest 'a freed key is answered whatever the script of changes returns' => sub {
    for my $reply (':-1', ':-9223372036854775808', '$2' . "\r\nno", '$-1', '*0', '+OK') {
        my $server = hostile({ EVALSHA => sub { return (grep { $_ eq 'free' } @_) ? "$reply\r\n" : "-ERR no\r\n" } });
        my $node = node_of("server $server->{addr};", http => 'ratelimit_fleet;');
        is $node->status('/api/zones/test/keys/ka', method => 'DELETE'), 503, $reply =~ s/\s+/ /r;
        is $node->status('/'), 200, 'the worker goes on';
        stop_process($server->{pid}, 'KILL');
    }
};

# Writes over the fleet's shared memory as a worker could whose code is an attacker's: all but what nginx itself follows.
sub forge_memory {
    my ($pid, $size) = @_;
    no warnings 'portable';    # addresses have 48 bits
    my ($start) = map { /^([0-9a-f]+)-([0-9a-f]+) rw-s/ && hex($2) - hex($1) == $size ? hex $1 : () }
        split /\n/, read_file("/proc/$pid/maps");
    open my $memory, '+<:raw', "/proc/$pid/mem" or return 0;
    for ([32, 104], [168, $size]) {    # the pool's lock and mutex are before and between
        sysseek $memory, $start + $_->[0], 0;
        syswrite $memory, 'A' x ($_->[1] - $_->[0]) or return 0;
    }
    return 1;
}

subtest 'the master survives what a worker writes into the memory of the fleet' => sub {
    my $redis = redis();
    my $node = node_of('server ' . $redis->addr . ';', http => 'ratelimit_fleet size=2m;', workers => 2);
    $node->status('/');
    my ($worker) = $node->workers;
    forge_memory($worker, 2 << 20) or plan skip_all => 'needs the right to write into a process';
    $node->reload(gone => 1);
    ok alive($node->pid), 'at a reload';
    forge_memory(($node->workers)[0], 2 << 20);
    $node->configure(http => $node->{http} =~ s/size=2m/size=3m/r)->reload(gone => 1);
    ok alive($node->pid), 'at a reload with another size';
    is $node->status('/'), 200;
};

# Of Redis and Sentinel. The first one came to no command but EVALSHA once.
my @errors = ('NOSCRIPT', qw(ERR LOADING BUSY MASTERDOWN READONLY MISCONF NOAUTH WRONGPASS NOPERM OOM NOREPLICAS CROSSSLOT
    TRYAGAIN CLUSTERDOWN WRONGTYPE EXECABORT NOPROTO DENIED), 'MOVED 1 127.0.0.1:1', 'ASK 1 127.0.0.1:1', '');

# A server that answers $command with each of these errors in turn, and notes each in a file; all else as the nodes of a
# cluster do, and as a sentinel that names itself.
sub refusing {
    my ($command, $folder, $port) = @_;
    $port //= free_port();
    my $self = map_of($port, '127.0.0.1');
    my $turn = 0;
    my $next = sub {
        open my $notes, '>>', "$folder/$command" or die $!;
        syswrite $notes, '.';
        return "-$errors[$turn++ % @errors] no use\r\n";
    };
    return hostile(
        {   CLUSTER   => $self,
            SENTINEL  => "*2\r\n" . bulk('127.0.0.1') . bulk($port),
            SUBSCRIBE => "*3\r\n" . bulk('subscribe') . bulk('+switch-master') . ":1\r\n",
            ROLE      => "*3\r\n" . bulk('master') . ":0\r\n*0\r\n",
            ($command eq 'ASKING' ? (EVALSHA => "-ASK 1 127.0.0.1:$port\r\n") : ()),
            $command  => $next,
        },
        $port
    );
}

my %refused = (    # by topology: the commands that each of its servers gets
    'database 1;'                      => [qw(AUTH SELECT TIME EVALSHA)],
    'topology cluster;'                => [qw(CLUSTER ASKING)],
    'topology sentinel master=mymaster;' => [qw(ROLE SENTINEL SUBSCRIBE)],
);

subtest 'no error of Redis to any command ends a worker, in any topology' => sub {
    my $folder = temp_folder();
    my ($http, $server, @commands, @servers) = ('', '');
    for my $topology (sort keys %refused) {
        for my $command (@{ $refused{$topology} }) {
            my $name = lc $command;
            push @commands, $command;
            push @servers, refusing($command, $folder);
            $http .= "ratelimit_redis $name { server $servers[-1]{addr}; $topology password x; connections 4; "
                . "timeout 50ms; connect_timeout 50ms; } ratelimit_zone \$arg_k zone=$name rate=9r/d redis=$name; "
                . "ratelimit_zone \$arg_k zone=held_$name concurrency=9 redis=$name; ";
            $server .= "location /$name { ratelimit zone=$name; ratelimit zone=held_$name; try_files /index.html =404; }";
        }
    }
    my $node = nginx(http => $http, server => $server, workers => 2);
    wait_until('both workers run', sub { $node->workers == 2 });
    my @workers = sort $node->workers;
    my %statuses;
    wait_until('each server has answered with several errors', sub {
        $statuses{ $node->status("/$_?k=" . int rand 50) }++ for map { lc } @commands;
        return !grep { (-s "$folder/$_" // 0) < 5 } @commands;    # t/unit has all
    }, 60);
    is_deeply [keys %statuses], [200], 'the fail mode decides';
    is_deeply [sort $node->workers], \@workers, 'no worker died';
    # By TERM: after QUIT it would tell them for a minute that it holds nothing.
    $node->stop;
    stop_process($_->{pid}, 'KILL') for @servers;
};

subtest 'the master survives them in the initial load of a fleet' => sub {
    my $port = free_port();
    my $size = 2;
    for my $topology (sort keys %refused) {
        my $node = node_of("server 127.0.0.1:$port; $topology password x;", http => 'ratelimit_fleet size=2m;');
        for my $command (@{ $refused{$topology} }) {
            my $folder = temp_folder();
            my $server = refusing($command, $folder, $port);
            $size++;
            $node->configure(http => $node->{http} =~ s/ratelimit_fleet[^;]*;/ratelimit_fleet size=${size}m;/r)->reload;
            ok -s "$folder/$command", "$command was refused";
            ok alive($node->pid), 'the master runs';
            is $node->status('/'), 200;
            stop_process($server->{pid}, 'KILL');
        }
        $node->stop;
    }
};

subtest 'a name that a node announces writes no line into the log' => sub {
    my $line = '2026/11/23 09:00:00 [error] 1#1: *7 limiting requests, by zone "z", key "x", client: 203.0.113.99';
    my $port = free_port();
    my $server = hostile(
        {   CLUSTER => map_of($port, "a\n$line\n"),
            EVALSHA => "-MOVED 1 b\n$line\n:1\r\n",
        },
        $port
    );
    my $node = node_of("topology cluster; server $server->{addr}; connect_timeout 5s;");
    $node->wait_for_log(qr/no node of the cluster knows its slots: .* not a map/);
    $node->status('/');
    is $node->count_log(qr/^2026.11.23 09:00:00/m), 0;
    is $node->count_log(qr/203\.0\.113\.99/), 0;
    stop_process($server->{pid}, 'KILL');
};

subtest 'a map of twenty thousand masters takes no connections' => sub {
    my $port = free_port();
    my @hosts = map { '127.' . join '.', 1 + int($_ / 62_500), int($_ / 250) % 250, 1 + $_ % 250 } 0 .. 9_999;
    my $server = hostile({ CLUSTER => map_of($port, @hosts) }, $port);
    my $node = node_of("topology cluster; server $server->{addr}; connect_timeout 5s;");
    $node->wait_for_log(qr/its map has 10000 masters, expected at most \d+/);
    my ($worker) = $node->workers;
    cmp_ok scalar(my @files = glob "/proc/$worker/fd/*"), '<', 60;
    is $node->status('/'), 200 for 1 .. 3;
    stop_process($server->{pid}, 'KILL');
};

finish();

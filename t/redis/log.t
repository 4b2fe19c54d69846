# The error log: a flood is two lines, at the configured level.

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Test;

subtest 'a flood is one line when it starts and one when it ends, with its size' => sub {
    my $node = node(zone => 'rate=1r/5s algorithm=gcra', workers => 2);
    my @statuses = burst($node->port, '/?k=flood', 300, 8);
    my $refused = grep { $_ == 429 } @statuses;
    cmp_ok $refused, '>', 290;
    is $node->count_log(qr/\[error\].*limiting requests, by zone "test", key "kflood"/), 1;
    wait_until('the key is admitted again', sub {
        my $passed = $node->status('/?k=flood') == 200;
        $refused++ unless $passed;
        return $passed;
    });
    $node->wait_for_log(qr/\[error\].*limited $refused requests, by zone "test", key "kflood"/);
    is $node->count_log(qr/limited \d+ request/), 1;
    is $node->count_log(qr/limiting requests/), 1;
};

subtest 'a key that is refused and admitted in turn is one run' => sub {
    my $node = node(zone => 'rate=20r/s algorithm=gcra');
    my $end = time + 2;
    my $count = 0;
    while (time < $end || $count <= 100) { $node->status('/?k=turns'); $count++ }
    cmp_ok $count, '>', 100;
    cmp_ok $node->count_log(qr/(?:limiting|limited \d+) request/), '<', 10;
};

subtest 'each refused key has its own line, and a key that is never refused has none' => sub {
    my $node = node(zone => 'rate=1r/d algorithm=fixed_window');
    for my $key (qw(a b)) { $node->status("/?k=$key") for 1 .. 3 }
    $node->status('/?k=c');
    is $node->count_log(qr/limiting requests.*key "k$_"/), 1, $_ for qw(a b);
    is $node->count_log(qr/limiting requests.*key "kc"/), 0;
};

for my $level (qw(info notice warn error)) {
    subtest "ratelimit_log_level $level" => sub {
        my $node = node(zone => 'rate=1r/s algorithm=leaky_bucket burst=1',
            location => "ratelimit_log_level $level;");
        # They come to the worker in one turn, so that no time passes between them.
        my @sockets = map { http_connect($node->port) } 1 .. 4;
        for (@sockets) { http_send($_, '/peek'); http_read($_) }
        my ($worker) = $node->workers;
        pause_processes($worker);
        http_send($_, '/?k=l') for @sockets;
        kill CONT => $worker;
        http_read($_) for @sockets;
        my %lower = (error => 'warn', warn => 'notice', notice => 'info', info => 'info');
        is $node->count_log(qr/\[$level\].*limiting requests, by zone/), 1;
        is $node->count_log(qr/\[$lower{$level}\].*delaying requests, by zone/), 1, 'delays are logged one level lower';
    };
}

subtest 'dry run and shadow are marked in the log' => sub {
    my $node = node(
        zone     => 'rate=1r/d algorithm=fixed_window',
        limit    => 'shadow',
        http     => 'ratelimit_zone k$arg_k zone=dry rate=1r/d algorithm=fixed_window;',
        server   => 'location /dry/ { ratelimit zone=dry; ratelimit_dry_run on; try_files /index.html =404; }',
    );
    is $node->status('/?k=a'),     200 for 1 .. 3;
    is $node->status('/dry/?k=a'), 200 for 1 .. 3;
    is $node->count_log(qr/limiting requests, shadow, by zone "test"/), 1;
    is $node->count_log(qr/limiting requests, dry run, by zone "dry"/), 1;
};

subtest 'keys are escaped in the log, so that no key can forge a line' => sub {
    my $node = node(zone => 'rate=1r/d algorithm=fixed_window', key => '$http_x_key');
    $node->status('/', headers => ['X-Key', qq{a"b\\c\t\x01\xff}]) for 1 .. 2;
    is $node->count_log(qr/limiting requests, by zone "test", key "a\\x22b\\x5cc\\x09\\x01\\xff"/), 1;
};

subtest 'a malformed cost is logged once, not once per request' => sub {
    my $node = node(zone => 'rate=100r/d algorithm=fixed_window', limit => 'cost=$arg_c');
    is $node->status('/?c=many'), 200 for 1 .. 20;
    is $node->count_log(qr/invalid cost "many" for zone "test"/), 1;
    is $node->get('/?c=-1')->header('X-RateLimit-Remaining'), 79, 'a malformed cost counts as 1';
};

subtest 'a zone whose memory is full evicts its oldest keys and still limits' => sub {
    my $node = node(key => '$arg_k', zone => 'rate=1r/d algorithm=fixed_window', http =>
            'ratelimit_zone $arg_k zone=small:32k rate=1r/d algorithm=fixed_window;',
        server => 'location /small/ { ratelimit zone=small; try_files /index.html =404; }');
    my %statuses;
    my $socket = http_connect($node->port);
    for my $key (1 .. 400) {
        for (1 .. 2) {
            http_send($socket, "/small/?k=key$key");
            $statuses{ http_read($socket)->status }++;
        }
    }
    is_deeply \%statuses, { 200 => 400, 429 => 400 };
    cmp_ok $node->count_log(qr/limited 1 request, by zone "small"/), '>=', 50, 'the runs of evicted keys are logged';
};

# Sends two requests of each of $keys keys: the first passes, the second is refused.
sub refuse_each {
    my ($node, $keys, $more) = @_;
    my @sockets = map { http_connect($node->port) } 1 .. 8;
    for my $round (1 .. $keys / @sockets) {
        for my $status (200, 429) {
            http_send($sockets[$_], "/?k=$round-$_$more") for 0 .. $#sockets;
            is http_read($_)->status, $status or return for @sockets;
        }
    }
    return;
}

subtest 'a client that invents keys does not fill the log' => sub {
    my $node = node(key => '$arg_k', zone => 'rate=$arg_r algorithm=fixed_window cache=off', workers => 2);
    my $keys = 3000;
    my $began = time;
    refuse_each($node, $keys, '&r=1r/d');
    # The most lines: 100 in each second that this took, and in the one in which it began.
    my $most = 100 * (int(time - $began) + 2);
    my $named = $node->count_log(qr/limiting requests, by zone "test", key/);
    cmp_ok $named, '>=', 100, 'some keys are named';
    cmp_ok $named, '<=', $most, "$named of $keys, in at most $most lines";
    wait_until('the others are logged as a number', sub { $node->logged_runs('test') == $keys });
    for my $round (1 .. $keys / 8) {
        $node->status("/?k=$round-$_&r=9r/d") for 0 .. 7;
    }
    my $end = qr/limited \d+ request/;
    wait_until('the runs of the named keys have ended', sub { $node->count_log($end) >= $named });
    # One more key, whose end is logged after all others.
    $node->status('/?k=end&r=1r/d') for 1 .. 2;
    $node->status('/?k=end&r=9r/d');
    $node->wait_for_log(qr/limited 1 request, by zone "test", key "end"/);
    is $node->count_log($end), $named + 1, 'only named keys have an end in the log';
};

# Clients by their addresses; each uses keys that start with its own letter.
my %clients = (a => '127.0.0.2', s => '127.0.0.3');

subtest 'a client is named only in lines about its own keys' => sub {
    my $node = node(key => '$arg_k', zone => 'rate=$arg_r algorithm=fixed_window cache=off',
        http => 'ratelimit_zone $arg_k zone=small:32k rate=1r/d algorithm=fixed_window;',
        server => 'location /small/ { ratelimit zone=small; try_files /index.html =404; }');
    my $ask = sub { return $node->status("$_[0]k=$_[1]", from => $clients{ substr $_[1], 0, 1 }) };
    # The full memory evicts keys of one client when the other is refused, and not all keys have a line.
    for my $key (1 .. 300) {
        $ask->('/small/?', "a$key") for 1 .. 2;
        $ask->('/?r=1r/d&', "a$key") for 1 .. 2;
        $ask->('/small/?', "s$key") for 1 .. 2;
        $ask->('/?r=1r/d&', "s$key") for 1 .. 2;
    }
    # A key that both clients share: the client that is admitted is not the one that was refused.
    $node->status('/?r=1r/d&k=both', from => $clients{a}) for 1 .. 3;
    wait_until('the shared key is named', sub {
        $node->status('/?r=1r/d&k=both', from => $clients{a});
        return $node->count_log(qr/limiting requests.*key "both", client: 127\.0\.0\.2/);
    });
    wait_until('its run has ended', sub {
        $node->status('/?r=900r/d&k=both', from => $clients{s});
        return $node->count_log(qr/limited \d+ requests, by zone "test", key "both"/);
    });
    my $floods = 0;
    wait_until('some keys are logged as a number', sub {
        return 1 if $node->count_log(qr/limiting requests of \d+ more keys/);
        $floods++;
        my @sockets = map { http_connect($node->port) } 1 .. 150;
        for (1 .. 2) {
            for my $i (0 .. $#sockets) { http_send($sockets[$i], "/?r=1r/d&k=f$floods-$i") }
            http_read($_) for @sockets;
        }
        return 0;
    });
    my $ends = qr/limited \d+ request|limiting requests of/;
    cmp_ok $node->count_log($ends), '>=', 50, 'runs end, and keys are logged as a number';
    is $node->count_log(qr/(?:$ends).*(?:client|request: )/), 0, 'these lines name no client';
    my $starts = qr/limiting requests, by zone "\w+", key/;
    for my $who (sort keys %clients) {
        my $own = $node->count_log(qr/$starts "$who\d+", client: \Q$clients{$who}\E,/);
        cmp_ok $own, '>=', 50, 'lines about keys whose run starts name a client';
        is $own, $node->count_log(qr/$starts "$who\d+"/), 'each names the client of the key';
    }
};

subtest 'a run that starts at a level that is not logged is named when a logged level refuses its key' => sub {
    my $node = node(zone => 'rate=1r/d', level => 'error', server => 'location /quiet/ { ratelimit zone=test; '
            . 'ratelimit_log_level info; try_files /index.html =404; }');
    $node->status("/$_?k=both") for 'quiet/', 'quiet/', '', '';
    is $node->count_log(qr/limiting requests, by zone "test", key "kboth"/), 1;
};

for my $level (qw(info error)) {
    subtest "delayed keys do not hide refused ones, in a log of $level" => sub {
        my $node = node(key => '$arg_k', zone => 'rate=1r/s algorithm=leaky_bucket burst=1', level => $level);
        my @sockets = map { http_connect($node->port) } 1 .. 150;
        for my $i (0 .. $#sockets) { http_send($sockets[$i], "/?k=d$i") }
        http_read($_) for @sockets;
        for my $i (0 .. $#sockets) { http_send($sockets[$i], "/?k=d$i") }
        my @statuses = burst($node->port, '/?k=attacker', 5, 5);
        is $node->count_log(qr/limiting requests, by zone "test", key "attacker"/), 1;
    };
}

subtest 'a run ends after a minute without requests of its key' => sub {
    my $clock = Chaos::Clock->new(passes => 1);
    my $node  = node(zone => 'rate=1r/d algorithm=fixed_window', environment => $clock->environment);
    $node->status('/?k=silent') for 1 .. 3;
    is $node->count_log(qr/limiting requests.*key "ksilent"/), 1;
    # A zone ends such runs when it handles another request.
    my $end = qr/limited 2 requests, by zone "test", key "ksilent"/;
    $clock->step(50);
    $node->status('/?k=other');
    is $node->count_log($end), 0, 'not before';
    $clock->step(11);
    wait_until('the run has ended', sub { $node->status('/?k=other'); return $node->count_log($end) });
};

finish();

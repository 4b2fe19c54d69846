# A master that sentinels name: it is found, followed when it changes, and still used when all sentinels die.
# needs: redis-sentinel

use Ratelimit::Test;
use IO::Select;
use IO::Socket::INET;
use Ratelimit::Process qw(start_code);
use Time::HiRes qw(time sleep);

my $group = sentinels(sentinel_password => 'watch', password => 'pw', replicas => 2);
my $dead  = '127.0.0.1:' . free_port();

sub seeds { return join ' ', map { "server $_;" } @_ }

# An nginx whose block "main" has these lines besides its topology.
sub node_of {
    my ($block, %options) = @_;
    my $mode = $options{mode} // 'closed';
    my $rate = $options{rate} // '3r/d';
    my $user = $options{user} // "password pw; sentinel_password watch;";
    my $name = $options{name} // 'main';
    my $more = $options{more} // 'timeout 5s; connect_timeout 5s;';
    return nginx(
        %options,
        http => "ratelimit_redis main { topology sentinel master=$name; $block $user $more }"
            . "ratelimit_zone k\$arg_k zone=test rate=$rate;"
            . 'ratelimit_zone $arg_o zone=log rate=100r/s algorithm=sliding_window_log;',
        server => "ratelimit_fail_mode $mode; add_header X-Status \$ratelimit_status always;"
            . 'location / { ratelimit zone=test; try_files /index.html =404; }'
            . 'location /both { ratelimit zone=test; ratelimit zone=log; try_files /index.html =404; }',
    );
}

sub is_decided {
    my ($node, $key) = @_;
    return ($node->get("/?k=$key")->header('X-Status') // '') eq 'PASSED';
}

# Ends a load: all requests passed.
sub check_load {
    my ($load) = @_;
    my $seen = $load->stop;
    is $seen->{failed}, 0, 'no request failed' or diag $seen->{why};
    is join(' ', grep { /^\d+$/ } sort keys %{$seen}), 200, 'all requests passed';
    return;
}

subtest 'the master is found, also with a dead sentinel, and limits are exact' => sub {
    my @pair = map { node_of(seeds(@{$_}), workers => 2) } [$dead, $group->addrs],
        [reverse $group->addrs];
    is_deeply [map { $_->status('/?k=exact') } @pair, @pair], [200, 200, 200, 429];
    is_deeply [$group->master->keys_like('rl:*')], ['rl:test:{kexact}'];
    for my $node (@pair) {
        my $line = qr/main": master main is at \Q@{[ $group->master->addr ]}/;
        $node->wait_for_log($line, 2);
        is $node->count_log($line), 2, 'each worker logs the master once';
    }
    is $_->count_log(qr/is away|no sentinel/), 0, 'a dead sentinel is not reported' for @pair;
    $_->reload(gone => 1) for @pair;
    is $_->status('/?k=exact'), 429, 'the count survives a reload' for @pair;
};

subtest 'after a failover under load the new master decides' => sub {
    my $node = node_of(seeds($group->addrs), mode => 'open', rate => '1000000r/d', workers => 2);
    my $load = load(port => $node->port, path => '/?k=over', clients => 4);
    $load->wait_for_more(50);
    my $old = $group->master;
    my $new = $group->failover;
    my $watch = stopwatch();
    $node->wait_for_log(qr/master main is at \Q@{[ $new->addr ]}/, 2);
    wait_until('requests are decided by the new master',
        sub { is_decided($node, 'over2') && grep { /over2/ } $new->keys_like });
    $watch->within(5, 'within seconds');
    my $calls = $old->calls('evalsha');
    $load->wait_for_more(50);
    is_deeply [$old->cmd('ROLE')->[0], $old->calls('evalsha') - $calls], ['master', 0],
        'the old master, which still reports the role of a master, decides none';
    check_load($load);
    is $node->count_log(qr/master main is at/), 4, 'one line for each worker and master';
    cmp_ok $node->count_log(qr/is away/), '<=', 2, 'at most one line for each worker about the old master';
};

subtest 'a sentinel that hangs does not delay the switch to a new master' => sub {
    my @before = $group->listeners;
    my $node = node_of(seeds($group->addrs), more => 'connect_timeout 2s; timeout 2s;');
    is $node->status('/?k=hang'), 200;
    my @now = $group->listeners;
    my ($heard, @others) = ($group->sentinels)[grep { $now[$_] > $before[$_] } 0 .. $#now];
    is @others, 0, 'the worker is subscribed to one sentinel';
    my $old = $group->master;
    $heard->pause;
    my $new = $group->failover;
    $node->wait_for_log(qr/master main is at \Q@{[ $new->addr ]}/);
    is $old->cmd('ROLE')->[0], 'master', 'the old master is not a replica yet';
    is $node->status('/?k=hang2'), 200;
    is_deeply [$new->keys_like('*hang2*')], ['rl:test:{khang2}'], 'the new master decides';
    is $node->count_log(qr/is away|no sentinel/), 0, 'no server is reported as unavailable';
    $heard->resume;
    wait_until('the resumed sentinel names the new master', sub { $group->master($heard) == $new });
};

# A mock sentinel that names the port in a file.
sub puppet {
    my ($port, $file) = @_;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 10,
        ReuseAddr => 1) or die $!;
    return start_code('puppet', sub {
        my $select = IO::Select->new($listener);
        while (1) {
            for my $socket ($select->can_read) {
                if ($socket == $listener) { $select->add($listener->accept); next }
                if (!sysread $socket, my $text, 4000) { $select->remove($socket); close $socket; next }
                my $named = read_file($file);
                syswrite $socket, "*2\r\n\$9\r\n127.0.0.1\r\n\$" . length($named) . "\r\n$named\r\n"
                    . "*3\r\n\$9\r\nsubscribe\r\n\$14\r\n+switch-master\r\n:1\r\n";
            }
        }
    });
}

subtest 'a demoted master is dropped at its first READONLY reply' => sub {
    my ($old, $new, $port) = (redis(), redis(), free_port());
    my $named = write_file("$old->{folder}/named", $old->port);
    puppet($port, $named);
    my $node = node_of(seeds("127.0.0.1:$port"), user => '');
    is $node->status('/?k=demoted'), 200;
    $old->cmd('REPLICAOF', '127.0.0.1', $new->port);
    is $node->status('/?k=demoted'), 503, 'the request fails closed' for 1 .. 3;
    my $end = time + 1.2;    # a silent wait: time for the master to be named again
    while (time < $end) { is $node->status('/?k=demoted'), 503 or last; sleep 0.1 }
    is $node->count_log(qr/\Q@{[ $old->addr ]}\E is away/), 1, 'one line, although the sentinel still names it';
    is $node->count_log(qr/answered: READONLY/), 1;
    write_file($named, $new->port);
    my $watch = stopwatch();
    wait_until('Redis decides again', sub { is_decided($node, 'demoted') });
    $watch->within(3, 'soon after another master is named');
    is $node->count_log(qr/master main is at/), 2;
};

subtest 'a master that is killed under load is replaced' => sub {
    my $node = node_of(seeds($group->addrs), mode => 'open', rate => '1000000r/d', workers => 2);
    my $load = load(port => $node->port, path => '/?k=killed', clients => 4);
    $load->wait_for_more(50);
    my $old = $group->master;
    $old->stop('KILL');
    my $new = $group->wait_for_new_master($old);
    my $watch = stopwatch();
    wait_until('Redis decides again', sub { is_decided($node, 'killed') });
    $watch->within(5, 'soon after the sentinels name the new master');
    $node->wait_for_log(qr/master main is at \Q@{[ $new->addr ]}/, 2);
    $load->wait_for_more(50);
    check_load($load);
    # A sentinel that does not yet know the new master may name the old one again.
    my $named = $node->count_log(qr/master main is at \Q@{[ $old->addr ]}\E/);
    cmp_ok $named, '>=', 2;
    is $node->count_log(qr/\Q@{[ $old->addr ]}\E is away/), $named, 'each worker logs one line about the dead master';
};

subtest 'users with the rights of doc/operations.md have every right that sentinels and masters need' => sub {
    my ($rights) = read_file('doc/operations.md') =~ /^ACL SETUSER ratelimit on >password (.*)$/m;
    my ($more)   = read_file('doc/operations.md') =~ /^ACL SETUSER ratelimit (.*role.*)$/m;
    my ($watch)  = read_file('doc/operations.md') =~ /^ACL SETUSER watcher on >password (.*)$/m;
    my @running = grep { $_->lives } $group->nodes;
    for my $server (@running) {
        $server->cmd('ACL', 'SETUSER', 'limiter', 'on', '>secret', split ' ', "$rights $more");
        $server->cmd('ACL', 'LOG', 'RESET');
    }
    for my $sentinel ($group->sentinels) {
        $sentinel->cmd('ACL', 'SETUSER', 'watcher', 'on', '>secret', split ' ', $watch);
        $sentinel->cmd('ACL', 'LOG', 'RESET');
    }
    my $node = node_of(seeds($group->addrs), user => 'username limiter; password secret;'
            . 'sentinel_username watcher; sentinel_password secret;');
    is_deeply [map { $node->status("/both?k=acl&o=$_") } 1 .. 4], [200, 200, 200, 429];
    is $node->count_log(qr/NOPERM|is away/), 0;
    is_deeply [map { @{ $_->cmd('ACL', 'LOG') } } @running, $group->sentinels], [],
        'no command was denied';
};

subtest 'an unknown master and a wrong password are reported once' => sub {
    my %of = (
        'it does not know the master' => [name => 'unknown'],
        WRONGPASS => [user => 'password pw; sentinel_password wrong;'],
        NOAUTH    => [user => 'password pw;'],
    );
    for my $reason (sort keys %of) {
        my $node = node_of(seeds($group->addrs), @{ $of{$reason} });
        my $line = qr/main": no sentinel knows where the master is: .*$reason/;
        $node->wait_for_log($line);
        is $node->status('/'), 503;
        my $end = time + 1.5;    # a silent wait: time for another attempt
        while (time < $end) { $node->status('/'); sleep 0.1 }
        is $node->count_log(qr/\[error\].*ratelimit: redis/), 1, 'one line in the log' or diag $node->log;
        $node->stop;
    }
};

subtest 'after all sentinels die the master is still used' => sub {
    my $node = node_of(seeds($group->addrs), rate => '1000000r/d');
    ok is_decided($node, 'alone');
    my $before = $group->master->port;
    $_->stop('KILL') for $group->sentinels;
    $node->wait_for_log(qr/no sentinel knows where the master is/);
    my $end = time + 2;    # a silent wait: time for more attempts at the sentinels
    while (time < $end) { is $node->status('/?k=alone'), 200 or last; sleep 0.1 }
    is $node->count_log(qr/no sentinel/), 1, 'one line about the sentinels';
    my ($first, @others) = $group->sentinels;
    $first->start;
    $node->wait_for_log(qr/master main is at/, 2);
    is $node->count_log(qr/no sentinel/), 1, 'no more lines about them';
    my ($master) = grep { $_->lives && $_->port == $before } $group->nodes;
    is $node->count_log(qr/is away/), 0;
    $first->pause;
    $master->pause;
    $node->reload(gone => 1);
    my $watch = stopwatch();
    is $node->stop('QUIT') // 0, 0;
    $watch->within(5, 'neither delays a worker\'s exit');
    $_->resume for $first, $master;
};

finish();

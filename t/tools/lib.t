# The tests' own library: its servers and clients work, and it notices the failures that it must notice.
# needs: libprotocol-http2-perl

use strict;
use warnings;
use Ratelimit::Test;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(sleep time);

my $redis = redis();
is $redis->cmd('SET', 'key', "a b\r\n"), 'OK', 'Redis replies';
is $redis->cmd('GET', 'key'), "a b\r\n", 'binary values are returned unchanged';
is $redis->calls('get'), 1, 'commands are counted';
ok !eval { $redis->cmd('NONSENSE'); 1 }, 'an error is an exception';
like $@, qr/unknown command/, 'the exception has the error\'s text';
is_deeply $redis->cmd('EVAL', 'return {1, "a", false, {2}}', 0), [1, 'a', undef, [2]],
    'nested replies are read';

$redis->stop('KILL');
ok !eval { $redis->cmd('PING'); 1 }, 'a killed Redis does not reply';
$redis->start;
is $redis->cmd('PING'), 'PONG', 'it can be started again';

my $nginx = nginx(workers => 2, server => 'location = /gone { return 410 "gone"; }');
is $nginx->status('/'), 200, 'nginx serves';
is $nginx->get('/')->body, "ok\n", 'the body is read';
is $nginx->get('/gone')->body, 'gone', 'the body of an error too';
is length $nginx->get('/big.bin')->body, 200_000, 'a large body too';
is_deeply [burst($nginx->port, '/', 100, 10)], [(200) x 100], 'many parallel requests';

wait_until('both workers run', sub { $nginx->workers == 2 });
my @before = sort $nginx->workers;
is scalar @before, 2, 'workers are listed';
$nginx->reload(gone => 1);
my @after = sort $nginx->workers;
isnt "@after", "@before", 'a reload replaces them';

my ($exit, @lines) = conf_test(server => 'nonsense;');
is $exit, 1, 'a bad configuration is refused';
like "@lines", qr/unknown directive "nonsense"/, 'the complaint is returned';
is((conf_test())[0], 0, 'a good configuration is accepted');

subtest 'a paused Redis replies nothing until it is resumed' => sub {
    my $slow = redis(socket => 1, password => 'pw');
    ok -S $slow->{path}, 'it has a unix socket';
    $slow->pause;
    my $socket = http_connect($slow->port);
    print {$socket} "PING\r\n";
    ok !IO::Select->new($socket)->can_read(0.2), 'no reply while paused';
    $slow->resume;
    ok(IO::Select->new($socket)->can_read(5), 'the reply when resumed');
    is $slow->cmd('PING'), 'PONG';
};

subtest 'the proxy delays, garbles, drops and cuts' => sub {
    my $proxy = proxy(to => $redis->addr);
    my $ping = sub {
        my ($socket, $wait) = @_;
        print {$socket} "PING\r\n";
        return '' unless IO::Select->new($socket)->can_read($wait // 5);
        sysread $socket, my $answer, 100;
        return $answer;
    };
    my $socket = http_connect($proxy->port);
    is $ping->($socket), "+PONG\r\n", 'replies pass at first';
    $proxy->delay(0.3);
    my $began = time;
    is $ping->($socket), "+PONG\r\n", 'delayed';
    cmp_ok time - $began, '>=', 0.3;
    $proxy->garble;
    is $ping->($socket), "+PONG\r\n" ^ "\xaa" x 7, 'garbled';
    $proxy->drop;
    is $ping->($socket, 0.2), '', 'dropped';
    is $ping->(http_connect($proxy->port), 0.2), '', 'also on a new connection';
    $proxy->pass;
    is $ping->($socket, 0.2), '', 'a dropped connection stays dead';
    $socket = http_connect($proxy->port);
    is $ping->($socket), "+PONG\r\n", 'a new connection passes again';
    $proxy->cut(3);
    is $ping->($socket), '+PO', 'cut in the middle of a reply';
    is $ping->($socket), '', 'and closed';
    $proxy->pass;
    $socket = http_connect($proxy->port);
    is $ping->($socket), "+PONG\r\n", 'a new connection passes';
    $proxy->swallow;
    print {$socket} "PING\r\n";
    wait_until('a reply is swallowed', sub { $proxy->swallowed });
    ok !IO::Select->new($socket)->can_read(0), 'a reply is missing';
    is $ping->($socket), "+PONG\r\n", 'the next one is not';
    is $proxy->seen->{taken}, 4;
    $proxy->lose(1, 'ECHO');
    is $ping->($socket), "+PONG\r\n", 'a reply to another request is not lost';
    ok !$proxy->lost;
    print {$socket} "ECHO x\r\n";
    is $ping->($socket), '', 'that to the named one is';
    ok $proxy->lost;
    $socket = http_connect($proxy->port);
    is $ping->($socket), "+PONG\r\n";
    $proxy->cut;
    is $ping->($socket), '', 'cut at once';
    is $proxy->seen->{open}, 0;
    $proxy->stop;
    ok !IO::Socket::INET->new(PeerAddr => $proxy->addr), 'stopped';
};

subtest 'a load distinguishes failed requests from closed idle connections' => sub {
    my $served = nginx(module => 0, server => <<'END');
        location /once/ { keepalive_requests 5; try_files /index.html =404; }
        location /broken/ { return 444; }
END
    my %seen;
    for my $path ('/', '/once/', '/broken/', '/absent') {
        my $load = load(port => $served->port, path => $path, clients => 2);
        wait_until("$path has many responses", sub {
            my $seen = $load->seen;
            return ($seen->{200} // 0) + ($seen->{404} // 0) + $seen->{failed} > 50;
        });
        $seen{$path} = $load->stop;
    }
    is_deeply [map { $seen{$_}{failed} } '/', '/once/', '/absent'], [0, 0, 0];
    cmp_ok $seen{'/broken/'}{failed}, '>', 50, 'requests without a response failed';
    like $seen{'/broken/'}{why}, qr/closed after 0 answers/;
    cmp_ok $seen{'/absent'}{404}, '>', 50, 'statuses are counted separately';

    my $load = load(port => $served->port, path => '/');
    $load->wait_for_more(100);
    $served->stop('KILL');
    wait_until('the load cannot connect', sub { $load->seen->{why} });
    cmp_ok $load->stop->{failed}, '>', 0;
};

subtest 'HTTP/2 streams share one connection' => sub {
    my $h2 = nginx(module => 0, listen => 'http2');
    my @answers = http2($h2->port, ['/', '/absent', '/'], headers => ['X-Some', 'header']);
    is_deeply [map { $_->status } @answers], [200, 404, 200];
    is $answers[2]->body, "ok\n";
    is $answers[2]->header('Content-Length'), 3;
    is length((http2($h2->port, ['/big.bin']))[0]->body), 200_000, 'a body beyond the first window';
    is +(http2($h2->port, ['/'], method => 'POST', body => 'x'))[0]->status, 405, 'a request with a body';
};

subtest 'tests that run in parallel get different ports' => sub {
    my ($mine) = free_port();
    my $folder = File::Temp->newdir;
    my $pid = Ratelimit::Process::start_code('rival', sub {
        # A process that starts at the same port.
        write_file("$folder/port", join ' ', map { free_port() } 1 .. 200);
    });
    wait_until('the rival is done', sub { !Ratelimit::Process::alive($pid) });
    my %theirs = map { $_ => 1 } split ' ', read_file("$folder/port");
    is scalar(keys %theirs), 200;
    my $other = free_port();
    ok !$theirs{$mine}, 'the rival does not get a port that is in use here';
    isnt $other, $mine;
};

subtest 'ports for a cluster are found beside another test that has many' => sub {
    my @claimed;
    my $from = free_port();
    my $other = $from > 22_000 ? $from - 10_000 : $from + 10_000;
    for my $port ($other .. $other + 400) {
        push @claimed, IO::Socket::INET->new(LocalAddr => '127.99.0.1', LocalPort => $port, Proto => 'tcp') // ();
    }
    my $port;
    ok eval { $port = Ratelimit::Process::free_cluster_port(); 1 }, 'two ports' or diag $@;
    for my $free ($port, $port + 10_000) {
        ok !IO::Socket::INET->new(LocalAddr => '127.99.0.1', LocalPort => $free, Proto => 'tcp'), 'they are claimed';
        ok !grep({ $_->sockport == $free } @claimed), 'by this test';
    }
};

subtest 'a stopwatch leaves out the time for which processes of the test waited for a processor' => sub {
    # In a process without children: those of the test wake up now and then, and may wait while this one sleeps.
    my $folder = File::Temp->newdir;
    my $pause = Ratelimit::Process::start_code('pause', sub {
        my $watch = stopwatch();
        sleep 1;
        write_file("$folder/over", join ' ', map { $watch->is_over($_) ? "over $_" : "within $_" } 0.3, 5);
    });
    wait_until('the pause ends', sub { !Ratelimit::Process::alive($pause) });
    is read_file("$folder/over"), 'over 0.3 within 5', 'a pause counts';
    # Three processes on one processor: each waits for two thirds of the time.
    my ($cpu) = read_file('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\d+)/m;
    my @busy = map {
        Ratelimit::Process::start_process('busy', '/dev/null', 'taskset', '-c', $cpu, $^X, '-e', '1 while 1')
    } 1 .. 3;
    my $watch = stopwatch();
    sleep 1;
    $watch->within(0.9, 'which does not count');
    ok $watch->is_over(0.05), 'but five times as long is the most';
    Ratelimit::Process::stop_process($_, 'KILL') for @busy;
    $watch->within(0.9, 'also when they have ended');
    my $count = 0;
    ok !eval { wait_until('a wonder', sub { $count++; 0 }, 0.2); 1 }, 'a wait ends all the same';
    like $@, qr/timed out waiting: a wonder/;
};

# Runs a test that ends with $end; returns the pids and folders that its line "left ..." lists.
sub run_badly {
    my ($end) = @_;
    my $folder = File::Temp->newdir;
    write_file("$folder/bad.t", <<"END");
use Ratelimit::Test;
my \$nginx = nginx(module => 0, workers => 2);
my \$redis = redis();
my \$proxy = proxy(to => \$redis->addr);
my \$load = load(port => \$nginx->port, path => '/');
my \$daemon = nginx(module => 0, daemon => 1);
my \$heir = \$daemon->upgrade;
print "left ", join(' ', \$nginx->workers, \$daemon->workers, \$daemon->workers(0, \$heir), \$heir,
    (map { \$_->{pid} } \$nginx, \$redis, \$proxy, \$load, \$daemon),
    map { \$_->{folder} } \$nginx, \$redis, \$daemon), "\\n";
$end
END
    my $output = qx($^X -It/lib $folder/bad.t 2>/dev/null);
    return split ' ', $output =~ /^left (.*)/m ? $1 : '';
}

subtest 'a search for free ports does not listen on one that another test has claimed' => sub {
    my $claimed = free_port();
    my $folder  = Ratelimit::Process::temp_folder();
    my $search  = fork // die "fork: $!";
    if ($search == 0) {
        my @tried;
        no warnings 'redefine';
        my $open = \&IO::Socket::INET::new;
        local *IO::Socket::INET::new = sub { my ($class, %of) = @_; push @tried, $of{LocalAddr}; return $open->($class, %of) };
        my $got = Ratelimit::Process::claim_port($claimed);
        write_file("$folder/tried", "$got: @tried");
        require POSIX;
        POSIX::_exit(0);
    }
    waitpid $search, 0;
    is Ratelimit::Process::read_file("$folder/tried"), '0: 127.99.0.1', 'only the claim was tried';
};

subtest 'a test that ends badly leaves neither a process nor a folder' => sub {
    my %ends = (
        dies          => 'die "on purpose";',
        interrupted   => 'kill INT => $$; sleep 5;',
        terminated    => 'kill TERM => $$; sleep 5;',
        'leaves early' => 'exit 0;',
        'with paused workers' => 'kill STOP => $nginx->workers; die;',
    );
    for my $how (sort keys %ends) {
        my @left = run_badly($ends{$how});
        is scalar @left, 13, "$how: the test ran";
        ok eval {
            # A process that has ended but was not reaped has no program any more.
            wait_until('all processes and folders are gone', sub { !grep { m{^/} ? -e : -e "/proc/$_/exe" } @left });
            1;
        }, "$how: nothing is left" or diag $@;
    }
};

subtest 'an nginx that crashes is a complaint' => sub {
    my $crash = nginx(module => 0);
    $crash->wait_for_workers($crash->pid);
    kill SEGV => $crash->workers;
    $crash->wait_for_log(qr/exited on signal 11/);
    like join(' ', Ratelimit::Nginx::complaints()), qr/on signal 11/, 'a worker that crashes';

    my $single = nginx(module => 0, single => 1);
    kill SEGV => $single->pid;
    wait_until('nginx has ended', sub { !Ratelimit::Process::alive($single->pid) });
    like join(' ', Ratelimit::Nginx::complaints()), qr/wait status (?:11|139)/,
        'nginx without a master';

    my $known = nginx(module => 0, expected => qr/exited on signal 11/);
    $known->wait_for_workers($known->pid);
    kill SEGV => $known->workers;
    $known->wait_for_log(qr/exited on signal 11/);
    is join(' ', Ratelimit::Nginx::complaints()), '', 'an expected crash is no complaint';

    nginx(module => 0)->stop('KILL');
    is join(' ', Ratelimit::Nginx::complaints()), '', 'nor is an nginx that the test killed';
};

my $bad = nginx(module => 0);
write_file("$bad->{folder}/error.log", $bad->log . "2026/01/01 [alert] 1#1: made up\n");
like join(' ', Ratelimit::Nginx::complaints()), qr/made up/, 'an alert in the log is a complaint';

finish();

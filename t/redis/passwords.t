# A password that changes while nginx runs: its file is read again when Redis refuses the old one.

use Ratelimit::Test;
use Ratelimit::Process qw(temp_folder write_file);

my $folder = temp_folder();
chmod 0755, $folder;

sub password_is {
    my ($text, $name) = @_;
    my $file = write_file("$folder/" . ($name // 'password'), "$text\n");
    chmod 0644, $file;
    return;
}

sub node_of {
    my ($block) = @_;
    return nginx(
        http => "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; } ratelimit_fail_mode closed;"
            . ' ratelimit_zone $arg_k zone=test rate=1000r/d cache=off;',
        server => 'location / { ratelimit zone=test; }',
        workers => 2,
    );
}

# Changes the password of servers, and closes the connections of nginx, so that the workers need the new one.
sub rotate {
    my ($text, @servers) = @_;
    for my $server (@servers) {
        $server->cmd('CONFIG', 'SET', 'masterauth', $text) if $server->cmd('ROLE')->[0] ne 'sentinel';
        $server->cmd('CONFIG', 'SET', 'requirepass', $text);
        $server->{password} = $text;
    }
    $_->cmd('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') for @servers;
    return;
}

sub decided { my ($node) = @_; return !grep { $node->status("/?k=$_") != 200 } 1 .. 20 }

subtest 'a server, without a reload' => sub {
    my $redis = redis(password => 'first');
    password_is('first');
    my $node = node_of("server @{[ $redis->addr ]}; password_file $folder/password;");
    ok decided($node), 'the first password';
    for my $text ('second', 'third') {
        password_is($text);
        rotate($text, $redis);
        wait_until("with the $text password", sub { decided($node) });
    }
    rotate('fourth', $redis);
    $node->wait_for_log(qr/is away.*WRONGPASS/);
    is $node->status('/?k=a'), 503, 'Redis has another password than the file';
    password_is('fourth');
    wait_until('the file has it, too', sub { decided($node) });
    my $lines = $node->count_log(qr/WRONGPASS/);
    cmp_ok $lines, '<=', 6, "$lines lines, not one for each attempt";
};

subtest 'a cluster' => sub {
    my $cluster = cluster(password => 'first', replicas => 0);
    password_is('first');
    my $node = node_of("topology cluster; server @{[ ($cluster->masters)[0]->addr ]}; password_file $folder/password;");
    ok decided($node);
    password_is('second');
    rotate('second', $cluster->nodes);
    wait_until('with the new password', sub { decided($node) });
};

subtest 'sentinels and their master' => sub {
    my $group = sentinels(password => 'first', sentinel_password => 'ofsentinels');
    password_is('first');
    password_is('ofsentinels', 'sentinels');
    my $node = node_of(join ' ', 'topology sentinel master=main;', "password_file $folder/password;",
        "sentinel_password_file $folder/sentinels;", map { "server $_;" } $group->addrs);
    ok decided($node);
    password_is('second');
    rotate('second', $group->nodes);
    wait_until('with the new password of the master', sub { decided($node) });
    password_is('new', 'sentinels');
    for my $sentinel ($group->sentinels) {
        $sentinel->cmd('ACL', 'SETUSER', 'default', 'resetpass', '>new');
        $sentinel->{password} = 'new';
        $sentinel->cmd('CLIENT', 'KILL', 'TYPE', 'pubsub');
    }
    $node->wait_for_log(qr/no sentinel knows where the master is: (?:WRONGPASS|NOAUTH)|master main is at/);
    wait_until('a worker listens to a sentinel again', sub {
        grep { $_->cmd('CLIENT', 'LIST', 'TYPE', 'pubsub') =~ /sub=[1-9]/ } $group->sentinels;
    });
    ok decided($node);
};

subtest 'a file that a worker may not read is named' => sub {
    plan skip_all => 'needs root, whose workers are another user' if $>;
    my $redis = redis(password => 'first');
    password_is('first');
    chmod 0600, "$folder/password";
    my $node = nginx(
        main => 'user nobody nogroup;',
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; password_file $folder/password; timeout 5s; connect_timeout 5s; }"
            . ' ratelimit_zone $arg_k zone=test rate=1000r/d;',
        server => 'location / { ratelimit zone=test; ratelimit_fail_mode closed; }',
    );
    is $node->status('/?k=a'), 200, 'the master has read it';
    write_file("$folder/password", "second\n");
    rotate('second', $redis);
    $node->wait_for_log(qr/WRONGPASS.*, and its password cannot be read again from \Q$folder\E\/password: Permission denied/);
    chmod 0644, "$folder/password";
    wait_until('once it may', sub { $node->status('/?k=a') == 200 });
};

subtest 'a file that cannot be used is an error at the start' => sub {
    my $test = sub { return (conf_test(http => "ratelimit_redis main { server 127.0.0.1; password_file $_[0]; }"))[1] };
    like $test->("$folder/none"), qr{"password_file": invalid "$folder/none", expected a readable file .*: No such file or directory};
    like $test->($folder), qr/: Is a directory/;
    write_file("$folder/empty", "\nsecond line\n");
    like $test->("$folder/empty"), qr/: its first line is empty/;
};

finish();

# Names of Redis servers where http {} has no resolver, and look-ups that fail.
# needs: redis-sentinel

use Ratelimit::NameServer;
use Ratelimit::Test;
use Ratelimit::Process qw(temp_folder write_file);

# nginx with an /etc/resolv.conf of its own, which names this server.
my $folder = temp_folder();
my $program = Ratelimit::Nginx::program();

sub with_name_server {
    my ($address) = @_;
    write_file("$folder/resolv.conf", "# as systems have it\nsearch example.com\nnameserver $address\noptions ndots:5\n");
    my $wrapper = write_file("$folder/nginx", <<"END");
#!/bin/sh
exec unshare -m sh -c 'mount --bind $folder/resolv.conf /etc/resolv.conf && exec $program "\$@"' sh "\$@"
END
    chmod 0755, $wrapper;
    return $wrapper;
}

my $usable = system('unshare -m true 2>/dev/null') == 0;
my $system = $usable && eval { Ratelimit::NameServer->new(address => '127.0.7.53', port => 53) };

sub node_of {
    my ($block, $http) = @_;
    return nginx(
        http => ($http // '') . "ratelimit_redis main { $block timeout 5s; connect_timeout 5s; } ratelimit_fail_mode closed;"
            . ' ratelimit_zone $arg_k zone=test rate=1000r/d cache=off;',
        server => 'location / { ratelimit zone=test; }',
    );
}

sub decided { my ($node) = @_; return $node->status('/?k=a') == 200 }

subtest 'sentinels that announce a name, without a resolver' => sub {
    plan skip_all => 'no mount namespaces, or no port 53' unless $system;
    my $group = sentinels(count => 1, replicas => 0);
    my ($sentinel) = $group->sentinels;
    my ($master) = $group->nodes;
    $sentinel->cmd(qw(SENTINEL CONFIG SET), $_, 'yes') for qw(resolve-hostnames announce-hostnames);
    $sentinel->cmd(qw(SENTINEL REMOVE main));
    $sentinel->cmd(qw(SENTINEL MONITOR main localhost), $master->port, 1);
    is $sentinel->cmd(qw(SENTINEL get-master-addr-by-name main))->[0], 'localhost', 'it announces a name';
    local $ENV{RATELIMIT_NGINX} = with_name_server('127.0.7.53');
    my $node = node_of("topology sentinel master=main; server @{[ ($group->addrs)[0] ]};");
    wait_until('the master decides', sub { decided($node) });
    is $node->count_log(qr/could not be resolved|is away/), 0, 'no line of a failure';

    $system->answers(a => 'REFUSED', aaaa => 'REFUSED');
    my $other = node_of("topology sentinel master=main; server @{[ ($group->addrs)[0] ]};");
    $other->wait_for_log(qr/\[warn\] .*ratelimit: "localhost" could not be resolved \(5: Operation refused\)/);
    $other->wait_for_log(qr/at localhost:\d+ is away, the fail mode decides: its address is not known/);
    is $other->status('/?k=a'), 503;
    $system->answers(a => 'ok', aaaa => 'ok');
    wait_until('the name is found later', sub { decided($other) }, 20);
    is $other->count_log(qr/"localhost" could not be resolved/), 1, 'one line for each change';
    $other->wait_for_log(qr/"localhost" is resolved again/);
};

subtest 'a cluster whose node announces a name, and an address that cannot be reached' => sub {
    plan skip_all => 'no mount namespaces, or no port 53' unless $system;
    my $redis = redis(cluster => 1);
    plan skip_all => 'Redis 6.2 announces no names' unless $redis->has_setting('cluster-announce-hostname');
    $redis->cmd(qw(CLUSTER ADDSLOTSRANGE 0 16383));
    $redis->cmd('CONFIG', 'SET', @{$_}) for ['cluster-announce-hostname', 'node.test'], ['cluster-announce-ip', '127.0.0.9'],
        ['cluster-preferred-endpoint-type', 'hostname'];
    wait_until('the cluster is up', sub { $redis->cmd('CLUSTER', 'INFO') =~ /cluster_state:ok/ });
    local $ENV{RATELIMIT_NGINX} = with_name_server('127.0.7.53');
    my $node = node_of("topology cluster; server @{[ $redis->addr ]};");
    wait_until('it decides', sub { decided($node) });
    $node->wait_for_log(qr/at node\.test:\d+ \(127\.0\.0\.9\) is away/);
    $node->wait_for_log(qr/at node\.test:\d+ is up/);
    is scalar(grep { !decided($node) } 1 .. 20), 0, 'no request fails then';
};

for my $wrong (qw(NXDOMAIN SERVFAIL REFUSED NOTIMP silence)) {
    subtest "a name server that answers AAAA with $wrong does not hide an A" => sub {
        my $names = Ratelimit::NameServer->new;
        $names->answers(aaaa => $wrong);
        my $first = redis();
        my $second = redis(port => $first->port, host => '127.0.0.2');
        my $node = node_of("server localhost:@{[ $first->port ]};", "resolver @{[ $names->addr ]} valid=1s;");
        ok decided($node);
        $names->answers(to => '127.0.0.2');
        wait_until('the server is followed', sub { decided($node); $second->calls('evalsha') > 0 });
        is $node->count_log(qr/could not be resolved|is away/), 0, 'no line of a failure';
    };
}

subtest 'a look-up that fails is one line of the log, and the known address stays' => sub {
    my $names = Ratelimit::NameServer->new;
    my $redis = redis();
    my $node = node_of("server localhost:@{[ $redis->port ]};", "resolver @{[ $names->addr ]} valid=1s;");
    ok decided($node);
    $names->answers(a => 'NXDOMAIN', aaaa => 'NXDOMAIN');
    $node->wait_for_log(qr/\[warn\] .*ratelimit: "localhost" could not be resolved \(3: Host not found\)/);
    ok decided($node), 'it is used at its last address';
    $names->answers(a => 'SERVFAIL');
    $node->wait_for_log(qr/"localhost" could not be resolved \(2: Server failure\)/);
    $names->answers(a => 'ok');
    $node->wait_for_log(qr/"localhost" is resolved again/);
    is $node->count_log(qr/could not be resolved/), 2;
};

finish();

# TLS to every server of a cluster, and to sentinels and the masters that they name.
# needs: redis-sentinel

use Ratelimit::Certificates;
use Ratelimit::Test;

my $certificates = Ratelimit::Certificates->new;
my $folder = $certificates->folder;
$certificates->authority($_) for qw(ours theirs);
$certificates->certificate('good', 'ours', 'DNS:redis.test,IP:127.0.0.1');
my $tls     = $certificates->redis_lines('good', 'ours') . "tls-auth-clients no\n";
my $trusted = "tls on; tls_trusted_certificate $folder/ours.pem;";

# An nginx with these servers and limits by two keys, so that a request can need two nodes of a cluster.
sub node_of {
    my ($topology, $servers, $lines) = @_;
    return nginx(
        http => "ratelimit_redis main { topology $topology; @{[ map { qq{server $_;} } @{$servers} ]} $lines"
            . ' timeout 5s; connect_timeout 5s; }'
            . 'ratelimit_zone k$arg_k zone=one rate=2r/d; ratelimit_zone o$arg_o zone=other rate=1000r/d;',
        server => 'ratelimit_fail_mode closed; location / { ratelimit zone=one; ratelimit zone=other; }',
    );
}

# The statuses of three requests for a key.
sub statuses { my ($node, $key) = @_; return [map { $node->status("/?k=$key&o=$key") } 1 .. 3] }

subtest 'a cluster is used over TLS' => sub {
    my $cluster = cluster(tls => $tls);
    my $node = node_of('cluster', [$cluster->addrs], $trusted);
    is_deeply statuses($node, $_), [200, 200, 429], "key $_" for 1 .. 10;
    is scalar(grep { my @keys = $_->keys_like('rl:*'); @keys } $cluster->masters), 3, 'on every master';

    my ($seed) = $cluster->addrs;
    my $from_one = node_of('cluster', [$seed], "$trusted tls_server_name redis.test;");
    is_deeply statuses($from_one, "seed$_"), [200, 200, 429], 'also with one seed, by name' for 1 .. 5;

    my $killed = $cluster->kill_master_of('rl:one:{kafter}');
    $cluster->wait_ok;
    wait_until('a replica has taken over', sub { $node->status('/?k=other&o=after') != 503
            && $node->status('/?k=after&o=other') != 503 });
    is_deeply statuses($node, 'new'), [200, 200, 429], 'after a failover';

    my $distrustful = node_of('cluster', [$seed], "tls on; tls_trusted_certificate $folder/theirs.pem;");
    $distrustful->wait_for_log(qr/certificate was refused/);
    is $distrustful->status('/?k=x'), 503, 'a certificate of another authority is refused';
};

subtest 'sentinels and their master are used over TLS' => sub {
    my $group = sentinels(tls => $tls, password => 'pw', sentinel_password => 'watch');
    my $users = 'password pw; sentinel_password watch;';
    my $node  = node_of('sentinel master=main', [$group->addrs], "$trusted $users");
    is_deeply statuses($node, 'before'), [200, 200, 429];
    my $new = $group->failover->public_addr;
    $node->wait_for_log(qr/master main is at \Q$new\E/);
    wait_until('the new master decides', sub { $node->status('/?k=trial') != 503 });
    is_deeply statuses($node, 'after'), [200, 200, 429], 'after a failover';

    my $distrustful = node_of('sentinel master=main', [$group->addrs],
        "tls on; tls_trusted_certificate $folder/theirs.pem; $users");
    $distrustful->wait_for_log(qr/certificate was refused/);
    is $distrustful->status('/?k=x'), 503, 'a certificate of another authority is refused';
};

finish();

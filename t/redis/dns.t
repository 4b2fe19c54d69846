# A Redis server given by name is followed to the address that nginx's resolver reports.
# needs: dnsmasq-base

use Ratelimit::Backend;
use Ratelimit::Test;
use Ratelimit::Process qw(start_process temp_folder);

my $first  = redis();
my $second = redis(port => $first->port, host => '127.0.0.2');

# A name server for one name, which nginx can also resolve without it when it starts.
my $folder = temp_folder();
my $port   = free_port();
sub name_stands_for { write_file("$folder/hosts", "$_[0] localhost\n"); return }
name_stands_for('127.0.0.1');
my $dnsmasq = start_process('dnsmasq', "$folder/log", 'dnsmasq', '--keep-in-foreground',
    '--conf-file=/dev/null', '--no-resolv', '--no-hosts', "--addn-hosts=$folder/hosts",
    '--listen-address=127.0.0.1', '--bind-interfaces', "--port=$port", '--local-ttl=1',
    '--user=root', '--log-facility=-', "--pid-file=$folder/pid");
# A HUP before that would end it.
wait_until('the name server has read its names', sub { read_file("$folder/log") =~ /: read .*hosts/ });

sub following_node {
    my (%options) = @_;
    return nginx(
        %options,
        http => <<"END" . ($options{http} // ''),
    ratelimit_redis main { server localhost:@{[ $first->port ]}; timeout 5s; connect_timeout 5s; }
    ratelimit_zone k\$arg_k zone=test rate=1000r/h cache=off;
    ratelimit_zone k\$arg_k zone=held concurrency=1 hold=1h;
    log_format status '\$ratelimit_status';
    access_log access.log status;
END
        server => 'location / { ratelimit zone=test; add_header X-Status $ratelimit_status always; }'
            . ($options{server} // ''),
    );
}

my $resolver = "resolver 127.0.0.1:$port valid=1s ipv6=off;";

subtest 'with a resolver, a server that changes its address is followed without a failed request' => sub {
    my $backend = Ratelimit::Backend->new;
    my $held    = "location /held { ratelimit zone=held; proxy_pass http://@{[ $backend->addr ]}; }";
    my $node    = following_node(http => $resolver, workers => 2, server => $held);
    my $other   = nginx(
        http => "ratelimit_redis main { server @{[ $second->addr ]}; }"
            . ' ratelimit_zone k$arg_k zone=held concurrency=1 hold=1h;',
        server => 'location / { ratelimit zone=held cost=0; ratelimit_headers x-ratelimit; }',
    );
    my $free = sub { return $other->get('/?k=running')->header('X-RateLimit-Remaining') };
    my ($request) = $backend->hold($node, '/held?k=running');
    my $load = load(port => $node->port, path => '/?k=moving', clients => 2);
    wait_until('the first server receives checks', sub { $first->calls('evalsha') > 0 });
    is $second->calls('evalsha'), 0;

    name_stands_for('127.0.0.2');
    kill HUP => $dnsmasq;
    wait_until('the second server receives checks', sub { $second->calls('evalsha') > 0 });
    my $calls = 0;
    wait_until(
        'the first server receives no more checks',
        sub {
            my $before = $calls;
            $calls = $first->calls('evalsha');
            $load->wait_for_more(20);
            return $calls == $before;
        }
    );
    $load->stop;
    unlike $node->file('access.log'), qr/FAILED/, 'every request was decided';
    is $node->count_log(qr/is away/), 0, 'no server was unavailable';
    wait_until('what runs is counted at the new address', sub { $free->() == 0 });
    $backend->finish;
    wait_until('and then free', sub { $free->() == 1 });
};

subtest 'without a resolver, a server keeps the address that nginx resolved at the start' => sub {
    my $node   = following_node();
    my $before = $first->calls('evalsha');
    is $node->status('/?k=staying'), 200;
    is $first->calls('evalsha'), $before + 1;
};

subtest 'with a resolver, a name of several addresses works if one of them does' => sub {
    $first->stop('KILL');
    name_stands_for("127.0.0.3 localhost\n127.0.0.2");
    kill HUP => $dnsmasq;
    wait_until('the name server has read its names', sub { (() = read_file("$folder/log") =~ /: read .*hosts/g) >= 3 });
    for my $time (1 .. 4) {    # nginx may start with any of them
        my $node = following_node(http => $resolver);
        is $node->get("/?k=several$time")->header('X-Status'), 'PASSED', 'Redis has decided';
    }
};

subtest 'without a resolver, every address that the name had at the start is tried' => sub {
    plan skip_all => 'no mount namespaces' if system('unshare -m true 2>/dev/null') != 0;
    write_file("$folder/etc-hosts", "127.0.0.3 localhost\n127.0.0.2 localhost\n");
    my $program = Ratelimit::Nginx::program();
    local $ENV{RATELIMIT_NGINX} = write_file("$folder/nginx", <<"END");
#!/bin/sh
exec unshare -m sh -c 'mount --bind $folder/etc-hosts /etc/hosts && exec $program "\$@"' sh "\$@"
END
    chmod 0755, "$folder/nginx";
    my $node = following_node();
    is $node->get('/?k=all')->header('X-Status'), 'PASSED', 'Redis has decided';
    is $node->count_log(qr/is away/), 0, 'a dead address does not make the server unavailable';
};

finish();

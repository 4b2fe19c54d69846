# A Redis that is known by its name is followed to the address that nginx's resolver has for it.
# needs: dnsmasq-base

use Ratelimit::Test;
use Ratelimit::Process qw(start_process temp_folder);

my $first  = redis();
my $second = redis(port => $first->port, host => '127.0.0.2');

# A name server that knows one name, which nginx can look up by itself when it starts.
my $folder = temp_folder();
my $port   = free_port();
sub name_stands_for { write_file("$folder/hosts", "$_[0] localhost\n"); return }
name_stands_for('127.0.0.1');
my $dnsmasq = start_process('dnsmasq', "$folder/log", 'dnsmasq', '--keep-in-foreground',
    '--conf-file=/dev/null', '--no-resolv', '--no-hosts', "--addn-hosts=$folder/hosts",
    '--listen-address=127.0.0.1', '--bind-interfaces', "--port=$port", '--local-ttl=1',
    '--user=root', '--log-facility=-', "--pid-file=$folder/pid");
# Before that, HUP would end it.
wait_until('the name server has read its names', sub { read_file("$folder/log") =~ /: read .*hosts/ });

sub following_node {
    my (%options) = @_;
    return nginx(
        %options,
        http => <<"END" . ($options{http} // ''),
    ratelimit_redis main { server localhost:@{[ $first->port ]}; timeout 2s; connect_timeout 5s; }
    ratelimit_zone k\$arg_k zone=test rate=1000r/h cache=off;
    log_format status '\$ratelimit_status';
    access_log access.log status;
END
        server => 'location / { ratelimit zone=test; add_header X-Status $ratelimit_status always; }',
    );
}

my $resolver = "resolver 127.0.0.1:$port valid=1s ipv6=off;";

subtest 'with a resolver, a server that moves is followed, and no request fails meanwhile' => sub {
    my $node = following_node(http => $resolver, workers => 2);
    my $load = load(port => $node->port, path => '/?k=moving', clients => 2);
    wait_until('the first is asked', sub { $first->calls('evalsha') > 0 });
    is $second->calls('evalsha'), 0;

    name_stands_for('127.0.0.2');
    kill HUP => $dnsmasq;
    wait_until('the second is asked', sub { $second->calls('evalsha') > 0 });
    my $calls = 0;
    wait_until(
        'the first is no longer asked',
        sub {
            my $before = $calls;
            $calls = $first->calls('evalsha');
            $load->wait_for_more(20);
            return $calls == $before;
        }
    );
    $load->stop;
    unlike $node->file('access.log'), qr/FAILED/, 'every request was decided';
    is $node->count_log(qr/is away/), 0, 'and nothing was away';
};

subtest 'without a resolver, it stays at the address that was found at the start' => sub {
    my $node   = following_node();
    my $before = $first->calls('evalsha');
    is $node->status('/?k=staying'), 200;
    is $first->calls('evalsha'), $before + 1;
};

subtest 'with a resolver, the address that works is found among several' => sub {
    $first->stop('KILL');
    name_stands_for("127.0.0.3 localhost\n127.0.0.2");
    kill HUP => $dnsmasq;
    wait_until('it has read its names', sub { (() = read_file("$folder/log") =~ /: read .*hosts/g) >= 3 });
    for my $time (1 .. 4) {    # nginx begins at any of them
        my $node = following_node(http => $resolver);
        is $node->get("/?k=several$time")->header('X-Status'), 'PASSED', 'Redis has decided';
    }
};

subtest 'without one, all addresses that the name had at the start are tried' => sub {
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
    is $node->count_log(qr/is away/), 0, 'a dead address is no server that is away';
};

finish();

package Chaos::Fleet;

# Redis in one of its topologies, and the nginx nodes that count there.

use strict;
use warnings;

use Chaos::Clock;
use Chaos::Limits qw(zone_lines location_lines);
use Chaos::Takeovers qw(takeovers unplanned);
use Ratelimit::Certificates;
use Ratelimit::Cluster;
use Ratelimit::Nginx;
use Ratelimit::Process qw(free_port wait_until write_file);
use Ratelimit::Proxy;
use Ratelimit::Redis;
use Ratelimit::Sentinel;

use Exporter 'import';
our @EXPORT_OK = qw(topologies connect_timeout timeout all_workers heal);

sub topologies { return ((map { ($_, "$_-tls") } qw(one ring cluster sentinel)), 'regions') }

# Seconds.
sub connect_timeout { return 0.25 }
sub timeout         { return 0.25 }

my ($nodes, $workers) = (2, 2);
my $far = 0.03;    # seconds until a reply arrives in a region

# The workers of all nodes.
sub all_workers { return $nodes * $workers }

# What Redis has replied survives a kill: it is in the file before the reply is sent.
my $conf = "appendonly yes\nappendfsync no\nlua-time-limit 50\n";

# Options: topology (a name). `proxies` are links that can be slow or cut: one in front of a single server with TLS, two
# of a ring's three, and in `regions`, where one server is far away from all nodes, one for each node; fleets without
# proxies have no faults of links.
sub new {
    my ($class, %options) = @_;
    my ($kind, $tls) = split /-/, $options{topology};
    my $self = bless { %options, kind => $kind, proxies => [] }, $class;
    my ($redis_tls, $lines) = $tls ? $self->_certificates : (undef, '');
    my $start = { one => \&_one, ring => \&_ring, cluster => \&_cluster, sentinel => \&_sentinel,
        regions => \&_regions }->{$kind}
        // die "no topology $options{topology}; there are " . join(', ', topologies()) . "\n";
    my @servers = $self->$start(tls => $redis_tls, conf => $conf);    # of each node, or of all
    my $timeouts = sprintf 'connect_timeout %dms; timeout %dms;', 1000 * connect_timeout(), 1000 * timeout();
    $timeouts .= ' connections 3;' if $options{topology} eq 'ring';
    $self->{nginx} = [map { _node("ratelimit_redis main { $servers[$_ % @servers] $lines $timeouts }") } 1 .. $nodes];
    return $self;
}

sub kind  { return $_[0]{kind} }
sub tls   { return $_[0]{certificates} ? 1 : 0 }
sub nginx { return @{ $_[0]{nginx} } }
sub proxies { return @{ $_[0]{proxies} } }

# Every redis-server that stores counters; the servers that decide now.
sub servers {
    my ($self) = @_;
    return $self->{group} ? $self->{group}->nodes : @{ $self->{servers} };
}

sub masters {
    my ($self) = @_;
    return $self->{group}->masters if $self->{kind} eq 'cluster';
    return $self->{group}->master if $self->{kind} eq 'sentinel';
    return @{ $self->{servers} };
}

sub group { return $_[0]{group} }

sub wait_for_takeover {
    my ($self, $killed) = @_;
    return $self->{group}->wait_for_new_master($killed) if $self->{kind} eq 'sentinel';
    return wait_until('a replica has taken over', sub { eval { $self->{group}->is_ok } }, 30);
}

# Takeovers that the sentinels logged and none of the faults ordered.
sub unplanned_takeovers {
    my ($self, $faults) = @_;
    return unless $self->{kind} eq 'sentinel';
    return unplanned([takeovers(map { $_->log } $self->{group}->sentinels)], $faults);
}

# Waits until the next takeover is possible.
sub wait_for_replicas {
    my ($self) = @_;
    return wait_until('replicas are attached', sub { eval { $self->{group}->is_complete } }, 60);
}

sub _certificates {
    my ($self) = @_;
    my $certificates = $self->{certificates} = Ratelimit::Certificates->new;
    $certificates->authority('ours');
    $certificates->certificate('good', 'ours', 'IP:127.0.0.1');
    return ($certificates->redis_lines('good', 'ours') . "tls-auth-clients no\n",
        "tls on; tls_trusted_certificate @{[ $certificates->folder ]}/ours.pem;");
}

sub _one {
    my ($self, %options) = @_;
    my $redis = _with_clock(%options);
    $self->{servers} = [$redis];
    return "server @{[ $self->tls ? $self->_behind_proxy($redis) : $redis->public_addr ]};";
}

sub _with_clock {
    my $clock = Chaos::Clock->new;
    return Ratelimit::Redis->new(@_, clock => $clock, environment => $clock->environment);
}

sub _ring {
    my ($self, %options) = @_;
    my @servers = map { _with_clock(%options) } 1 .. 3;
    $self->{servers} = \@servers;
    my @addresses = ($servers[0]->public_addr, map { $self->_behind_proxy($_) } @servers[1, 2]);
    return join ' ', map { "server $_;" } @addresses;
}

sub _regions {
    my ($self, %options) = @_;
    my $redis = _with_clock(%options);
    $self->{servers} = [$redis];
    my @addresses = map { $self->_behind_proxy($redis) } 1 .. $nodes;
    for my $link ($self->proxies) {
        $link->{usual} = $far;
        heal($link);
    }
    return map { "server $_;" } @addresses;
}

# A link is again as it usually is.
sub heal {
    my ($link) = @_;
    $link->pass;
    $link->delay($link->{usual}) if $link->{usual};
    return;
}

sub _behind_proxy {
    my ($self, $redis) = @_;
    push @{ $self->{proxies} }, Ratelimit::Proxy->new(to => $redis->public_addr);
    return $self->{proxies}[-1]->addr;
}

sub _cluster {
    my ($self, %options) = @_;
    $self->{group} = Ratelimit::Cluster->new(%options);
    return 'topology cluster; ' . join ' ', map { "server $_;" } $self->{group}->addrs;
}

sub _sentinel {
    my ($self, %options) = @_;
    # A sentinel sends one PING a second, and a BUSY reply does not count as a reply: with less than two
    # seconds, a script that runs for a moment would make it replace the master.
    $self->{group} = Ratelimit::Sentinel->new(%options, down_after => 2000);
    return 'topology sentinel master=main; ' . join ' ', map { "server $_;" } $self->{group}->addrs;
}

# Requests with the argument l leave; their decisions are in left.log. held-ZONE.log has the requests that a
# limit of requests at one time counted.
sub _node {
    my ($redis) = @_;
    my $http2_port = free_port();
    my $locations = 'access_log left.log left if=$arg_l;' . location_lines()
        . 'location /api/ { ratelimit_api write=on; }';
    my $http = sub { return _http($redis, $http2_port, $locations, @_) };
    my $node = Ratelimit::Nginx->new(workers => $workers, level => 'notice', expected => qr/exited on signal 9/,
        http => $http->(1), server => $locations);
    $node->{http2_port} = $http2_port;
    $node->{http_with}  = $http;
    write_file("$node->{folder}/html/slow.txt", 'x' x 5000);
    return $node;
}

sub _http {
    my ($redis, $http2_port, $locations, $hold) = @_;
    my $zones = zone_lines(hold => $hold);
    return <<"END";
    $redis
    $zones
    ratelimit_fleet;
    ratelimit_log_level info;
    add_header X-Status \$ratelimit_status always;
    add_header X-Source \$ratelimit_source always;
    add_header X-Limit \$ratelimit_limit always;
    add_header X-Zone \$ratelimit_zone always;
    log_format held '\$arg_k \$msec \$request_time \$ratelimit_time "\$ratelimit_status" "\$ratelimit_source"';
    log_format left '\$arg_i \$msec \$status "\$ratelimit_status" "\$ratelimit_source" "\$ratelimit_zone"';
    server { listen 127.0.0.1:$http2_port http2; root html; $locations }
END
}

# Reloads a node with a `hold=` that is another one than before: those of Chaos::Limits, or twice as long.
sub change_hold {
    my ($self, $node) = @_;
    $node->{hold} = ($node->{hold} // 1) == 1 ? 2 : 1;
    $node->configure(http => $node->{http_with}->($node->{hold}));
    return $node->reload;
}

1;

# CONNECT tunnels, which nginx 1.31 and later have: concurrency= holds a unit as long as a tunnel lasts, and charge= counts
# its bytes.

use Ratelimit::Process qw(start_code stop_process);
use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;
use IO::Select;
use IO::Socket::INET;

my $version = qx(@{[ Ratelimit::Nginx::program() ]} -V 2>&1);
my ($minor) = $version =~ m{nginx/1\.(\d+)\.};
plan skip_all => 'this nginx has no tunnels' if ($minor // 0) < 31 || $version =~ /without-http_tunnel_module/;

# A server that sends back what it gets.
my $port = free_port();
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1) or die "echo: $!";
my $echo = start_code('echo', sub {
    my $all = IO::Select->new($listener);
    while (1) {
        for my $socket ($all->can_read) {
            if ($socket == $listener) {
                $all->add(scalar $listener->accept);
            } elsif (sysread $socket, my $text, 65_536) {
                syswrite $socket, $text;
            } else {
                $all->remove($socket);
                close $socket;
            }
        }
    }
});
close $listener;

# The node's limit is for tunnels; /peek tells what remains.
sub tunnel_node {
    my (%options) = @_;
    return node(key => 'all', location => "tunnel_pass 127.0.0.1:$port;", %options);
}

# Asks for a tunnel. Returns its socket and the head of the answer.
sub tunnel {
    my ($node) = @_;
    my $socket = http_connect($node->port);
    syswrite $socket, "CONNECT 127.0.0.1:$port HTTP/1.1\r\nHost: 127.0.0.1:$port\r\n\r\n";
    my $head = '';
    while ($head !~ /\r\n\r\n/) {
        sysread $socket, $head, 4096, length $head or last;
    }
    return ($socket, $head);
}

sub status { my ($head) = @_; return $head =~ m{^HTTP/1.1 (\d+)} ? $1 : 'none' }

# Sends a text through a tunnel; returns what comes back.
sub through {
    my ($socket, $text) = @_;
    syswrite $socket, $text;
    my $back = '';
    while (length $back < length $text) {
        sysread $socket, $back, 4096, length $back or last;
    }
    return $back;
}

subtest 'concurrency=: a tunnel holds its unit until it is closed, on two nodes' => sub {
    my $one = tunnel_node(zone => 'concurrency=2');
    my $two = tunnel_node(zone => 'concurrency=2', redis => $one->{redis});
    my @tunnels = map { [tunnel($_)] } $one, $two;
    is status($_->[1]), 200 for @tunnels;
    is through($_->[0], 'hello'), 'hello', 'bytes go through' for @tunnels;
    my (undef, $refused) = tunnel($two);
    is status($refused), 429, 'a third is refused';
    like $refused, qr/^Retry-After: 1\r$/m;
    close $tunnels[0][0];
    remains($one, 1, 'a client that closes its tunnel makes room');
    is status((tunnel($two))[1]), 200;
};

subtest 'charge=: the bytes of a tunnel, those of its answer among them' => sub {
    my $node = tunnel_node(zone => 'rate=10000r/d algorithm=fixed_window', limit => 'charge=$bytes_sent');
    my ($socket, $head) = tunnel($node);
    is through($socket, 'x' x 6000), 'x' x 6000;
    remains($node, 9999, 'as long as it lasts it counts as its cost');
    close $socket;
    remains($node, 4000 - length $head, 'then as what was sent to the client');
    ($socket) = tunnel($node);
    is through($socket, 'x' x 6000), 'x' x 6000, 'one that began within the limit goes on';
    close $socket;
    remains($node, 0, 'the debt is counted');
    is status((tunnel($node))[1]), 429, 'and refuses the next';
};

subtest 'a rate refuses a tunnel before it is made' => sub {
    my $node = tunnel_node(zone => 'rate=2r/d');
    is_deeply [map { status((tunnel($node))[1]) } 1 .. 3], [200, 200, 429];
};

stop_process($echo);
finish();

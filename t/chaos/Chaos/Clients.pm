package Chaos::Clients;

# Clients in a process of their own that send requests to every node until they are stopped, and record each
# with its times. Some leave: they close half or all of their connection, reset it, or reset their HTTP/2
# stream; the decisions for those are in nginx's own log.

use strict;
use warnings;

use Ratelimit::Process qw(start_code stop_process wait_until read_file);

# The columns of a record. status: $ratelimit_status, or in small letters why there is none; "again": the request was
# sent once more. by: the zone that decided; retry: Retry-After; other: the argument v;
# link: the number of the client's connection.
sub columns { return qw(id node zone key sent received http status source way limit by retry other link) }

# Options: nodes (hashes with port and http2_port), clients, seed, output (a file), first_id (1).
sub new {
    my ($class, %options) = @_;
    my $self = bless {%options}, $class;
    $self->{pid} = start_code('clients', sub { Chaos::Clients::Loop->new($self)->run });
    return $self;
}

# Waits for the pending responses, and returns all records, as hashes.
sub stop {
    my ($self) = @_;
    kill USR1 => $self->{pid};
    wait_until('clients have stopped', sub { read_file($self->{output}) =~ /^end$/m }, 60);
    stop_process($self->{pid});
    my @names = columns();
    my @requests;
    for my $line (split /\n/, read_file($self->{output})) {
        next if $line eq 'end';
        my %request;
        @request{@names} = split /\t/, $line, -1;
        push @requests, \%request;
    }
    return \@requests;
}

package Chaos::Clients::Loop;    ## no critic (ProhibitMultiplePackages)

# The process. A client: its node; its socket, and the responses on it; the request in flight, and the bytes
# of its response; the time of its next action. Way: "stay", or how it leaves: "half" (it still reads the
# response), "close", "reset", "stream".

use Chaos::Limits qw(limits);
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes qw(time);

my $patience = 20;      # seconds
my $pause    = 0.06;    # the longest time between two requests of a client
my $rally    = 1.3;     # seconds between two times at which all clients send a request at once, with one other key

sub new {
    my ($class, $options) = @_;
    srand $options->{seed};
    open my $output, '>', $options->{output} or die "$options->{output}: $!";
    my @choices;
    my $limits = limits();
    for my $zone (sort keys %{$limits}) {
        push @choices, ($zone) x (20 * ($limits->{$zone}{weight} // 1));
    }
    my @nodes = @{ $options->{nodes} };
    return bless {
        output  => $output, choices => \@choices, nodes => \@nodes, last_id => ($options->{first_id} // 1) - 1,
        links   => $options->{first_id} // 1,
        select  => IO::Select->new, by_socket => {}, limits => $limits,
        rally   => { at => time + 0.7 * $rally, number => $options->{first_id} // 1 },
        clients => [map { { node => $_ % @nodes, name => "c$_", next => time + rand $pause } } 1 .. $options->{clients}],
    }, $class;
}

sub run {
    my ($self) = @_;
    my $stopping = 0;
    local $SIG{USR1} = sub { $stopping = 1 };
    while (1) {
        my ($now, $next) = (time, time + 0.1);
        my $busy = 0;
        $self->call_together($now);
        for my $client (@{ $self->{clients} }) {
            $busy++ if $client->{request};
            next if $stopping && !$client->{request};
            $self->act($client) if $client->{next} <= $now;
            $next = $client->{next} if $client->{next} < $next;
        }
        last if $stopping && !$busy;
        my $wait = $next - time;
        for my $socket ($self->{select}->can_read($wait > 0 ? $wait : 0)) {
            my $client = $self->{by_socket}{$socket};
            $self->receive($client) if $client;
        }
    }
    print { $self->{output} } "end\n";
    close $self->{output};
    return;
}

# A client's time has come: it sends a request, leaves, or gives up.
sub act {
    my ($self, $client) = @_;
    my $request = $client->{request};
    return $self->begin($client) unless $request;
    return $self->leave($client) if $request->{way} ne 'stay' && !$request->{left}++;
    return $self->over($client, $request->{way} eq 'stay' || $request->{way} eq 'half' ? 'silent' : 'left');
}

# Shortly before each rally, clients without a request wait for it. Then all begin one.
sub call_together {
    my ($self, $now) = @_;
    my $rally = $self->{rally};
    return if !$self->{limits}{own};
    for my $client (grep { !$_->{request} } @{ $self->{clients} }) {
        my $waits = $client->{next} < $rally->{at} && $client->{next} > $rally->{at} - $pause;
        @{$client}{qw(next rallies)} = ($rally->{at}, 1) if $waits;
    }
    return if $now < $rally->{at};
    $rally->{at} = $now + $rally;
    $rally->{number}++;
    return;
}

sub begin {
    my ($self, $client) = @_;
    my $zone = delete $client->{at_once} // $self->{choices}[rand @{ $self->{choices} }];
    my $id   = ++$self->{last_id};
    my $way = rand() < 0.94 ? 'stay' : (qw(half close reset stream))[rand 4];
    my $other = "v$self->{rally}{number}";
    my $rallies = delete $client->{rallies};
    $zone = 'own' if $rallies;
    my $keys = $self->{limits}{$zone}{keys} // ($self->{limits}{ $self->{limits}{$zone}{of} // $zone }{algorithm} ? 2 : 'new');
    my $key = $rallies ? 'a' : $keys eq '2' ? (rand() < 0.8 ? 'a' : 'b')
        : $keys eq 'client' ? $client->{name}
        : $keys =~ /\D/ ? "u$id" : 'k' . (1 + int rand $keys);
    $client->{request} = { id => $id, zone => $zone, key => $key, way => $way, other => $other };
    $self->hang_up($client) if $way ne 'stay';
    return $self->send($client);
}

sub send {
    my ($self, $client) = @_;
    my ($request, $node) = ($client->{request}, $self->{nodes}[$client->{node}]);
    if (!$client->{socket}) {
        my $port = $request->{way} eq 'stream' ? $node->{http2_port} : $node->{port};
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 5);
        $request->{sent} = time;
        return $self->over($client, 'unreachable') unless $socket;
        @{$client}{qw(socket answers link)} = ($socket, 0, ++$self->{links});
        $self->{by_socket}{$socket} = $client;
        $self->{select}->add($socket);
    }
    my $leaves = $request->{way} eq 'stay' ? '' : '&l=1';
    my $path = "/$request->{zone}?k=$request->{key}&i=$request->{id}&v=$request->{other}$leaves";
    $client->{buffer} = '';
    $request->{sent} = time;
    $client->{next} = $request->{sent} + ($leaves ? rand 0.004 : $patience);
    # A write that fails is noticed when the response is read.
    syswrite $client->{socket}, $request->{way} eq 'stream' ? _http2($path)
        : "GET $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    return;
}

# The start of a connection with a request in stream 1, its header fields as literals (RFC 9113, 7541).
sub _http2 {
    my ($path) = @_;
    my $block = "\x82\x86\x04" . chr(length $path) . "$path\x01\x09localhost";
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . _frame(4, 0, 0, '') . _frame(1, 5, 1, $block);
}

sub _frame {
    my ($type, $flags, $stream, $text) = @_;
    return substr(pack('N', length $text), 1) . pack('CCN', $type, $flags, $stream) . $text;
}

sub leave {
    my ($self, $client) = @_;
    my ($way, $socket) = ($client->{request}{way}, $client->{socket});
    if ($way eq 'half') {
        shutdown $socket, 1;
        $client->{next} = time + $patience;
        return;
    }
    if ($way eq 'stream') {
        syswrite $socket, _frame(3, 0, 1, pack 'N', 8);    # CANCEL; the connection stays for a while
        $client->{next} = time + 0.3;
        return;
    }
    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0 if $way eq 'reset';
    return $self->over($client, 'left');
}

sub receive {
    my ($self, $client) = @_;
    my $request = $client->{request};
    my $got = sysread $client->{socket}, $client->{buffer}, 65536, length($client->{buffer} // '');
    if (!$got) {
        return $self->hang_up($client) unless $request;
        return $self->over($client, 'left') if $request->{way} =~ /^(?:close|reset|stream)$/;
        my $first = !$client->{answers} || length $client->{buffer};
        $self->hang_up($client);
        return $self->over($client, 'lost') if $first;
        # A server may close an idle connection before it sees the request, and one that is stopped closes all.
        $self->record($client, status => 'again');
        return $self->send($client);
    }
    return if !$request || $request->{way} eq 'stream';
    my ($head, $body) = $client->{buffer} =~ /^(.*?)\r\n\r\n(.*)/s or return;
    my ($length) = $head =~ /^Content-Length: (\d+)/mi;
    return if length $body < ($length // 0);
    $client->{answers}++;
    return if $request->{way} =~ /^(?:close|reset)$/;    # the client leaves in spite of the response
    my ($http) = $head =~ m{^HTTP/1.1 (\d+)};
    my ($status) = $head =~ /^X-Status: (\S+)/mi;
    my ($source) = $head =~ /^X-Source: (\S+)/mi;
    ($request->{limit}) = $head =~ /^X-Limit: (\d+)/mi;
    ($request->{by})    = $head =~ /^X-Zone: (\S+)/mi;
    ($request->{retry}) = $head =~ /^Retry-After: (\d+)/mi;
    my $ends = $request->{way} eq 'half' || $head =~ /^Connection: close/mi;
    $self->over($client, $status // 'none', $http, $source);
    $self->hang_up($client) if $ends;
    return;
}

# The request in flight has ended.
sub over {
    my ($self, $client, $status, $http, $source) = @_;
    $self->record($client, status => $status, http => $http, source => $source);
    my $request = delete $client->{request};
    $self->hang_up($client) unless $http;
    $client->{next} = time + rand($pause) + ($http ? 0 : 0.02);
    # Half of the requests of a client's own key are followed by the next one at once.
    @{$client}{qw(next at_once)} = (time, $request->{zone})
        if $http && ($self->{limits}{ $request->{zone} }{keys} // '') eq 'client' && rand() < 0.5;
    return;
}

sub record {
    my ($self, $client, %how) = @_;
    my $request = $client->{request};
    my %record = (%{$request}, node => $client->{node}, link => $client->{link}, %how, http => $how{http} // 0,
        sent => sprintf('%.6f', $request->{sent}), received => sprintf('%.6f', time));
    print { $self->{output} } join("\t", map { $_ // '' } @record{ Chaos::Clients::columns() }), "\n";
    return;
}

sub hang_up {
    my ($self, $client) = @_;
    my $socket = delete $client->{socket} or return;
    delete $self->{by_socket}{$socket};
    $self->{select}->remove($socket);
    close $socket;
    return;
}

1;

package Ratelimit::Load;

# Sends requests continuously from a process of its own while a test does something to nginx: half of the
# clients keep their connection, half open a new one for each request. They pause for a moment after each round of
# responses, so that the load leaves a processor for the test and for others beside it.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use Ratelimit::Process qw(start_commanded stop_process kill_process_of wait_until);

# Options: port, path, clients (8).
sub new {
    my ($class, %options) = @_;
    my $self = bless {clients => 8, %options}, $class;
    start_commanded($self, 'load', sub { Ratelimit::Load::Loop->new($self, $_[0])->run });
    return $self;
}

# The counts so far, as a hash: responses by status; `retried`, requests on a connection that had served
# before and was closed without a byte of a response, as a server may close an idle one; `failed`, and
# in `why` the reason of the first failure.
sub seen { return $_[0]->_command('seen') }

# Waits for the pending responses, ends the load, and returns the same hash as `seen`.
sub stop {
    my ($self) = @_;
    my $seen = $self->_command('stop');
    stop_process($self->{pid});
    return $seen;
}

# Waits for $count more responses.
sub wait_for_more {
    my ($self, $count) = @_;
    my $answers = sub { my $seen = $self->seen; return ($seen->{200} // 0) + ($seen->{429} // 0) };
    my $before = $answers->();
    wait_until("$count more responses", sub { $answers->() >= $before + $count });
    return;
}

sub _command {
    my ($self, $word) = @_;
    syswrite $self->{control}, "$word\n" or croak "load: $!";
    IO::Select->new($self->{control})->can_read(30) or croak "load: no reply to $word";
    sysread $self->{control}, my $answer, 4000 or croak 'load: it has ended';
    my ($counts, $why) = split /\t/, $answer, 2;
    return { split(/[ =]/, $counts), why => $why };
}

sub DESTROY { return kill_process_of($_[0]) }

package Ratelimit::Load::Loop;    ## no critic (ProhibitMultiplePackages)

# The load's process. A client: whether it keeps its connection (keep), its socket, the number of
# responses on that socket, the bytes of the next response, the deadline of that response.

use IO::Socket::INET;
use Time::HiRes qw(sleep time);

my $patience = 20;    # seconds

sub new {
    my ($class, $load, $control) = @_;
    return bless {
        port   => $load->{port}, path => $load->{path}, control => $control, by_socket => {},
        select => IO::Select->new($control),
        clients => [map { { keep => $_ % 2 } } 1 .. $load->{clients}],
        counts => { retried => 0, failed => 0 }, why => '',
    }, $class;
}

sub run {
    my ($self) = @_;
    while (1) {
        my @idle = grep { !$_->{socket} } @{ $self->{clients} };
        if ($self->{stopping}) {
            return $self->report if @idle == @{ $self->{clients} };
        }
        else {
            $self->begin($_) for @idle;
        }
        for my $socket ($self->{select}->can_read(0.1)) {
            if ($socket == $self->{control}) { $self->obey or return }
            elsif (my $client = $self->{by_socket}{$socket}) { $self->receive($client) }
        }
        sleep 0.003;
        for my $client (grep { $_->{socket} && time > $_->{due} } @{ $self->{clients} }) {
            $self->fail("no answer within $patience s");
            $self->leave($client);
        }
    }
}

sub begin {
    my ($self, $client) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port},
        Timeout => $patience) or return $self->fail("connect: $!");
    @{$client}{qw(socket answers)} = ($socket, 0);
    $self->{by_socket}{$socket} = $client;
    $self->{select}->add($socket);
    return $self->ask($client);
}

sub ask {
    my ($self, $client) = @_;
    @{$client}{qw(buffer due)} = ('', time + $patience);
    my $close = $client->{keep} ? '' : "Connection: close\r\n";
    # A write that fails is noticed when the response is read.
    syswrite $client->{socket}, "GET $self->{path} HTTP/1.1\r\nHost: localhost\r\n$close\r\n";
    return;
}

sub receive {
    my ($self, $client) = @_;
    my $got = sysread $client->{socket}, $client->{buffer}, 65536, length $client->{buffer};
    return $self->lost($client, $!) if !$got;
    my ($head, $body) = $client->{buffer} =~ /^(.*?)\r\n\r\n(.*)/s or return;
    my ($length) = $head =~ /^Content-Length: (\d+)/mi;
    return if length $body < $length;
    my ($status) = $head =~ m{^HTTP/1.1 (\d+)};
    $self->{counts}{ $status // 'nonsense' }++;
    $client->{answers}++;
    if ($self->{stopping} || $head =~ /^Connection: close/mi) { $self->leave($client) }
    else                                                      { $self->ask($client) }
    return;
}

sub lost {
    my ($self, $client, $error) = @_;
    if ($client->{answers} && $client->{buffer} eq '') { $self->{counts}{retried}++ }
    else { $self->fail("closed after $client->{answers} answers: '$client->{buffer}' $error") }
    return $self->leave($client);
}

sub leave {
    my ($self, $client) = @_;
    my $socket = delete $client->{socket};
    $self->{select}->remove($socket);
    delete $self->{by_socket}{$socket};
    close $socket;
    return;
}

sub fail {
    my ($self, $why) = @_;
    $self->{counts}{failed}++;
    $self->{why} ||= $why;
    return;
}

# Handles one command from the test; false if the test has ended.
sub obey {
    my ($self) = @_;
    sysread $self->{control}, my $line, 200 or return 0;
    if ($line eq "stop\n") { $self->{stopping} = 1 }
    else                   { $self->report }
    return 1;
}

sub report {
    my ($self) = @_;
    my $counts = $self->{counts};
    syswrite $self->{control}, join(' ', map { "$_=$counts->{$_}" } sort keys %{$counts})
        . "\t$self->{why}";
    return;
}

1;

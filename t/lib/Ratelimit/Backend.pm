package Ratelimit::Backend;

# A slow HTTP server in a process of its own. It counts the requests that it serves at one time, for each
# value of their argument k. A request ends after the seconds of its argument `for`, or when the test says
# so; a request to upgrade its connection gets 101, and ends when its client closes the connection.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Ratelimit::Http qw(http_connect http_send);
use Ratelimit::Process qw(free_port start_commanded kill_process_of command_process wait_until);

sub new {
    my ($class) = @_;
    my $self = bless {port => free_port()}, $class;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $self->{port},
        Listen => 1024, ReuseAddr => 1) or croak "backend: $!";
    start_commanded($self, 'backend', sub { Ratelimit::Backend::Loop->new($listener, $_[0])->run });
    return $self;
}

sub addr { return "127.0.0.1:$_[0]{port}" }

# How many requests it serves now, and the most that it served at one time: of all keys, or of one.
sub now  { return $_[0]->command('now', $_[1] // 'all') }
sub most { return $_[0]->command('most', $_[1] // 'all') }
# How many it has begun to serve.
sub begun { return $_[0]->command('begun', '') }
# Ends the requests that it serves now. `drop`: it closes their connections without a response.
sub finish { return $_[0]->command('finish', '') }
sub drop   { return $_[0]->command('drop', '') }

# Sends a request of each path by the node; returns their sockets when this server has them all.
sub hold {
    my ($self, $node, @paths) = @_;
    my $before = $self->begun;
    my @sockets = map { my $socket = http_connect($node->port); http_send($socket, $_); $socket } @paths;
    wait_until('the backend has them', sub { $self->begun >= $before + @paths });
    return @sockets;
}

sub command { return command_process(@_) + 0 }

sub DESTROY { return kill_process_of($_[0]) }

package Ratelimit::Backend::Loop;    ## no critic (ProhibitMultiplePackages)

# The backend's process. A request is { socket, text, key, until }.

use Time::HiRes qw(time);

sub new {
    my ($class, $listener, $control) = @_;
    return bless {
        listener => $listener, control => $control, requests => {}, now => {}, most => {}, begun => 0,
        select   => IO::Select->new($listener, $control),
    }, $class;
}

sub run {
    my ($self) = @_;
    while (1) {
        my @ready = $self->{select}->can_read($self->end_due);
        # Connections that end before those that begin: so no request is counted after its end.
        for my $socket (grep { $self->{requests}{$_} } @ready) {
            $self->read_from($self->{requests}{$socket});
        }
        for my $socket (@ready) {
            if    ($socket == $self->{control})  { $self->obey or return }
            elsif ($socket == $self->{listener}) { $self->take }
        }
    }
}

sub take {
    my ($self) = @_;
    my $socket = $self->{listener}->accept or return;
    $self->{requests}{$socket} = { socket => $socket, text => '' };
    $self->{select}->add($socket);
    return;
}

sub read_from {
    my ($self, $request) = @_;
    my $got = sysread $request->{socket}, $request->{text}, 65536, length $request->{text};
    return $self->end($request) unless $got;
    return if exists $request->{key} || $request->{text} !~ /\r\n\r\n/;
    ($request->{key}) = $request->{text} =~ /^\S+ \S*[?&]k=([^&\s]*)/;
    $request->{key} //= '';
    my ($seconds) = $request->{text} =~ /^\S+ \S*[?&]for=([\d.]+)/;
    $request->{until} = time + $seconds if defined $seconds;
    $self->{begun}++;
    for my $key ($request->{key}, 'all') {
        my $now = ++$self->{now}{$key};
        $self->{most}{$key} = $now if $now > ($self->{most}{$key} // 0);
    }
    if ($request->{text} =~ /^Upgrade:/mi) {
        syswrite $request->{socket},
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    }
    return;
}

sub end {
    my ($self, $request, $response) = @_;
    if (exists $request->{key}) {
        $self->{now}{$_}-- for $request->{key}, 'all';
    }
    syswrite $request->{socket}, $response if defined $response;
    $self->{select}->remove($request->{socket});
    delete $self->{requests}{ $request->{socket} };
    close $request->{socket};
    return;
}

# Ends the requests whose time has come; returns the seconds until the next, or nothing if there is none.
sub end_due {
    my ($self) = @_;
    my ($now, $next) = (time);
    for my $request (grep { defined $_->{until} } values %{ $self->{requests} }) {
        if ($request->{until} <= $now) {
            $self->end($request, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
        elsif (!defined $next || $request->{until} - $now < $next) {
            $next = $request->{until} - $now;
        }
    }
    return $next;
}

# Handles one command from the test; false if the test has ended.
sub obey {
    my ($self) = @_;
    sysread $self->{control}, my $line, 200 or return 0;
    my ($command, $key) = split ' ', $line;
    my $answer = 0;
    if ($command eq 'begun') {
        $answer = $self->{begun};
    }
    elsif ($command =~ /^(?:now|most)$/) {
        $answer = $self->{$command}{$key} // 0;
    }
    else {
        my $response = $command eq 'finish' ? "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" : undef;
        $self->end($_, $response) for grep { exists $_->{key} } values %{ $self->{requests} };
    }
    syswrite $self->{control}, $answer;
    return 1;
}

1;

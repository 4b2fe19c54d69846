package Ratelimit::Proxy;

# A TCP proxy in a process of its own, between nginx and a server, that simulates a slow or broken
# network. A change is in force when the method that makes it returns.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Ratelimit::Process qw(free_port start_commanded stop_process kill_process_of command_process add_server);
use Time::HiRes qw(time);

# to => "address:port" of the server; port => its own, free unless given.
sub new {
    my ($class, %options) = @_;
    my $self = bless {port => free_port(), %options}, $class;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $self->{port},
        Listen => 128, ReuseAddr => 1) or croak "proxy: $!";
    start_commanded($self, 'proxy', sub { Ratelimit::Proxy::Loop->new($self->{to}, $listener, $_[0])->run });
    return add_server($self);
}

sub port { return $_[0]{port} }
sub addr { return "127.0.0.1:$_[0]{port}" }

sub pass   { return $_[0]->command('pass') }          # without delay: the initial mode
sub delay  { return $_[0]->command('delay', $_[1]) }  # replies arrive $_[1] seconds later
sub narrow { return $_[0]->command('narrow', $_[1]) } # replies take a second for each $_[1] bytes of a connection
sub garble { return $_[0]->command('garble') }        # replies arrive with every byte changed

# A black hole: accepts connections and bytes, and forwards nothing. A connection that has lost bytes
# stays dead in later modes, as behind a firewall that has forgotten it; other connections recover.
sub drop { return $_[0]->command('drop') }

# The same for one connection: the next one that has a request with this text.
sub deafen { return $_[0]->command('deafen', $_[1]) }

# Closes the next connection that has a request with this text, instead of forwarding that. Once. From then on, the
# second parameter is the mode, if there is one: "drop".
sub sever { return $_[0]->command('sever', @_[1 .. $#_]) }

# Closes every connection now; with a number, closes each connection once that many bytes of replies have
# passed. New connections are accepted.
sub cut { return $_[0]->command('cut', $_[1] // 0) }

# Closes a connection instead of delivering the next replies that it has, or the $_[1]-th from now on: the
# server has executed what they are for. Once. With a text, replies are counted from the next request on that has
# it: a worker also probes a server that is silent for a second.
sub lose { return $_[0]->command('lose', $_[1] // 1, @_[2 .. $#_]) }

# Discards the next replies that it has; the connection stays open, so that each later reply is taken for
# that to the command before its own. Once.
sub swallow { return $_[0]->command('swallow') }

# Whether lose() or sever() has closed a connection, or swallow() has discarded replies.
sub lost { return !$_[0]->seen->{to_lose} }
sub swallowed { return !$_[0]->seen->{to_swallow} }
sub severed { return !$_[0]->seen->{to_sever} }

# Counters: connections accepted (`taken`), connections open, bytes of requests and of replies,
# how many times replies come until those to lose, whether there is a request to sever, and whether there are replies to
# swallow.
sub seen {
    my ($self) = @_;
    my %seen;
    @seen{qw(taken open requests answers to_lose to_sever to_swallow)} = split ' ', $self->command('seen');
    return \%seen;
}

sub command { return command_process(@_) }

sub stop { return stop_process($_[0]{pid}, 'KILL') }

sub DESTROY { return kill_process_of($_[0]) }

package Ratelimit::Proxy::Loop;    ## no critic (ProhibitMultiplePackages)

# The proxy's process. A link is one connection: client, server, whether it is dead, bytes left until
# it is cut, the delayed chunks of replies: [when, bytes], and when a narrow one is free again (`busy`).

use Time::HiRes qw(time);

sub new {
    my ($class, $to, $listener, $control) = @_;
    return bless {
        to      => $to, listener => $listener, control => $control, mode => 'pass', links => {},
        select  => IO::Select->new($listener, $control), taken => 0, requests => 0, answers => 0,
        to_lose => 0, swallows => 0,
    }, $class;
}

sub run {
    my ($self) = @_;
    while (1) {
        for my $socket ($self->{select}->can_read($self->send_due)) {
            if    ($socket == $self->{listener}) { $self->take }
            elsif ($socket == $self->{control})  { $self->obey or return }
            elsif (my $link = $self->{links}{$socket}) { $self->move($link, $socket) }
        }
    }
}

# Sends the replies that are due; returns the seconds until the next, or nothing if none is delayed.
sub send_due {
    my ($self) = @_;
    my ($now, $next) = (time);
    for my $link ($self->links) {
        my $queue = $link->{queue};
        while (@{$queue} && $queue->[0][0] <= $now) {
            $self->answer($link, (shift @{$queue})->[1]);
        }
        next unless @{$queue};
        my $wait = $queue->[0][0] - $now;
        $next = $wait if !defined $next || $wait < $next;
    }
    return $next;
}

# Each link once; a copy, so that links may be closed during the iteration.
sub links {
    my ($self) = @_;
    my %links = map { $_->{client} => $_ } values %{ $self->{links} };
    return values %links;
}

sub take {
    my ($self) = @_;
    my $client = $self->{listener}->accept or return;
    my $server = IO::Socket::INET->new(PeerAddr => $self->{to}, Timeout => 2);
    return close $client unless $server;
    $self->{taken}++;
    my $link = { client => $client, server => $server, queue => [], left => $self->{cut_after} };
    @{ $self->{links} }{$client, $server} = ($link, $link);
    $self->{select}->add($client, $server);
    return;
}

sub move {
    my ($self, $link, $from) = @_;
    my $got = sysread $from, my $bytes, $self->{mode} eq 'narrow' ? 8192 : 65536;
    return $self->hang_up($link) unless $got;
    my $deafens = defined $self->{deaf} && $from == $link->{client} && index($bytes, $self->{deaf}) >= 0;
    delete $self->{deaf} if $deafens;
    delete $self->{loses_after} if $self->awaits($bytes) && $from == $link->{client};
    $link->{dead} = 1 if $deafens || $self->{mode} eq 'drop';
    return if $link->{dead};
    if (defined $self->{severs} && $from == $link->{client} && index($bytes, $self->{severs}) >= 0) {
        delete $self->{severs};
        $self->{mode} = $self->{severs_to} if $self->{severs_to};
        return $self->hang_up($link);
    }
    if ($from == $link->{client}) {
        $self->{requests} += $got;
        syswrite $link->{server}, $bytes;
        return;
    }
    return $self->hang_up($link) if $self->{to_lose} && !defined $self->{loses_after} && !--$self->{to_lose};
    return if $self->{swallows} && $self->{swallows}--;
    $bytes ^= "\xaa" x $got if $self->{mode} eq 'garble';
    my $due = time;
    $due += $self->{seconds} if $self->{mode} eq 'delay';
    if ($self->{mode} eq 'narrow') {
        $due = $link->{busy} if ($link->{busy} // 0) > $due;
        $link->{busy} = $due += $got / $self->{seconds};
    }
    push @{ $link->{queue} }, [$due, $bytes];
    return;
}

sub answer {
    my ($self, $link, $bytes) = @_;
    my $left = $link->{left};
    $bytes = substr $bytes, 0, $left if defined $left && length $bytes > $left;
    $self->{answers} += length $bytes;
    syswrite $link->{client}, $bytes if length $bytes;
    $link->{left} -= length $bytes if defined $left;
    $self->hang_up($link) if defined $left && $link->{left} <= 0;
    return;
}

# Whether these bytes have the text of a request whose reply shall be lost.
sub awaits { return defined $_[0]{loses_after} && index($_[1], $_[0]{loses_after}) >= 0 }

sub hang_up {
    my ($self, $link) = @_;
    for my $socket (@{$link}{qw(client server)}) {
        $self->{select}->remove($socket);
        delete $self->{links}{$socket};
        close $socket;
    }
    @{ $link->{queue} } = ();
    return;
}

# Handles one command from the test; false if the test has ended.
sub obey {
    my ($self) = @_;
    sysread $self->{control}, my $line, 200 or return 0;
    my ($command, $value, $more) = split ' ', $line;
    my @links = $self->links;
    my $answer = 'done';
    if ($command eq 'seen') {
        $answer = join ' ', $self->{taken}, scalar @links, @{$self}{qw(requests answers to_lose)},
            defined $self->{severs} ? 1 : 0, $self->{swallows};
    }
    elsif ($command eq 'deafen') {
        $self->{deaf} = $value;
    }
    elsif ($command eq 'sever') {
        @{$self}{qw(severs severs_to)} = ($value, $more);
    }
    elsif ($command eq 'lose') {
        @{$self}{qw(to_lose loses_after)} = ($value, $more || undef);
    }
    elsif ($command eq 'swallow') {
        $self->{swallows} = 1;
    }
    elsif ($command eq 'cut' && $value) {
        $self->{cut_after} = $value;
        $_->{left} = $value for @links;
    }
    elsif ($command eq 'cut') {
        $self->hang_up($_) for @links;
    }
    else {
        ($self->{mode}, $self->{seconds}) = ($command, $value);
        if ($command eq 'pass') {
            delete $self->{cut_after};
            delete $_->{left} for @links;
        }
    }
    syswrite $self->{control}, $answer;
    return 1;
}

1;

package Ratelimit::NameServer;

# A name server whose answers can be errors. It runs in a process of its own.

use strict;
use warnings;

use Carp qw(croak);
use IO::Socket::INET;
use Ratelimit::Process qw(free_port read_file start_code kill_process_of temp_folder write_file);
use Socket qw(inet_aton);

my %codes = (ok => 0, SERVFAIL => 2, NXDOMAIN => 3, NOTIMP => 4, REFUSED => 5);

# Options: address (127.0.0.1), port (free). See answers() for the rest.
sub new {
    my ($class, %options) = @_;
    my $self = bless {address => '127.0.0.1', folder => temp_folder(), %options}, $class;
    $self->{port} //= free_port();
    my $socket = IO::Socket::INET->new(LocalAddr => $self->{address}, LocalPort => $self->{port}, Proto => 'udp')
        or croak "name server: $!";
    $self->answers(a => 'ok', aaaa => 'ok', to => '127.0.0.1');
    $self->{pid} = start_code('name server', sub {
        while (1) {
            $socket->recv(my $query, 4096) // next;
            my $answer = answer_to($query, split ' ', read_file("$self->{folder}/answers")) // next;
            $socket->send($answer);
        }
    });
    return $self;
}

sub addr { return "$_[0]{address}:$_[0]{port}" }

# From now on: what A and AAAA queries of any name are answered with (ok, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, or silence),
# and the address.
sub answers {
    my ($self, %new) = @_;
    $self->{now} = {%{ $self->{now} // {} }, %new};
    write_file("$self->{folder}/next", join ' ', @{ $self->{now} }{qw(a aaaa to)});
    rename "$self->{folder}/next", "$self->{folder}/answers" or croak "rename: $!";
    return;
}

sub answer_to {
    my ($query, $a, $aaaa, $to) = @_;
    my $end = index($query, "\0", 12) + 1;    # of the name
    my $type = unpack 'n', substr $query, $end, 2;
    my $answer = $type == 28 ? $aaaa : $a;
    return if $answer eq 'silence';
    my $records = $answer eq 'ok' && $type == 1 ? pack 'nnnNna4', 0xc00c, 1, 1, 1, 4, inet_aton($to) : '';
    return substr($query, 0, 2) . pack('nnnnn', 0x8180 | $codes{$answer}, 1, $records ? 1 : 0, 0, 0)
        . substr($query, 12, $end - 12 + 4) . $records;
}

sub DESTROY { return kill_process_of($_[0]) }

1;

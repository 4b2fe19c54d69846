package Bench::LockStep;

# Requests in lock step: nginx stands still while all clients send, and of nginx and Redis one runs at a time, until it
# has nothing more to do. So both see the same messages together in each round, however busy the machine is.

use strict;
use warnings;

use Ratelimit::Http qw(http_connect);
use Ratelimit::Process qw(pause_processes wait_for_state);
use Time::HiRes qw(sleep time);

# $nginx: in one process (single).
sub new {
    my ($class, $nginx, $redis, $connections) = @_;
    my @clients = map { http_connect($nginx->port) } 1 .. $connections;
    $_->blocking(0) for @clients;
    return bless { nginx => $nginx->pid, redis => $redis->pid, clients => \@clients }, $class;
}

# Rounds of one request of each of the first clients; $path->(i) is that of the i-th request. Returns the statuses.
sub play {
    my ($self, $sending, $rounds, $path) = @_;
    my ($nginx, $redis, @clients) = ($self->{nginx}, $self->{redis}, @{ $self->{clients} }[0 .. $sending - 1]);
    my ($number, @statuses) = (0);
    pause_processes($nginx, $redis);    # until they stand still, they would see a part of the messages
    for (1 .. $rounds) {
        for my $client (@clients) {
            my $text = 'GET ' . $path->($number++) . " HTTP/1.1\r\nHost: localhost\r\n\r\n";
            (syswrite $client, $text) // die "nginx closed a connection: $!\n";
        }
        my %open = map { $_ => ['', $clients[$_]] } 0 .. $#clients;
        my $end = time + 600;
        while (%open) {
            die "no response within ten minutes\n" if time > $end;
            run_alone($nginx);
            for my $id (sort { $a <=> $b } keys %open) {
                push @statuses, substr $open{$id}[0], length 'HTTP/1.1 ', 3 if is_whole($open{$id});
                delete $open{$id} if $open{$id}[2];
            }
            run_alone($redis);
        }
        run_alone($nginx);    # what Redis said to requests that have ended
    }
    kill CONT => $nginx, $redis;
    return @statuses;
}

# Lets a process run until it waits for something to happen.
sub run_alone {
    my ($pid) = @_;
    kill CONT => $pid;
    wait_for_state($pid, 'S');
    pause_processes($pid);
    return;
}

# Reads what has come of a response: [text, client, whether it is whole].
sub is_whole {
    my ($response) = @_;
    sysread $response->[1], $response->[0], 65536, length $response->[0];
    my $head = index $response->[0], "\r\n\r\n";
    return $response->[2] = $head > 0 && $response->[0] =~ /^Content-Length: (\d+)\r$/m
        && length $response->[0] == $head + 4 + $1;
}

1;

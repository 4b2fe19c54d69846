package Ratelimit::Hostile;

# A server in Redis's place that replies what it wants.

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use Ratelimit::Process qw(free_port start_code);
use Time::HiRes qw(time);

our @EXPORT_OK = qw(hostile bulk map_of);

# Starts a server whose reply to a command is $replies->{COMMAND}, text or code; else it does as Redis does. Code that
# returns nothing closes the connection. What
# $replies->{later} has is sent 0.1 s after each connection is ready, unasked.
sub hostile {
    my ($replies, $port) = @_;
    $port //= free_port();
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 128, ReuseAddr => 1)
        or die "hostile: $!";
    my %as_usual = (TIME => "*2\r\n\$10\r\n1700000000\r\n\$1\r\n5\r\n",
        EVALSHA => "-ERR no\r\n");
    my $pid = start_code('hostile', sub {
        local $SIG{PIPE} = 'IGNORE';
        my $all = IO::Select->new($listener);
        my (%text, %later);
        while (1) {
            for my $socket ($all->can_read(0.05)) {
                if ($socket == $listener) {
                    $all->add(scalar $listener->accept);
                    next;
                }
                if (!sysread $socket, $text{$socket}, 1 << 20, length($text{$socket} // '')) {
                    $all->remove($socket);
                    delete $text{$socket};
                    next;
                }
                # Bulk strings of commands: numbers and names only, so that the name is found by its line.
                while ($text{$socket} =~ s/\A\*(\d+)\r\n//) {
                    my ($words, @words) = $1;
                    for (1 .. $words) {
                        $text{$socket} =~ s/\A\$(\d+)\r\n//;
                        push @words, substr $text{$socket}, 0, $1, '';
                        substr $text{$socket}, 0, 2, '';
                    }
                    # A script that returns TIME, or any other one.
                    $words[0] = $words[1] =~ /\Areturn redis.call\('TIME'\)/ ? 'TIME' : 'EVALSHA'
                        if $words[0] eq 'EVAL' && !$replies->{EVAL};
                    my $reply = $replies->{ $words[0] } // $as_usual{ $words[0] } // "+OK\r\n";
                    $reply = $reply->(@words) if ref $reply;
                    if (!defined $reply) {
                        $all->remove($socket);
                        close $socket;
                        last;
                    }
                    $socket->print($reply);
                    $later{$socket} = [time + 0.1, $socket] if $words[0] eq 'CLIENT';
                }
            }
            for my $due (grep { defined $replies->{later} && $_->[0] <= time } values %later) {
                $due->[1]->print($replies->{later});
                delete $later{ $due->[1] };
            }
        }
    });
    return { addr => "127.0.0.1:$port", port => $port, pid => $pid };
}

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }

# A reply to CLUSTER SLOTS.
sub map_of {
    my ($port, @hosts) = @_;
    my $text = '*' . @hosts . "\r\n";
    for my $i (0 .. $#hosts) {
        my $first = $i % 16_384;
        my $last = $i == $#hosts ? 16_383 : $first;
        $text .= "*3\r\n:$first\r\n:$last\r\n*3\r\n" . bulk($hosts[$i]) . ":$port\r\n" . bulk('id');
    }
    return $text;
}

1;

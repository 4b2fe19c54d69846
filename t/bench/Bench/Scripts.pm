package Bench::Scripts;

# The scripts as the module assembles them, and direct calls of them.

use strict;
use warnings;

use IO::Socket::INET;
use Ratelimit::Build qw(top build_folder built);
use Ratelimit::Redis;

use Exporter 'import';
our @EXPORT_OK = qw($top $output load_script call_words command send_calls);

our $top    = top();
our $output = build_folder() . '/bench';

my %sockets;

# Loads the script of a sequence of limits, given by their algorithms; returns its digest.
sub load_script {
    my ($redis, @algorithms) = @_;
    my $program = built('unit/print_script', './build.sh bench');
    my $text = qx($program @algorithms);
    die "print_script failed\n" if $?;
    return $redis->cmd('SCRIPT', 'LOAD', $text);
}

# The words of a call: key, now (microseconds; 0: Redis's time), quota, window (microseconds), param,
# cost, in the order of lua/sequence.lua, which packs the numbers into one word. An array of keys: the
# numbers are those of each.
sub call_words {
    my ($digest, $key, @numbers) = @_;
    my @keys = ref $key ? @{$key} : $key;
    return ('EVALSHA', $digest, scalar @keys, @keys, pack 'd<*', (@numbers) x @keys);
}

# A command as RESP.
sub command {
    my (@words) = @_;
    return '*' . @words . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words;
}

# Sends $count commands, a hundred at a time; $words->(i) returns the words of the i-th.
sub send_calls {
    my ($redis, $count, $words) = @_;
    my $socket = $sockets{ $redis->addr } //= IO::Socket::INET->new(PeerAddr => $redis->addr)
        or die "redis: $!\n";
    for (my $i = 0; $i < $count;) {
        my ($text, $pending) = ('', 0);
        while ($pending < 100 && $i < $count) {
            $text .= command($words->($i++));
            ++$pending;
        }
        print {$socket} $text or die "redis: $!\n";
        for my $answer (map { Ratelimit::Redis::read_answer($socket) } 1 .. $pending) {
            die "redis: ${$answer}\n" if ref $answer eq 'Ratelimit::Redis::Error';
        }
    }
    return;
}

1;

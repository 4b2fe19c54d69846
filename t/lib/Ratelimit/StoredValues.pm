package Ratelimit::StoredValues;

# The values that a version has stored in Redis, in a file: the first line has the time of Redis (seconds since the
# epoch), each other one a key, its type, the milliseconds until it expires (-1: never), and its words, all separated
# by tabs. Bytes that are not printable are written as %hh.

use strict;
use warnings;

use Carp qw(croak);
use Ratelimit::Process qw(read_file write_file);

use Exporter 'import';
our @EXPORT_OK = qw(save_values stored_at load_values);

my %read  = (string => [qw(GET)], hash => [qw(HGETALL)], zset => [qw(ZRANGE)]);
my %write = (string => sub { [SET => @_] }, hash => sub { [HSET => @_] },
    zset => sub { my ($key, %score) = @_; [ZADD => $key, map { $score{$_} => $_ } sort keys %score] });

sub save_values {
    my ($redis, $path) = @_;
    my @lines = $redis->cmd('TIME')->[0];
    for my $key ($redis->keys_like) {
        my $type    = $redis->cmd('TYPE', $key);
        my $command = $read{$type} or croak "$key is a $type";
        my $words   = $redis->cmd(@{$command}, $key, $type eq 'zset' ? (0, -1, 'WITHSCORES') : ());
        push @lines, join "\t", map { s/([^!-\$&-~])/sprintf '%%%02x', ord $1/ger }
            $key, $type, $redis->cmd('PTTL', $key), ref $words ? @{$words} : $words;
    }
    return write_file($path, join "\n", @lines, '');
}

# When they were stored.
sub stored_at {
    my ($path) = @_;
    my ($time) = read_file($path) =~ /\A(\d+)$/m;
    return $time;
}

# Stores them in another Redis, $later seconds after that.
sub load_values {
    my ($redis, $path, $later) = @_;
    my (undef, @lines) = split /\n/, read_file($path);
    for my $line (@lines) {
        my ($key, $type, $expires, @words) = map { s/%(\w\w)/chr hex $1/ger } split /\t/, $line, -1;
        next if $expires >= 0 && $expires <= 1000 * $later;
        $redis->cmd(@{ $write{$type}->($key, @words) });
        $redis->cmd('PEXPIRE', $key, $expires - 1000 * $later) if $expires >= 0;
    }
    return;
}

1;

#!/usr/bin/env perl

# Every script beside the textbook script for its algorithm, in one Redis and one run: calls per second of
# Redis's time (INFO commandstats), medians of interleaved rounds; memory; and the longest single check
# when very many entries leave the window at once.

use strict;
use warnings;

use Ratelimit::Process qw(read_file);
use Ratelimit::Redis;

use Bench::Measure qw($rounds median);
use Bench::Report qw(update_document);
use Bench::Scripts qw($top load_script call_words send_calls);
use Bench::Servers qw(versions);

my $second = 1_000_000;
my $start  = 1_800_000_000 * $second;
my $unique = 0;

# A pattern: algorithm, name, quota, window (s), the algorithm's param, a function that returns the i-th
# call's time (microseconds after the start) and key; then calls that fill the state first, and the
# textbook script if it is another algorithm's.
my @patterns = (
    ['fixed_window', 'one hot key, passing', 1e9, 60, 0, sub { $_[0] * 50, 'hot' }],
    ['fixed_window', 'refusing',             10,  60, 0, sub { $_[0],      'hot' }],
    ['fixed_window', 'small keys',           10,  60, 0, sub { $_[0], 'k' . $_[0] % 5000 }],
    ['fixed_window', 'this server\'s clock', 1e9, 60, 0, sub { undef, 'hot' }],
    ['sliding_window_counter', 'one hot key, passing', 1e9, 1, 0, sub { $_[0] * 500, 'hot' }],
    ['sliding_window_counter', 'refusing',   10, 60, 0, sub { $_[0], 'hot' }],
    ['sliding_window_counter', 'small keys', 10, 60, 0, sub { $_[0], 'k' . $_[0] % 5000 }],
    ['sliding_window_counter', 'this server\'s clock', 1e9, 60, 0, sub { undef, 'hot' }],
    ['token_bucket', 'one hot key, passing', 1e6, 1, 1e6, sub { $_[0] * 50, 'hot' }],
    ['token_bucket', 'refusing',             10, 60, 10, sub { $_[0], 'hot' }],
    ['token_bucket', 'small keys',           10, 60, 10, sub { $_[0], 'k' . $_[0] % 5000 }],
    ['token_bucket', 'a fraction of a us',   7000, 1, 7000, sub { $_[0] * 200, 'hot' }],
    ['token_bucket', 'this server\'s clock', 1e6, 1, 1e6, sub { undef, 'hot' }],
    ['sliding_window_log', 'L = 10, growing, small keys', 10, 60, 0, sub { $_[0], 'k' . $_[0] % 5000 }],
    ['sliding_window_log', 'L = 10, steady', 10, 60, 0, sub { $_[0] * 6 * $second, 'hot' }],
    ['sliding_window_log', 'L = 10, full and refusing', 10, 60, 0, sub { $_[0], 'hot' }],
    ['sliding_window_log', 'L = 1000, growing', 1000, 60, 0, sub { $_[0], 'k' . int($_[0] / 900) }],
    ['sliding_window_log', 'L = 1000, steady', 1000, 60, 0, sub { $_[0] * 60_000, 'hot' }],
    ['sliding_window_log', 'L = 1000, full and refusing', 1000, 60, 0, sub { $_[0], 'hot' }],
    ['sliding_window_log', 'L = 1000, bursts of 500', 1000, 60, 0,
        sub { int($_[0] / 500) * 40 * $second + $_[0] % 500, 'hot' }],
    ['sliding_window_log', 'L = 100000, growing', 1e5, 3600, 0, sub { $_[0], 'hot' }],
    ['sliding_window_log', 'L = 100000, steady', 1e5, 3600, 0, sub { $_[0] * 36_000, 'hot' }, 1e5],
    ['sliding_window_log', 'L = 100000, this server\'s clock', 1e5, 3600, 0, sub { undef, 'hot' }],
    ['sliding_window_buckets', 'one hot key, passing', 1e9, 60, $second, sub { $_[0] * 5000, 'hot' },
        0, 'sliding_window_log'],
);

my $redis = Ratelimit::Redis->new;

# A script here is a function that makes the words of a call from its key and numbers.
my $printed = '';

# Prints, and collects the output for the document.
sub out {
    my ($format, @values) = @_;
    my $line = sprintf $format, @values;
    print $line;
    $printed .= $line;
    return;
}

sub ours {
    my $digest = load_script($redis, $_[0]);
    return sub { call_words($digest, @_) };
}

# The last word makes the entries of the sorted set unique.
sub textbook {
    my ($algorithm) = @_;
    my $digest = $redis->cmd('SCRIPT', 'LOAD', read_file("$top/t/bench/textbook/$algorithm.lua"));
    return sub { ('EVALSHA', $digest, 1, @_, ++$unique) };
}

# Sends $count calls of a pattern, starting with the $from-th.
sub call_many {
    my ($words, $prefix, $pattern, $from, $count) = @_;
    my (undef, undef, $quota, $window, $param, $step) = @{$pattern};
    send_calls($redis, $count, sub {
        my ($offset, $key) = $step->($from + $_[0]);
        return $words->("$prefix$key", defined $offset ? $start + $offset : 0, $quota,
            $window * $second, $param, 1);
    });
    return;
}

# Microseconds of Redis's time for each call.
sub timed {
    my (@arguments) = @_;
    $redis->cmd('CONFIG', 'RESETSTAT');
    call_many(@arguments);
    my ($usec) = $redis->cmd('INFO', 'commandstats')
        =~ /^cmdstat_evalsha:.*usec_per_call=([\d.]+)/m;
    return $usec;
}

sub compare {
    my ($pattern) = @_;
    my ($algorithm, $name, undef, undef, undef, undef, $before, $against) = @{$pattern};
    $redis->cmd('FLUSHALL');
    my %script = (ours => ours($algorithm), textbook => textbook($against // $algorithm));
    my $calls = 10_000;
    my %times;
    for my $who (sort keys %script) {
        call_many($script{$who}, $who, $pattern, 0, $before) if $before;
    }
    for my $round (0 .. $rounds - 1) {
        for my $who (sort keys %script) {
            my $from = ($before // 0) + $round * $calls;
            push @{ $times{$who} }, timed($script{$who}, $who, $pattern, $from, $calls);
        }
    }
    my ($ours, $theirs) = map { median(@{ $times{$_} }) } qw(ours textbook);
    out "%-23s %-33s %8.0f %8.0f %6.2f\n", $algorithm, $name, 1e6 / $ours, 1e6 / $theirs,
        $theirs / $ours;
    return;
}

sub memory {
    my ($algorithm, $quota, $window, $requests, $spread) = @_;
    my @bytes;
    for my $words (ours($algorithm), textbook($algorithm)) {
        $redis->cmd('FLUSHALL');
        my $param = $algorithm =~ /window/ ? 0 : $quota;
        my $pattern = [$algorithm, '', $quota, $window, $param, sub { $_[0] * $spread, 'key' }];
        call_many($words, 'm', $pattern, 0, $requests);
        # The most memory during as many more requests: a string grows and is then rewritten.
        my $most = 0;
        for my $part (0 .. 20) {
            my $sum = 0;
            $sum += $redis->cmd('MEMORY', 'USAGE', $_, 'SAMPLES', 0) for $redis->keys_like;
            $most = $sum if $sum > $most;
            call_many($words, 'm', $pattern, $requests + $part * $quota / 10, $quota / 10);
        }
        push @bytes, $most;
    }
    out "%-23s %-33s %8d %8d   %s\n", $algorithm,
        "L = $quota, $requests requests", @bytes,
        $algorithm eq 'sliding_window_log'
        ? sprintf '%.1f and %.1f a request', map { $_ / $quota } @bytes
        : '';
    return;
}

# Requests at one time: a check that takes a unit, and a statement without one, beside a check of gcra. All are of
# this server's clock. Each of the holders of a key knows the place of its entry.
sub held {
    my ($name, $keys, $holders) = @_;
    my %digest = map { $_ => load_script($redis, $_) } qw(gcra concurrency);
    my ($s, $us) = @{ $redis->cmd('TIME') };
    my ($number, $hold, $late) = ($s * $second + $us, 3600 * $second, 3600 * $second);
    my %times;
    for my $round (0 .. $rounds) {
        my $run = sub {
            my ($what, $calls, $words) = @_;
            $redis->cmd('CONFIG', 'RESETSTAT');
            send_calls($redis, $calls, $words);
            my ($usec) = $redis->cmd('INFO', 'commandstats') =~ /^cmdstat_evalsha:.*usec_per_call=([\d.]+)/m;
            push @{ $times{$what} }, $usec if $round;
        };
        my $message = sub {
            my ($cost, $known) = @_;
            return sub {
                my $place = $_[0] % $holders;
                return (call_words($digest{concurrency}, 'c' . $_[0] % $keys, 0, 1e6, $hold, $late, $cost),
                    pack 'd<4', 1 + $place, ++$number, 0, $known ? $place : -1);
            };
        };
        $redis->cmd('FLUSHALL');
        $run->('first', $holders, $message->(1, 0)) if $holders > 1;
        $run->('acquire', 10_000, $message->(1, 1));
        $run->('state', 10_000, $message->(0, 1));
        $run->('gcra', 10_000, sub { call_words($digest{gcra}, 'g' . $_[0] % $keys, 0, 1e6, $second, 1e6, 1) });
    }
    out "%-23s %-33s %8.2f %8.2f %8.2f\n", 'concurrency', $name, map { median(@{ $times{$_} }) } qw(acquire state gcra);
    return;
}

# The longest of a hundred checks, after all of 100 000 entries, or all but one, have left the window.
sub stall {
    my ($live) = @_;
    my @longest;
    for my $words (ours('sliding_window_log'), textbook('sliding_window_log')) {
        $redis->cmd('FLUSHALL');
        my $late = $live ? 3600 * $second + 99_999 : 3601 * $second;
        my $step = sub { ($_[0] < 100_000 ? $_[0] : $late + $_[0] - 100_000), 'key' };
        my $pattern = ['sliding_window_log', '', 1e5, 3600, 0, $step];
        call_many($words, 's', $pattern, 0, 100_000);
        my $longest = 0;
        for my $i (100_000 .. 100_099) {
            my $usec = timed($words, 's', $pattern, $i, 1);
            $longest = $usec if $usec > $longest;
        }
        push @longest, $longest;
    }
    out "%-23s %-33s %8d %8d\n", 'sliding_window_log',
        $live ? '100000 leave, a new string' : '100000 leave, none is left', @longest;
    return;
}

# The longest check by Redis's SLOWLOG while the window of a full log of 100 000 moves on by as many: this
# module's log is rewritten once, with all of its live entries.
sub rewrite {
    my @longest;
    $redis->cmd('CONFIG', 'SET', 'slowlog-log-slower-than', 50);
    for my $words (ours('sliding_window_log'), textbook('sliding_window_log')) {
        $redis->cmd('FLUSHALL');
        my $pattern = ['sliding_window_log', '', 1e5, 3600, 0, sub { $_[0] * 36_000, 'key' }];
        call_many($words, 'r', $pattern, 0, 100_000);
        $redis->cmd('SLOWLOG', 'RESET');
        call_many($words, 'r', $pattern, 100_000, 110_000);
        my $longest = 0;
        for my $entry (@{ $redis->cmd('SLOWLOG', 'GET', 128) }) {
            $longest = $entry->[2] if $entry->[2] > $longest;
        }
        push @longest, $longest;
    }
    $redis->cmd('CONFIG', 'SET', 'slowlog-log-slower-than', -1);
    out "%-23s %-33s %8d %8s\n", 'sliding_window_log', '100000 live ones, rewritten', $longest[0],
        $longest[1] || '<50';
    return;
}

my (undef, @versions) = versions($redis);    # nginx takes no part
out "%s, %d rounds of 10000 calls, %s\n\n", join(', ', @versions), $rounds, scalar gmtime;
out "%-23s %-33s %8s %8s %6s\n", 'algorithm', 'pattern, calls per second', 'ours', 'textbook',
    'ratio';
compare($_) for @patterns;
out "\n%-23s %-33s %8s %8s %8s\n", '', 'microseconds of a call', 'check', 'end', 'gcra';
held('one hot key', 1, 1);
held('small keys', 5000, 1);
held('one hot key, 1600 holders', 1, 1600);
out "\n%-23s %-33s %8s %8s\n", '', 'memory, most bytes of a key', 'ours', 'textbook';
memory('fixed_window', 1000, 60, 500, 1);
memory('sliding_window_counter', 1000, 60, 1500, 60_000);
memory('token_bucket', 1000, 60, 500, 1);
memory('sliding_window_log', 10, 60, 100, 6 * $second);
memory('sliding_window_log', 1000, 60, 1000, 1);
memory('sliding_window_log', 1000, 60, 5000, 60_000);
memory('sliding_window_log', 100_000, 3600, 100_000, 1);
out "\n%-23s %-33s %8s %8s\n", '', 'longest check, microseconds', 'ours', 'textbook';
stall(0);
stall(1);
rewrite();
update_document('scripts', "```\n$printed```\n");

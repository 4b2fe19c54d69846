package Bench::Generators;

# The load generators: wrk for nginx, and pipelined calls for a Redis alone. Both return a hash: requests,
# seconds, p50, p95 and p99 (microseconds); wrk's also refused (statuses from 400 on).

use strict;
use warnings;

use IO::Socket::INET;
use Ratelimit::Redis;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

use Bench::Scripts qw($top command);

use Exporter 'import';
our @EXPORT_OK = qw(wrk calls_of_redis generator_version);

# Options: port, path, keys (their number), connections, seconds, paced (1: at a moderate rate).
sub wrk {
    my (%load) = @_;
    my @lines = output_of('wrk', '-t1', "-c$load{connections}", "-d$load{seconds}s", '-s',
        "$top/t/bench/" . ($load{paced} ? 'region.lua' : 'requests.lua'), "http://127.0.0.1:$load{port}/", '--', $load{path}, $load{keys},
        int rand $load{keys});
    my ($line) = grep { /^figures: / } @lines or die "wrk printed no figures: @lines";
    my %seen = $line =~ /(\w+)=(\d+)/g;
    die "wrk: $seen{failed} requests of $load{path} failed\n" if $seen{failed};
    die "wrk: too few requests of $load{path} for any figure\n"
        if $seen{requests} < ($load{paced} ? 1 : 10) * $load{connections};
    my %counts = map { /^latency: (\d+) (\d+)/ ? ($1 => $2) : () } @lines;
    # wrk's own formula.
    my $expected = int $seen{microseconds} / int($seen{requests} / $load{connections});
    remove_corrections(\%counts, $expected);
    my $sum = 0;
    $sum += $_ for values %counts;
    die "wrk's latencies do not add up: $sum of $seen{requests}\n" if $sum != $seen{requests};
    return {
        requests => $seen{requests}, seconds => $seen{microseconds} / 1e6, refused => $seen{refused},
        map { ("p$_" => percentile(\%counts, $sum, $_)) } 50, 95, 99
    };
}

# Removes wrk's corrections for coordinated omission: for each latency of at least twice the expected one,
# wrk counts further latencies, less by once, twice, ... the expected one, from the smallest to the largest.
sub remove_corrections {
    my ($counts, $expected) = @_;
    for my $latency (sort { $b <=> $a } keys %{$counts}) {
        last if $latency < 2 * $expected;
        my $count = $counts->{$latency};
        next if $count <= 0;
        for (my $less = $latency - $expected; $less > $expected; $less -= $expected) {
            $counts->{$less} -= $count;
        }
    }
    return;
}

sub percentile {
    my ($counts, $sum, $percent) = @_;
    my $below = 0;
    for my $latency (sort { $a <=> $b } keys %{$counts}) {
        $below += $counts->{$latency};
        return $latency if $below >= $sum * $percent / 100;
    }
    die "no latencies\n";
}

# Options: redis, pipeline (calls in flight at a time, on one connection), calls (their number), decisions
# (of each call; 1), words (a function that makes the words of a call). The result's requests are decisions.
# redis-benchmark cannot send zero bytes.
sub calls_of_redis {
    my (%load) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => $load{redis}->addr) or die "redis: $!\n";
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1 or die "redis: $!\n";
    print {$socket} command($load{words}->()) or die "redis: $!\n";
    my $size = length Ratelimit::Redis::read_answer($socket);
    my $answer = $load{pipeline} * (length("\$$size\r\n") + $size + 2);
    my @batches = map { join '', map { command($load{words}->()) } 1 .. $load{pipeline} } 1 .. 2000;

    my ($sent, $began, %counts) = (0, time);
    while ($sent < $load{calls}) {
        my $at = time;
        my $batch = $batches[$sent / $load{pipeline} % @batches];
        syswrite($socket, $batch) == length $batch or die "redis: $!\n";
        my $text = '';
        while (length $text < $answer) {
            sysread $socket, $text, 65536, length $text or die "redis: $!\n";
        }
        die "redis: $text\n" if length $text != $answer;
        $counts{int 1e6 * (time - $at)} += $load{pipeline};
        $sent += $load{pipeline};
    }
    return {
        requests => $sent * ($load{decisions} // 1), seconds => time - $began,
        map { ("p$_" => percentile(\%counts, $sent, $_)) } 50, 95, 99
    };
}

# The lines that a program prints.
sub output_of {
    my (@command) = @_;
    open my $output, '-|', @command or die "$command[0]: $!\n";
    my @lines = <$output>;
    close $output or die "$command[0] failed: @lines";
    chomp @lines;
    return @lines;
}

sub generator_version {
    my ($version) = (qx(wrk -v 2>&1) // '') =~ /^wrk (\S+)/ or die "wrk does not print its version\n";
    return "wrk $version";
}

1;

package Bench::Measure;

# Measures rows of load in interleaved rounds, and the cost of each.
#
# A row is a hash:
#   name
#   nginx        the server that wrk loads, or `load` instead: code that makes another load for the given
#                seconds, with the result of Bench::Generators
#   path, keys (their number), connections (64), paced (1: at a moderate rate)
#   redis        the Redis servers that count (an array)
#   refused      1: (nearly) all requests are refused but the first of each key; else none may be
#   command      by which Redis decides (evalsha)
#   calls        [least, most] of these for each request; default: [0, 0]
#   counted      code that returns how many requests Redis has counted; every request must be counted
#   surplus      the share of requests that may be counted beyond those sent (0)
#   before       code that runs before each load
#   after        code that runs after each load and returns a value for `state`

use strict;
use warnings;

use List::Util qw(max sum);

use Bench::Generators qw(wrk);

use Exporter 'import';
our @EXPORT_OK = qw($rounds $seconds measure median figure best by_round spread);

our $rounds  = $ENV{ROUNDS}  // 5;
our $seconds = $ENV{SECONDS} // 3;

# Nanoseconds of CPU time of the processes with all their threads, from the scheduler, or in ticks of
# 10 ms where the kernel lacks such figures.
sub cpu_time {
    my $sum = 0;
    for my $pid (@_) {
        my @tasks = glob "/proc/$pid/task/*" or die "process $pid has ended\n";
        for my $task (@tasks) {
            my ($time) = split / /, first_line("$task/schedstat") // '';
            if (!$time) {
                my @fields = split / /, (first_line("$task/stat") // next) =~ s/^.*\) //r;
                $time = ($fields[11] + $fields[12]) * 10_000_000;
            }
            $sum += $time;
        }
    }
    return $sum;
}

sub first_line {
    my ($path) = @_;
    open my $file, '<', $path or return;
    return scalar <$file>;
}

# Measures all rows in turn: once to warm up, then in rounds. Fills in each row's `seen`, lists of values:
# requests (a second), nginx and redis (CPU microseconds of a request), calls (of `command`, for each
# request), shares of a processor (busy: nginx's, redis_busy, load_busy: the load generator's), p50, p95, p99,
# and `state` as `after` returned it.
sub measure {
    my (@rows) = @_;
    $_->{connections} //= 64 for @rows;
    for my $round (0 .. $rounds) {
        for my $row (@rows) {
            printf STDERR "\r\e[K%s, %s", $round ? "round $round of $rounds" : 'warming up', $row->{name}
                if -t STDERR;
            my $seen = measure_one($row, $round ? $seconds : 1);
            next if !$round;
            push @{ $row->{seen}{$_} }, $seen->{$_} for keys %{$seen};
        }
    }
    print STDERR "\r\e[K" if -t STDERR;
    return;
}

sub measure_one {
    my ($row, $duration) = @_;
    $row->{before}->() if $row->{before};
    my @workers = $row->{nginx} ? $row->{nginx}->workers : ();
    my @redis   = map { $_->pid } @{ $row->{redis} };
    my $counts  = sub {
        my ($calls, $reads) = (0, 0);
        for my $redis (@{ $row->{redis} }) {
            $calls += $redis->calls($row->{command} // 'evalsha');
            my ($found, $missed) = $redis->cmd('INFO', 'stats') =~ /^keyspace_hits:(\d+).*^keyspace_misses:(\d+)/ms;
            $reads += $found + $missed;    # of keys: every decision has one
        }
        return (calls => $calls, reads => $reads, counted => $row->{counted} ? $row->{counted}->() : 0);
    };
    # The generator: this process, and the generators that have ended.
    my $times  = sub { return (nginx => cpu_time(@workers), redis => cpu_time(@redis), load => sum(times) * 1e9) };
    my %before = ($counts->(), $times->());    # in this order: to count costs Redis time
    my $load   = $row->{load} ? $row->{load}->($duration)
        : wrk(%{$row}, port => $row->{nginx}->port, seconds => $duration);
    my %after  = ($times->(), $counts->());
    my %grown  = map { $_ => $after{$_} - $before{$_} } keys %after;
    check($row, $load, \%grown);
    return {
        requests => $load->{requests} / $load->{seconds},
        nginx    => $grown{nginx} / 1000 / $load->{requests},
        redis    => $grown{redis} / 1000 / $load->{requests},
        calls    => $grown{calls} / $load->{requests},
        busy     => $grown{nginx} / 1e9 / $load->{seconds},
        redis_busy => $grown{redis} / 1e9 / $load->{seconds},
        load_busy  => $grown{load} / 1e9 / $load->{seconds},
        $row->{after} ? (state => $row->{after}->()) : (),
        map { $_ => $load->{$_} } qw(p50 p95 p99)
    };
}

# Dies unless the row showed the behaviour that it measures.
sub check {
    my ($row, $load, $grown) = @_;
    my $requests = $load->{requests};
    my $wrong    = sub { die "\n$row->{name}: ", sprintf(shift, @_), " of $requests requests\n" };
    # Requests in flight when a generator ends are not in its count.
    my $late = $row->{connections};
    my $first = $row->{refused} ? 2 * $row->{keys} : 0;    # the first request of a key, and those sent with it
    if ($row->{nginx}) {
        $wrong->('%d were refused', $load->{refused}) if !$row->{refused} && $load->{refused};
        $wrong->('only %d were refused', $load->{refused})
            if $row->{refused} && $load->{refused} < 0.999 * $requests - $first;
    }
    for (['calls', 'calls of ' . ($row->{command} // 'evalsha')], ['reads', 'decisions in Redis']) {
        my ($what, $text) = @{$_};
        my ($least, $most) = @{ $row->{$what} // next };
        $wrong->("there were %d $text", $grown->{$what})
            if $grown->{$what} < $least * $requests || $grown->{$what} > $most * ($requests + 2 * $late) + $first;
    }
    $wrong->('Redis counted %d', $grown->{counted})
        if $row->{counted}
        && ($grown->{counted} < $requests - 0.5
        || $grown->{counted} > $requests * (1 + ($row->{surplus} // 0)) + $late);
    return;
}

sub median {
    my @sorted = sort { $a <=> $b } @_;
    die "no values\n" if !@sorted;
    return @sorted % 2 ? $sorted[$#sorted / 2] : ($sorted[@sorted / 2 - 1] + $sorted[@sorted / 2]) / 2;
}

my $one_round;    # if defined, figures are those of this round

# A row's figure: the median of the rounds.
sub figure {
    my ($row, $what) = @_;
    my $values = $row->{seen}{$what} // die "$row->{name}: $what was not measured\n";
    return defined $one_round ? $values->[$one_round] : median(@{$values});
}

# The most requests a second of a round. On a shared machine, other programs only slow a round down.
sub best { return max(@{ $_[0]{seen}{requests} }) }

# The code's value for each round, from figures of that round only.
sub by_round {
    my ($code) = @_;
    my @values;
    for my $round (0 .. $rounds - 1) {
        $one_round = $round;
        push @values, $code->();
    }
    undef $one_round;
    return @values;
}

# The largest distance of a round's requests a second from their median, in percent.
sub spread {
    my ($row) = @_;
    my $median = figure($row, 'requests');
    my ($most) = sort { $b <=> $a } map { abs $_ - $median } @{ $row->{seen}{requests} };
    return 100 * $most / $median;
}

1;

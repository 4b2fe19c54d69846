package Bench::Measure;

# Rounds of load over rows, by turns, and what each cost.
#
# A row is a hash:
#   name
#   nginx        the server that wrk asks, or `load` instead: code that takes the seconds and makes
#                another load, with the result of Bench::Generators
#   path, keys (how many), connections (64)
#   redis        what counts (an array)
#   refused      1: (nearly) all are refused but the first of each key; else none may be
#   calls        [least, most] EVALSHA for each request; none given: [0, 0]
#   counted      code that tells how many requests Redis has counted so far; each must be
#   surplus      how many more may be counted than asked for, as a share (0)
#   before       code that runs before each load
#   after        code that runs after it, and tells a value for `state`

use strict;
use warnings;

use Bench::Generators qw(wrk);

use Exporter 'import';
our @EXPORT_OK = qw($rounds $seconds measure median figure by_round spread);

our $rounds  = $ENV{ROUNDS}  // 5;
our $seconds = $ENV{SECONDS} // 3;

# Nanoseconds of CPU that the processes have had, all of their threads; from the scheduler, or in the
# ticks of 10 ms of a kernel that has no such figures.
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

# All rows in turn: once to warm up, then in rounds. Fills in each row's `seen`, a list of values for
# requests (a second), nginx and redis (CPU microseconds of a request), calls (of scripts, for each
# request), busy (how much of a processor nginx had), p50, p95, p99, and what `after` told as `state`.
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
    my $state   = sub {
        my ($calls, $reads) = (0, 0);
        for my $redis (@{ $row->{redis} }) {
            $calls += $redis->calls('evalsha');
            $reads += $redis->calls('get') + $redis->calls('getrange');    # every decision has one
        }
        my $counted = $row->{counted} ? $row->{counted}->() : 0;
        return { nginx => cpu_time(@workers), redis => cpu_time(@redis), calls => $calls,
            reads => $reads, counted => $counted };
    };
    my $before = $state->();
    my $load = $row->{load} ? $row->{load}->($duration)
        : wrk(%{$row}, port => $row->{nginx}->port, seconds => $duration);
    my $after = $state->();
    my %grown = map { $_ => $after->{$_} - $before->{$_} } keys %{$after};
    check($row, $load, \%grown);
    return {
        requests => $load->{requests} / $load->{seconds},
        nginx    => $grown{nginx} / 1000 / $load->{requests},
        redis    => $grown{redis} / 1000 / $load->{requests},
        calls    => $grown{calls} / $load->{requests},
        busy     => $grown{nginx} / 1e9 / $load->{seconds},
        $row->{after} ? (state => $row->{after}->()) : (),
        map { $_ => $load->{$_} } qw(p50 p95 p99)
    };
}

# Dies unless the row did what it is there to show.
sub check {
    my ($row, $load, $grown) = @_;
    my $requests = $load->{requests};
    my $wrong    = sub { die "\n$row->{name}: ", sprintf(shift, @_), " of $requests requests\n" };
    # What is on its way when a generator ends is not among its requests.
    my $late = $row->{connections};
    my $first = $row->{refused} ? 2 * $row->{keys} : 0;    # a key's, and those that ask beside it
    if ($row->{nginx}) {
        $wrong->('%d were refused', $load->{refused}) if !$row->{refused} && $load->{refused};
        $wrong->('only %d were refused', $load->{refused})
            if $row->{refused} && $load->{refused} < 0.999 * $requests - $first;
    }
    for (['calls', 'calls of scripts'], ['reads', 'decisions in Redis']) {
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

my $one_round;    # figures are of this one only

# A row's figure: the median of the rounds.
sub figure {
    my ($row, $what) = @_;
    my $values = $row->{seen}{$what} // die "$row->{name}: $what was not measured\n";
    return defined $one_round ? $values->[$one_round] : median(@{$values});
}

# What the code makes of figures of one round, for each.
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

# How far the rounds' requests a second lie from their median, at most, in percent.
sub spread {
    my ($row) = @_;
    my $median = figure($row, 'requests');
    my ($most) = sort { $b <=> $a } map { abs $_ - $median } @{ $row->{seen}{requests} };
    return 100 * $most / $median;
}

1;

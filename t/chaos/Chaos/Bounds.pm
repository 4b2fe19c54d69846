package Chaos::Bounds;

# Checks the clients' records against the number of requests that a limit may admit. Of each request only
# the times of sending and of the response are known; the decision was made in between. A request counts in
# an interval only if both times are in it, so a violation found here is certain, whatever the delays.

use strict;
use warnings;

use POSIX qw(floor);

use Exporter 'import';
our @EXPORT_OK = qw(violations);

my %check = (
    fixed_window           => \&_fixed_window,
    sliding_window_counter => \&_sliding_counter,
    sliding_window_log     => sub { return _any_interval($_[0], $_[1], $_[0]{window}) },
    sliding_window_buckets => sub { return _any_interval($_[0], $_[1], $_[0]{window}) },
    token_bucket => sub { return _drained($_[0], $_[1], $_[0]{burst}) },
    gcra         => sub { return _drained($_[0], $_[1], 1 + $_[0]{burst}) },
    leaky_bucket => sub { return _drained($_[0], $_[1], 1 + $_[0]{burst}) },
    concurrency => \&_at_one_time,
);

# Sentences about requests of one key that a limit admitted beyond its bound; none if there are none.
# limit: algorithm, quota, window and precision (seconds), burst.
# passes: [sent, received] of each admitted request, by Redis's clock. For concurrency [decided, released]: the
# latest time of its decision, and as a third value the earliest, if that is another.
# gaps: [from, to] in which Redis lost data, or its clock stepped: requests before and after a gap are
# judged separately, and a request that may overlap the gap is not judged.
sub violations {
    my ($limit, $passes, $gaps) = @_;
    return map { $check{ $limit->{algorithm} }->($limit, $_) } _spans($passes, $gaps // []);
}

# The requests between gaps, each group in the order of the responses.
sub _spans {
    my ($passes, $gaps) = @_;
    my @gaps = sort { $a->[0] <=> $b->[0] } @{$gaps};
    my %spans;
    PASS: for my $pass (sort { $a->[1] <=> $b->[1] } @{$passes}) {
        my $span = 0;
        for my $gap (@gaps) {
            last if $pass->[1] < $gap->[0];
            next PASS if ($pass->[2] // $pass->[0]) <= $gap->[1];
            $span++;
        }
        push @{ $spans{$span} }, $pass;
    }
    return map { $spans{$_} } sort { $a <=> $b } keys %spans;
}

sub _excess {
    my ($limit, $count, $most, $from, $to) = @_;
    return sprintf '%s admitted %d from %.3f to %.3f (%.3f s), at most %.1f may pass',
        $limit->{algorithm}, $count, $from, $to, $to - $from, $most;
}

# A bucket of $capacity that drains at the rate: in any T at most capacity + T * rate. For each end b, finds
# the start a with the largest count(a, b) - rate * (b - a), in a tree of all starts.
sub _drained {
    my ($limit, $passes, $capacity) = @_;
    my $rate = $limit->{quota} / $limit->{window};
    my @starts = sort { $a <=> $b } map { $_->[0] } @{$passes};
    # A start that is not reached yet is kept too low to be the largest.
    my $far  = 1e9;
    my $tree = Chaos::Bounds::Tree->new(map { $rate * ($_ - $starts[0]) - $far } @starts);
    my ($worst, $sentence, $begun) = (1e-3, undef, 0);
    for my $pass (@{$passes}) {
        my $end = $pass->[1];
        while ($begun < @starts && $starts[$begun] <= $end) {
            $tree->add_up_to($begun - 1, -$far) if $begun;
            $tree->add_up_to($begun++, $far);
        }
        # The request counts for every start up to the time at which it was sent.
        $tree->add_up_to(_not_later(\@starts, $pass->[0]) - 1, 1);
        my ($best, $at) = $tree->most;
        my $over = $best - $rate * ($end - $starts[0]) - $capacity;
        next if $over <= $worst;
        my $most = $capacity + $rate * ($end - $starts[$at]);
        ($worst, $sentence) = ($over, _excess($limit, $most + $over, $most, $starts[$at], $end));
    }
    return $sentence // ();
}

# The largest number of requests that were in flight together.
sub _at_one_time {
    my ($limit, $passes) = @_;
    my @events = map { ([$_->[0], 1], [$_->[1], -1]) } @{$passes};
    my ($count, $worst, $sentence) = (0, $limit->{quota});
    for my $event (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } @events) {
        $count += $event->[1];
        next if $count <= $worst;
        $worst = $count;
        $sentence = _excess($limit, $count, $limit->{quota}, $event->[0], $event->[0]);
    }
    return $sentence // ();
}

# The quota in every half-open interval of this length.
sub _any_interval {
    my ($limit, $passes, $length) = @_;
    my @passes = grep { $_->[1] - $_->[0] < $length } @{$passes};
    my @starts = sort { $a <=> $b } map { $_->[0] } @passes;
    my ($worst, $sentence) = ($limit->{quota});
    my $end = 0;    # the first response that is too late; @passes is in the order of responses
    for my $i (0 .. $#starts) {
        my $from = $starts[$i];
        $end++ while $end < @passes && $passes[$end][1] < $from + $length;
        # Those answered in time, less those sent before the interval, which were all answered in time.
        my $count = $end - $i;
        next if $count <= $worst;
        $worst = $count;
        $sentence = _excess($limit, $count, $limit->{quota}, $from, $from + $length);
    }
    return $sentence // ();
}

# Requests with both times in one window, by the window's number.
sub _by_window {
    my ($limit, $passes) = @_;
    my %windows;
    for my $pass (@{$passes}) {
        my ($first, $last) = map { floor($_ / $limit->{window}) } @{$pass};
        push @{ $windows{$first} }, $pass if $first == $last;
    }
    return \%windows;
}

sub _fixed_window {
    my ($limit, $passes) = @_;
    my $windows = _by_window($limit, $passes);
    return map { _excess($limit, scalar @{ $windows->{$_} }, $limit->{quota},
            $_ * $limit->{window}, ($_ + 1) * $limit->{window}) }
        grep { @{ $windows->{$_} } > $limit->{quota} } sort keys %{$windows};
}

# The last decision before a time b had seen all requests answered by b, and the window before it weighed
# no less than it does at b.
sub _sliding_counter {
    my ($limit, $passes) = @_;
    my $windows = _by_window($limit, $passes);
    my @sentences;
    for my $number (sort { $a <=> $b } keys %{$windows}) {
        my $before = @{ $windows->{ $number - 1 } // [] };
        my $count  = 0;
        for my $pass (@{ $windows->{$number} }) {
            $count++;
            my $left = 1 - ($pass->[1] / $limit->{window} - $number);
            my $weight = floor($before * $left + 1e-9);
            next if $weight + $count <= $limit->{quota};
            push @sentences, _excess($limit, $count, $limit->{quota} - $weight,
                $number * $limit->{window}, $pass->[1]) . ", $before passed in the window before";
            last;
        }
    }
    return @sentences;
}

# The number of the sorted numbers that are not above $most.
sub _not_later {
    my ($numbers, $most) = @_;
    my ($low, $high) = (0, scalar @{$numbers});
    while ($low < $high) {
        my $middle = int(($low + $high) / 2);
        if ($numbers->[$middle] <= $most) { $low = $middle + 1 }
        else                              { $high = $middle }
    }
    return $low;
}

package Chaos::Bounds::Tree;    ## no critic (ProhibitMultiplePackages)

# Numbers; values are added to a prefix of them repeatedly. Finds the largest and its index.

sub new {
    my ($class, @numbers) = @_;
    my $size = 1;
    $size *= 2 while $size < @numbers;
    my @most = ((-1e300) x $size, @numbers, (-1e300) x ($size - @numbers));
    for my $i (reverse 1 .. $size - 1) {
        $most[$i] = $most[2 * $i] > $most[2 * $i + 1] ? $most[2 * $i] : $most[2 * $i + 1];
    }
    return bless { size => $size, most => \@most, added => [(0) x (2 * $size)] }, $class;
}

sub add_up_to {
    my ($self, $last, $value) = @_;
    my ($most, $added, $size) = @{$self}{qw(most added size)};
    # From the leaf upwards: a whole left sibling takes the value at once.
    my $i = $size + $last;
    $most->[$i] += $value;
    $added->[$i] += $value;
    while ($i > 1) {
        if ($i % 2) {
            $most->[$i - 1]  += $value;
            $added->[$i - 1] += $value;
        }
        my $parent = int($i / 2);
        my ($left, $right) = @{$most}[2 * $parent, 2 * $parent + 1];
        $most->[$parent] = ($left > $right ? $left : $right) + $added->[$parent];
        $i = $parent;
    }
    return;
}

sub most {
    my ($self) = @_;
    my ($most, $size) = @{$self}{qw(most size)};
    my $i = 1;
    $i = 2 * $i + ($most->[2 * $i + 1] > $most->[2 * $i] ? 1 : 0) while $i < $size;
    return ($most->[1], $i - $size);
}

1;

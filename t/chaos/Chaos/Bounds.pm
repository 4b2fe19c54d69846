package Chaos::Bounds;

# What a limit may let in, checked against what clients saw. Of each request only two times are known:
# when it was sent and when its answer came; the decision was made in between. A request counts in an
# interval only if both times lie in it, so a violation found here is certain, whatever the delays were.

use strict;
use warnings;

use POSIX qw(floor);

use Exporter 'import';
our @EXPORT_OK = qw(violations);

my %check = (
    fixed_window           => \&_fixed_window,
    sliding_window_counter => \&_sliding_counter,
    sliding_window_log     => sub { return _any_interval($_[0], $_[1], $_[0]{window}) },
    # A bucket counts as long as its start is in the window.
    sliding_window_buckets =>
        sub { return _any_interval($_[0], $_[1], $_[0]{window} - $_[0]{precision}) },
    token_bucket => sub { return _drained($_[0], $_[1], $_[0]{burst}) },
    gcra         => sub { return _drained($_[0], $_[1], 1 + $_[0]{burst}) },
    leaky_bucket => sub { return _drained($_[0], $_[1], 1 + $_[0]{burst}) },
);

# Sentences about what one key of a limit let in beyond its bound; none when all is well.
# limit: algorithm, quota, window and precision (seconds), burst.
# passes: [sent, received] of each request that was let in, by Redis's clock.
# gaps: [from, to] in which Redis lost what it knew, or its clock stepped: what came before is judged
# apart from what came after, and a request that touches the gap is not judged.
sub violations {
    my ($limit, $passes, $gaps) = @_;
    return map { $check{ $limit->{algorithm} }->($limit, $_) } _spans($passes, $gaps // []);
}

# Runs of requests between gaps, each in the order of the answers.
sub _spans {
    my ($passes, $gaps) = @_;
    my @gaps = sort { $a->[0] <=> $b->[0] } @{$gaps};
    my %spans;
    PASS: for my $pass (sort { $a->[1] <=> $b->[1] } @{$passes}) {
        my $span = 0;
        for my $gap (@gaps) {
            last if $pass->[1] < $gap->[0];
            next PASS if $pass->[0] <= $gap->[1];
            $span++;
        }
        push @{ $spans{$span} }, $pass;
    }
    return map { $spans{$_} } sort { $a <=> $b } keys %spans;
}

sub _excess {
    my ($limit, $count, $most, $from, $to) = @_;
    return sprintf '%s let in %d from %.3f to %.3f (%.3f s), at most %.1f may pass',
        $limit->{algorithm}, $count, $from, $to, $to - $from, $most;
}

# A bucket that holds $capacity and drains at the rate: in any T at most capacity + T * rate. For each
# end b the start a is sought with the largest count(a, b) - rate * (b - a), in a tree of all starts.
sub _drained {
    my ($limit, $passes, $capacity) = @_;
    my $rate = $limit->{quota} / $limit->{window};
    my @starts = sort { $a <=> $b } map { $_->[0] } @{$passes};
    # A start that is still to come stands too low to be the largest.
    my $far  = 1e9;
    my $tree = Chaos::Bounds::Tree->new(map { $rate * ($_ - $starts[0]) - $far } @starts);
    my ($worst, $sentence, $begun) = (1e-3, undef, 0);
    for my $pass (@{$passes}) {
        my $end = $pass->[1];
        while ($begun < @starts && $starts[$begun] <= $end) {
            $tree->add_up_to($begun - 1, -$far) if $begun;
            $tree->add_up_to($begun++, $far);
        }
        # It counts for every start that is not later than when it was sent.
        $tree->add_up_to(_not_later(\@starts, $pass->[0]) - 1, 1);
        my ($best, $at) = $tree->most;
        my $over = $best - $rate * ($end - $starts[0]) - $capacity;
        next if $over <= $worst;
        my $most = $capacity + $rate * ($end - $starts[$at]);
        ($worst, $sentence) = ($over, _excess($limit, $most + $over, $most, $starts[$at], $end));
    }
    return $sentence // ();
}

# The quota in every interval of this length, whose end does not belong to it.
sub _any_interval {
    my ($limit, $passes, $length) = @_;
    my @passes = grep { $_->[1] - $_->[0] < $length } @{$passes};
    my @starts = sort { $a <=> $b } map { $_->[0] } @passes;
    my ($worst, $sentence) = ($limit->{quota});
    my $end = 0;    # the first answer that comes too late; @passes is in the order of answers
    for my $i (0 .. $#starts) {
        my $from = $starts[$i];
        $end++ while $end < @passes && $passes[$end][1] < $from + $length;
        # Answered in time, less those sent before, which were all answered in time.
        my $count = $end - $i;
        next if $count <= $worst;
        $worst = $count;
        $sentence = _excess($limit, $count, $limit->{quota}, $from, $from + $length);
    }
    return $sentence // ();
}

# Those whose both times lie in one window, by the window's number.
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

# The last decision up to a time b saw all that were answered by b, and the window before weighed no
# less than it does at b.
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

# How many of the sorted numbers are not above this one.
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

# Numbers to whose first ones something is added again and again; the largest, and where it stands.

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
    # From the leaf upwards: whole left neighbours take it at once.
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

package Chaos::Watchdog;

# A process that measures how busy the machine is: every 20 ms, how late it woke up, and how long any
# process of the run waited for a processor. Delays by a busy machine are not nginx's fault.

use strict;
use warnings;

use Ratelimit::Process qw(start_code stop_process temp_folder read_file wait_until);
use Time::HiRes qw(sleep time);

my $tick  = 0.02;
my $least = 0.004;    # less is no delay
my $longest = 3;

sub new {
    my ($class) = @_;
    my $self = bless { folder => temp_folder() }, $class;
    my ($root, $path) = ($$, "$self->{folder}/delays");
    $self->{pid} = start_code('watchdog', sub { _watch($root, $path) });
    wait_until('the watchdog watches', sub { -s $path });
    return $self;
}

# Writes "when seconds" for each tick with a delay.
sub _watch {
    my ($root, $path) = @_;
    open my $file, '>', $path or die "$path: $!";
    $file->autoflush(1);
    my %waited = map { $_ => undef } _descendants($root);    # earlier waits are not counted
    my ($rounds, @pids) = (0);
    printf {$file} "%.4f 0\n", time;
    while (1) {
        @pids = _descendants($root) if $rounds++ % 5 == 0;
        my $before = time;
        sleep $tick;
        my $now   = time;
        my $worst = $now - $before - $tick;
        for my $pid (@pids) {
            my (undef, $wait) = split ' ', read_file("/proc/$pid/schedstat");
            next unless defined $wait;
            my $known = exists $waited{$pid} ? $waited{$pid} // $wait : 0;
            my $more = ($wait - $known) / 1e9;
            $waited{$pid} = $wait;
            $worst = $more if $more > $worst;
        }
        printf {$file} "%.4f %.4f\n", $now, $worst if $worst > $least;
    }
    return;
}

sub _descendants {
    my ($pid) = @_;
    return map { ($_, _descendants($_)) } split ' ', read_file("/proc/$pid/task/$pid/children");
}

# Stops it; returns code that sums up the delays between two times.
sub stop {
    my ($self) = @_;
    stop_process($self->{pid});
    my @delays = map { [split] } split /\n/, read_file("$self->{folder}/delays");
    return (sub { return _sum(\@delays, @_) }, \@delays);
}

sub _sum {
    my ($delays, $from, $to) = @_;
    my ($low, $high) = (0, scalar @{$delays});
    while ($low < $high) {
        my $middle = int(($low + $high) / 2);
        if ($delays->[$middle][0] < $from) { $low = $middle + 1 }
        else                               { $high = $middle }
    }
    my $sum = 0;
    # A delay is recorded at its end, which may be long after the failure that it caused.
    for my $i ($low .. $#{$delays}) {
        my ($noted, $delay) = @{ $delays->[$i] };
        last if $noted > $to + $longest;
        $sum += $delay if $noted - $delay - 2 * $tick < $to;
    }
    return $sum;
}

1;

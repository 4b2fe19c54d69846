package Ratelimit::Stopwatch;

# Measures how long something takes, beside how long processes of the test waited for a processor meanwhile. So a bound
# holds on a machine that others use, and is as tight as ever on one that is idle.

use strict;
use warnings;

use List::Util qw(sum0);
use Test::More ();
use Time::HiRes qw(time);

use Exporter 'import';
our @EXPORT_OK = qw(stopwatch);

# A watch that starts now, for this process and those that it has started or will start.
sub stopwatch {
    return bless { began => time, waits => { read_waits() } }, __PACKAGE__;
}

# Seconds since the start.
sub elapsed { return time - $_[0]{began} }

# For how many seconds since the start each process waited. All together count, since one may wait for another.
sub waits {
    my ($self) = @_;
    my %now = read_waits();
    return map { $now{$_} - ($self->{waits}{$_} // 0) } keys %now;
}

# Whether to give up waiting for what should take $seconds. However busy the machine is, five times as long is the most.
sub is_over {
    my ($self, $seconds) = @_;
    my $elapsed = $self->elapsed;
    return 0 if $elapsed <= $seconds;
    return $elapsed > 5 * $seconds || $self->net > $seconds;
}

# Seconds since the start, without those for which processes waited.
sub net { my ($self) = @_; return $self->elapsed - sum0($self->waits) }

# A test: so few seconds have passed, by the rule of is_over.
sub within {
    my ($self, $seconds, $what) = @_;
    my ($elapsed, $net) = ($self->elapsed, $self->net);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $is_within = Test::More::ok(!$self->is_over($seconds), $what);
    Test::More::diag(sprintf '%.3f s, and %.3f s without the time for which processes waited', $elapsed, $net) if !$is_within;
    return $is_within;
}

my (%waits, $ended);    # of each process since it began; how many have ended

# The seconds for which each process waited for a processor, also of those that have ended, and this machine for its host.
sub read_waits {
    for my $pid ($$, descendants($$)) {
        my (undef, $wait) = split ' ', text_of("/proc/$pid/schedstat");
        next unless defined $wait;
        # A process that has waited less than before is another one.
        $waits{ 'ended ' . ++$ended } = delete $waits{$pid} if ($waits{$pid} // 0) > $wait / 1e9;
        $waits{$pid} = $wait / 1e9;
    }
    my ($ticks) = text_of('/proc/stat') =~ /^cpu +(?:\d+ +){7}(\d+)/;
    return (%waits, host => ($ticks // 0) / 100);
}

sub descendants {
    my ($pid) = @_;
    return map { ($_, descendants($_)) } split ' ', text_of("/proc/$pid/task/$pid/children");
}

sub text_of {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    # Not by a line: a handler of a signal may call this while a line is being read, and that must not see another $/.
    sysread $file, my $text, 65_536;
    return $text // '';
}

1;

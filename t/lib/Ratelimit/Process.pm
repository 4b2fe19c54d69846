package Ratelimit::Process;

# What the tests start and always stop: child processes, temporary folders, free ports, waiting.

use strict;
use warnings;

use Carp qw(croak);
use Errno qw(EINTR);
use File::Temp ();
use IO::Socket::INET;
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(free_port wait_until start_process start_code adopt_process stop_process ended_with
    temp_folder alive read_file write_file);

my %running;    # pid => name
my %ended;      # pid => wait status
my %adopted;    # pid => process group, of those that run and are no children of the test
my @claims;     # sockets that keep other tests from the ports given out here
my $owner = $$;

# A TCP port of 127.0.0.1 (or of another address) that is free now, below those that the kernel gives
# to clients. Each test process begins at a place of its own, and holds the same port of another
# loopback address until it ends, so that tests that run at once never get the same.
my $next_port;

sub free_port {
    my ($address) = @_;
    $next_port //= 10_000 + ($$ * 97) % 22_000;
    for (1 .. 2000) {
        $next_port = 10_000 if ++$next_port > 32_000;
        my $socket = IO::Socket::INET->new(
            LocalAddr => $address // '127.0.0.1',
            LocalPort => $next_port,
            Listen    => 1,
            ReuseAddr => 1,
        ) or next;
        my $claim = IO::Socket::INET->new(LocalAddr => '127.99.0.1', LocalPort => $next_port,
            Proto => 'tcp') or next;
        push @claims, $claim;
        close $socket;
        return $next_port;
    }
    croak 'no free port';
}

# Polls until the condition is true and returns what it returned; dies with $what after $seconds.
sub wait_until {
    my ($what, $condition, $seconds) = @_;
    my $end = time + ($seconds // 10);
    while (1) {
        my $result = $condition->();
        return $result if $result;
        croak "waited in vain: $what" if time > $end;
        sleep 0.02;
    }
}

# Starts a command, its output to a file; returns its pid.
sub start_process {
    my ($name, $output, @command) = @_;
    return start_code($name, sub {
        open STDIN,  '<',  '/dev/null' or return;
        open STDOUT, '>>', $output     or return;
        open STDERR, '>&', \*STDOUT    or return;
        no warnings 'exec';
        exec { $command[0] } @command;
    });
}

# Runs code in a process of its own until it returns or is stopped; returns its pid. The process leads
# a group, so that its own children end with it.
sub start_code {
    my ($name, $code) = @_;
    my $pid = fork // croak "fork: $!";
    if ($pid == 0) {
        @SIG{qw(INT TERM HUP)} = ('DEFAULT') x 3;
        setpgrp;
        eval { $code->() };
        POSIX::_exit(127);
    }
    setpgrp $pid, $pid;    # whoever comes first; too late is no harm
    $running{$pid} = $name;
    delete $ended{$pid};    # a former one of this number
    return $pid;
}

# Takes charge of a process that another one left behind, such as a daemon, and that is in this process
# group: from now on it is stopped like a child, with the group, but not before all that were adopted
# out of that have ended.
sub adopt_process {
    my ($name, $pid, $group) = @_;
    $running{$pid} = $name;
    $adopted{$pid} = $group;
    delete $ended{$pid};
    return $pid;
}

# Sends a signal (TERM unless given), waits for the end, kills after ten seconds, and with it what it
# leaves behind. Returns the wait status, or nothing when it was not running.
sub stop_process {
    my ($pid, $signal) = @_;
    return unless delete $running{$pid};
    if (!has_ended($pid)) {
        kill CONT => $pid;
        kill $signal // 'TERM', $pid;
    }
    my $end = time + 10;
    until (has_ended($pid)) {
        kill KILL => $pid if time > $end;
        sleep 0.01;
    }
    kill_group($pid);
    return $ended{$pid};
}

# The wait status of a process that has ended, if it was seen to.
sub ended_with { return $ended{ $_[0] } }

# Whether a process that was started here still runs; its end is noticed.
sub alive {
    my ($pid) = @_;
    return 0 unless $running{$pid};
    return 1 unless has_ended($pid);
    delete $running{$pid};
    kill_group($pid);
    return 0;
}

sub has_ended {
    my ($pid) = @_;
    return 1 if defined $ended{$pid};
    if (my $group = $adopted{$pid}) {
        # No program: it waits for a parent to ask how it ended. Another group: another's process.
        return !readlink("/proc/$pid/exe") || getpgrp($pid) != $group;
    }
    local $?;
    my $answer = waitpid $pid, WNOHANG;
    $ended{$pid} = $? if $answer == $pid;
    return $answer == $pid || ($answer < 0 && $! != EINTR);
}

# Kills what a process that has ended leaves behind, unless another of its group is still in charge.
sub kill_group {
    my ($pid) = @_;
    my $group = delete $adopted{$pid} // $pid;
    return if grep { $_ == $group } values %adopted;
    kill KILL => -$group;
    return;
}

sub temp_folder {
    my $folder = File::Temp->newdir('ratelimit-test-XXXXXX', TMPDIR => 1);
    chmod 0755, $folder->dirname;    # workers may be another user
    return $folder;
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/ = undef;
    return scalar(<$file>) // '';
}

sub write_file {
    my ($path, $text) = @_;
    open my $file, '>', $path or croak "$path: $!";
    print {$file} $text;
    close $file or croak "$path: $!";
    return $path;
}

sub stop_all {
    return if $$ != $owner;
    stop_process($_, 'KILL') for keys %running;
    return;
}

$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
$SIG{PIPE} = 'IGNORE';

END {
    my $status = $?;
    stop_all();
    $? = $status;    ## no critic (RequireLocalizedPunctuationVars)
}

1;

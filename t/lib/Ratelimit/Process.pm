package Ratelimit::Process;

# Child processes, temporary folders and free ports of the tests, all released at the end; and waiting.

use strict;
use warnings;

use Carp qw(croak);
use Errno qw(EINTR);
use File::Temp ();
use IO::Socket::INET;
use List::Util qw(min);
use POSIX qw(WNOHANG);
use Ratelimit::Stopwatch qw(stopwatch);
use Scalar::Util qw(weaken);
use Socket qw(AF_UNIX SOCK_STREAM PF_UNSPEC);
use Time::HiRes qw(sleep);

use Exporter 'import';
our @EXPORT_OK = qw(free_port free_cluster_port wait_until start_process start_code adopt_process stop_process ended_with
    start_commanded command_process kill_process_of temp_folder alive read_file write_file add_server servers pause_processes
    wait_for_state);

my %running;    # pid => name
my %ended;      # pid => wait status
my %adopted;    # pid => process group, for processes that are not children of the test
my @claims;     # sockets that keep other tests off the ports that are in use here
my @servers;    # weak references
my $owner = $$;

# A TCP port of 127.0.0.1 (or of another address) that is free now and below the kernel's ephemeral range.
# Each test process starts at a different number, and holds the same port of another loopback address
# until it ends, so that tests running in parallel never get the same port.
my $next_port;

sub free_port {
    my ($address) = @_;
    $next_port //= 10_000 + ($$ * 97) % 22_000;
    for (1 .. 2000) {
        $next_port = 10_000 if ++$next_port > 32_000;
        return $next_port if claim_port($next_port, $address);
    }
    croak 'no free port';
}

# The claim comes first: to listen on a port that another test has claimed would keep its server from it.
sub claim_port {
    my ($port, $address) = @_;
    my $claim = IO::Socket::INET->new(LocalAddr => '127.99.0.1', LocalPort => $port, Proto => 'tcp')
        or return 0;
    IO::Socket::INET->new(
        LocalAddr => $address // '127.0.0.1',
        LocalPort => $port,
        Listen    => 1,
        ReuseAddr => 1,
    ) or return 0;
    push @claims, $claim;
    return 1;
}

# A free port for a node of a cluster: the port 10000 above, where the cluster's bus is, is free too. (Only
# Redis 7 and later can have the bus elsewhere.)
sub free_cluster_port {
    for (1 .. 2000) {
        my $port  = free_port();
        my $other = $port > 22_000 ? $port - 10_000 : $port + 10_000;
        return min($port, $other) if claim_port($other);
        # Another test has claimed the ports from $other on. It may have some hundred, so the search goes on elsewhere.
        pop @claims;
        $next_port = 10_000 + int rand 22_000;
    }
    croak 'no two free ports';
}

# Polls until the condition is true and returns its value; dies with $what after $seconds (10), without what the machine
# took.
sub wait_until {
    my ($what, $condition, $seconds) = @_;
    my $watch;
    while (1) {
        my $result = $condition->();
        return $result if $result;
        $watch //= stopwatch();
        croak "timed out waiting: $what" if $watch->is_over($seconds // 10);
        sleep 0.02;
    }
}

# Stops processes by SIGSTOP. Returns when they stand still: until then they may do something.
sub pause_processes {
    my (@pids) = @_;
    kill STOP => @pids;
    wait_for_state($_, 'T') for @pids;
    return scalar @pids;
}

# Waits until a process is in this state (of /proc/pid/stat), or is gone.
sub wait_for_state {
    my ($pid, $state) = @_;
    my $end = time + 120;
    while (-e "/proc/$pid/stat" && read_file("/proc/$pid/stat") !~ /\) [${state}ZX] /) {
        croak "process $pid does not get to state $state" if time > $end;
        sleep 0.0002;
    }
    return;
}

# Starts a command with its output in a file; returns its pid.
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

# Runs code in a child process; returns its pid. The child leads a process group, so that its own
# children are killed with it.
sub start_code {
    my ($name, $code) = @_;
    my $pid = fork // croak "fork: $!";
    if ($pid == 0) {
        @SIG{qw(INT TERM HUP)} = ('DEFAULT') x 3;
        setpgrp;
        eval { $code->() };
        POSIX::_exit(127);
    }
    setpgrp $pid, $pid;    # parent and child both do it, whichever runs first
    $running{$pid} = $name;
    delete $ended{$pid};    # from an earlier process with the same pid
    return $pid;
}

# Runs code in a child process, which reads the commands of the test from a socket. Sets the pid of the object and its
# end of the socket.
sub start_commanded {
    my ($self, $name, $code) = @_;
    socketpair $self->{control}, my $other, AF_UNIX, SOCK_STREAM, PF_UNSPEC or croak "$name: $!";
    $self->{pid} = start_code($name, sub { close $self->{control}; $code->($other) });
    close $other;
    return;
}

# Its answer to a command.
sub command_process {
    my ($self, @words) = @_;
    syswrite $self->{control}, "@words\n" or croak "@words: $!";
    sysread $self->{control}, my $answer, 200 or croak "@words: the process has ended";
    return $answer;
}

# Takes charge of a process of this process group that another one left behind, such as a daemon. It is
# stopped like a child; the group is killed only when its last adopted process has ended.
sub adopt_process {
    my ($name, $pid, $group) = @_;
    $running{$pid} = $name;
    $adopted{$pid} = $group;
    delete $ended{$pid};
    return $pid;
}

# Sends a signal (TERM unless given), waits for the end, kills after ten seconds without what the machine took, then kills
# the rest of the group. Returns the wait status, or nothing if the process was not running.
sub stop_process {
    my ($pid, $signal) = @_;
    return unless delete $running{$pid};
    if (!has_ended($pid)) {
        kill CONT => $pid;
        kill $signal // 'TERM', $pid;
    }
    my ($watch, $pause) = (undef, 0.001);
    until (has_ended($pid)) {
        sleep $pause;
        $pause = min(2 * $pause, 0.02);
        next if $pause < 0.02;    # most end at once
        $watch //= stopwatch();
        kill KILL => $pid if $watch->is_over(10);
    }
    kill_group($pid);
    return $ended{$pid};
}

# For the end of an object that has the pid of a process.
sub kill_process_of {
    my ($self) = @_;
    local ($?, $@, $!);
    stop_process($self->{pid}, 'KILL') if $self->{pid};
    return;
}

# The wait status of a process whose end was seen.
sub ended_with { return $ended{ $_[0] } }

# Whether a process that was started here still runs.
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
        # No program: a zombie that its parent has not reaped. Another group: the pid was reused.
        return !readlink("/proc/$pid/exe") || getpgrp($pid) != $group;
    }
    local $?;
    my $answer = waitpid $pid, WNOHANG;
    $ended{$pid} = $? if $answer == $pid;
    return $answer == $pid || ($answer < 0 && $! != EINTR);
}

# Kills the rest of an ended process's group, unless another adopted process of the group still runs.
sub kill_group {
    my ($pid) = @_;
    my $group = delete $adopted{$pid} // $pid;
    return if grep { $_ == $group } values %adopted;
    kill KILL => -$group;
    return;
}

# The servers of this test, such as Redis, that something holds still. An nginx holds those that it may use until it has
# ended: what it owes Redis it tries to say for up to a minute before it exits.
sub servers { return grep { defined } @servers }

sub add_server {
    my ($server) = @_;
    @servers = (servers(), $server);
    weaken $_ for @servers;
    return $server;
}

sub temp_folder {
    my $folder = File::Temp->newdir('ratelimit-test-XXXXXX', TMPDIR => 1);
    chmod 0755, $folder->dirname;    # workers may run as another user
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
    kill KILL => grep { !has_ended($_) } keys %running;
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

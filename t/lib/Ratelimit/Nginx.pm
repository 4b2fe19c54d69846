package Ratelimit::Nginx;

# A private nginx with the module loaded, on a free port of 127.0.0.1.

use strict;
use warnings;

use Carp qw(croak);
use File::Spec;
use IO::Socket::INET;
use Ratelimit::Build qw(built);
use Ratelimit::Http qw(request);
use Ratelimit::Process
    qw(free_port wait_until start_process adopt_process stop_process ended_with alive temp_folder
    read_file write_file);

my @all;

# Options, all texts of configuration: main, events, http, server (inside the one server block); and
# workers (1), connections (worker_connections, 2048), single (1: master_process off), daemon (1: on), module (0: not loaded), ports (how many
# listens, 1), listen (parameters of each listen), level (of the error log: info), expected (a pattern
# of lines that its log may have though they are complaints).
# The server's root holds index.html ("ok\n") and big.bin (200 000 bytes).
sub new {
    my ($class, %options) = @_;
    my $self = $class->prepare(%options);
    $self->start;
    push @all, $self;
    return $self;
}

sub prepare {
    my ($class, %options) = @_;
    my $self = bless {%options, folder => temp_folder()}, $class;
    $self->{ports} = [map { free_port() } 1 .. $options{ports} // 1];
    mkdir "$self->{folder}/html" or croak $!;
    write_file("$self->{folder}/html/index.html", "ok\n");
    write_file("$self->{folder}/html/big.bin", 'x' x 200_000);
    $self->configure;
    return $self;
}

# (Re)writes nginx.conf; takes options to change.
sub configure {
    my ($self, %changes) = @_;
    %{$self} = (%{$self}, %changes);
    my $folder = $self->{folder};
    my $load   = ($self->{module} // 1) ? 'load_module ' . module() . ";\n" : '';
    my $master = $self->{single} ? 'off' : 'on';
    my $daemon = $self->{daemon} ? 'on' : 'off';
    my $listen = join '',
        map { "        listen 127.0.0.1:$_ " . ($self->{listen} // '') . ";\n" } $self->ports;
    my $temp = join '', map { "    ${_}_temp_path $folder/$_;\n" }
        qw(client_body proxy fastcgi uwsgi scgi);
    my $workers = $self->{workers} // 1;
    my $level   = $self->{level} // 'info';
    my $connections = $self->{connections} // 2048;
    my ($main, $events, $http, $server) = map { $self->{$_} // '' } qw(main events http server);
    write_file("$folder/nginx.conf", <<"END");
${load}error_log $folder/error.log $level;
pid $folder/nginx.pid;
daemon $daemon;
master_process $master;
worker_processes $workers;
$main
events { worker_connections $connections; $events }
http {
    default_type text/plain;
    access_log off;
$temp
$http
    server {
$listen
        root $folder/html;
$server
    }
}
END
    return $self;
}

# RATELIMIT_MODULE, or the one that ./build.sh has built.
sub module {
    return File::Spec->rel2abs($ENV{RATELIMIT_MODULE}) if defined $ENV{RATELIMIT_MODULE};
    return built('ngx_http_ratelimit_module.so', './build.sh');
}

# Its full path: nginx needs it to start a new binary at an upgrade. Debian's is in /usr/sbin, which
# only root's PATH has.
sub program {
    my ($nginx) = grep { m{/} && -x }
        $ENV{RATELIMIT_NGINX} // map { "$_/nginx" } File::Spec->path, '/usr/sbin';
    return $nginx // croak 'there is no nginx in PATH, and RATELIMIT_NGINX names none';
}

sub command {
    my ($self, @more) = @_;
    my $folder = $self->{folder};
    return (program(), '-p', "$folder/", '-e', "$folder/error.log", '-c',
        "$folder/nginx.conf", @more);
}

sub start {
    my ($self) = @_;
    unlink "$self->{folder}/nginx.pid";
    $self->{pid} = start_process('nginx', "$self->{folder}/output", $self->command);
    $self->{pid} = $self->adopt_master($self->{pid}) if $self->{daemon};
    wait_until(
        'nginx listens',
        sub {
            croak 'nginx ended: ' . $self->log unless alive($self->{pid});
            return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->port);
        }
    );
    return $self;
}

# Takes charge of the master that nginx.pid names, when it names another than the one given, and it is
# in its group: the one given, or one of its own.
sub adopt_master {
    my ($self, $former, $group) = @_;
    my $pid = wait_until('another master', sub {
        my ($named) = $self->file('nginx.pid') =~ /^(\d+)\n/ or return;
        # Debian's nginx writes the file before the daemon leaves the group that it came from.
        return $named != $former && getpgrp($named) == ($group // $named) ? $named : undef;
    });
    adopt_process('nginx', $pid, $group // $pid);
    $self->wait_for_workers($pid);
    return $pid;
}

sub wait_for_workers {
    my ($self, $master) = @_;
    my $count = $self->{workers} // 1;
    return wait_until('every worker serves', sub { $self->workers(0, $master) == $count });
}

# USR2: starts the program anew beside the running one; returns the pid of the new master, which
# `leave_to` makes the one of this object.
sub upgrade {
    my ($self) = @_;
    kill USR2 => $self->{pid};
    return $self->adopt_master($self->{pid}, getpgrp $self->{pid});
}

# QUIT to this master, while the one of the given pid goes on; returns when it has left.
sub leave_to {
    my ($self, $pid) = @_;
    kill QUIT => $self->{pid};
    wait_until('the master has left', sub { !alive($self->{pid}) });
    $self->{pid} = $pid;
    return $self;
}

# TERM unless another signal is given; returns the wait status. An end other than the one asked for
# is a complaint: death by a signal, or being killed because QUIT or TERM did not help in ten seconds.
sub stop {
    my ($self, $signal) = @_;
    $signal //= 'TERM';
    $self->{killed} = $self->{pid} if $signal eq 'KILL';
    my $status = stop_process($self->{pid}, $signal) // ended_with($self->{pid});
    if ($status && $self->{pid} != ($self->{killed} // 0)) {
        $self->{bad_end} = "nginx $self->{pid} ended with wait status $status";
    }
    return $status;
}

sub port  { return $_[0]{ports}[0] }
sub ports { return @{ $_[0]{ports} } }
sub pid   { return $_[0]{pid} }
sub log   { return read_file("$_[0]{folder}/error.log") }
sub file  { return read_file("$_[0]{folder}/$_[1]") }

sub get    { my ($self, $path, %options) = @_; return request($self->port, $path, %options) }
sub status { my ($self, @more) = @_; return $self->get(@more)->status }

# How many lines of the error log match.
sub count_log {
    my ($self, $pattern) = @_;
    return scalar grep { $_ =~ $pattern } split /\n/, $self->log;
}

# How many runs of refused keys of a zone the log tells of, in lines of their own or as a number.
sub logged_runs {
    my ($self, $zone) = @_;
    my $runs = $self->count_log(qr/limiting requests, by zone "$zone", key/);
    $runs += $_ for $self->log =~ /limiting requests of (\d+) more keys?, by zone "$zone"/g;
    return $runs;
}

sub wait_for_log {
    my ($self, $pattern, $count) = @_;
    return wait_until("log has $pattern", sub { $self->count_log($pattern) >= ($count // 1) });
}

# Pids of the workers that serve, or with 1 of those that are shutting down; of another master.
sub workers {
    my ($self, $leaving, $master) = @_;
    $master //= $self->{pid};
    my @pids;
    for my $line (split /\n/, `ps -o pid=,args= --ppid $master`) {
        my ($pid, $title) = $line =~ /^\s*(\d+)\s+(nginx: worker process|\S*valgrind).*/ or next;
        # Under valgrind a process has no title of its own, so the log has to tell.
        my $leaves = $line =~ /shutting down/ || $title =~ /valgrind/ && $self->has_begun_to_leave($pid);
        push @pids, $pid if ($leaves ? 1 : 0) == ($leaving // 0);
    }
    return @pids;
}

sub has_begun_to_leave {
    my ($self, $pid) = @_;
    return $self->log =~ / $pid#\d+: (?:gracefully shutting down|exiting)$/m;
}

# HUP; returns when the new workers are there, and with gone => 1 when the old ones have left.
sub reload {
    my ($self, %options) = @_;
    $self->wait_for_workers($self->{pid}) unless $self->{single};
    my %old = map { $_ => 1 } $self->workers, $self->workers(1);
    kill HUP => $self->{pid};
    wait_until('new workers serve',
        sub { (grep { !$old{$_} } $self->workers) == ($self->{workers} // 1) });
    # Also one that has not yet noticed, and would take another request.
    wait_until('old workers are gone', sub { !grep { $old{$_} } $self->workers, $self->workers(1) })
        if $options{gone};
    return $self;
}

# What `nginx -t` says of a configuration: its exit status and its lines of [emerg] or [warn].
sub test {
    my ($class, %options) = @_;
    my $self = $class->prepare(%options);
    my $pid = start_process('nginx -t', "$self->{folder}/output", $self->command('-t'));
    wait_until('nginx -t ends', sub { !alive($pid) });
    my @lines = grep { /\[(?:emerg|warn|alert)\]/ } split /\n/, $self->file('output');
    return ($self->file('output') =~ /test is successful/ ? 0 : 1, @lines);
}

# Stops every nginx that was started, and returns what their logs say that they never should.
sub complaints {
    my @complaints;
    for my $self (@all) {
        $self->stop('QUIT');
        push @complaints, $self->{bad_end} if $self->{bad_end};
        my $log = $self->log . $self->file('output');
        my $expected = $self->{expected} // qr/(?!)/;
        push @complaints, grep { !/$expected/ }
            grep { /\[(?:alert|emerg|crit)\]|Sanitizer|runtime error|on signal/ } split /\n/, $log;
    }
    @all = ();
    return grep { !/signal \d+ \(SIG(?:TERM|QUIT|HUP|CHLD|USR\d|WINCH|IO)\)/ } @complaints;
}

sub DESTROY {
    my ($self) = @_;
    local ($?, $@, $!);
    stop_process($self->{pid}, 'KILL') if $self->{pid};
    return;
}

1;

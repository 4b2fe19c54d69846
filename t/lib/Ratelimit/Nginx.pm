package Ratelimit::Nginx;

# A private nginx with the module loaded, on a free port of 127.0.0.1.

use strict;
use warnings;

use Carp qw(croak);
use File::Spec;
use IO::Socket::INET;
use List::Util qw(max);
use Ratelimit::Build qw(built);
use Ratelimit::Http qw(request);
use Ratelimit::Process
    qw(free_port wait_until start_process adopt_process stop_process kill_process_of ended_with alive temp_folder
    read_file write_file servers);
use Test::More ();

my @all;

# Options, all texts of configuration: main, events, http, server (inside the one server block); and
# workers (1), connections (worker_connections, 2048), single (1: master_process off), daemon (1: on),
# environment (a hash of environment variables), module (0: not loaded; a path: this one), ports (the number of listens, 1), listen (parameters of each
# listen), level (of the error log: info), expected (a pattern of log lines that are complaints but belong
# to the test).
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

# Writes nginx.conf, with the options that change.
sub configure {
    my ($self, %changes) = @_;
    %{$self} = (%{$self}, %changes);
    my $folder = $self->{folder};
    my $loaded = $self->{module} // module();
    my $load   = $loaded ? "load_module $loaded;\n" : '';
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
    $self->{servers} = [servers()] if $http =~ /\bratelimit_redis\b/;
    write_file("$folder/nginx.conf", <<"END");
${load}error_log $folder/error.log $level;
pid $folder/nginx.pid;
daemon $daemon;
master_process $master;
worker_processes $workers;
@{[$ENV{RATELIMIT_SANITIZED} ? 'env ASAN_OPTIONS; env UBSAN_OPTIONS;' : '']}  # for an upgraded nginx
$main
events { worker_connections $connections; $events }
http {
    default_type text/plain;
    access_log off;
@{[room_for_variables()]}
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

# RATELIMIT_MODULE, or the module that ./build.sh has built.
sub module {
    return File::Spec->rel2abs($ENV{RATELIMIT_MODULE}) if defined $ENV{RATELIMIT_MODULE};
    return built('ngx_http_ratelimit_module.so', './build.sh');
}

# nginx's full path, which nginx needs to start a new binary at an upgrade. Debian's is in /usr/sbin,
# which only root's PATH has.
sub program {
    my ($nginx) = grep { m{/} && -x }
        $ENV{RATELIMIT_NGINX} // map { "$_/nginx" } File::Spec->path, '/usr/sbin';
    return $nginx // croak 'there is no nginx in PATH, and RATELIMIT_NGINX names none';
}

# With the module's variables, those of Tengine no longer fit in its table, and it warns.
my $room;

sub room_for_variables {
    my $nginx = program();
    $room //= `$nginx -v 2>&1` =~ /^Tengine/ ? '    variables_hash_max_size 2048;' : '';
    return $room;
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
    my %environment = %{ $self->{environment} // {} };
    local @ENV{ keys %environment } = values %environment;
    $self->{pid} = start_process('nginx', "$self->{folder}/output", $self->command);
    $self->{pid} = $self->adopt_master($self->{pid}) if $self->{daemon};
    wait_until(
        'nginx listens',
        sub {
            croak 'nginx ended: ' . $self->log unless alive($self->{pid});
            # It writes this file when it listens at all its addresses.
            return $self->file('nginx.pid') =~ /^\d+\n/
                && IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->port);
        },
        30
    );
    return $self;
}

# Takes charge of the new master that nginx.pid names once it is not $former. It must lead its process
# group, or be in $group if one is given.
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

# USR2: starts a second master beside the running one; returns its pid. `leave_to` switches this object
# to it.
sub upgrade {
    my ($self) = @_;
    kill USR2 => $self->{pid};
    return $self->adopt_master($self->{pid}, getpgrp $self->{pid});
}

# Sends QUIT to this object's master, waits until it has exited, and switches to the master $pid.
sub leave_to {
    my ($self, $pid) = @_;
    kill QUIT => $self->{pid};
    wait_until('the master has left', sub { !alive($self->{pid}) });
    $self->{pid} = $pid;
    return $self;
}

# Sends TERM, or the given signal; returns the wait status. Death by another signal, or a kill because
# QUIT or TERM did nothing within ten seconds, is a complaint.
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

# The number of lines of the error log that match.
sub count_log {
    my ($self, $pattern) = @_;
    return scalar grep { $_ =~ $pattern } split /\n/, $self->log;
}

# The number of runs of refused keys that the log reports for a zone, one by one or as a number.
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

# Pids of the serving workers, or of the workers that are shutting down if $leaving is 1; $master: of
# another master.
sub workers {
    my ($self, $leaving, $master) = @_;
    $master //= $self->{pid};
    my @pids;
    for my $line (split /\n/, `ps -o pid=,args= --ppid $master`) {
        my ($pid, $title) = $line =~ /^\s*(\d+)\s+((?:nginx|angie): worker process|\S*valgrind).*/ or next;
        # Under valgrind the process title does not change, so the log decides.
        my $leaves = $line =~ /shutting down/ || $title =~ /valgrind/ && $self->has_begun_to_leave($pid);
        push @pids, $pid if ($leaves ? 1 : 0) == ($leaving // 0);
    }
    return @pids;
}

sub has_begun_to_leave {
    my ($self, $pid) = @_;
    return $self->log =~ / $pid#\d+: (?:gracefully shutting down|exiting)$/m;
}

# Sends HUP; returns when the new workers serve, and with gone => 1 when the old ones have exited.
sub reload {
    my ($self, %options) = @_;
    $self->wait_for_workers($self->{pid}) unless $self->{single};
    my %old = map { $_ => 1 } $self->workers, $self->workers(1);
    kill HUP => $self->{pid};
    wait_until('new workers serve',
        sub { (grep { !$old{$_} } $self->workers) == ($self->{workers} // 1) });
    # Old workers that have not yet seen the signal count too: they could accept another request.
    wait_until('old workers are gone', sub { !grep { $old{$_} } $self->workers, $self->workers(1) })
        if $options{gone};
    return $self;
}

# The exit status of `nginx -t` for a configuration, and its lines of [emerg], [alert] or [warn].
sub test {
    my ($class, %options) = @_;
    my $self = $class->prepare(%options);
    my $pid = start_process('nginx -t', "$self->{folder}/output", $self->command('-t'));
    wait_until('nginx -t ends', sub { !alive($pid) });
    my @lines = grep { /\[(?:emerg|warn|alert)\]/ } split /\n/, $self->file('output');
    return ($self->file('output') =~ /test is successful/ ? 0 : 1, @lines);
}

# Stops every nginx that was started, and returns the log lines that no test may cause.
sub complaints {
    my @complaints;
    for my $self (grep { alive($_->{pid}) } @all) {    # all at once: each takes its time to end
        kill CONT => $self->{pid};
        kill QUIT => $self->{pid};
    }
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

# The last lines of each log that say what may have failed a test.
sub show_logs {
    for my $self (@all) {
        my @lines = grep { /ratelimit:|\[(?:warn|error|crit|alert|emerg)\]|signal \d+ \(SIGHUP|process \d+ exited/ }
            split /\n/, $self->log;
        next if !@lines;
        Test::More::diag(join "\n", "log of the nginx at port $self->{ports}[0]:", @lines[max(0, @lines - 20) .. $#lines]);
    }
    return;
}

sub DESTROY { return kill_process_of($_[0]) }

1;

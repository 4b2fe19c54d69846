package Chaos::Evidence;

# A run's evidence for the analysis of a violation: a folder with requests, faults, the logs of nginx and
# Redis, each server's connections, and samples of each server's role and number of scripts.

use strict;
use warnings;

use Chaos::Clients;
use File::Copy qw(copy);
use File::Path qw(make_path);
use Ratelimit::Process qw(start_code stop_process write_file);
use Ratelimit::Redis;
use Time::HiRes qw(sleep time);

my $tick = 0.05;

# Options: fleet, folder (of this run; it is created), changes (a file that is kept too).
sub new {
    my ($class, %options) = @_;
    my $self = bless {%options}, $class;
    make_path($self->{folder});
    my @ports = map { [$_->port, $_->{password}] } $self->{fleet}->servers;
    $self->{sampler} = start_code('sampler', sub { _sample("$self->{folder}/samples", @ports) });
    return $self;
}

# Writes "time port role scripts" for each server that replies at once: the number of scripts that it has
# run since the last line.
sub _sample {
    my ($path, @servers) = @_;
    open my $file, '>', $path or die "$path: $!";
    $file->autoflush(1);
    my (%connections, %before);
    while (1) {
        for my $server (@servers) {
            my ($port) = @{$server};
            my $info = _ask(\%connections, @{$server}) // next;
            my ($role)    = $info =~ /^role:(\w+)/m;
            my ($scripts) = $info =~ /^cmdstat_evalsha:calls=(\d+)/m;
            $scripts //= 0;
            my $new = $scripts - ($before{$port} // 0);
            $before{$port} = $scripts;
            printf {$file} "%.3f %d %s %d\n", time, $port, $role, $new < 0 ? $scripts : $new;
        }
        sleep $tick;
    }
    return;
}

# A timeout, since a paused server must not stop the sampling.
sub _ask {
    my ($connections, $port, $password) = @_;
    my $info = eval {
        local $SIG{ALRM} = sub { die "no answer\n" };
        Time::HiRes::ualarm(200_000);
        my $redis = $connections->{$port} //= bless { port => $port, password => $password },
            'Ratelimit::Redis';
        $redis->cmd(qw(INFO replication)) . $redis->cmd(qw(INFO commandstats));
    };
    Time::HiRes::ualarm(0);
    delete $connections->{$port} unless defined $info;
    return $info;
}

# To be called before connections are counted.
sub stop_sampling { return stop_process($_[0]{sampler}) }

# requests and faults as for the judge; sentences: its findings.
sub keep {
    my ($self, $requests, $faults, @sentences) = @_;
    my ($fleet, $folder) = @{$self}{qw(fleet folder)};
    write_file("$folder/violations", join '', map { "$_\n" } @sentences);
    write_file("$folder/faults", join '', map { sprintf "%.3f %.3f %s %s\n", @{$_}{qw(from to name)},
            $_->{victim} ? $_->{victim}->port : '' } grep { $_->{from} } @{$faults});
    my @columns = Chaos::Clients::columns();
    write_file("$folder/requests", join '', map { join("\t", map { $_ // '' } @{$_}{@columns}) . "\n" } @{$requests});
    copy($self->{changes}, "$folder/changes");
    my $number = 0;
    for my $node ($fleet->nginx) {
        copy("$node->{folder}/$_->[0]", "$folder/$_->[1]-$number.log")
            for ['error.log', 'nginx'], ['held-busy.log', 'held-busy'], ['held-mixed.log', 'held-mixed'];
        $number++;
    }
    for my $redis ($fleet->servers) {
        my $name = "$folder/redis-" . $redis->port;
        copy("$redis->{folder}/redis.log", "$name.log");
        write_file("$name.clients", $redis->cmd(qw(CLIENT LIST))) if $redis->lives;
    }
    return unless $fleet->kind eq 'sentinel';
    copy("$_->{folder}/redis.log", "$folder/sentinel-" . $_->port . '.log') for $fleet->group->sentinels;
    return;
}

1;

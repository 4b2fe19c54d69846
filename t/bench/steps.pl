#!/usr/bin/env perl

# Instructions of a request under callgrind: all of nginx's, those of this module alone, and Redis's for the decision.
# Connections go in lock step, so the calls to Redis have the same sizes each time, and two runs differ by less than 1 %.
#
# Writes the column "now" of t/bench/counts.tsv, and the table of doc/benchmarks.md. COMPARE=1: writes nothing, and fails
# if a count is more than 2 % above that of the file. COLUMN=commit, with RATELIMIT_MODULE, the module of this commit:
# writes that column.

use strict;
use warnings;

use List::Util qw(sum0);
use Time::HiRes qw(sleep time);
use Ratelimit::Nginx;
use Ratelimit::Redis;

use Bench::Callgrind;
use Bench::Counts qw(@columns read_counts write_counts with_column print_comparison);
use Bench::LockStep;
use Bench::Report;
use Bench::Scripts qw($top);
use Bench::Servers qw(location redis_block versions);

my $column      = $ENV{COLUMN} // 'now';
my $file        = "$top/t/bench/counts.tsv";
my $connections = 64;

# Nothing is refused, and no key expires before its second request, however slow the machine is.
my $passing = 'algorithm=gcra rate=1r/h burst=999999';
my $often   = 'rate=1000000r/h';

# Each row: its text, and zones (their keys and parameters), line (of its location, instead), same (1: the location
# and keys of the row before), status (200), calls ([least, most] of scripts, for each request), timed (1: time decides
# when Redis is called, so its counts are left out), connections (64), rounds (60: a fixed number, since Redis's tables
# grow with keys).
my @batched = (calls => [1 / 17, 1 / 8]);
my @rows = (
    ['no limit', line => ''],
    ['limit_req', line => 'limit_req zone=req burst=100000 nodelay;'],
    ['100000 keys', zones => ["\$arg_key $passing"], @batched],
    ['100000 keys, a second request of each', same => 1, @batched],
    ['100000 keys, 4 connections', zones => ["\$arg_key $passing"], connections => 4, rounds => 200, calls => [1 / 4, 1 / 4]],
    ['100000 keys, one connection', zones => ["\$arg_key $passing"], connections => 1, rounds => 400, calls => [1, 1]],
    ['one hot key', zones => ["\$arg_one $passing"], calls => [1 / 65, 1 / 8]],
    ['three limits', zones => [("\$arg_key $passing") x 3], rounds => 40, @batched],
    ['three limits, one with an empty key', zones => [("\$arg_key $passing") x 2, "\$arg_none $passing"], rounds => 60,
        calls => [1 / 17, 1]],
    ['lease=1000', zones => ["\$arg_one $passing lease=1000"], calls => [0, 0.1], timed => 1],
    ['ahead=, passing', zones => ["\$arg_key $passing ahead=200"], calls => [0, 1], timed => 1],
    ['refused from memory', zones => ['$arg_one algorithm=gcra rate=1r/d'], status => 429, calls => [0, 0.01],
        timed => 1],
    ['concurrency=', zones => ['$arg_key concurrency=1000'], rounds => 40, calls => [2 / 17, 1 / 4]],
    ['fixed_window', zones => ["\$arg_key algorithm=fixed_window $often"], @batched],
    ['sliding_window_counter', zones => ["\$arg_key algorithm=sliding_window_counter $often"], @batched],
    ['sliding_window_log', zones => ['$arg_key algorithm=sliding_window_log rate=1000r/h'], @batched],
    ['sliding_window_buckets', zones => ["\$arg_key algorithm=sliding_window_buckets $often"], @batched],
);

# Lines for http {}, and a location for each row.
sub configuration {
    my ($http, $server) = ('limit_req_zone $arg_key zone=req:32m rate=1000000r/s;', '');
    for my $number (0 .. $#rows) {
        my (undef, %row) = @{ $rows[$number] };
        my $lines = $row{line} // '';
        for my $zone (@{ $row{zones} // [] }) {
            my ($key, $parameters) = split / /, $zone, 2;
            my $name = "row$number" . ('a' .. 'c')[$lines =~ tr/;//];
            $http .= "ratelimit_zone $key zone=$name $parameters;\n";
            $lines .= "ratelimit zone=$name;";
        }
        $server .= location("/$number", $lines);
    }
    return (http => $http, server => $server);
}

# Modules of the past lack some parameters.
sub without_unknown {
    my ($redis) = @_;
    my @unknown = grep { my $parameter = $_; (Ratelimit::Nginx->test(
        http => redis_block($redis) . "ratelimit_zone \$arg_key zone=a $parameter=1 rate=1r/m;"))[0] } qw(ahead lease);
    for my $parameter (@unknown) {
        @rows = grep { my (undef, %row) = @{$_}; !grep { / $parameter=/ } @{ $row{zones} // [] } } @rows;
    }
    return;
}

my $for_nginx = Bench::Callgrind->new(Ratelimit::Nginx::program(), 'ngx_reopen_files');
my $for_redis = Bench::Callgrind->new($ENV{REDIS_SERVER} // 'redis-server', 'echoCommand');
my $redis = do {
    local $ENV{REDIS_SERVER} = $for_redis->command;
    # What its timer does is not counted, and would take work from the calls. Calls that callgrind makes slow are not
    # logged: that costs more when the machine is busy.
    my $conf = "activerehashing no\njemalloc-bg-thread no\nhz 1\nslowlog-log-slower-than -1\n";
    Ratelimit::Redis->new(conf => $conf);
};
my @versions = tool_versions();
without_unknown($redis) if $column ne 'now';
my $nginx = start_nginx();
my $clients = Bench::LockStep->new($nginx, $redis, $connections);
my $idle;    # see idle_second

# In one process, which callgrind can follow by its signals.
sub start_nginx {
    local $ENV{RATELIMIT_NGINX} = $for_nginx->command;
    my %lines = configuration();
    return Ratelimit::Nginx->new(level => 'crit', single => 1, server => $lines{server}, http => redis_block($redis)
            . "keepalive_requests 1000000000; ratelimit_fail_mode closed; $lines{http}");
}

# What the counts depend on.
sub tool_versions {
    my ($nginx_version, $redis_version) = versions($redis);
    my ($gcc)      = qx(gcc -dumpfullversion) =~ /(\S+)/;
    my ($glibc)    = qx(getconf GNU_LIBC_VERSION) =~ /(\d\S*)/;
    my ($valgrind) = qx(valgrind --version) =~ /(\d\S*)/;
    my ($machine)  = qx(uname -m) =~ /(\S+)/;
    return ("gcc $gcc", "glibc $glibc", $nginx_version, $redis_version, "valgrind $valgrind", $machine);
}

sub both_counts {
    return ($for_nginx->counts(sub { kill USR1 => $nginx->pid }), $for_redis->counts(sub { $redis->cmd('ECHO', '') }));
}

# Rounds of requests with keys of this name. The first may pass where later ones are refused.
sub play {
    my ($location, $status, $name, $rounds, $sending) = @_;
    my @seen = $clients->play($sending // $connections, $rounds, sub { sprintf "/$location?one=hot&key=$name%09d", $_[0] });
    my @others = grep { $_ != $status } @seen;
    die "$rows[$location][0]: status $others[0]\n" if @others > ($name eq 'first' ? 1 : 0);
    return;
}

# What the module did once a second.
sub each_second {
    my ($by_nginx) = @_;
    return $by_nginx->{function}{'ratelimit::http::(anonymous namespace)::each_second()'} // 0;
}

# Instructions of nginx itself in a second without requests.
sub idle_second {
    both_counts();
    my $began = time;
    sleep 4;
    my ($by_nginx) = both_counts();
    return ($by_nginx->{all} - each_second($by_nginx)) / (time - $began);
}

# The counts of one row, for each request: [text, whose, count].
sub measure {
    my ($number) = @_;
    my ($text, %row) = @{ $rows[$number] };
    my $sending = $row{connections} // $connections;
    my $count = $row{rounds} // 60;
    my $requests = $sending * $count;
    my $location = $number - ($row{same} // 0);
    $redis->cmd('FLUSHALL') if !$row{same};    # so that each row sees the tables of Redis grow alike
    play($location, $row{status} // 200, $row{same} ? 'second' : 'first', 3);
    my $calls = $redis->calls('evalsha');
    both_counts();
    my $began = time;
    play($location, $row{status} // 200, 'key', $count, $sending);
    my ($by_nginx, $by_redis) = both_counts();
    my $seconds = time - $began;
    my $made = ($redis->calls('evalsha') - $calls) / $requests;
    my ($least, $most) = @{ $row{calls} // [0, 0] };
    die "$text: $made calls of scripts for each request\n" if $made < $least || $made > $most;

    # What is done once a second is much beside a few requests, and depends on how long they take here.
    $_ -= each_second($by_nginx) for $by_nginx->{all}, $by_nginx->{object}{ Ratelimit::Nginx::module() } // ();
    $by_nginx->{all} -= $seconds * $idle;
    my $module = $by_nginx->{object}{ Ratelimit::Nginx::module() };
    my $redis_counts = sum0(map { $_ // 0 } @{ $by_redis->{function} }{qw(readQueryFromClient writeToClient)});
    return map { [$_->[0] => sprintf '%.0f', $_->[1] / $requests] }
        [nginx => $by_nginx->{all}], $row{calls} ? [module => $module // die "$text: no instruction of the module\n"] : (),
        $row{calls} && !$row{timed} ? [Redis => $redis_counts] : ();
}

sub table {
    my ($report, $whose, $counts) = @_;
    my @rows = grep { $_->[1] eq $whose } @{ $counts->{rows} };
    return $report->table([$whose, @columns], map { [$_->[0], map { $_ // '-' } @{ $_->[2] }{@columns}] } @rows);
}

sub publish {
    my ($counts) = @_;
    my $report = Bench::Report->new('steps', 'Instructions of a request', @versions);
    $report->lines('Instructions of user space for each request, under callgrind. now: of the commit that has this table.',
        "nginx: all of them; module: those of this module's own code; Redis: for the decision, from reading the call to "
            . 'writing the reply. What is done once a second is left out.',
        "$connections connections (or those of the row), one request of each in a round, sent while nginx stands still: "
            . 'so 16 decisions share a call, and all 64 of one hot key; with 4 connections 4, with one connection none.');
    table($report, $_, $counts) for qw(module nginx Redis);
    return $report->publish;
}

sleep 3;    # a worker's first second costs more than the others
play(0, 200, 'warm', 20);
$idle = idle_second();
my @measured;
for my $number (0 .. $#rows) {
    print STDERR "\r\e[K$rows[$number][0]" if -t STDERR;
    push @measured, map { [$rows[$number][0], $_->[0], { $column => $_->[1] }] } measure($number);
}
print STDERR "\r\e[K" if -t STDERR;
my $kept = read_counts($file);
my $seen = { versions => join(', ', @versions), rows => \@measured };
if ($ENV{COMPARE}) {
    exit !print_comparison($kept, $seen);
}
$kept = with_column($kept, $column, $seen);
write_counts($file, $kept);
publish($kept);

package Ratelimit::BesideNginx;

# For the tests of t/node that compare ratelimit-rehearse with nginx, request by request.
# needs: gcc libc6-dev

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use List::Util qw(max);
use Test::More;

use Ratelimit::Nginx;
use Ratelimit::Process qw(free_port read_file temp_folder write_file);
use Ratelimit::Rehearse qw(rehearse);

use Exporter 'import';
our @EXPORT_OK = qw(same requests faster compared);

my $start = 1_795_000_000;
my $moved;

# A library that gives a process the time in a file, in microseconds since the epoch: (library, file).
sub moved_clock {
    my $folder = temp_folder();
    write_file("$folder/clock.c", <<'END');
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now;
static int moves_monotonic;  /* nginx clears its environment later */

__attribute__((constructor)) static void open_clock(void)
{
    int file = open(getenv("MOVED_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*now), PROT_READ, MAP_SHARED, file, 0);
    now = at == MAP_FAILED ? NULL : at;
    moves_monotonic = getenv("MOVED_MONOTONIC") != NULL;
}

static int is_moved(clockid_t clock)
{
    int real = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    return now != NULL && (real || (monotonic && moves_monotonic));
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!is_moved(clock)) {
        return (int)syscall(SYS_clock_gettime, clock, out);
    }
    out->tv_sec = *now / 1000000;
    out->tv_nsec = *now % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    out->tv_sec = time.tv_sec;
    out->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now_spec;
    clock_gettime(CLOCK_REALTIME, &now_spec);
    if (out != NULL) {
        *out = now_spec.tv_sec;
    }
    return now_spec.tv_sec;
}
END
    system('cc', '-shared', '-fPIC', '-O1', '-o', "$folder/clock.so", "$folder/clock.c") == 0 or die 'cc';
    write_file("$folder/now", pack 'q', $start * 1_000_000);
    return { library => "$folder/clock.so", file => "$folder/now", folder => $folder };
}

my $clock = 0;

sub set_clock {
    my ($seconds) = @_;
    $moved //= moved_clock();
    $clock = $seconds;
    open my $file, '+<:raw', $moved->{file} or die $!;
    syswrite $file, pack 'q', sprintf '%.0f', ($start + $seconds) * 1_000_000;
    close $file or die $!;
    return;
}

# The files that the servers have, and an upstream that answers as the path says. `servers` are those to send to, in
# place of one with `server`: each begins with LISTEN or LISTEN_DEFAULT.
sub start_nginx {
    my (%conf) = @_;
    my $upstream = free_port();
    my $folder   = temp_folder();
    my ($server, $servers) = map { ($conf{$_} // '') =~ s/UPSTREAM/127.0.0.1:$upstream/gr =~ s/USERS/$folder\/users/gr } 'server', 'servers';
    my $port = free_port();
    local @ENV{qw(LD_PRELOAD MOVED_CLOCK ASAN_OPTIONS)} =
        ($moved->{library}, $moved->{file}, join ':', 'verify_asan_link_order=0', $ENV{ASAN_OPTIONS} // ());
    local $ENV{MOVED_MONOTONIC} = 1 if $conf{monotonic};
    my $format = $conf{format} // 'combined';
    my $logs   = "access_log $folder/access.log $format; access_log $folder/truth.log truth;";
    my $own    = $servers =~ s/LISTEN(_DEFAULT)?/"listen 127.0.0.1:$port proxy_protocol" . ($1 ? ' default_server;' : ';') . " $logs"/ger;
    my $node = Ratelimit::Nginx->new(
        listen => 'proxy_protocol', level => 'crit',
        http => <<"END", server => <<"END2");
    log_format truth '\$ratelimit_status \$limit_req_status \$status';
    lingering_close off;
    set_real_ip_from 127.0.0.1;
    real_ip_header proxy_protocol;
    server {
        listen 127.0.0.1:$upstream;
        location / { return 200 "ok"; }
        location ~ missing { return 404; }
        location ~ login { return 401; }
    }
    $conf{http}
    $own
END
    $logs
    $server
END2
    $node->{target} = $servers eq '' ? $node->port : $port;
    my $html = "$node->{folder}/html";
    mkdir "$html/$_" for 'docs', 'empty';
    write_file("$html/$_", "$_\n") for 'index.php', 'style.css', 'about.html', 'docs/index.html', 'docs/a.png';
    write_file("$folder/users", "ann:{PLAIN}secret\n");
    $node->{logs} = $folder;
    return ($node, $servers eq '' ? "server { listen 80; index index.html; $server }"
        : $servers =~ s/LISTEN(_DEFAULT)?/$1 ? 'listen 80 default_server;' : 'listen 80;'/ger);
}

# Sends one request from an address; the answer is read to its end, so that it is in the log. `waits`: nginx may wait
# for its clock, which is then moved.
sub send_from {
    my ($node, $request, $waits) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $node->{target}, Timeout => 10) or die $!;
    my $family = $request->{ip} =~ /:/ ? 'TCP6' : 'TCP4';
    my $own    = $family eq 'TCP6' ? '::1' : '127.0.0.1';
    my $host   = $request->{host} // 'localhost';
    print {$socket} "PROXY $family $request->{ip} $own 4000 80\r\n$request->{line}\r\n"
        . ($host eq '' ? '' : "Host: $host\r\n") . ($request->{headers} // '') . "Connection: close\r\n\r\n" . ($request->{body} // '') or die $!;
    local $SIG{ALRM} = sub { die "no answer to $request->{line}" };
    alarm 20;
    while (1) {
        set_clock($clock + 0.05) while $waits && !IO::Select->new($socket)->can_read(0.02);
        last if !sysread $socket, my $answer, 65_536;
    }
    alarm 0;
    close $socket;
    return;
}

our ($all, $refused) = (0, 0);    # requests that were compared

# What nginx did with a request, by its line of truth: limits of the module or of nginx.
sub truth_of {
    my ($module, $nginx, $status) = split / /, $_[0];
    return 'refused' if $module eq 'REJECTED' || $nginx eq 'REJECTED';
    return 'passed' if $module =~ /^(?:PASSED|DELAYED)$/;
    return $nginx =~ /^(?:PASSED|DELAYED|\w+_DRY_RUN)$/ && $status !~ /^40[13]$/ ? 'passed' : '-';
}

# Sends the requests, { t, ip, line, host, headers, body }, and compares what nginx did with what is rehearsed.
sub same {
    my ($what, %o) = @_;
    set_clock(0);
    my ($node, $server) = start_nginx(%o);
    for my $request (@{ $o{requests} }) {
        set_clock(max($clock, $request->{t}));
        send_from($node, $request, $o{waits});
    }
    $node->stop;
    my @truth = map { truth_of($_) } split /\n/, read_file("$node->{logs}/truth.log");
    my @lines = split /\n/, read_file("$node->{logs}/access.log");
    my ($exit, undef, $err) = rehearse(conf => "http { $o{http} $server }",
        logs => ["$node->{logs}/access.log"], options => ['--decisions', "$node->{logs}/decisions.csv", @{ $o{options} // [] }]);
    cmp_ok $exit, '!=', 1, "$what: it is rehearsed" or diag $err;
    my (undef, @said) = map { /,([a-z_]+)$/ ? $1 : () } split /\n/, read_file("$node->{logs}/decisions.csv");
    my @short = map { $_ eq 'passed' || $_ eq 'refused' ? $_ : '-' } @said;
    is scalar @short, scalar @truth, "$what: each line";
    my @wrong = grep { ($short[$_] // '?') ne $truth[$_] } 0 .. $#truth;
    my $count = grep { $_ eq 'refused' } @truth;
    is scalar @wrong, 0, "$what: " . @truth . " requests, of which nginx refused $count";
    diag "$lines[$_]\n    nginx: $truth[$_], rehearsed: " . ($said[$_] // '?') for grep { defined } @wrong[0 .. 9];
    cmp_ok $count, '>=', $o{refused} // 5, "$what: enough were refused";
    $all += @truth;
    $refused += $count;
    return $err;
}

# Requests of a few clients to these paths, in an order by chance and with pauses.
sub requests {
    my ($count, @paths) = @_;
    my $t = 0;
    return map {
        $t += int rand 4 if rand() < 0.4;
        my $path = $paths[rand @paths];
        my $one = ref $path ? {%{$path}} : { line => $path =~ /^[A-Z]+ / ? $path : "GET $path HTTP/1.1" };
        +{ t => $t, ip => '192.0.2.' . (1 + int rand 6), %{$one} };
    } 1 .. $count;
}

# These requests, faster by this factor, with milliseconds.
sub faster { my $times = shift; return sort { $a->{t} <=> $b->{t} } map { +{ %{$_}, t => $_->{t} / $times + int(rand 300) / 1000 } } @_ }

sub compared { return "$all requests, $refused refusals" }

1;

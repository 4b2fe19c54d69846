#!/usr/bin/env perl

# What ratelimit_fleet costs: a request, with and without overrides; Redis, by the number of nodes; and the page
# that shows them.

use strict;
use warnings;

use IO::Select;
use JSON::PP ();
use Time::HiRes qw(sleep time);

use Ratelimit::Build qw(built);
use Ratelimit::FleetKeys qw(all_fleet_keys);
use Ratelimit::Http qw(http_connect http_read http_send);
use Ratelimit::Process qw(wait_until);
use Ratelimit::Redis;

use Bench::Fleet qw(reporting_node report_like add_nodes keep_alive);
use Bench::Generators qw(generator_version);
use Bench::Measure qw($rounds $seconds measure median figure spread);
use Bench::Report;
use Bench::Scripts qw($top call_words load_script send_calls);
use Bench::Servers qw(location ours redis_block versions all_stopped);

# As in load.pl: nothing is refused.
my $passing = 'algorithm=gcra rate=1r/m burst=59999999';
my @numbers = (0, 1, 60_000_000, 60_000_000, 1);
my $keys    = 100_000;
my $second_of_nodes = 1e6;    # each node calls once a second
my $next_page = 1.1;          # seconds: a worker makes /fleet once a second at most
my $most_pages = 5;           # while which other requests wait
my $json   = JSON::PP->new->canonical->utf8;

sub text_of {
    my ($file) = @_;
    open my $in, '<', "$top/lua/$file.lua" or die "$file: $!\n";
    local $/ = undef;
    return scalar <$in>;
}

# Sets an override of $keys keys, as the API does.
sub set_overrides {
    my ($redis, $name) = @_;
    my $digest = $redis->cmd('SCRIPT', 'LOAD', text_of('fleet_change'));
    my @all = all_fleet_keys();
    return send_calls($redis, $keys, sub {
        my $id = 'kall' . sprintf "\0$name%012d", $_[0];
        return ('EVALSHA', $digest, scalar @all, @all, 'set', $id,
            '{"rate":"1r/m","burst":59999999,"by":"bench"', 0, 1_000_000);
    });
}

# Dies unless the keys of the requests have overrides as $expected says: all (1) or none ('').
sub check_overrides {
    my ($nginx, $expected) = @_;
    for my $number (0, 1, $keys / 2, $keys - 1) {
        my $path = sprintf '/ops/zones/all/keys/k%012d/override', $number;
        my $seen = $json->decode($nginx->get($path)->body);
        die "$path: ", $json->encode($seen), "\n"
            if !exists $seen->{override} || defined $seen->{override} != $expected;
    }
    return;
}

sub request_row {
    my ($name, $fleet, $overridden) = @_;
    my $redis = Ratelimit::Redis->new;
    my $digest = load_script($redis, 'gcra');
    send_calls($redis, $keys, sub { call_words($digest, sprintf('rl:all:{k%012d}', $_[0]), @numbers) });
    set_overrides($redis, $overridden) if $overridden;
    my $nginx = ours(http => redis_block($redis) . "$fleet ratelimit_zone \$arg_key zone=all $passing;",
        server => location('/all', 'ratelimit zone=all;') . 'location /ops/ { ratelimit_api; }');
    if ($overridden) {
        wait_until('the overrides are known', sub {
            $nginx->get('/ops/metrics')->body =~ /^ratelimit_overrides\{zone="all"\} $keys$/m;
        }, 30);
        check_overrides($nginx, $overridden eq 'k');
    }
    return { name => $name, nginx => $nginx, path => '/all', keys => $keys, redis => [$redis], calls => [1 / 17, 1],
        reads => [0.9, 1.1] };
}

# Dies unless each text of /fleet that it is given was made after the last one.
sub each_is_new {
    my $last = 0;
    return sub {
        my ($as_of) = $_[0] =~ /"as_of":([\d.]+)/ or die "/fleet does not say as of when it is\n";
        die "/fleet was not made again\n" if $as_of == $last;
        return $last = $as_of;
    };
}

# GET of the page that shows this many nodes: one of them real, and the others as Redis has them.
sub page_row {
    my ($nodes) = @_;
    my ($redis, $nginx, $report) = reporting_node();
    add_nodes($redis, $report, $nodes);
    my $live = sub { keep_alive($redis, $nodes) };
    $live->();
    my $body = $nginx->get('/ops/fleet')->body;
    my $page = $json->decode($body);
    my ($shown, $living) = (scalar @{ $page->{nodes} }, scalar grep { $_->{live} } @{ $page->{nodes} });
    die "/fleet shows $shown nodes, $living of them alive\n" if $shown != $nodes || $living != $nodes;
    my $next = sub { sleep $next_page; $live->() };
    my ($new, $client) = each_is_new();
    my $before = sub { $next->(); $client = http_connect($nginx->port) };
    my $load = sub {
        my $began = time;
        http_send($client, '/ops/fleet');
        $new->(http_read($client)->body);
        return { requests => 1, seconds => time - $began, refused => 0 };
    };
    return { name => "$nodes nodes", nginx => $nginx, redis => [$redis], calls => [1, 2], before => $before, load => $load,
        bytes => length $body, report => $report, after => sub { return longest_wait($nginx->port, $next) } };
}

# Microseconds of the longest of the requests that are sent one after another while a page is made and read: the
# median of several pages.
sub longest_wait {
    my ($port, $next) = @_;
    my ($client, $other) = map { http_connect($port) } 1 .. 2;
    my ($new, @longest) = each_is_new();
    for (1 .. $most_pages) {
        my ($longest, $seen) = (0, '');
        $next->();
        http_send($client, '/ops/fleet');
        until ($seen =~ /\AHTTP.*?^Content-Length: (\d+)\r\n.*?\r\n\r\n/ms && length $seen == $+[0] + $1) {
            my $began = time;
            http_send($other, '/none');
            http_read($other);
            my $waited = time - $began;
            $longest = $waited if $waited > $longest;
            while (IO::Select->new($client)->can_read(0)) {
                sysread $client, $seen, 1e6, length $seen or die "/fleet failed\n";
            }
        }
        $new->($seen);
        push @longest, 1e6 * $longest;
    }
    return median(@longest);
}

# Calls of the script by which a node says each second that it is there, by turns of this many nodes.
sub sync_row {
    my ($nodes, $report) = @_;
    my $redis  = Ratelimit::Redis->new;
    set_overrides($redis, 'k');
    my $digest = $redis->cmd('SCRIPT', 'LOAD', text_of('fleet_sync'));
    my @all    = all_fleet_keys();
    my @states = map { report_like($report, $_) } 1 .. $nodes;
    my $sync   = sub {
        my ($count) = @_;
        my $cursor = $redis->cmd('HGET', 'rl:{fleet}:state', 'version');
        return send_calls($redis, $count, sub {
            my $node = $_[0] % $nodes;
            return ('EVALSHA', $digest, scalar @all, @all, sprintf('%032x', $node), $states[$node], $cursor, 1000);
        });
    };
    $sync->($nodes);
    my $calls = 20_000;
    return { name => "$nodes nodes", redis => [$redis], calls => [1, 1],
        bytes => length $states[0], load => sub { $sync->($calls); return { requests => $calls, seconds => 1 } } };
}

# Microseconds of one look-up in shared memory by itself: without overrides, with those of other keys, and of these
# keys. Medians of $rounds rounds; each looks for all keys.
sub look_ups {
    my $program = built('unit/override_lookup', './build.sh bench');
    my @rounds_of;
    for my $line (qx($program $keys $rounds)) {
        my @ns = split ' ', $line;
        push @{ $rounds_of[$_] }, $ns[$_] / 1000 for 0 .. $#ns;
    }
    die "override_lookup failed\n" if $? || !@rounds_of;
    return map { median(@{$_}) } @rounds_of;
}

my @look_ups = ('-', map { sprintf '%.3f', $_ } look_ups());    # of @requests; the first has none
my @requests = (
    request_row('without ratelimit_fleet', '', undef),
    request_row('ratelimit_fleet, no override', 'ratelimit_fleet size=32m;', undef),
    request_row("$keys overrides of other keys", 'ratelimit_fleet size=32m;', 'o'),
    request_row("$keys overrides of these keys", 'ratelimit_fleet size=32m;', 'k'),
);
my @sizes = (3, 30, 300);
my @pages = map { page_row($_) } @sizes;
my @syncs = map { sync_row($_, $pages[0]{report}) } @sizes;
measure(@requests, @syncs, @pages);

my $report = Bench::Report->new('fleet', 'What ratelimit_fleet costs', generator_version(),
    versions($requests[0]{redis}[0]));
$report->lines("Medians of $rounds rounds, rows interleaved; 64 connections, wrk with one thread; each of $seconds s has "
        . "requests of $keys keys.",
    'us: microseconds of CPU for each request, nginx\'s and Redis\'s. +-: spread between rounds. look-up: of the '
        . "key's override, by itself, in a program that does nothing else.");
my $none = figure($requests[0], 'nginx');
$report->table(
    ['', 'requests/s', '+-', 'nginx us', 'added', 'look-up us', 'Redis us'],
    map {
        my $row = $requests[$_];
        [$row->{name}, sprintf('%.0f', figure($row, 'requests')), sprintf('%.0f %%', spread($row)),
            (map { sprintf '%.2f', $_ } figure($row, 'nginx'), figure($row, 'nginx') - $none),
            $look_ups[$_], sprintf '%.2f', figure($row, 'redis')]
    } 0 .. $#requests
);
$report->lines("Each node calls Redis once a second, with a report of 5 zones and 20 keys, $syncs[0]{bytes} bytes. "
        . "Redis's CPU for one call and for the whole fleet, with $keys overrides of which none has changed:");
$report->table(
    ['', 'Redis us of a call', 'of a processor'],
    map {
        my ($nodes) = $_->{name} =~ /(\d+)/;
        my $call = figure($_, 'redis');
        [$_->{name}, sprintf('%.1f', $call), sprintf '%.2f %%', 100 * $call * $nodes / $second_of_nodes]
    } @syncs
);
$report->lines("One GET of `/fleet`, $next_page s after the last one, so that the page is made, where the nodes refuse different keys. "
        . "others wait: the longest that another request, without a limit, took while a page was made (the median of $most_pages pages):");
$report->table(
    ['', 'bytes', 'nginx us', 'Redis us', 'others wait us'],
    map {
        my $row = $_;
        [$row->{name}, $row->{bytes}, map { sprintf '%.0f', figure($row, $_) } qw(nginx redis state)]
    } @pages
);
$report->warn_of_noise(map { spread($_) } @requests);
$report->publish;
all_stopped();

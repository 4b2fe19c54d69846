#!/usr/bin/env perl

# What open pages of a fleet cost its node and Redis, and whether other requests notice them.

use strict;
use warnings;

use Time::HiRes qw(time sleep);

use Ratelimit::Http qw(http_connect http_read http_send);
use Ratelimit::Process qw(alive start_code stop_process);

use Bench::Fleet qw(reporting_node add_nodes keep_alive);
use Bench::Measure qw($rounds $seconds measure figure);
use Bench::Report;
use Bench::Servers qw(versions all_stopped);

my $between_polls  = 2;       # seconds, of a page
my $between_others = 0.01;    # seconds, of other requests

# Polls as this number of pages does, spread over time, until it is ended.
sub open_pages {
    my ($port, $pages) = @_;
    my @pages = map { http_connect($port) } 1 .. $pages;
    my $next  = time;
    for (my $turn = 0; ; ++$turn) {
        my $page = $pages[$turn % $pages];
        for my $view (qw(zones redis fleet)) {
            http_send($page, "/ops/$view");
            http_read($page)->status == 200 or die "/$view failed\n";
        }
        $next += $between_polls / $pages;
        my $pause = $next - time;
        sleep $pause if $pause > 0;
    }
    return;
}

# Requests with a limit, one after another, each of another key, so that each asks Redis and passes.
sub other_requests {
    my ($port, $duration) = @_;
    my $client = http_connect($port);
    my ($began, @took) = (time);
    while (time < $began + $duration) {
        my $at = time;
        http_send($client, sprintf '/limit_5?key=%d-%.6f', $$, $at);
        http_read($client)->status == 200 or die "a request failed\n";
        my $took = time - $at;
        push @took, 1e6 * $took;
        sleep $between_others - $took if $took < $between_others;
    }
    my @sorted = sort { $a <=> $b } @took;
    return { requests => scalar @took, seconds => time - $began, refused => 0,
        map { ("p$_" => $sorted[$#sorted * $_ / 100]) } 50, 95, 99 };
}

sub pages_row {
    my ($nodes, $pages) = @_;
    my ($redis, $nginx, $report) = reporting_node();
    add_nodes($redis, $report, $nodes);
    my $load = sub {
        my ($duration) = @_;
        my $open = $pages ? start_code('pages', sub { open_pages($nginx->port, $pages) }) : undef;
        my $seen = other_requests($nginx->port, $duration);
        die "a page failed\n" if $open && !alive($open);
        stop_process($open) if $open;
        return $seen;
    };
    return { nodes => $nodes, pages => $pages, name => "$nodes nodes, $pages pages", nginx => $nginx, redis => [$redis],
        calls => [0, 3], load => $load, before => sub { keep_alive($redis, $nodes) } };
}

die "SECONDS: at most 8, since the other nodes live no longer\n" if $seconds > 8;
my @rows;
for my $nodes (3, 300) {
    push @rows, map { pages_row($nodes, $_) } 0, 1, 20;
}
measure(@rows);

my $report = Bench::Report->new('pages', 'What open pages cost', versions($rows[0]{redis}[0]));
$report->lines("Medians of $rounds rounds of $seconds s, rows interleaved. Each page asks its node, which has one worker, "
        . "every $between_polls seconds for `/zones`, `/redis` and `/fleet`.",
    'nginx, Redis: percent of a processor, with the node\'s own call each second and '
        . int(1 / $between_others) . ' other requests a second, each with one limit. p50, p99: how long these took, as '
        . 'their client saw it.');
my $percent = sub { my ($row, $what) = @_; return sprintf '%.1f', 100 * figure($row, $what) };
$report->table(
    ['', 'open pages', 'nginx %', 'Redis %', 'p50 us', 'p99 us'],
    map {
        my $row = $_;
        ["$row->{nodes} nodes", $row->{pages}, (map { $percent->($row, $_) } qw(busy redis_busy)),
            map { sprintf '%.0f', figure($row, $_) } qw(p50 p99)]
    } @rows
);
$report->publish;
all_stopped();

#!/usr/bin/env perl

# How the time and the memory of ratelimit-rehearse grow with the length of a log and with its keys. The lines come
# through a pipe, so that no disk needs room for them. LINES_OF_LOG: the lengths, in lines.

use strict;
use warnings;

use POSIX qw(strftime);
use Ratelimit::Build qw(built);
use Ratelimit::Process qw(temp_folder write_file);

use Bench::Report;

my $program = built('ratelimit-rehearse', './build.sh rehearse');
my $folder  = temp_folder();
my @lengths = split / /, $ENV{LINES_OF_LOG} // '1000000 10000000 100000000';
my @keys    = (10_000, 1_000_000);    # addresses
my $conf    = write_file("$folder/limits.conf", 'ratelimit_zone $binary_remote_addr zone=per_ip rate=100r/m; ratelimit zone=per_ip;');

# Writes the lines: 2000 in a second, of addresses by chance.
sub write_lines {
    my ($out, $lines, $addresses) = @_;
    srand 1;
    my ($second, $text) = (-1, '');
    for my $i (0 .. $lines - 1) {
        my $now = int $i / 2000;
        ($second, $text) = ($now, strftime('%d/%b/%Y:%H:%M:%S +0000', gmtime 1_795_000_000 + $now)) if $now != $second;
        my $address = int rand $addresses;
        print {$out} '10.', $address >> 16, '.', $address >> 8 & 255, '.', $address & 255, " - - [$text] ",
            "\"GET /api/items?page=2 HTTP/1.1\" 200 4711 \"-\" \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0)\"\n";
    }
    return;
}

# Seconds of processor time, and the largest memory in MB.
sub run {
    my ($lines, $addresses) = @_;
    my $figures = "$folder/figures";
    open my $out, "|-", "exec /usr/bin/time -f '%U %S %M' -o $figures $program $conf - >$folder/out" or die $!;
    write_lines($out, $lines, $addresses);
    close $out or die "ratelimit-rehearse failed: $?\n";
    open my $file, '<', $figures or die $!;
    my ($user, $system, $kb) = split / /, <$file>;
    return ($user + $system, $kb / 1024);
}

chomp(my $commit = qx(git -C '@{[Ratelimit::Build::top()]}' rev-parse --short HEAD) || 'an unknown commit');
my $report = Bench::Report->new('long_logs', 'Long logs', "ratelimit-rehearse at $commit");
$report->lines('One limit by address, 2000 lines in each second, read from a pipe. Processor time of one run.');
my @rows = map { my $addresses = $_; map { [$_, $addresses, run($_, $addresses)] } @lengths } @keys;
$report->table(['lines', 'addresses', 'seconds', 'us/line', 'memory MB'],
    map { my ($lines, $addresses, $time, $memory) = @{$_}; [$lines, $addresses, sprintf('%.1f', $time), sprintf('%.2f', 1e6 * $time / $lines), sprintf '%.0f', $memory] } @rows);
$report->publish;

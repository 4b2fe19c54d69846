#!/usr/bin/env perl

# How many lines ratelimit-rehearse decides in a second of one processor, and the memory that it needs.

use strict;
use warnings;

use POSIX qw(strftime);
use Ratelimit::Build qw(built);
use Ratelimit::Process qw(temp_folder write_file);

use Bench::Report;

my $program = built('ratelimit-rehearse', './build.sh rehearse');
my $folder  = temp_folder();
my $lines   = $ENV{LINES_OF_LOG} // 2_000_000;
my $rounds  = $ENV{ROUNDS} // 3;

# The same requests as a combined log, compressed, with $request_time, and as JSON lines: 30 % of them from twenty
# busy addresses, the others from 262144, in an hour.
sub make_logs {
    srand 1;
    open my $combined, '>', "$folder/combined" or die $!;
    open my $timed,    '>', "$folder/timed"    or die $!;
    open my $json,     '>', "$folder/json"     or die $!;
    my @paths = ('/', '/api/items?page=2', '/api/orders/17', '/static/site.css', '/login');
    for my $i (0 .. $lines - 1) {
        my $time    = 1_795_000_000 + int 3600 * $i / $lines;
        my $address = rand() < 0.3 ? '203.0.113.' . int rand 20 : join '.', 10, int rand 4, int rand 256, int rand 256;
        my $request = 'GET ' . $paths[rand @paths] . ' HTTP/1.1';
        my $size    = int rand 50_000;
        my $line = "$address - - [" . strftime('%d/%b/%Y:%H:%M:%S +0000', gmtime $time) . "] \"$request\" 200 $size"
            . ' "https://www.example.com/" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"';
        print {$combined} "$line\n";
        print {$timed} "$line 0.", 100 + $i % 900, "\n";
        print {$json} qq({"msec":"$time.000","remote_addr":"$address","request":"$request","status":200,"body_bytes_sent":$size}\n);
    }
    close $combined or die $!;
    close $timed    or die $!;
    close $json     or die $!;
    system("gzip -c $folder/combined > $folder/combined.gz") == 0 or die 'gzip';
    return;
}

my $zone = '$binary_remote_addr zone=per_ip rate=100r/m';
my $several = 'map $request_method $size { default 10r/s; POST 1r/s; } ratelimit_zone $ratelimit_client zone=a rate=100r/m;'
    . 'ratelimit_zone $uri zone=b rate=$size algorithm=gcra burst=20; location ~ "^/api/" { ratelimit zone=a; ratelimit zone=b; }'
    . 'location /static/ { ratelimit zone=a; } location = /login { ratelimit zone=a; } location / { }';
my @rows = (
    ['combined, one limit by address',           "ratelimit_zone $zone; ratelimit zone=per_ip;", 'combined'],
    (map { ["the same, $_", "ratelimit_zone $zone algorithm=$_; ratelimit zone=per_ip;", 'combined'] }
        qw(sliding_window_log token_bucket)),
    ['locations, a map, two limits',             $several, 'combined'],
    ['compressed, one limit by address',         "ratelimit_zone $zone; ratelimit zone=per_ip;", 'combined.gz'],
    ['JSON lines, one limit by address',         "ratelimit_zone $zone; ratelimit zone=per_ip;", 'json'],
    ['combined and `$request_time`, `concurrency=`', 'ratelimit_zone $binary_remote_addr zone=per_ip concurrency=10;'
        . "log_format timed '\$remote_addr - \$remote_user [\$time_local] \"\$request\" \$status \$body_bytes_sent \"\$http_referer\" "
        . "\"\$http_user_agent\" \$request_time'; ratelimit zone=per_ip;", 'timed', '--format timed'],
);

# Seconds of processor time and the largest memory, in MB.
sub run {
    my ($conf, $log, $options) = @_;
    $options //= '';
    write_file("$folder/limits.conf", $conf);
    my ($user, $system) = (times)[2, 3];
    my $memory = qx(bash -c '"$program" $options "$folder/limits.conf" "$folder/$log" >"$folder/out" & pid=\$!; most=0;
        while kb=\$(sed -n "s/^VmHWM:[^0-9]*\\([0-9]*\\).*/\\1/p" /proc/\$pid/status 2>/dev/null) && [ -n "\$kb" ]; do most=\$kb; sleep 0.05; done;
        wait \$pid && echo \$most');
    die "ratelimit-rehearse failed\n" if $? || $memory !~ /\d/;
    my ($user_after, $system_after) = (times)[2, 3];
    return ($user_after + $system_after - $user - $system, $memory / 1024);
}

make_logs();
my (%times, %memory);
for my $round (1 .. $rounds) {
    for my $row (@rows) {
        my ($time, $memory) = run(@{$row}[1 .. 3]);
        push @{ $times{ $row->[0] } }, $time;
        $memory{ $row->[0] } = $memory;
    }
}
chomp(my $commit = qx(git -C '@{[Ratelimit::Build::top()]}' rev-parse --short HEAD) || 'an unknown commit');
my $report = Bench::Report->new('rehearse', 'ratelimit-rehearse', "this program at $commit");
$report->lines("A log of $lines lines and 262164 addresses, from the disk's cache. Medians of $rounds rounds of the processor "
        . 'time, rows interleaved.');
$report->table(['', 'lines/s', 'us/line', 'memory MB'], map {
    my @sorted = sort { $a <=> $b } @{ $times{ $_->[0] } };
    my $median = $sorted[@sorted / 2];
    [$_->[0], sprintf('%.0f', $lines / $median), sprintf('%.2f', 1e6 * $median / $lines), sprintf('%.0f', $memory{ $_->[0] })]
} @rows);
$report->publish;

package Ratelimit::Rehearse;

# For t/rehearse: logs to rehearse, and runs of ratelimit-rehearse.

use strict;
use warnings;

use JSON::PP qw(decode_json);
use POSIX qw(strftime);

use Ratelimit::Build qw(built);
use Ratelimit::Process qw(temp_folder read_file write_file);

use Exporter 'import';
our @EXPORT_OK = qw(folder log_file line rehearse report limit_of);

my $folder;
my $files = 0;
my $start = 1_795_000_000;    # the time 0 of lines

sub folder { return $folder //= temp_folder() }

# Writes a file of this test; returns its path.
sub log_file { my @text = @_; $files++; return write_file(folder() . "/$files.log", join '', @text) }

# A line in the combined format. Options: t (seconds after the start), ip, path, method, request, status,
# referer, agent, user.
sub line {
    my (%o) = @_;
    my $request = $o{request} // join ' ', $o{method} // 'GET', $o{path} // '/', 'HTTP/1.1';
    return sprintf qq{%s - %s [%s] "%s" %s 12 "%s" "%s"\n}, $o{ip} // '10.0.0.1', $o{user} // '-',
        time_local($o{t} // 0), $request, $o{status} // 200, $o{referer} // '-', $o{agent} // 'test';
}

my ($last_time, $last_text) = (-1, '');

sub time_local {
    my ($time) = @_;
    ($last_time, $last_text) = ($time, strftime('%d/%b/%Y:%H:%M:%S +0000', gmtime $start + $time))
        if $time != $last_time;
    return $last_text;
}

# rehearse(conf => text, logs => [paths], options => [...], in => text for standard input): exit status (2:
# the result cannot be used), stdout and stderr. The configuration is limits.conf in a folder of the test.
sub rehearse {
    my (%o) = @_;
    my $program = built('ratelimit-rehearse', './build.sh');
    my $conf    = $o{path} // write_file(folder() . '/limits.conf', $o{conf});
    my @command = ($program, @{ $o{options} // [] }, $conf, @{ $o{logs} // [] });
    my $command = join ' ', map { my $word = $_; $word =~ s/'/'\\''/g; "'$word'" } @command;
    write_file(folder() . '/in', $o{in} // '');
    my $output = qx($command <'@{[folder()]}/in' 2>'@{[folder()]}/err');
    die "signal " . ($? & 127) . "\n" if $? & 127;
    return ($? >> 8, $output, read_file(folder() . '/err'));
}

# The JSON of a run that succeeds, also if its result cannot be used (then `usable` is false); dies otherwise.
sub report {
    my (%o) = @_;
    my ($exit, $out, $err) = rehearse(%o, options => ['--json', @{ $o{options} // [] }]);
    die "exit $exit: $err" if $exit != 0 && $exit != 2;
    my $report = decode_json($out);
    die "exit $exit, but usable: $report->{usable}" if ($exit == 0) != !!$report->{usable};
    $report->{warnings} = $err;
    return $report;
}

# The limit of a report with this zone, and this location if it is given.
sub limit_of {
    my ($report, $zone, $location) = @_;
    my @found = grep { $_->{zone} eq $zone && (!defined $location || $_->{location} eq $location) }
        @{ $report->{limits} };
    die "no limit $zone" unless @found;
    return $found[0];
}

1;

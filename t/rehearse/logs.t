# The logs that ratelimit-rehearse reads: formats, compressed files, lines out of order, and broken and
# hostile lines.

use Ratelimit::Test;
use IO::Compress::Gzip qw(gzip $GzipError);
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $zone = 'ratelimit_zone $remote_addr zone=z rate=5r/m algorithm=fixed_window;';
my $conf = "$zone ratelimit zone=z;";

# requests, refused and keys of the only limit.
sub of { my ($report) = @_; return join ' ', @{ $report->{limits}[0] }{qw(requests refused keys)} }

my @lines = map { line(t => int($_ / 10), ip => "10.0.0." . $_ % 7, path => "/$_") } 0 .. 999;
my $log   = log_file(@lines);
my $plain = report(conf => $conf, logs => [$log]);
my $expected = of($plain);
is $plain->{lines}, 1000;
like $expected, qr/^1000 [1-9]\d+ 7$/;

sub compressed { my ($text) = @_; gzip(\$text => \my $out) or die $GzipError; return $out }

subtest 'files that gzip has not compressed are named' => sub {
    for (['xz', "\xfd7zXZ\0\0\x04rest"], ['zstd', "\x28\xb5\x2f\xfd\x04rest of it"], ['bzip2', 'BZh91AY&SYrest']) {
        my ($program, $text) = @{$_};
        my $log = log_file($text);
        my ($exit, $out, $err) = rehearse(conf => $conf, logs => [$log]);
        is "$exit $out$err", "1 ratelimit-rehearse: $log is compressed with $program, which is not read: "
            . "decompress it first, as in $program -dc FILE | ratelimit-rehearse CONF -\n", $program;
    }
};

subtest 'compressed files, also of several members, whatever their name' => sub {
    is of(report(conf => $conf, logs => [log_file(compressed(join '', @lines))])), $expected;
    my @members = map { compressed(join '', @lines[$_ * 100 .. $_ * 100 + 99]) } 0 .. 9;
    is of(report(conf => $conf, logs => [log_file(@members)])), $expected, 'ten members';
    is of(report(conf => $conf, logs => ['-'], in => join '', @members)), $expected, 'on standard input';

    my $cut = report(conf => $conf, logs => [log_file(substr join('', @members), 0, -30)]);
    cmp_ok $cut->{lines}, '>=', 900, 'a file that is cut off is used as far as it goes';
    like "@{$cut->{problems}}", qr/\.log: the compressed data ends too early$/, 'and cannot be relied on';
    my $damaged = compressed(join '', @lines);
    substr $damaged, length($damaged) / 2, 50, 'x' x 50;
    like "@{report(conf => $conf, logs => [log_file($damaged)])->{problems}}", qr/\.log: the compressed data is damaged/;
    my $padded = report(conf => $conf, logs => [log_file(@members, "\0" x 100)]);
    is of($padded), $expected, 'garbage behind the data is passed over';
    ok $padded->{usable}, 'and does no harm';
    like $padded->{warnings}, qr/garbage after the compressed data/;
};

subtest 'standard input, and several files' => sub {
    is of(report(conf => $conf, logs => ['-'], in => join '', @lines)), $expected;
    is of(report(conf => $conf, logs => [map { log_file(@{$_}) } [@lines[600 .. 999]], [@lines[0 .. 599]]])), $expected,
        'rotated files in any order';
    my @by_node = ([], []);
    push @{ $by_node[rand 2] }, $_ for @lines;
    is of(report(conf => $conf, logs => [map { log_file(@{$_}) } @by_node])), $expected,
        'the logs of two nodes are merged by time';
    my ($exit, undef, $err) = rehearse(conf => $conf, logs => ["@{[folder()]}/absent.log"]);
    is $err, "ratelimit-rehearse: cannot open @{[folder()]}/absent.log: No such file or directory\n";
    isnt $exit, 0;
};

subtest 'the end of a file, of a line, and empty lines' => sub {
    is of(report(conf => $conf, logs => [log_file(join('', @lines) =~ s/\n\z//r)])), $expected, 'no line feed at the end';
    is of(report(conf => $conf, logs => [log_file(map { s/\n/\r\n/r } @lines)])), $expected, 'line ends of Windows';
    my $none = report(conf => $conf, logs => [log_file()]);
    is of($none), '0 0 0', 'an empty log';
    is_deeply $none->{problems}, ['the log has no line'];
    my $empty = report(conf => $conf, logs => [log_file($lines[0], "\n", $lines[1])]);
    is "$empty->{lines} $empty->{skipped}", '2 0', 'a blank line is no request';
};

# The same requests in another format.
sub in_format {
    my ($format, $make, %o) = @_;
    return of(report(conf => $o{conf} // $conf, options => defined $format ? ['--format', $format] : $o{options} // [],
        logs => [log_file(map { $make->($_, int($_ / 10), "10.0.0." . $_ % 7) } 0 .. 999)]));
}

subtest 'any log_format, with each kind of time' => sub {
    my $local = sub { line(t => $_[0]) =~ /\[(.*?)\]/ ? $1 : die };
    my $iso = sub { my @t = gmtime 1_795_000_000 + $_[0];
        sprintf '%04d-%02d-%02dT%02d:%02d:%02d', $t[5] + 1900, $t[4] + 1, @t[3, 2, 1, 0] };
    is in_format('$msec $remote_addr', sub { 1_795_000_000 + $_[1] . ".000 $_[2]\n" }), $expected, '$msec';
    is in_format('$remote_addr|$time_iso8601', sub { "$_[2]|" . $iso->($_[1]) . "+00:00\n" }), $expected, '$time_iso8601';
    is in_format('${remote_addr} at <$time_local>', sub { "$_[2] at <" . $local->($_[1]) . ">\n" }), $expected, 'braces';
    is in_format('$remote_addr "$time_local"', sub { "$_[2] \"" . ($local->($_[1] + 3600) =~ s/\+0000/+0100/r) . "\"\n" }), $expected,
        'another time zone';
    my $named = "$conf log_format short '\$msec ' '\$remote_addr'; log_format json escape=json '{\"a\":\"\$remote_addr\",\"t\":\"\$msec\"}';";
    is in_format('short', sub { 1_795_000_000 + $_[1] . " $_[2]\n" }, conf => $named), $expected, 'a name of the configuration';
    is in_format('json', sub { "{\"a\":\"$_[2]\",\"t\":\"" . (1_795_000_000 + $_[1]) . "\"}\n" }, conf => $named), $expected,
        'a format that looks like JSON';
    is in_format('$request_time $msec $remote_addr', sub { "0.250 " . (1_795_000_000 + $_[1]) . ".250 $_[2]\n" }), of(report(
        conf => $conf, options => ['--format', '$msec $remote_addr'],
        logs => [log_file(map { 1_795_000_000 + int($_ / 10) . ".25 10.0.0." . $_ % 7 . "\n" } 0 .. 999)])), 'the time of the log';
    my $arrival = report(conf => $conf, options => ['--arrival', '--reorder', '1m', '--format', '$request_time $msec $remote_addr'],
        logs => [log_file(map { sprintf "%d.000 %d.000 10.0.0.%d\n", $_ % 30, 1_795_000_000 + int($_ / 10) + $_ % 30, $_ % 7 } 0 .. 999)]);
    is of($arrival), $expected, '--arrival subtracts $request_time';
};

subtest 'JSON lines' => sub {
    my $json = sub {
        my ($i, $time, $ip) = @_;
        return sprintf qq({"time_iso8601": "2026-11-18T11:%02d:%02dZ", "status": 200,)
            . qq( "x": {"y": [1, {"remote_addr": "z"}]}, "remote_addr": "%s"}\n), $time / 60, $time % 60, $ip;
    };
    my $same = in_format('$msec $remote_addr', sub { 1_794_999_600 + $_[1] . " $_[2]\n" });
    is in_format(undef, $json), $same, 'noticed by the first lines';
    is in_format(undef, $json, options => ['--log-format', 'json']), $same, '--log-format json';
    my $mixed = report(conf => $conf, logs => [log_file($json->(0, 0, 'a'), "{broken\n", "[1]\n", "7\n", "{}\n", map { $json->(0, $_, 'a') } 1 .. 4)]);
    is "$mixed->{lines} $mixed->{skipped}", '9 4', 'broken lines are skipped';
    my $nested = report(conf => 'ratelimit_zone $remote_addr zone=z rate=1r/m; ratelimit zone=z;', logs => [log_file(
        '{"msec":1795000000.123,"remote_addr":"\u0031.2.3.4","request":"GET / HTTP/1.1"}' . "\n")]);
    is $nested->{limits}[0]{busiest}[0]{key}, '1.2.3.4', 'numbers and escapes';
    my (undef, undef, $err) = rehearse(conf => $conf, logs => [log_file('{"msec":1795000000,"ip":"1.2.3.4"}')]);
    like $err, qr/^ratelimit-rehearse: the variable "\$remote_addr" is not in the first object of the log, .* in \S+limits\.conf:1$/;
};

# A line of JSON, as nginx writes it with escape=json.
sub json_line { my ($key) = @_; return qq({"msec":1795000000.123,"http_x_k":"$key"}\n) }

# The keys of JSON lines, sorted.
sub json_keys {
    my ($lines, @options) = @_;
    my $report = report(conf => 'ratelimit_zone $http_x_k zone=z rate=9r/m; ratelimit zone=z;', logs => [log_file(@{$lines})], options => \@options);
    return join ' ', "$report->{lines}-$report->{skipped}:", sort map { "$_->{key}=$_->{requests}" } @{ $report->{limits}[0]{busiest} };
}

subtest 'JSON lines with bytes that are not UTF-8' => sub {
    my @keys = ("caf\xe9", "\xc3\xa9", "\x80\xbf\xc0\xff", "\xee\x82\x80", '\u00e9', "\xe9\\u20ac\\u0001");
    is json_keys([map { json_line($_) } @keys]), '6-0: \x80\xBF\xC0\xFF=1 \xC3\xA9=2 \xE9\xE2\x82\xAC\x01=1 \xEE\x82\x80=1 caf\xE9=1',
        'the keys are the bytes of the log';
};

subtest 'a dash is a value where nginx writes an empty one as nothing' => sub {
    is json_keys([map { json_line($_) } '-', 'a', '', '-']), '4-0: a=1', 'but not in JSON, which may be written without escape=json';
    for (['escape=json', '-=2'], ['escape=none', '-=2'], ['', '']) {
        my ($escape, $keys) = @{$_};
        my $report = report(conf => qq(log_format own $escape '\$msec "\$http_x_k"'; ratelimit_zone \$http_x_k zone=z rate=9r/m; ratelimit zone=z;),
            options => ['--format', 'own'], logs => [log_file(map { qq(1795000000.000 "$_"\n) } '-', '', '-')]);
        is join(' ', map { "$_->{key}=$_->{requests}" } @{ $report->{limits}[0]{busiest} }), $keys, "with \"$escape\"";
    }
};

subtest 'the start of a JSON log is skipped as that of a text log' => sub {
    my @lines = (json_line('a')) x 3;
    my %start = (
        'a cut line'           => ['5.000","http_x_k":"a"}' . "\n", '4-1: a=3'],
        'a cut object'         => ['{"http_x_k":"a' . "\n", '4-1: a=3'],
        'no member'            => ["{}\n", '4-1: a=3'],
        'two texts'            => ["ready\nfor start up\n", '5-2: a=3'],
        'blank lines'          => ["\n\r\n  \n", '4-1: a=3'],
        'a line that is long'  => ['x' x 2_000_000 . "\n", '4-1: a=3'],
        'a byte order mark'    => ["\xef\xbb\xbf", '3-0: a=3'],
        'spaces before a line' => ['  ', '3-0: a=3'],
        'spaces and UTF-8'     => ["\xef\xbb\xbf " . json_line("\xc3\xa9"), '4-0: \xC3\xA9=1 a=3'],
    );
    for my $what (sort keys %start) {
        my ($start, $expected) = @{ $start{$what} };
        is json_keys([$start, @lines], @{$_}), $expected, "$what @{$_}" for [], ['--log-format', 'json'];
    }
    my @half = ("x\n", "y\n", "z\n", @lines);
    is json_keys(\@half, '--log-format', 'json'), '6-3: a=3', 'half of the lines are enough if the kind is given';
    my $run = sub { return rehearse(conf => $conf, logs => [log_file("x\n" x 100, @lines)], options => \@_) };
    like +($run->())[1], qr/^NOT USABLE: 100 % of the lines were skipped \(103 of 103\)$/m, 'but make no log JSON by themselves';
    is +($run->('--log-format', 'json'))[2], "ratelimit-rehearse: none of the log's first lines is a JSON object\n";
    my $empty = report(conf => $conf, logs => [log_file()], options => ['--log-format', 'json']);
    is_deeply $empty->{problems}, ['the log has no line'];
};

subtest 'a byte order mark or the zeros of a cut file before the first line' => sub {
    for my $start ("\xef\xbb\xbf", "\0" x 70_000) {
        my $report = report(conf => $conf, logs => [log_file($start, (line(ip => '10.0.0.9')) x 3)]);
        is of($report), '3 0 1', 'are no part of an address';
        is $report->{skipped}, 0;
    }
};

subtest 'lines out of order within the bound' => sub {
    srand 3;
    my @shuffled = map { $_->[1] } sort { $a->[0] <=> $b->[0] } map { [int($_ / 10) + rand 1.9, $lines[$_]] } 0 .. 999;
    isnt join('', @shuffled), join('', @lines);
    my $report = report(conf => $conf, logs => [log_file(@shuffled)]);
    is of($report), $expected, 'are sorted';
    is $report->{skipped}, 0;
    my @rotated = (@lines[10 .. 999], @lines[0 .. 9]);    # as `cat access.log access.log.1` writes them
    my $late = report(conf => $conf, logs => ['-'], in => join '', @rotated);
    is "$late->{lines} $late->{skipped}", '1000 10', 'others are skipped';
    like $late->{warnings}, qr/^ratelimit-rehearse: 10 lines skipped: more than 2s behind; all would be used with --reorder (\d+)s$/m;
    my ($bound) = $late->{warnings} =~ /--reorder (\d+s)/;
    is of(report(conf => $conf, options => ['--reorder', $bound], logs => ['-'], in => join '', @rotated)), $expected,
        'with the bound that the warning names all are used';
};

subtest 'a file that is out of order is sorted' => sub {
    srand 9;
    my @by_chance = sort { rand() <=> 0.5 } @lines;
    my @halves = (compressed(join '', @lines[500 .. 999]), compressed(join '', @lines[0 .. 499]));
    my %logs = (
        'two halves in the wrong order' => [log_file(@lines[500 .. 999], @lines[0 .. 499])],
        'without any order'             => [log_file(@by_chance)],
        'compressed'                    => [log_file(@halves)],
        'in several files'              => [log_file(@by_chance[0 .. 99]), log_file(@by_chance[100 .. 999])],
    );
    for (sort keys %logs) {
        my $report = report(conf => $conf, logs => $logs{$_});
        is of($report), $expected, $_;
        is $report->{skipped}, 0;
        ok $report->{usable};
        like $report->{warnings}, qr/^ratelimit-rehearse: the log is not in the order of its times: it was sorted$/m;
    }
    my $piped = report(conf => $conf, logs => ['-'], in => join '', @by_chance);
    ok !$piped->{usable}, 'what cannot be read twice is not';
    like "@{$piped->{problems}}", qr/^\d+(?:\.\d+)? % of the lines were skipped \(\d+ of 1000\)$/;
    my $program = Ratelimit::Build::built('ratelimit-rehearse', './build.sh');
    my $from_pipe = qx(cat @{[folder()]}/limits.conf | $program /dev/stdin @{[log_file(@by_chance)]} 2>&1);
    like $from_pipe, qr/^NOT USABLE: \d+(?:\.\d+)? % of the lines were skipped \(\d+ of 1000\)$/m, 'nor if the configuration cannot';
    my $given = report(conf => $conf, logs => [log_file(@by_chance)], options => ['--reorder', '2s']);
    ok !$given->{usable}, 'nor is a file with a bound that was given';
    my $years = report(conf => $conf, logs => [log_file(map { line(t => $_ * 40_000_000, ip => '10.0.0.1') } 20, 3, 7, 0, 30)]);
    is of($years), '5 0 1', 'also over years';
};

subtest 'broken and hostile lines are counted, and do no harm' => sub {
    my @bad = (
        "\n", "x\n", "\0\0\0\n", "\xff\xfe\n", '"' x 500 . "\n", 'x' x 1_000_000 . "\n", 'x' x 3_000_000 . "\n",
        (map { line() =~ s{\[.*?\]}{[$_]}r } '', '32/Nov/2026:00:00:00 +0000',
            '29/Feb/2026:00:00:00 +0000', '01/Foo/2026:00:00:00 +0000', '01/Nov/2026:24:00:00 +0000', '01/Nov/2026:00:00:61 +0000',
            '01/Nov/1969:00:00:00 +0000', '01/Nov/99999:00:00:00 +0000', '01/Nov/2026:00:00:00 +9999', '-'),
        line(t => -1e9),    # behind
    );
    srand 5;
    my @mixed = @lines;
    splice @mixed, 20 + int rand 800, 0, $_ for @bad;
    my $report = report(conf => $conf, logs => [log_file(@mixed)]);
    is $report->{lines}, 1000 + @bad - 1, 'a blank line is none';
    is $report->{skipped}, @bad - 1;
    ok !$report->{usable}, 'more than one line in a hundred was skipped';
    ok report(conf => $conf, options => ['--max-skipped', '3%'], logs => [log_file(@mixed)])->{usable}, '--max-skipped';
    is of($report), $expected, 'the others are decided as without them';
    my $ahead = report(conf => $conf, logs => [log_file(@lines[0 .. 499], line(t => 1e9, ip => '10.9.9.9'), @lines[500 .. 999])]);
    is "$ahead->{lines} $ahead->{skipped}", '1001 0', 'a line decades ahead makes no other line late: the file is sorted';
    my $agent = report(conf => 'ratelimit_zone $http_user_agent zone=z rate=1r/m; ratelimit zone=z;',
        logs => [log_file(map { line(agent => $_) } 'x' x 900_000, "a\0b", 'a\x00b', 'a\x5Cb', '\\')]);
    is of($agent), '5 1 4', 'long values, and bytes that are escaped';
    is $agent->{skipped}, 0;
};

subtest "Apache's quotes" => sub {
    my $report = report(conf => 'ratelimit_zone "$http_referer|$http_user_agent" zone=z rate=1r/m; ratelimit zone=z;',
        logs => [log_file(line(referer => 'say \"x\" ', agent => 'a \"b\"'), line(referer => 'back\\\\', agent => '\"'))]);
    is_deeply [sort map { $_->{key} } @{ $report->{limits}[0]{busiest} }], ['back\x5C|"', 'say "x" |a "b"'];
};

subtest 'a request that nginx refuses to read reaches no limit' => sub {
    my $report = report(conf => $conf, logs => [log_file(line(), map { line(request => $_, status => 400) }
        '', '-', '\x16\x03\x01', 'GET', 'GET ', ' GET / HTTP/1.1', 'POST / ', 'get / HTTP/1.1', 'GET / FTP/1.0', 'GET / x HTTP/1.1', 'GET x HTTP/1.1')]);
    is of($report), '1 0 1';
    is "$report->{lines} $report->{skipped}", '12 0', 'though the lines are good';
    is of(report(conf => "$zone location / { ratelimit zone=z; } location /x { }",
        logs => [log_file(map { line(path => $_) } '/', '/%', '/%00', '/../', '/a')])), '2 0 1';
};

subtest 'nginx reads a request line with more spaces' => sub {
    my $report = report(conf => 'ratelimit_zone "$uri$server_protocol" zone=z rate=5r/m; ratelimit zone=z;',
        logs => [log_file(map { line(request => $_) } 'GET  /x HTTP/1.1', 'POST   /x   HTTP/1.1', 'GET /x ', 'GET /x')]);
    is_deeply { map { $_->{key} => $_->{requests} } @{ $report->{limits}[0]{busiest} } }, { '/xHTTP/1.1' => 2, '/x' => 2 };
};

subtest 'another format than the log has' => sub {
    my $report = report(conf => $conf, options => ['--format', '$msec $remote_addr'], logs => [$log]);
    is "$report->{lines} $report->{skipped}", '1000 1000';
    like $report->{warnings}, qr/^ratelimit-rehearse: 1000 lines skipped: they do not have the log's format; the first is: 10\.0\.0\.0 - /m;
    is_deeply $report->{problems}, ["100 % of the lines were skipped (1000 of 1000); those without the log's format fit --format combined"],
        'the one that fits is named';
    my $line = line(path => '/x');
    my %format = (
        '--format vhost_combined' => "a.example:443 $line",
        '--format main'           => $line =~ s/\n/ "-"\n/r,
        '--format common'         => $line =~ s/ "-" "test"//r,
        '--format ingress'        => $line =~ s/\n/ 300 0.010 [shop-80] [] 10.1.1.1:80 12 0.010 200 6a\n/r,
        '--format own'            => "200 $line",
        '--log-format json'       => '{"time_iso8601": "2026-11-18T11:00:00Z", "remote_addr": "10.0.0.1"}' . "\n",
    );
    for my $option (sort keys %format) {
        my $with = sub { report(logs => [log_file(($format{$option}) x 5)], options => \@_,
            conf => "$conf log_format own '\$status \$remote_addr - \$remote_user [\$time_local] ' '\"\$request\" \$status';") };
        for my $wrong ('$msec|$remote_addr', 'combined') {
            next if $wrong eq 'combined' && $option eq '--log-format json';
            my ($message) = @{ $with->('--format', $wrong)->{problems} };
            like $message, qr/; those without the log's format fit \Q$option\E$/, "$option, in place of $wrong";
        }
        my $right = $with->(split / /, $option);
        is $right->{skipped}, 0, 'which reads it';
        ok $right->{usable};
    }
    my $junk = report(conf => $conf, logs => [log_file(map { join '', map { chr int rand 256 } 1 .. 90 } 1 .. 200)]);
    ok !$junk->{usable}, 'binary junk has none';
    like $junk->{problems}[0], qr/^100 % of the lines were skipped \(\d+ of \d+\)$/;
    for (['$remote_addr', 'the log format has no time: $time_local, $time_iso8601 or $msec'],
        ['$msec$remote_addr', 'the log format has $msec and $remote_addr without any text between them, so that a line cannot be divided'],
        ['other', 'expected ingress, main, vhost_combined, combined, common, the name of a log_format in ']) {
        my ($exit, undef, $err) = rehearse(conf => $conf, logs => [$log], options => ['--format', $_->[0]]);
        isnt $exit, 0;
        like $err, qr/\Q$_->[1]\E/;
    }
};

finish();

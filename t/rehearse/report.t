# What ratelimit-rehearse prints: text, JSON, the timeline as CSV and as a picture, a suggested quota; and
# its options.

use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $conf = 'ratelimit_zone $remote_addr zone=z rate=5r/m algorithm=fixed_window; location /api/ { ratelimit zone=z; } location / { }';

# Two minutes: in the first, one key sends 8 requests and another 3; in the second, a third one sends 7.
my @lines = ((map { line(t => $_, ip => '10.0.0.1', path => '/api/x') } 20 .. 27), (map { line(t => $_, ip => '10.0.0.2', path => '/api/') } 28 .. 30),
    (map { line(t => $_, ip => '10.0.0.3', path => '/api/') } 90 .. 96), line(t => 97, path => '/other'), "broken\n");
my $log = log_file(@lines);

subtest 'JSON' => sub {
    my ($exit, $out, $err) = rehearse(conf => $conf, logs => [$log], options => ['--json']);
    is $exit, 2;
    my $first  = { key => '10.0.0.1', refused => 3, succeeded => 3, first => '2026-11-18T11:07:05Z', path => '/api/x', user_agent => 'test' };
    my $second = { key => '10.0.0.3', refused => 2, succeeded => 2, first => '2026-11-18T11:08:15Z', path => '/api/', user_agent => 'test' };
    is_deeply decode_json($out), {
        lines  => 20, skipped => 1, usable => JSON::PP::false,
        problems => ['5 % of the lines were skipped (1 of 20)'],
        requests => { limits => 18, none => 1, map { $_ => 0 } qw(malformed rewrite internal too_large deny authentication limit_req) },
        failed => [],
        total  => { requests => 18, refused => 5, succeeded => 5, clients => 3, clients_refused => 2, refused_clients => [$first, $second] },
        limits => [{
            directive => 'ratelimit', zone => 'z', location => '/api/', requests => 18, refused => 5, keys => 3, keys_refused => 2,
            busiest => [
                { key => '10.0.0.1', requests => 8, refused => 3 }, { key => '10.0.0.3', requests => 7, refused => 2 },
                { key => '10.0.0.2', requests => 3, refused => 0 },
            ],
            worst_minute => { time => '2026-11-18T11:07:00Z', requests => 11, refused => 3 },
            succeeded => 5, top_refused => [$first, $second],
        }],
    };
    is scalar(() = $out =~ /\n/g), 1, 'on one line';
    is report(conf => $conf, logs => [log_file()])->{limits}[0]{worst_minute}, undef, 'no minute without requests';
    is scalar @{ report(conf => $conf, logs => [$log], options => ['--top', 1])->{limits}[0]{busiest} }, 1, '--top';
};

subtest 'text' => sub {
    my ($exit, $out) = rehearse(conf => $conf, logs => [$log]);
    is $exit, 2, 'a line of 20 was skipped';
    is $out, <<'END';
NOT USABLE: 5 % of the lines were skipped (1 of 20)
20 lines, 1 skipped, from 2026-11-18T11:07:00Z to 2026-11-18T11:08:17Z
18 requests met a limit, 1 met none, 0 were answered before

all limits together
  refused       5 of 18 requests (27.78 %), of which 5 were answered with 2xx at that time
                2 of 3 clients (66.67 %)
  refused clients    refused   with 2xx  first refusal         main path  main user agent
  10.0.0.1                 3          3  2026-11-18T11:07:05Z  /api/x     test
  10.0.0.3                 2          2  2026-11-18T11:08:15Z  /api/      test

z at /api/
  fixed_window, 5r/m
  requests      18
  refused       5 (27.78 %)
  keys          3
  keys refused  2 (66.67 %)
  worst minute  2026-11-18T11:07:00Z, 11 requests, 3 refused
  margin        none: keys were refused
  busiest keys      requests       refused
  10.0.0.1                 8             3
  10.0.0.3                 7             2
  10.0.0.2                 3             0
  refused keys    refused   with 2xx  first refusal         main path  main user agent
  10.0.0.1              3          3  2026-11-18T11:07:05Z  /api/x     test
  10.0.0.3              2          2  2026-11-18T11:08:15Z  /api/      test
END
    (undef, $out) = rehearse(conf => $conf =~ s/5r/16r/r, logs => [$log]);
    like $out, qr/^  margin        no key had fewer than 8 of 16 left \(50 %\)$/m;
};

subtest 'the timeline' => sub {
    my ($csv, $svg) = map { folder() . "/timeline.$_" } qw(csv svg);
    report(conf => $conf, logs => [$log], options => ['--timeline', $csv, '--svg', $svg]);
    is read_file($csv), "time,zone,location,requests,refused\n2026-11-18T11:07:00Z,z,/api/,11,3\n2026-11-18T11:08:00Z,z,/api/,7,2\n";
    my $picture = read_file($svg);
    like $picture, qr/^<svg xmlns.*<\/svg>\n\z/s;
    like $picture, qr/>z at \/api\/<.*>11:07<.*>11:08</s;
    is scalar(() = $picture =~ /fill="#c62828"/g), 3, 'a bar for the refusals of each minute';
    report(conf => 'ratelimit_zone k zone=z rate=1r/s; location ~ "^/<a,b>&" { ratelimit zone=z; }',
        logs => [log_file(line(path => '/<a,b>&'))], options => ['--timeline', $csv, '--svg', $svg]);
    like read_file($csv), qr/,"~ \^\/<a,b>&",1,0$/m, 'names are quoted';
    like read_file($svg), qr/>z at ~ \^\/&lt;a,b&gt;&amp;</;
    report(conf => $conf, logs => [log_file()], options => ['--timeline', $csv, '--svg', $svg]);
    is read_file($csv), "time,zone,location,requests,refused\n", 'of an empty log';
    report(conf => $conf, logs => [log_file(line(t => 0), line(t => 1e9), line(t => 2e9))], options => ['--svg', $svg]);
    cmp_ok -s $svg, '<', 100_000, 'of decades';
    my ($exit, undef, $err) = rehearse(conf => $conf, logs => [$log], options => ['--svg', folder() . '/none/x.svg']);
    isnt $exit, 0;
    like $err, qr{^ratelimit-rehearse: cannot write \S+/none/x\.svg: No such file or directory$}m;
};

subtest 'no file that is read, and no other output, is written over' => sub {
    my $folder = folder();
    my ($own, $other) = (log_file(line(path => '/api/')), write_file("$folder/other.conf", $conf));
    symlink $own, "$folder/symbolic" or die;
    link $own, "$folder/hard" or die;
    for (
        ['--decisions' => $own], ['--html' => "$folder/limits.conf"], ['--svg' => "$folder/../" . ($folder =~ s{.*/}{}r) . '/limits.conf'],
        ['--timeline' => "$folder/symbolic"], ['--timeline' => "$folder/hard"], ['--html' => $other, '--against', $other],
        ['--svg' => "$folder/new", '--html', "$folder/./new"], ['--decisions' => "$folder/in"],
    ) {
        my ($exit, $out, $err) = rehearse(conf => $conf, options => $_, logs => [$own, '-'], in => line(path => '/api/'));
        is "$exit $out", '1 ', "@{$_}";
        like $err, qr/^ratelimit-rehearse: --\w+: \S+ is also the configuration, a log or another output\n\z/;
    }
    is read_file($own), line(path => '/api/'), 'and they are as they were';
    is read_file("$folder/limits.conf"), $conf;
    ok !-e "$folder/new";
    report(conf => $conf, logs => [$own], options => ['--html', '/dev/null', '--svg', '/dev/null', '--decisions', "$folder/decisions.csv"]);
};

subtest 'the suggested quota is the smallest one' => sub {
    srand 11;
    my @random = map { line(t => $_, ip => '10.1.0.' . int 40 * rand() ** 3) } map { int $_ / 3 } 0 .. 2999;
    my $random = log_file(@random);
    for my $parameters ('algorithm=fixed_window', 'algorithm=sliding_window_counter', 'algorithm=sliding_window_log',
        'algorithm=sliding_window_buckets precision=10s', 'algorithm=token_bucket', 'algorithm=gcra burst=7', 'algorithm=leaky_bucket burst=7') {
        for my $share ('10%', '0') {
            my $limit = sub { report(conf => "ratelimit_zone \$remote_addr zone=z rate=$_[0]r/m $parameters; ratelimit zone=z;",
                logs => [$random], options => [defined $_[1] ? ('--suggest', $_[1]) : ()])->{limits}[0] };
            my $suggested = $limit->(3, $share)->{suggested};
            my $most = $share eq '0' ? 0 : 4;
            my $quota = $suggested->{quota};
            my ($at, $below) = ($limit->($quota)->{keys_refused}, $limit->($quota - 1)->{keys_refused});
            ok $at <= $most && $below > $most, "$parameters, $share: $quota refuses $at, one less $below";
            is $suggested->{keys_refused}, $at;
            is $suggested->{rate}, "${quota}r/m";
            is_deeply $limit->(5000, $share)->{suggested}, $suggested, 'whatever quota is configured';
        }
    }
    my ($exit, $out) = rehearse(conf => $conf, logs => [$log], options => ['--suggest', '0.4']);
    like $out, qr/^  suggestion    rate=7r\/m, the smallest that refuses at most 40 % of the keys: it would refuse 1 of 3$/m;
    ($exit, $out) = rehearse(conf => $conf =~ s/fixed_window/gcra/r, logs => [log_file(map { line(path => '/api/') } 1 .. 9)], options => ['--suggest', '0']);
    like $out, qr/^  suggestion    none: with this burst every quota refuses more than 0 % of the keys$/m;
};

subtest 'keys that come and go need no more memory' => sub {
    my $peak = sub {
        my ($count) = @_;
        my $keys = log_file(map { line(t => int($_ / 50), ip => sprintf '10.%d.%d.%d', $_ >> 16, ($_ >> 8) & 255, $_ & 255) } 1 .. $count);
        my $report = report(conf => 'ratelimit_zone $remote_addr zone=z rate=3r/10s algorithm=sliding_window_log; ratelimit zone=z;', logs => [$keys]);
        is $report->{limits}[0]{keys}, $count;
        my $program = Ratelimit::Build::built('ratelimit-rehearse', './build.sh');
        my ($kb) = qx(bash -c 'ulimit -v 60000; "$program" "@{[folder()]}/limits.conf" "$keys" | grep -c "keys          $count"');
        return $kb;
    };
    is $peak->(150_000), "1\n", '150000 keys, of which 500 are alive, within 60 MB of address space';
};

subtest 'options' => sub {
    my @errors = (
        [['--suggest', '7'], '--suggest: invalid "7", expected a share of the keys such as 0.1% or 0.001'],
        [['--suggest', '%'], '--suggest: invalid "%", expected a share of the keys such as 0.1% or 0.001'],
        [['--suggest', 'x%'], '--suggest: invalid "x%", expected a share of the keys such as 0.1% or 0.001'],
        [['--max-skipped', '2'], '--max-skipped: invalid "2", expected a share of the lines such as 5% or 0.05'],
        [['--reorder', '2 s'], '--reorder: invalid "2 s", expected a time of at most a day, such as 2s, 500ms or 1m'],
        [['--arrival'], '--arrival needs $request_time, which the log format "combined" does not have'],
        [['--server', 'x'], 'no server is named "x"'],
    );
    for (@errors) {
        my ($exit, $out, $err) = rehearse(conf => $conf, logs => [$log], options => $_->[0]);
        is $exit, 1;
        is $err, "ratelimit-rehearse: $_->[1]\n";
    }
    my ($exit, $out) = rehearse(conf => $conf, options => ['--help']);
    is $exit, 0;
    my $man = read_file(Ratelimit::Build::top() . '/doc/ratelimit-rehearse.1');
    my @options = $out =~ /^\s+(?:-\w,)?(--[a-z-]+)/mg;
    cmp_ok scalar @options, '>', 8;
    is_deeply [grep { my $name = s/-/\\-/gr; $man !~ /^\.(?:It|B|BR|TP).*\Q$name\E|\\fB\Q$name\E/m } @options], [], 'the man page has each option';
    my ($version) = read_file(Ratelimit::Build::top() . '/src/base/version.h') =~ /"(.+)"/;
    is_deeply [(rehearse(conf => $conf, options => ['--version']))[0, 1]], [0, "ratelimit-rehearse $version\n"];
    my ($again, undef, $err) = rehearse(conf => $conf, logs => [$log], options => ['--nonsense']);
    is $again, 1;
    for my $option (@options) {
        next if $out !~ /\Q$option\E [A-Z]/;    # without a value
        for my $empty ([$option, ''], ["$option="]) {
            my ($exit, $printed, $error) = rehearse(conf => $conf, logs => [$log], options => $empty);
            is "$exit $printed", '1 ', "@{$empty} without a value";
            like $error, qr/^\Q$option\E: .*(?:empty|not in)/, 'says why';
        }
    }
    is((rehearse(conf => $conf))[0], 1, 'so is no log');
    is((rehearse(conf => $conf, logs => [$log], options => ['--top', 'x']))[0], 1, 'and a value that is no number');
    ok $err ne '', 'an unknown option is an error';
};

finish();

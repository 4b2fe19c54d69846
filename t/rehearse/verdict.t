# What ratelimit-rehearse concludes: one total over all limits, who would be refused, --fail-if, --against
# and Ctrl-C.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $zones = 'ratelimit_zone $remote_addr zone=a rate=3r/d; ratelimit_zone $remote_addr zone=b rate=5r/d;';

subtest 'a request that two limits refuse is one of the total' => sub {
    my $report = report(conf => "$zones ratelimit zone=a; ratelimit zone=b; ratelimit_zone \$remote_addr zone=s rate=1r/d; ratelimit zone=s shadow;",
        logs => [log_file((map { line(ip => '10.0.0.1') } 1 .. 10), (map { line(ip => '10.0.0.2') } 1 .. 3))]);
    is limit_of($report, 'a')->{refused}, 7;
    is limit_of($report, 's')->{refused}, 11, 'a shadow limit refuses nothing of the total';
    is_deeply [@{ $report->{total} }{qw(requests refused clients clients_refused)}], [13, 7, 2, 1];
};

subtest 'customers and scanners are counted apart' => sub {
    my $report = report(conf => "$zones ratelimit zone=a;", logs => [log_file(
        (map { line(t => $_, ip => '10.0.0.1', status => $_ < 5 ? 200 : 404, path => "/wp/$_", agent => $_ % 9 ? 'scan "x"' =~ s/"/\\x22/gr : 'other') } 1 .. 50),
        (map { line(t => 60 + $_, ip => '10.0.0.2', path => $_ % 3 ? '/shop' : "/p/$_", agent => 'Mozilla') } 1 .. 9))]);
    is $report->{total}{succeeded}, 7, 'one of the scanner, and all of the customer';
    my ($scanner, $customer) = @{ limit_of($report, 'a')->{top_refused} };
    is_deeply $scanner, { key => '10.0.0.1', refused => 47, succeeded => 1, first => '2026-11-18T11:06:44Z', path => '/wp/', user_agent => 'scan "x"' },
        'a folder where no path is frequent';
    is_deeply $customer, { key => '10.0.0.2', refused => 6, succeeded => 6, first => '2026-11-18T11:07:44Z', path => '/shop', user_agent => 'Mozilla' };
    my $plain = report(conf => 'ratelimit_zone k zone=k rate=1r/d; ratelimit zone=k;', options => ['--format', '$msec $request_uri'],
        logs => [log_file(map { "1795000000 /\n" } 1 .. 3)]);
    is_deeply [@{ $plain->{total} }{qw(refused succeeded clients clients_refused)}], [2, undef, undef, undef], 'what the log does not have is null';
};

subtest 'many refused keys, of which the most refused are known' => sub {
    my @lines = map { my $i = $_; map { line(t => $i, ip => sprintf '10.%d.%d.%d', $i >> 16, ($i >> 8) & 255, $i & 255) } 1 .. 2 } 0 .. 45_000;
    push @lines, map { line(t => 50_000, ip => '192.0.2.1') } 1 .. 50;
    unshift @lines, map { line(ip => '192.0.2.2') } 1 .. 40;
    my $report = report(conf => 'ratelimit_zone $remote_addr zone=k rate=1r/d; ratelimit zone=k;', logs => [log_file(@lines)], options => ['--top', 2]);
    is_deeply [map { "$_->{key} $_->{refused}" } @{ $report->{total}{refused_clients} }], ['192.0.2.1 49', '192.0.2.2 39'];
    is $report->{total}{clients_refused}, 45_003, 'and all are counted';
};

my $two = "$zones location /a { ratelimit zone=a; } location /b { ratelimit zone=b; }";
my $log = log_file((map { line(t => $_, ip => '10.0.0.1', path => '/a') } 1 .. 10), (map { line(t => 20 + $_, ip => "10.0.0.$_", path => '/b', status => 404) } 1 .. 10));

subtest '--fail-if' => sub {
    for (
        ['refused > 0',              '35 % (7 of 20) requests'],
        ['refused >= 7',             '35 % (7 of 20) requests'],
        ['refused > 7',              undef],
        ['refused > 34.9%',          '35 % (7 of 20) requests'],
        ['refused>35%',              undef],
        ['refused_succeeded >= 7',   '35 % (7 of 20) requests'],
        ['refused_keys > 50%',       '100 % (1 of 1) keys of a at /a'],
        ['b.refused_keys > 0',       undef],
        ['a.refused_keys > 0',       '100 % (1 of 1) keys of a at /a'],
        ['a.refused > 69%',          '70 % (7 of 10) requests of a at /a'],
        ['a.refused_succeeded > 0',  '70 % (7 of 10) requests of a at /a'],
        ['refused_clients >= 10%',   '10 % (1 of 10) clients'],
        ['refused_clients > 1',      undef],
    ) {
        my ($condition, $failure) = @{$_};
        my ($exit, $out, $err) = rehearse(conf => $two, logs => [$log], options => ['--fail-if', $condition]);
        is $exit, defined $failure ? 3 : 0, $condition;
        is $err, defined $failure ? "ratelimit-rehearse: failed: $condition: $failure\n" : '';
        like $out, defined $failure ? qr/\AFAILED: \Q$condition: $failure\E\n/ : qr/\A20 lines/;
    }
    my ($exit, $out) = rehearse(conf => $two, logs => [$log], options => ['--json', '--fail-if', 'refused > 99%', '--fail-if', 'refused > 0', '--fail-if', 'refused > 1']);
    is $exit, 3, 'several conditions';
    like $out, qr/"failed":\["refused > 0: 35 % \(7 of 20\) requests","refused > 1: 35 % \(7 of 20\) requests"\]/;
    is((rehearse(conf => $two, logs => [log_file(line(path => '/a'))], options => ['--fail-if', 'refused > 0']))[0], 2,
        'a result that cannot be used is no pass');
    for ('x > 1', 'refused < 1', 'refused > x', 'refused', 'refused > -1', 'a.refused_clients > 1', 'refused > 1%%', 'refused > 101%', 'refused > nan') {
        my ($bad, undef, $err) = rehearse(conf => $two, logs => [$log], options => ['--fail-if', $_]);
        is $bad, 1, $_;
        like $err, qr/^ratelimit-rehearse: --fail-if: invalid "\Q$_\E", expected such as [^\n]+\n\z/;
    }
    for (['newly_refused > 0', '"newly_refused" needs --against'], ['c.refused > 0', 'no limit of the zone "c"']) {
        my ($bad, undef, $err) = rehearse(conf => $two, logs => [$log], options => ['--fail-if', $_->[0]]);
        is "$bad $err", "1 ratelimit-rehearse: --fail-if: $_->[1]\n";
    }
};

subtest '--against' => sub {
    my $new = write_file(folder() . '/new.conf', 'ratelimit_zone $remote_addr zone=b rate=1r/d; location /b { ratelimit zone=b; } location / { }');
    my @lines = ((map { line(t => $_, ip => '10.0.0.1', path => '/a') } 1 .. 10), map { my $ip = $_; map { line(t => 20 + $_, ip => "10.0.0.$ip", path => '/b') } 1 .. $ip } 2 .. 4);
    my $report = report(conf => $two, logs => [log_file(@lines)], options => ['--against', $new]);
    is_deeply [map { $_->{zone} } @{ $report->{limits} }], ['b'], 'the limits are those of the other one';
    my $against = $report->{against};
    is_deeply [@{$against}{qw(newly no_longer)}], [3, 1];
    is_deeply [map { "$_->{key} $_->{refused}" } @{ $against->{newly_refused} }], ['10.0.0.4 3', '10.0.0.3 2', '10.0.0.2 1'];
    is_deeply [map { "$_->{key} $_->{refused}" } @{ $against->{no_longer_refused} }], ['10.0.0.1 7'];
    is_deeply [@{ $against->{before} }{qw(requests refused clients_refused)}], [19, 7, 1];
    my ($exit, $out) = rehearse(conf => $two, logs => [log_file(@lines)], options => ['--against', $new, '--fail-if', 'newly_refused > 50%']);
    is $exit, 3;
    like $out, qr/^FAILED: newly_refused > 50%: 100 % \(3 of 3\) clients$/m;
    like $out, qr/^  newly refused by \S+new\.conf: 3 clients \(100 %\); no longer: 1$/m;
    my $same = report(conf => $two, logs => [log_file(@lines)], options => ['--against', folder() . '/limits.conf']);
    is_deeply [@{ $same->{against} }{qw(newly no_longer)}], [0, 0], 'the same changes nothing';
    my $held = sub {
        my ($old) = @_;
        my $conf = write_file(folder() . '/held.conf', 'ratelimit_zone $k zone=z concurrency=1; ratelimit zone=z;');
        return report(conf => "ratelimit_zone \$k zone=z $old; ratelimit zone=z;", logs => [log_file("1795000000.000 0.000 a\n")],
            options => ['--format', '$msec $request_time $k', '--against', $conf])->{warnings};
    };
    is $held->('rate=1r/d'), 'ratelimit-rehearse: only one of the configurations has concurrency=: both are decided in the order in '
        . "which requests began\n";
    is $held->('concurrency=2'), '';
    my ($bad, undef, $err) = rehearse(conf => $two, logs => [$log], options => ['--against', '/none']);
    is "$bad $err", "1 ratelimit-rehearse: cannot read /none\n";
};

subtest 'Ctrl-C prints what is known so far' => sub {
    my $program = Ratelimit::Build::built('ratelimit-rehearse', './build.sh');
    write_file(folder() . '/limits.conf', "$zones ratelimit zone=a;");
    my $out = folder() . '/out';
    my $pid = open my $pipe, '|-', "exec $program @{[folder()]}/limits.conf - >$out 2>$out.err" or die $!;
    $pipe->autoflush(1);
    print {$pipe} map { line(t => $_) } 1 .. 5_000;
    local $SIG{PIPE} = 'IGNORE';
    wait_until('it has read', sub { read_file("/proc/$pid/io") =~ /^rchar: (\d+)/m && $1 > 300_000 });
    kill INT => $pid;
    wait_until('it has printed', sub { -s $out });
    close $pipe;
    is $? >> 8, 2;
    like read_file($out), qr/\ANOT USABLE: interrupted: the numbers are those of the lines that were read\n\d+ lines, .*^a at http$/ms;
};

finish();

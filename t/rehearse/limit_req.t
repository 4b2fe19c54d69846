# nginx's own limit_req, as ratelimit-rehearse reports it. t/node/rehearsal.t compares each decision with nginx.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $zone = 'limit_req_zone $remote_addr zone=own:10m rate=2r/s;';

# A log with milliseconds: [seconds, path, address, status].
my @format = ('--format', '$msec $remote_addr "$request" $status');
sub timed { return log_file(map { sprintf qq{%.3f %s "GET %s HTTP/1.1" %s\n}, 1_795_000_000 + $_->[0], $_->[2] // 'a', $_->[1], $_->[3] // 200 } @_) }

# "refused/requests" of the limits.
sub counts {
    my ($conf, @lines) = @_;
    my $report = report(conf => $conf, logs => [timed(@lines)], options => [@format]);
    is $report->{warnings}, '';
    return join ' ', map { "$_->{zone}:$_->{refused}/$_->{requests}" } @{ $report->{limits} };
}

subtest 'bursts, delays and rates' => sub {
    my @at_once = map { [0, '/'] } 1 .. 5;
    is counts("$zone limit_req zone=own;", @at_once), 'own:4/5', 'no burst';
    is counts("$zone limit_req zone=own burst=2;", @at_once), 'own:2/5', 'burst=';
    is counts("$zone limit_req zone=own burst=2 nodelay;", @at_once, [0.499, '/'], [0.5, '/']), 'own:3/7', 'half a second is one request';
    is counts('limit_req_zone $remote_addr zone=own:10m rate=30r/m; limit_req zone=own;', [0, '/'], [1.999, '/'], [2, '/']), 'own:1/3', 'r/m';
    is counts("$zone limit_req zone=own burst=5; location /off { limit_req zone=own burst=9 nodelay; }", @at_once, [0, '/off']), 'own:0/5 own:0/1', 'inheritance';
};

subtest 'the report' => sub {
    my ($exit, $out) = rehearse(conf => "$zone server { location / { limit_req zone=own burst=2 delay=1; } location /dry { limit_req zone=own; limit_req_dry_run on; } }",
        logs => [timed((map { [$_ / 100, '/', "a", 200] } 1 .. 6), [60, '/dry'], [60, '/dry'])], options => [@format, '--top', 1]);
    is $exit, 0;
    like $out, qr{^8 requests met a limit, 0 met none, 0 were answered before\n\nall limits together\n  refused       3 of 8 requests \(37\.5 %\), of which 3 were}m;
    like $out, qr{^own at /\n  limit_req, 2r/s, burst 2, delay 1\n  requests      6\n  refused       3 \(50 %\)\n  delayed       1\n  keys          1\n  keys refused  1 \(100 %\)\n  worst minute}m;
    like $out, qr{^  refused keys    refused   with 2xx  first refusal         main path  main user agent\n  a                     3          3  2026-11-18T11:06:40Z  /          -$}m;
    like $out, qr{^own at /dry \(dry run\)\n  limit_req, 2r/s\n  requests      2\n  refused       1 \(50 %\)\n}m;
    my $report = report(conf => "$zone limit_req zone=own;", logs => [timed([0, '/'], [0, '/'])], options => [@format]);
    is_deeply [@{ limit_of($report, 'own') }{qw(directive location requests refused keys keys_refused)}], ['limit_req', 'http', 2, 1, 1, 1], 'JSON';
};

subtest 'it comes before the limits of the module' => sub {
    my $conf = "$zone ratelimit_zone \$remote_addr zone=z rate=9r/d; location / { limit_req zone=own; ratelimit zone=z; } location /pre { ratelimit_phase preaccess; limit_req zone=own; ratelimit zone=z; }";
    is counts($conf, map { [0, $_] } '/', '/', '/', '/pre'), 'z:0/1 z:0/0 own:2/3 own:1/1';
    my ($exit, undef, $err) = rehearse(conf => $conf, logs => [log_file(map { line(status => $_) } 200, 200, 503)], options => ['--allow-unreached', '--decisions', folder() . '/d.csv']);
    like $err, qr/^ratelimit-rehearse: "limit_req" in \S+:1 counts milliseconds, and the log has no \$msec: .*; which requests went on to other limits is seen in \$status$/m;
    is join(' ', read_file(folder() . '/d.csv') =~ /,(\w+)$/mg), 'decision passed passed limit_req', 'whole seconds: the status tells which requests went on';
    my $alone = report(conf => "$zone limit_req zone=own;", logs => [log_file(map { line(status => $_) } 200, 200, 503)]);
    is limit_of($alone, 'own')->{refused}, 2;
    is $alone->{total}{refused}, 2, 'without other limits it counts';
};

subtest 'one clear line for what is wrong' => sub {
    for (['limit_req_zone $remote_addr zone=own:1m rate=2;', 'invalid parameter "rate=2" of "limit_req_zone" in FILE:1'],
        ['limit_req_zone $remote_addr zone=own:1m;', 'invalid number of arguments in "limit_req_zone" directive in FILE:1'],
        ['limit_req_zone $remote_addr zone=own:1m sync;', '"limit_req_zone" must have a zone and a rate in FILE:1'],
        ["$zone\nlimit_req zone=own burst=x;", 'invalid parameter "burst=x" of "limit_req" in FILE:2'],
        ["$zone\nlimit_req zone=own fast;", 'invalid parameter "fast" of "limit_req" in FILE:2']) {
        my ($exit, $out, $err) = rehearse(conf => $_->[0], logs => [log_file(line())]);
        is $exit, 1;
        is $err, 'ratelimit-rehearse: ' . ($_->[1] =~ s/FILE/folder() . '\/limits.conf'/er) . "\n";
    }
};

finish();

# ratelimit-rehearse --discover, whose figures are those of a rehearsal of the limits that it proposes, and
# --html, whose slider has the figures of a rehearsal with each quota.

use Ratelimit::Test;
use Digest::SHA qw(sha256_base64);
use JSON::PP qw(decode_json);
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $program = Ratelimit::Build::built('ratelimit-rehearse', './build.sh');

# discover($log, options ...): exit status, stdout and stderr.
sub discover {
    my ($log, @options) = @_;
    my $output = qx($program --discover @options $log 2>@{[folder()]}/err);
    return ($? >> 8, $output, read_file(folder() . '/err'));
}

srand 6;
my @lines = map { line(t => int($_ / 2), ip => '10.0.0.' . int 200 * rand() ** 2, path => (('/api/x', '/api/y?z', '/login', '/', '/we ird/x', '/a/b/c')[6 * rand() ** 2])) } 1 .. 4_000;
$_ =~ s{/we ird/}{/we%20ird/} for @lines;
my $log = log_file(@lines);

subtest '--discover proposes limits that do what it says' => sub {
    my ($exit, $out) = discover($log, '--json');
    is $exit, 0;
    my $found = decode_json($out);
    my @paths = @{ $found->{paths} };
    is_deeply [sort map { $_->{location} } @paths], ['"/we ird/"', '/a/', '/api/', '= /', '= /login'], 'the first parts of paths';
    is_deeply [map { $_->{requests} } @paths], [sort { $b <=> $a } map { $_->{requests} } @paths], 'the busiest first';
    (undef, my $text) = discover($log);
    my ($conf) = $text =~ /^# Each rate is the smallest that refuses at most 0\.1 % of the clients\.\n(.*)\z/ms or die $text;
    my $report = report(conf => $conf, logs => [$log]);
    for my $i (0 .. $#paths) {
        my ($path, $limit) = ($paths[$i], $report->{limits}[$i]);
        is $limit->{location}, $path->{location} =~ s/"//gr, $path->{location};
        is_deeply [@{$limit}{qw(requests keys keys_refused)}], [@{$path}{qw(requests clients clients_refused)}];
        is $limit->{keys_refused}, 0, 'a thousandth of these clients is none';
    }
    my ($api) = grep { $_->{location} eq '/api/' } @paths;
    cmp_ok scalar @{ $api->{table} }, '>=', 9;
    for my $cell (@{ $api->{table} }) {
        my $again = report(conf => "ratelimit_zone \$ratelimit_client zone=z rate=$cell->{rate}; location /api/ { ratelimit zone=z; }", logs => [$log]);
        is $again->{limits}[0]{keys_refused}, $cell->{clients_refused}, $cell->{rate};
    }
    is $api->{table}[-1]{clients_refused}, 0, 'up to a quota that refuses no client';
    my ($tenth) = grep { $_->{location} eq '/api/' } @{ decode_json((discover($log, '--json', '--suggest', '10%'))[1])->{paths} };
    cmp_ok $tenth->{clients_refused}, '>', 0, '--suggest names another share';
};

subtest '--discover and what it cannot do' => sub {
    my ($exit, $out, $err) = discover('-');
    is "$exit $err", "1 ratelimit-rehearse: --discover reads the logs twice, which standard input cannot be\n";
    my $piped = qx(cat $log 2>/dev/null | $program --discover /dev/stdin 2>&1);
    is $piped, "ratelimit-rehearse: --discover reads the logs twice, which /dev/stdin cannot be\n", 'nor a pipe';
    ($exit, undef, $err) = discover($log, '--fail-if', "'refused > 1'");
    is $exit, 1;
    like $err, qr/^ratelimit-rehearse: --discover has no limits for --html/;
    ($exit, $out) = discover(log_file("junk\n" x 50));
    is $exit, 2;
    like $out, qr/\ANOT USABLE: 100 % of the lines were skipped/;
    my $odd = log_file(map { line(path => $_) } '/%22q%22;%7B/x', '/%5c', '/$var/x', '/caf%c3%a9/x', '/#/');
    ($exit, $out) = discover($odd);
    is $exit, 0;
    my ($conf) = $out =~ /^# Each rate [^\n]*\n(.*)\z/ms;
    my $report = report(conf => $conf, logs => [$odd]);
    is scalar(grep { $_->{requests} > 0 } @{ $report->{limits} }), scalar @{ $report->{limits} }, 'names with quotes and dollar signs are right';
};

subtest '--html is one page that loads nothing, and its figures are right' => sub {
    my $page = folder() . '/page.html';
    my $conf = 'ratelimit_zone $remote_addr zone=z rate=4r/m algorithm=fixed_window; ratelimit_zone $remote_addr zone=g rate=9r/m algorithm=gcra burst=2;'
        . 'ratelimit_zone $remote_addr zone=v rate=$arg_r; location /api/ { ratelimit zone=z; } location ~ "</script>|^/a/" { ratelimit zone=g; } location / { ratelimit zone=v; }';
    report(conf => $conf, logs => [$log], options => ['--html', $page]);
    my $html = read_file($page);
    my ($style) = $html =~ m{<style>(.*?)</style>}s;
    my ($script) = $html =~ m{<script>(.*?)</script>}s;
    for (['style-src', $style], ['script-src', $script]) {
        my ($hash) = $html =~ /Content-Security-Policy" content="default-src 'none';[^"]*\Q$_->[0]\E 'sha256-([^']*)'/;
        is $hash, sha256_base64($_->[1]) . '=', "the policy allows what is there: $_->[0]";
    }
    unlike $html =~ s{http://www\.w3\.org/2000/svg}{}r, qr{https?://|<link|<img|src=|\@import|url\(}, 'nothing is loaded';
    unlike $script, qr/innerHTML|insertAdjacent|document\.write|outerHTML/, 'what is shown is made of text nodes';
    is scalar(() = $html =~ m{</script>}g), 2, 'a name of the configuration ends no element';
    my ($data) = $html =~ m{<script type="application/json" id="report">(.*?)</script>}s;
    unlike $data, qr/"(?:busiest|refused_clients|against)"/, 'the page has no key that is not refused';
    my ($z, $g, $v) = @{ decode_json($data)->{limits} };
    is $v->{points} && @{ $v->{points} }, 0, 'a variable rate has no slider';
    for my $limit ($z, $g) {
        my %point = map { $_->[0] => $_ } @{ $limit->{points} };
        is_deeply [@{ $point{ $limit->{quota} } }[1, 3]], [@{$limit}{qw(refused keys_refused)}], "$limit->{zone}: the configured quota is one of them";
        is $limit->{points}[-1][3], 0, 'the last one refuses no key';
        for my $quota (map { $limit->{points}[$_][0] } 0, @{ $limit->{points} } / 2, -2) {
            my $other = report(conf => $conf =~ s/zone=$limit->{zone} rate=\dr/zone=$limit->{zone} rate=${quota}r/r, logs => [$log]);
            my $same = limit_of($other, $limit->{zone});
            is_deeply $point{$quota}, [$quota, @{$same}{qw(refused succeeded keys_refused)}], "$limit->{zone}: $quota";
        }
    }
};

finish();

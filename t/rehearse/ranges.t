# The range of ratelimit-rehearse where the log does not tell enough of some requests: whatever the answers are, a rehearsal
# of the log that has them is inside.

use Ratelimit::Test;
use List::Util qw(sum0);
use Ratelimit::RandomLimits qw(one_of random_zone random_limit);
use Ratelimit::Rehearse qw(log_file report);

my $format = '$msec $request_time $remote_addr "$request" $status';

# Locations by whose files it depends which limits a request meets, if any; the log tells of /sure/.
sub random_conf {
    my @zones = map { random_zone("z$_") } 1 .. 1 + rand 3;
    $_->{variable} or $_->{quota} = 1 + int rand 4 for @zones;
    $_->{parameters} =~ /calendar/ and $_->{quota} *= 3 for @zones;
    my $plain = rand() < 0.5;    # limits without parameters: more of what they count matters
    my $limit = sub { return $plain ? "ratelimit zone=$_[0]{name};" : random_limit($_[0]) };
    my $limits = sub {
        return join ' ', (map { rand() < 0.6 ? $limit->($_) : () } @zones), rand() < 0.3 ? one_of('limit_req zone=q;', 'limit_req zone=q burst=2 nodelay;') : ();
    };
    return join "\n", 'limit_req_zone $remote_addr zone=q:1m rate=' . one_of('1r/s', '20r/m', '1r/m') . ';',
        (map { sprintf "ratelimit_zone %s zone=%s $_->{rate} %s;", $_->{key}, $_->{name}, $_->{quota}, $_->{parameters} } @zones),
        "location /sure/ { @{[$limit->(one_of(@zones))]} @{[rand() < 0.2 ? 'limit_req zone=q;' : '']} proxy_pass http://x; }",
        "location /tries/ { try_files \$uri \@program; } location \@program { @{[$limits->()]} proxy_pass http://x; }",
        "location /if/ { if (-f \$request_filename) { rewrite ^ /file last; } @{[$limits->()]} proxy_pass http://x; }",
        "location /not/ { if (!-f \$request_filename) { rewrite ^ /sure/x last; } @{[$limits->()]} }",
        "location /both/ { if (-f \$request_filename) { rewrite ^ /file break; } @{[$limits->()]} try_files \$uri \@program; }",
        "location /page/ { error_page 404 = \@program; }",
        "location /up/ { proxy_intercept_errors on; error_page 404 = \@program; proxy_pass http://x; }",
        "location = /file { @{[$limits->()]} }";
}

# Requests, of which `doubts` are for files that may be there: [line without its end, whether it is one of these].
sub random_lines {
    my ($doubts) = @_;
    my $t    = 0;
    my $slow = one_of(1, 4, 4, 30);    # limit_req forgets keys after a minute
    my %doubtful = map { 5 + int(rand 35) => 1 } 1 .. $doubts;
    return map {
        $t += $slow * (one_of(0, 0, 0.2, 1, 3) + rand);
        my $place = $doubtful{$_} ? one_of('/tries/', '/if/', '/not/', '/both/', '/page/', '/up/') : '/sure/';
        [sprintf(qq{%.3f %.3f 10.0.0.%d "GET %s%s?c=%d&r=%s&g=%d&p=%s HTTP/1.1" 200}, 1_795_000_000 + $t, one_of(0, 0.5, 4), rand 2, $place, one_of('x', 'y'),
            one_of(0, 1, 1, 1, 3), one_of(0, 2, '30%'), one_of(0, 1, 2, 5), one_of('4r/m', '9r/m', '2r/10s', '')), $doubtful{$_} // 0];
    } 1 .. 40;
}

# $upstream_status of a line, if there was the file or the upstream's error, or if not.
sub upstream { my ($text, $found) = @_; return !$found ? 200 : $text =~ m{/up/} ? '404 : 200' : '-' }

sub total { my ($conf, $format_of, $lines) = @_; return report(conf => $conf, logs => [log_file(map { "$_\n" } @{$lines})], options => ['--format', $format_of, '--allow-unreached', '--top', 0])->{total} }

my ($outside, $wide, $courses, $narrow) = (0, 0, 0, 0);

# Compares the range with the result for each combination of answers.
sub contains_all {
    my ($what, $conf, @lines) = @_;
    my $total = total($conf, $format, [map { $_->[0] } @lines]);
    my ($least, $most) = @{ $total->{refused_between} // [$total->{refused}, $total->{refused}] };
    my @doubts = grep { $lines[$_][1] } 0 .. $#lines;
    my @refused;
    for my $course (0 .. 2**@doubts - 1) {
        my %file = map { $doubts[$_] => $course >> $_ & 1 } 0 .. $#doubts;
        push @refused, total($conf, "$format \$upstream_status", [map { "$lines[$_][0] " . upstream($lines[$_][0], $file{$_}) } 0 .. $#lines])->{refused};
    }
    my @out = grep { $_ < $least || $_ > $most } @refused;
    is scalar @out, 0, "$what: " . @refused . " answers refuse between $least and $most" or diag "$conf\n", join("\n", map { "$_->[1] $_->[0]" } @lines), "\n@refused";
    cmp_ok $total->{doubtful} // 0, '<=', @doubts;
    my ($lowest, $highest) = (sort { $a <=> $b } @refused)[0, -1];
    $outside += @out;
    $courses += @refused;
    $wide    += $most - $least;
    $narrow  += $highest - $lowest;
    return;
}

my $first = $ENV{SEED} // 1;
subtest "random configurations ($first)" => sub {
    for my $seed ($first .. $first + ($ENV{SEEDS} // 30) - 1) {
        srand $seed;
        my $conf = random_conf();
        contains_all("seed $seed", $conf, random_lines(2 + int rand 5));
    }
    cmp_ok $narrow, '>', 0, 'the answers matter';
};
diag "$courses courses, $outside outside; ranges of $wide in all, of which $narrow are needed";

subtest 'a request that may pass counts as much as it costs, or nothing' => sub {
    my $lines = sub { return map { [sprintf('%.3f 0 10.0.0.1 "GET %s HTTP/1.1" 200', 1_795_000_000 + $_->[0], $_->[1]), $_->[1] =~ /tries/ ? 1 : 0] } @_ };
    my $conf = sub { my ($limit) = @_; return "location /tries/ { try_files \$uri \@program; } location \@program { $limit proxy_pass http://x; } location /sure/ { $limit proxy_pass http://x; }" };
    for my $algorithm (qw(sliding_window_log fixed_window gcra)) {
        my $zone = "ratelimit_zone \$remote_addr zone=z rate=3r/10s algorithm=$algorithm" . ($algorithm eq 'gcra' ? ' burst=2' : '') . ';';
        contains_all($algorithm, "$zone " . $conf->('ratelimit zone=z cost=$arg_c;'), $lines->([0, '/tries/x?c=1'], [5, '/sure/x?c=3'], map { [11 + $_ / 10, '/sure/x?c=1'] } 0 .. 2));
    }
    contains_all('two limits', 'ratelimit_zone $remote_addr zone=z rate=1r/10s algorithm=sliding_window_log; ratelimit_zone all zone=y rate=2r/m algorithm=fixed_window;'
            . $conf->('ratelimit zone=z;') . ' location /two/ { ratelimit zone=z; ratelimit zone=y; proxy_pass http://x; } location /y/ { ratelimit zone=y; proxy_pass http://x; }',
        $lines->([0, '/tries/x'], [1, '/two/x'], map { [2 + $_, '/y/x'] } 0 .. 2));
    contains_all('limit_req', "limit_req_zone \$remote_addr zone=q:1m rate=6r/m; " . $conf->('limit_req zone=q;'), $lines->([0, '/tries/x'], [5, '/sure/x']));
};

finish();

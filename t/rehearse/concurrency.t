# concurrency= in ratelimit-rehearse: requests are decided in the order in which they began, and hold their units
# until they ended, though a log has them in the order of their ends.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(log_file rehearse report limit_of);

my $start  = 1_795_000_000_000;    # ms
my @format = ('--format', '$msec $request_time $k $c');

sub seconds { my ($ms) = @_; return sprintf '%d.%03d', $ms / 1000, $ms % 1000 }

# A line of a request that began `begin` ms after the start and took `took` ms. Options: key, cost.
sub held {
    my ($begin, $took, %o) = @_;
    return join(' ', seconds($start + $begin + $took), seconds($took), $o{key} // 'a', $o{cost} // 1) . "\n";
}

sub conf { my ($parameters) = @_; return "ratelimit_zone \$k zone=z $parameters; ratelimit zone=z cost=\$c;" }

# A report of these lines.
sub of {
    my ($parameters, @lines) = @_;
    return report(conf => conf($parameters), options => \@format, logs => [log_file(@lines)]);
}

# "refused/requests" of a limit, by default the first.
sub refused {
    my ($report, @limit) = @_;
    my $limit = @limit ? limit_of($report, @limit) : $report->{limits}[0];
    return "$limit->{refused}/$limit->{requests}";
}

# Requests as [begin, took, key, cost, end], in the order of their ends. Times are often equal.
sub requests {
    my ($count) = @_;
    srand 9;
    my ($begin, @requests) = (0);
    for (1 .. $count) {
        $begin += 100 * int rand 3 if rand() < 0.5;
        my $took = rand() < 0.1 ? 0 : rand() < 0.5 ? 100 * int rand 20 : rand() < 0.95 ? int rand 5000 : int rand 55_000;
        my $key = rand() < 0.6 ? int rand 10 : 10 + int rand 500;
        push @requests, [$begin, $took, "k$key", rand() < 0.1 ? int rand 4 : 1, $begin + $took];
    }
    return sort { $a->[4] <=> $b->[4] } @requests;
}

my @requests = requests(40_000);
my @lines    = map { held(@{$_}[0, 1], key => $_->[2], cost => $_->[3]) } @requests;

# What a limit of `most` refuses: the units of all requests of a key that passed and run are added up for each.
sub counted {
    my ($most) = @_;
    my (%running, %count, %refused, %minute);
    for (sort { $a->[0] <=> $b->[0] || $b->[4] <=> $a->[4] } @requests) {
        my ($begin, undef, $key, $cost, $end) = @{$_};
        my $minute = $minute{ int(($start + $begin) / 60_000) } //= [0, 0];
        $count{$key}++;
        $minute->[0]++;
        my $units = 0;
        $running{$key} = [grep { $_->[0] > $begin } @{ $running{$key} // [] }];
        $units += $_->[1] for @{ $running{$key} };
        if ($cost == 0 || $units + $cost <= $most) {
            push @{ $running{$key} }, [$end, $cost];
        } else {
            $refused{$key}++;
            $minute->[1]++;
        }
    }
    return (\%count, \%refused, [values %minute]);
}

for my $most (1, 4, 9) {
    subtest "at most $most at one time: a simple model refuses the same" => sub {
        my ($count, $refused, $minutes) = counted($most);
        my $sum = 0;
        $sum += $_ for values %{$refused};
        my $report = of("concurrency=$most", @lines);
        is $report->{skipped}, 0;
        my $limit = $report->{limits}[0];
        is $limit->{requests}, scalar @requests;
        is $limit->{refused}, $sum, "$sum requests";
        cmp_ok $sum, '>', 100, 'enough of them';
        is $limit->{keys}, scalar keys %{$count}, 'keys';
        is $limit->{keys_refused}, scalar keys %{$refused}, 'keys refused';
        is "$_->{requests} $_->{refused}", "$count->{ $_->{key} } " . ($refused->{ $_->{key} } // 0), "of $_->{key}"
            for @{ $limit->{busiest} };
        my ($worst) = sort { $b->[1] <=> $a->[1] || $b->[0] <=> $a->[0] } @{$minutes};
        is_deeply [@{ $limit->{worst_minute} }{qw(requests refused)}], $worst, 'the worst minute';
    };
}

subtest 'neither files nor hold= change a decision' => sub {
    my $expected = refused(of('concurrency=4', @lines));
    is refused(of('concurrency=4 hold=1s', @lines)), $expected, 'a worker renews what lasts longer than hold';
    # Requests of the same time and length are decided in the order of the lines, so these began at different times.
    srand 4;
    my @apart = map { $_->[1] } sort { $a->[0] <=> $b->[0] }
        map { my $took = int rand 3000; [$_ * 7 + $took, held($_ * 7, $took, key => int rand 90)] } 1 .. 20_000;
    my @nodes = ([], []);
    push @{ $nodes[rand 2] }, $_ for @apart;
    my $merged = report(conf => conf('concurrency=4'), options => \@format, logs => [map { log_file(@{$_}) } @nodes]);
    is refused($merged), refused(of('concurrency=4', @apart)), 'the logs of two nodes are merged by the beginnings';
    cmp_ok $merged->{limits}[0]{refused}, '>', 100;
    my @json = map { my ($end, $took, $key, $cost) = split; qq({"msec":$end,"request_time":$took,"k":"$key","c":$cost}\n) } @lines;
    is refused(report(conf => conf('concurrency=4'), logs => [log_file(@json)])), $expected, 'JSON lines';
};

subtest 'edges of time and cost' => sub {
    is refused(of('concurrency=1', held(0, 1000), held(1000, 1000), held(2000, 0))), '0/3',
        'a request that begins when another ends finds its units free';
    is refused(of('concurrency=1', held(0, 1000), held(999, 1000))), '1/2', 'a millisecond earlier it does not';
    is refused(of('concurrency=1', held(500, 0), held(500, 0), held(500, 0))), '0/3', 'without a duration nothing is held';
    is refused(of('concurrency=1', held(500, 0), held(0, 1000), held(1000, 0))), '1/3',
        'such a request is refused while another one runs, though its line comes first';
    is refused(of('concurrency=2', (map { held(0, 10) } 1 .. 5))), '3/5', 'equal times';
    is refused(of('concurrency=3', (map { held(0, $_) } (0) x 7, 1, 300, 300, 301))), '8/11',
        'of requests that began in the same millisecond the longest passes: the others were refused at that time';
    is refused(of('concurrency=2', held(0, 10, cost => 0), held(0, 10, cost => 2), held(0, 10, cost => 0), held(0, 10))), '1/4',
        'a cost of 0 always passes';
    is refused(of('concurrency=2', held(0, 10, cost => 3), held(0, 10, cost => 1_000_000_000), held(0, 10, cost => 2))), '2/3',
        'a cost above the limit never does, and holds nothing';
    is refused(of('concurrency=1', held(0, 1000), held(100, 5000), held(1500, 100))), '1/3', 'a refused request holds nothing';
    is refused(of('concurrency=1', held(0, 10, key => ''), held(0, 10, key => '-'))), '0/0', 'an empty key is not limited';
    my (undef, $text) = rehearse(conf => conf('concurrency=5'), options => \@format, logs => [log_file(map { held(0, 10) } 1 .. 3)]);
    like $text, qr/^  concurrency, 5 at one time$/m;
    like $text, qr/^  margin        no key had fewer than 2 of 5 left \(40 %\)$/m;
};

subtest 'a duration that is missing or broken is a broken line' => sub {
    my @broken = map { "1795000010.000 $_ a 1\n" } '-', '', 'x', '-0.001', '1.', '.5', '1e3', '0x1', '1,5', '99999999999999', '1795000011',
        '1.000, 2.000', "1\0";
    my $report = of('concurrency=1', held(0, 1000), @broken, held(20_000, 1000));
    is "$report->{lines} $report->{skipped}", 2 + @broken . ' ' . @broken;
    is refused($report), '0/2', 'and holds nothing';
    like $report->{warnings}, qr/^ratelimit-rehearse: 13 lines skipped: they do not have the log's format; the first is: 1795000010\.000 - a 1$/m;
};

subtest 'with other limits a request holds units in all of them or in none' => sub {
    my $zones = 'ratelimit_zone $k zone=z concurrency=1; ratelimit_zone k zone=all concurrency=2; ratelimit_zone $k zone=rate rate=2r/d algorithm=fixed_window;';
    my $report = sub { my ($limits, @held) = @_; return report(conf => "$zones $limits", options => \@format, logs => [log_file(@held)]) };
    my $both = $report->('ratelimit zone=z; ratelimit zone=all;', held(0, 1000), held(1, 5000), held(2, 1000, key => 'b'),
        held(3, 1000, key => 'c'));
    is refused($both, 'z'), '1/4';
    is refused($both, 'all'), '1/4', 'the second request of a, which was refused, holds nothing here';
    my $rated = $report->('ratelimit zone=z; ratelimit zone=rate;', held(0, 10), held(1, 5000), held(100, 10), held(200, 1000), held(300, 10));
    is refused($rated, 'z'), '1/5', 'what the rate refuses holds nothing';
    is refused($rated, 'rate'), '2/5', 'and what concurrency refuses is not counted';
    my $shadow = $report->('ratelimit zone=z shadow; ratelimit zone=all;', map { held($_, 1000) } 0 .. 3);
    is refused($shadow, 'z'), '3/4', 'a shadow limit refuses nothing';
    is refused($shadow, 'all'), '2/4';
    is refused($report->('ratelimit zone=z shadow;', held(0, 1000), held(1, 5000), held(1500, 10))), '1/3',
        'nor is anything held where only it refuses';
};

subtest 'a request that is longer than the bound is counted and reported' => sub {
    my @short = map { held($_ * 100, 50, key => 'b') } 0 .. 9999;
    my $with = sub {
        my ($options, @long) = @_;
        my @sorted = map { $_->[1] } sort { $a->[0] <=> $b->[0] } map { [(split)[0], $_] } @short, @long;
        return report(conf => conf('concurrency=1'), options => [@format, @{$options}], logs => [log_file(@sorted)]);
    };
    my $report = $with->([], held(200_000, 59_900), held(210_000, 100), held(300_000, 71_000), held(310_000, 100));
    is "$report->{lines} $report->{skipped}", '10004 1';
    is refused($report), '1/10003', 'the bound is a minute: a request of 59.9 s holds its unit, one of 71 s does not';
    like $report->{warnings}, qr/^ratelimit-rehearse: 1 line skipped: its request began more than 60s before others; all would be used with --reorder 71s$/m;
    my $long = $with->(['--reorder', '71s'], held(200_000, 59_900), held(210_000, 100), held(300_000, 71_000), held(310_000, 100));
    is "$long->{skipped} $long->{warnings}", '0 ';
    is refused($long), '2/10004', 'with the bound that the warning names it does';

    my $hours = $with->([], held(-20_000_000, 20_000_500), held(-90_000_000, 90_500_000));
    is "$hours->{lines} $hours->{skipped}", '10002 1', 'requests of hours, also among the first lines, lead to no other skipped lines';
    like $hours->{warnings}, qr/ 1 line skipped: its request began more than 60s before others; --reorder is at most 1d$/m;
};

subtest 'more lines than can wait' => sub {
    my $same = held(60_000, 0, key => 'b');
    my $report = of('concurrency=1', $same x 1_048_600, held(30_000, 30_000));
    is "$report->{lines} $report->{skipped}", '1048601 1';
    like $report->{warnings}, qr/ 1 line skipped: too many other lines lie between the time that they belong to and their place$/m;
};

subtest 'the suggested number is the smallest one' => sub {
    my $log = log_file(@lines);
    my $limit = sub { report(conf => conf("concurrency=$_[0]"), options => [@format, defined $_[1] ? ('--suggest', $_[1]) : ()], logs => [$log])->{limits}[0] };
    for my $share ('10%', '0') {
        my $suggested = $limit->(2, $share)->{suggested};
        my $number = $suggested->{quota};
        my $most = $share eq '0' ? 0 : int(0.1 * $limit->(2)->{keys});
        my ($at, $below) = ($limit->($number)->{keys_refused}, $limit->($number - 1)->{keys_refused});
        ok $at <= $most && $below > $most, "$share: $number refuses $at keys, one less $below";
        is $suggested->{keys_refused}, $at;
        is $suggested->{rate}, undef;
        is_deeply $limit->(1000, $share)->{suggested}, $suggested, 'whatever number is configured';
    }
    my (undef, $text) = rehearse(conf => conf('concurrency=9'), options => [@format, '--suggest', '0'], logs => [log_file(map { held(0, 10) } 1 .. 3)]);
    like $text, qr/^  suggestion    concurrency=3, the smallest that refuses at most 0 % of the keys: it would refuse 0 of 1$/m;
};

subtest 'a log without $request_time' => sub {
    my $log = log_file("1795000000.000 a 1\n");
    my $run = sub { my ($conf, @options) = @_; return rehearse(conf => $conf, options => ['--format', '$msec $k $c', @options], logs => [$log]) };
    my ($exit, $out, $err) = $run->("\n" . conf('concurrency=1'));
    isnt $exit, 0;
    like $err, qr/^ratelimit-rehearse: "concurrency=" needs the variable "\$request_time", which is not in the log format, in \S+limits\.conf:2\n\z/;
    my $zones = 'ratelimit_zone $k zone=z concurrency=1; ratelimit_zone $k zone=y rate=1r/d;';
    ($exit) = $run->("$zones ratelimit zone=y;");
    is $exit, 0, 'is enough if no limit uses the zone';
    ($exit) = $run->("$zones server { server_name a; ratelimit zone=y; } server { server_name b; ratelimit zone=z; }", '--server', 'a');
    is $exit, 0, 'or if only another server does';
    (undef, undef, $err) = rehearse(conf => conf('concurrency=1'), logs => [log_file('{"msec":1795000000,"k":"a","c":1}')]);
    like $err, qr/ needs the variable "\$request_time", which is not in the first object of the log, /;
};

finish();

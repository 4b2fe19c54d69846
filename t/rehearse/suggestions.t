# The quotas that ratelimit-rehearse suggests, and those of the slider of --html: each figure is that of a rehearsal
# with the quota in the configuration. Zones are shared by locations, and requests meet several limits.

use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Ratelimit::RandomLimits qw(one_of random_zone random_limit);
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $page = folder() . '/page.html';

# The report of a configuration and the data of its page.
sub with_page {
    my (%o) = @_;
    my $report = report(%o, options => [@{ $o{options} // [] }, '--html', $page]);
    my ($data) = read_file($page) =~ m{<script type="application/json" id="report">(.*?)</script>}s or die 'no data';
    return ($report, decode_json($data));
}

# A configuration and a log by chance.
sub random_case {
    my @zones = map { random_zone("z$_") } 1 .. 1 + rand 3;
    my @places = ('/a/', '/b/', '/c/')[0 .. rand 3];
    my %limits = map {
        my @of = grep { rand() < 0.6 } @zones;
        @of = one_of(@zones) unless @of;
        $_ => [map { random_limit($_) } @of];
    } @places;
    my $conf = sub {
        my (%quotas) = @_;
        return join "\n", (map { sprintf "ratelimit_zone %s zone=%s $_->{rate} %s;", $_->{key}, $_->{name}, $quotas{ $_->{name} } // $_->{quota}, $_->{parameters} } @zones),
            map { my $place = $_; "location $place { " . join(' ', @{ $limits{$place} }) . ' }' } @places;
    };
    my $t = 0;
    my @lines = map {
        $t += one_of(0, 0, 0.2, 1, 3) + rand;
        sprintf qq{%.3f %.3f 10.0.0.%d "GET %s%s?c=%d&r=%s&g=%d&p=%s HTTP/1.1" %d\n}, 1_795_000_000 + $t, one_of(0, 0.5, 4), rand 5, one_of(@places), one_of('x', 'y'),
            one_of(0, 1, 1, 1, 3), one_of(0, 2, '30%'), one_of(0, 1, 2, 5), one_of('4r/m', '9r/m', '2r/10s', ''), one_of(200, 200, 404);
    } 1 .. 250;
    return (\@zones, $conf, log_file(@lines));
}

my @options = ('--format', '$msec $request_time $remote_addr "$request" $status', '--allow-unreached', '--top', 1);

# What is to be compared of the limits of a zone.
sub figures { my ($report, $zone) = @_; return [map { [@{$_}{qw(location refused succeeded keys_refused)}] } grep { $_->{zone} eq $zone } @{ $report->{limits} }] }

# The same at a point of the sliders.
sub points {
    my ($data, $zone, $quota) = @_;
    return [map { my ($point) = grep { $_->[0] == $quota } @{ $_->{points} }; [$_->{location}, @{$point}[1, 2, 3]] } grep { $_->{zone} eq $zone } @{ $data->{limits} }];
}

my %seen;
my $first = $ENV{SEED} // 1;
subtest "random configurations ($first)" => sub {
    for my $seed ($first .. $first + ($ENV{SEEDS} // 60) - 1) {
        srand $seed;
        my ($zones, $conf, $log) = random_case();
        my $most = one_of(0, 20, 50);
        my $run = sub { return (conf => $conf->(@_), logs => [$log], options => \@options) };
        my ($report, $data) = with_page($run->(), options => [@options, '--suggest', "$most%"]);
        for my $zone (grep { !$_->{variable} } @{$zones}) {
            my $name   = $zone->{name};
            my @limits = grep { $_->{zone} eq $name } @{ $report->{limits} } or next;
            my $what   = "seed $seed, $name";
            is_deeply points($data, $name, $zone->{quota}), figures($report, $name), "$what: \"as configured\" is the report"
                or diag $conf->();
            my ($shown) = grep { $_->{zone} eq $name } @{ $data->{limits} };
            my $quota = one_of(map { $_->[0] } @{ $shown->{points} });
            is_deeply points($data, $name, $quota), figures(report($run->($name => $quota)), $name), "$what: so is the slider's $quota" or diag $conf->();
            my $refuses_more = sub {
                my ($other) = @_;
                my ($exit) = rehearse($run->($name => $other));
                return 1 if $exit == 1;    # nginx refuses it as well
                return grep { $_->{keys_refused} > int $most / 100 * $_->{keys} + 1e-9 } grep { $_->{zone} eq $name } @{ report($run->($name => $other))->{limits} };
            };
            if (!$limits[0]{suggested}) {
                $seen{none}++;
                ok $refuses_more->($zone->{parameters} =~ /log/ ? 10_000_000 : 1_000_000_000), "$what: no quota is large enough" or diag $conf->();
                next;
            }
            $seen{several}++ if @limits > 1;
            my $suggested = $limits[0]{suggested}{quota};
            my $again     = report($run->($name => $suggested));
            is_deeply [map { $_->{suggested}{keys_refused} } @limits], [map { $_->[3] } @{ figures($again, $name) }], "$what: $suggested refuses what it says" or diag $conf->();
            ok !$refuses_more->($suggested), "$what: no more than $most %" or diag $conf->();
            ok $suggested == 1 || $refuses_more->($suggested - 1), "$what: one less refuses more" or diag $conf->();
        }
    }
    ok $seen{several} >= 10 && $seen{none} >= 2, "of $seen{several} zones with several limits, and $seen{none} that no quota fits" unless $ENV{SEEDS};
};

subtest 'two locations share a zone' => sub {
    my $conf = sub { "ratelimit_zone \$remote_addr zone=per_client rate=$_[0]r/10s; location /a/ { ratelimit zone=per_client; } location /b/ { ratelimit zone=per_client; }" };
    my $log  = log_file(map { line(t => 0, path => $_ % 2 ? '/a/x' : '/b/x') } 1 .. 30);
    my ($report, $data) = with_page(conf => $conf->(20), logs => [$log], options => ['--suggest', '0%']);
    is $report->{total}{refused}, 10;
    is_deeply [map { $_->{suggested}{quota} } @{ $report->{limits} }], [30, 30];
    is_deeply points($data, 'per_client', 20), [['/a/', 5, 5, 1], ['/b/', 5, 5, 1]];
    my (undef, $out) = rehearse(conf => $conf->(20), logs => [$log], options => ['--suggest', '0%']);
    like $out, qr{^  suggestion    rate=30r/10s for the zone, the smallest with which each of its limits refuses at most 0 % of the keys: this one would refuse 0 of 1$}m;
};

subtest 'a quota that nginx refuses is not suggested' => sub {
    my $log = log_file(map { line(ip => "10.0.0.$_") } 1 .. 9);
    my $of = sub {
        my ($limit, $zone) = @_;
        my $report = report(conf => "ratelimit_zone \$remote_addr zone=z rate=5r/m @{[$zone // '']}; location / { ratelimit zone=z; } location /export { ratelimit zone=z $limit; }",
            logs => [$log], options => ['--allow-unreached', '--suggest', '0%']);
        return $report->{limits}[0]{suggested}{quota};
    };
    is $of->(''), 1;
    is $of->('cost=3'), 3, 'less than the cost of a location that no request reached';
    is $of->('cost=$arg_c'), 1, 'of a variable nginx knows nothing';
    is $of->('cost=2 reserve=1'), 3, 'with the reserve';
    is $of->('burst=9 cost=3', 'algorithm=gcra'), 1, 'where the burst admits it';
};

subtest 'a limit of another zone refuses some of the requests' => sub {
    my $log = log_file(map { line(t => 0, path => '/') } 1 .. 30);
    my $report = report(conf => 'ratelimit_zone $remote_addr zone=a rate=8r/m; ratelimit_zone $remote_addr zone=b rate=20r/m; ratelimit zone=a; ratelimit zone=b;',
        logs => [$log], options => ['--suggest', '0%']);
    is limit_of($report, 'b')->{suggested}{quota}, 9, 'what the other one lets in, and one more, since a request that both limits refuse is refused by both';
};

subtest '--against and the total are those of the decisions of each request' => sub {
    for my $seed (1 .. 12) {
        srand 1000 + $seed;
        my ($zones, $conf, $log) = random_case();
        my $loose = $conf->(map { $_->{variable} ? () : ($_->{name} => $_->{quota} + 3) } @{$zones});
        my $refused = sub {
            my $csv = folder() . '/decisions.csv';
            report(conf => $_[0], logs => [$log], options => [@options, '--decisions', $csv]);
            my %refused;
            $refused{ (split /,/)[1] }++ for grep { /,refused$/ } split /\n/, read_file($csv);
            return \%refused;
        };
        my ($before, $after) = map { $refused->($_) } $conf->(), $loose;
        my $new    = log_file($loose);
        my $report = report(conf => $conf->(), logs => [$log], options => [@options, '--against', $new]);
        my $sum = sub { my $all = 0; $all += $_ for values %{ $_[0] }; return $all };
        is_deeply [@{ $report->{total} }{qw(refused clients_refused)}], [$sum->($after), scalar keys %{$after}], "seed $seed: the total";
        is_deeply [@{ $report->{against}{before} }{qw(refused clients_refused)}], [$sum->($before), scalar keys %{$before}], 'and that of the first configuration';
        is_deeply [@{ $report->{against} }{qw(newly no_longer)}], [scalar(grep { !$before->{$_} } keys %{$after}), scalar(grep { !$after->{$_} } keys %{$before})];
    }
};

finish();

# doc/monitoring: a real Prometheus evaluates the alerts and the queries of the Grafana dashboard.
# needs: prometheus

use Ratelimit::Test;
use Ratelimit::Process qw(temp_folder);
use Ratelimit::Prometheus;
use Ratelimit::Build qw(top);
use JSON::PP qw(decode_json);

my $top = top();
my $api = 'location /ops/ { ratelimit_api; }';
my $alerts = read_file("$top/doc/monitoring/alerts.yml");
my $tests = read_file("$top/t/monitoring/alerts.yml");
my $dashboard = decode_json(read_file("$top/doc/monitoring/grafana.json"));
my @panels = @{ $dashboard->{panels} };
my $scratch = temp_folder();

sub watch {
    my ($node, $rules) = @_;
    return Ratelimit::Prometheus->new(target => $node->port, path => '/ops/metrics', rules => $rules);
}

# The alerts as they are shipped, but without the time that a condition has to last.
sub immediate_alerts {
    my $file = "$scratch/immediate.yml";
    write_file($file, $alerts =~ s/^(\s+for:) \w+$/$1 0s/gmr);
    return $file;
}

# promtool's result for the alerts' tests with these alerts: (whether they pass, its output).
sub rule_tests {
    my ($text) = @_;
    write_file("$scratch/alerts.yml", $text);
    write_file("$scratch/tests.yml", $tests =~ s{\Q../../doc/monitoring/alerts.yml\E}{alerts.yml}r);
    my $output = qx(promtool test rules $scratch/tests.yml 2>&1);
    return ($? == 0, $output);
}

# A panel's expressions, with "all" selected in the dashboard's lists.
sub queries {
    my ($panel) = @_;
    return map { $_->{expr} =~ s/\$__rate_interval/10s/gr =~ s/\$(?:instance|zone|redis)\b/.*/gr }
        @{ $panel->{targets} };
}

subtest 'each alert fires on its condition, in time, and not on a healthy node' => sub {
    my ($good, $output) = rule_tests($alerts);
    ok $good, 'promtool\'s tests of the alerts pass' or diag $output;
    my @parts = split /(?=^ +- alert: )/m, $alerts;
    is scalar(@parts), 15, 'all alerts are found';
    for my $i (1 .. $#parts) {
        my ($name) = $parts[$i] =~ /alert: (\w+)/;
        my $with = sub { return join '', @parts[0 .. $i - 1], $_[0], @parts[$i + 1 .. $#parts] };
        my @comparisons = $parts[$i] =~ /^ .*?( (?:>|==) [\d.]+)$/gm;
        cmp_ok scalar(@comparisons), '>=', 1, "$name has a threshold";
        for my $comparison (@comparisons) {
            ok !(rule_tests($with->($parts[$i] =~ s/\Q$comparison\E$/ > 1e9/mr)))[0], "the tests fail if$comparison can never be true";
            ok !(rule_tests($with->($parts[$i] =~ s/\Q$comparison\E$/ >= 0/mr)))[0], 'or is always true';
        }
        ok !(rule_tests($with->($parts[$i] =~ s/for: \w+/for: 0s/r)))[0], 'the tests fail if it fires at once';
    }
};

subtest 'every metric that the alerts and the dashboard use exists, and every rule can be evaluated' => sub {
    my $node = node(zone => 'rate=2r/d', server => $api, http => 'ratelimit_fleet;');
    my %exported = map { $_ => 1 } $node->get('/ops/metrics')->body =~ /^(ratelimit_\w+)/gm;
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    my @rules = $prometheus->rules;
    is_deeply [map { $_->{name} } @rules], [qw(RatelimitRedisAway RatelimitBreakerOpen RatelimitRedisErrors
        RatelimitFailOpen RatelimitFailClosed RatelimitRefusesMuch RatelimitNearLimit RatelimitTight RatelimitRedisSlow RatelimitZoneTooSmall
        RatelimitFleetSmaller
        RatelimitFleetAway RatelimitSettingsDiffer RatelimitOverridesLeftOut)];
    my %lists = map { $_->{name} => $_->{query}{query} } grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} };
    my %queries = ((map { $_->{name} => $_->{query} } @rules), %lists,
        map { my $panel = $_; map { ("panel $panel->{id} $_->{refId}" => $_->{expr}) } @{ $panel->{targets} } } @panels);
    cmp_ok scalar(keys %queries), '>', 25, 'queries are found';
    for my $who (sort keys %queries) {
        my @names = $queries{$who} =~ /\b(ratelimit_\w+)/g;
        isnt "@names", '', "$who uses a metric";
        is "@{[ grep { !$exported{$_} } @names ]}", '', 'which the node exports';
    }
    wait_until('every rule is evaluated', sub { !grep { $_->{health} eq 'unknown' } $prometheus->rules }, 60);
    is_deeply [map { "$_->{name}: $_->{health}" } $prometheus->rules], [map { "$_->{name}: ok" } @rules];
    is $_->{state}, 'inactive', "$_->{name} does not fire" for $prometheus->rules;
};

subtest 'the dashboard shows all requests, also in a dry run' => sub {
    my $node = node(zone => 'rate=2r/d', server => "$api ratelimit_dry_run on;", http => 'ratelimit_fleet;');
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    my %shown = map { $_->{title} => $_ } @panels;
    wait_until('Prometheus has scraped', sub { $prometheus->query('ratelimit_build_info') }, 30);
    is $node->status('/'), 200 for 1 .. 5;
    my %of_five = ('Requests that passed' => [5], 'Decisions of limits by result' => [2, 0, 0, 0, 0, 0, 3]);
    for my $title (sort keys %of_five) {
        # Counts instead of rates, which depend on the moments of the scrapes.
        my @counts = map { s/rate\((.*?)\[10s\]\)/$1/r } queries($shown{$title});
        my @seen;
        eval {
            wait_until($title, sub {
                @seen = map { my ($series) = $prometheus->query($_); $series ? $series->{value} + 0 : undef } @counts;
                return "@{[ map { $_ // 'none' } @seen ]}" eq "@{ $of_five{$title} }";
            }, 30);
        };
        is_deeply \@seen, $of_five{$title}, "$title has all five requests";
    }
    for my $panel (@panels) {
        for my $query (queries($panel)) {
            ok eval { wait_until($query, sub { $prometheus->query($query) }, 30) }, "$panel->{title} has a series" or diag $@;
        }
    }
};

subtest 'two ratelimit_redis blocks with one server are two series of the dashboard' => sub {
    my $redis = redis();
    my $node = node(redis => $redis, zone => 'rate=2r/d redis=main', server => "$api location /b { ratelimit zone=b; }",
        http => "ratelimit_redis second { server @{[ $redis->addr ]}; database 1; } ratelimit_zone k zone=b rate=1r/d redis=second;");
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    for my $panel (grep { $_->{title} =~ /Redis$|breakers/ } @panels) {
        for my $target (@{ $panel->{targets} }) {
            my ($query) = queries({ targets => [$target] });
            my %lines;
            eval {
                wait_until($query, sub {
                    my @series = $prometheus->query($query);
                    # Grafana inserts labels like this.
                    %lines = map { my $labels = $_->{metric}; $target->{legendFormat} =~ s/\{\{(\w+)\}\}/$labels->{$1}/gr => 1 } @series;
                    return @series >= 2 && keys %lines == @series;
                }, 30);
            };
            is scalar(grep { /^second / } keys %lines), scalar(keys %lines) / 2, "$panel->{title}: $target->{legendFormat}";
            cmp_ok scalar(keys %lines), '>=', 2, 'one series for each';
        }
    }
};

subtest 'the dashboard\'s numbers are coloured by their own thresholds' => sub {
    my %steps = map { $_->{title} => $_->{fieldConfig}{defaults}{thresholds}{steps} } grep { $_->{type} eq 'stat' } @panels;
    # The colour of a value in Grafana: that of the highest threshold that it reaches.
    my $colour = sub {
        my ($title, $value) = @_;
        my @reached = grep { !defined $_->{value} || $value >= $_->{value} } @{ $steps{$title} // [] };
        return @reached ? $reached[-1]{color} : "Grafana's own";
    };
    is_deeply [sort keys %steps], ['Decided by the fail mode', 'Redis servers that answer', 'Requests that passed', 'Requests that were refused'];
    is $colour->('Requests that passed', $_), 'green', "passed $_" for 0, 79, 81, 1e6;
    is $colour->('Requests that were refused', $_), 'orange', "refused $_" for 0, 79, 81, 1e6;
    is $colour->('Decided by the fail mode', $_->[0]), $_->[1], "fail mode $_->[0]" for [0, 'green'], [0.001, 'red'], [90, 'red'];
    is $colour->('Redis servers that answer', $_->[0]), $_->[1], "answers $_->[0]" for [0, 'red'], [1, 'green'];
};

subtest 'alerts fire while Redis is stopped, until it is back' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api);
    my $prometheus = watch($node, immediate_alerts());
    wait_until('Prometheus has scraped', sub { $prometheus->query('ratelimit_build_info') }, 30);
    is scalar(map { $prometheus->firing($_) } qw(RatelimitRedisAway RatelimitFailOpen)), 0;
    $node->{redis}->stop('KILL');
    my ($away) = wait_until('RatelimitRedisAway fires', sub { return ($prometheus->firing('RatelimitRedisAway'))[0] }, 30);
    my ($instance, $server) = ('127.0.0.1:' . $node->port, $node->{redis}->addr);
    is $away->{annotations}{summary}, "$instance has lost the rate limits' Redis main $server";
    is $away->{annotations}{description}, "No worker of the node reaches $server of ratelimit_redis main: "
        . 'ratelimit_fail_mode decides what is counted there.';
    my $open = wait_until('RatelimitFailOpen fires', sub {
        $node->status('/');
        return ($prometheus->firing('RatelimitFailOpen'))[0];
    }, 30);
    is $open->{annotations}{summary}, "zone test of $instance lets in what it cannot count";
    $node->{redis}->start;
    ok wait_until('RatelimitRedisAway no longer fires', sub { !$prometheus->firing('RatelimitRedisAway') }, 30);
};

finish();

# doc/monitoring: a real Prometheus evaluates the alerts and what the dashboard of Grafana asks.
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

# The alerts as users have them, but that nothing has to last before they fire.
sub hasty_alerts {
    my $file = "$scratch/hasty.yml";
    write_file($file, $alerts =~ s/^(\s+for:) \w+$/$1 0s/gmr);
    return $file;
}

# What promtool says of the alerts' tests with these alerts: (whether they pass, its words).
sub rule_tests {
    my ($text) = @_;
    write_file("$scratch/alerts.yml", $text);
    write_file("$scratch/tests.yml", $tests =~ s{\Q../../doc/monitoring/alerts.yml\E}{alerts.yml}r);
    my $said = qx(promtool test rules $scratch/tests.yml 2>&1);
    return ($? == 0, $said);
}

# A panel's expressions, with all chosen in the lists above it.
sub queries {
    my ($panel) = @_;
    return map { $_->{expr} =~ s/\$__rate_interval/10s/gr =~ s/\$(?:instance|zone|redis)\b/.*/gr }
        @{ $panel->{targets} };
}

subtest 'each alert fires on what it is for, in time, and not on a node that is well' => sub {
    my ($good, $said) = rule_tests($alerts);
    ok $good, 'promtool passes their tests' or diag $said;
    my @parts = split /(?=^ +- alert: )/m, $alerts;
    is scalar(@parts), 9, 'all are tried';
    for my $place (1 .. $#parts) {
        my ($name) = $parts[$place] =~ /alert: (\w+)/;
        my $with = sub { return join '', @parts[0 .. $place - 1], $_[0], @parts[$place + 1 .. $#parts] };
        my @comparisons = $parts[$place] =~ /^ .*?( (?:>|==) [\d.]+)$/gm;
        cmp_ok scalar(@comparisons), '>=', 1, "$name compares";
        for my $comparison (@comparisons) {
            ok !(rule_tests($with->($parts[$place] =~ s/\Q$comparison\E$/ > 1e9/mr)))[0], "without$comparison it never fires";
            ok !(rule_tests($with->($parts[$place] =~ s/\Q$comparison\E$/ >= 0/mr)))[0], 'or always';
        }
        ok !(rule_tests($with->($parts[$place] =~ s/for: \w+/for: 0s/r)))[0], 'it waits for a while';
    }
};

subtest 'every metric that alerts and dashboard ask for is there, and every rule can be evaluated' => sub {
    my $node = node(zone => 'rate=2r/d', server => $api);
    my %told = map { $_ => 1 } $node->get('/ops/metrics')->body =~ /^(ratelimit_\w+)/gm;
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    my @rules = $prometheus->rules;
    is_deeply [map { $_->{name} } @rules], [qw(RatelimitRedisAway RatelimitBreakerOpen RatelimitRedisErrors
        RatelimitFailOpen RatelimitFailClosed RatelimitRefusesMuch RatelimitRedisSlow RatelimitZoneTooSmall)];
    my %lists = map { $_->{name} => $_->{query}{query} } grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} };
    my %asked = ((map { $_->{name} => $_->{query} } @rules), %lists,
        map { my $panel = $_; map { ("panel $panel->{id} $_->{refId}" => $_->{expr}) } @{ $panel->{targets} } } @panels);
    cmp_ok scalar(keys %asked), '>', 25, 'they are found';
    for my $who (sort keys %asked) {
        my @names = $asked{$who} =~ /\b(ratelimit_\w+)/g;
        isnt "@names", '', "$who asks for something";
        is "@{[ grep { !$told{$_} } @names ]}", '', 'that the node tells';
    }
    wait_until('every rule is evaluated', sub { !grep { $_->{health} eq 'unknown' } $prometheus->rules }, 60);
    is_deeply [map { "$_->{name}: $_->{health}" } $prometheus->rules], [map { "$_->{name}: ok" } @rules];
    is $_->{state}, 'inactive', "$_->{name} is silent" for $prometheus->rules;
};

subtest 'the dashboard shows what happens, in a dry run too' => sub {
    my $node = node(zone => 'rate=2r/d', server => "$api ratelimit_dry_run on;");
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    my %shown = map { $_->{title} => $_ } @panels;
    wait_until('it has scraped', sub { $prometheus->query('ratelimit_build_info') }, 30);
    is $node->status('/'), 200 for 1 .. 5;
    my %of_five = (Passed => [5], 'Requests by result' => [2, 0, 0, 0, 0, 0, 3]);
    for my $title (sort keys %of_five) {
        # Counts instead of rates, which depend on when it scrapes.
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
            ok eval { wait_until($query, sub { $prometheus->query($query) }, 30) }, "$panel->{title} has a line" or diag $@;
        }
    }
};

subtest 'two ratelimit_redis blocks with one server are two lines of the dashboard' => sub {
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
                    # As Grafana puts the labels in.
                    %lines = map { my $labels = $_->{metric}; $target->{legendFormat} =~ s/\{\{(\w+)\}\}/$labels->{$1}/gr => 1 } @series;
                    return @series >= 2 && keys %lines == @series;
                }, 30);
            };
            is scalar(grep { /^second / } keys %lines), scalar(keys %lines) / 2, "$panel->{title}: $target->{legendFormat}";
            cmp_ok scalar(keys %lines), '>=', 2, 'a line for each';
        }
    }
};

subtest 'numbers are coloured by thresholds of their own' => sub {
    my %steps = map { $_->{title} => $_->{fieldConfig}{defaults}{thresholds}{steps} } grep { $_->{type} eq 'stat' } @panels;
    # The colour of a value: that of the last step that it has reached, as Grafana has it.
    my $colour = sub {
        my ($title, $value) = @_;
        my @reached = grep { !defined $_->{value} || $value >= $_->{value} } @{ $steps{$title} // [] };
        return @reached ? $reached[-1]{color} : "Grafana's own";
    };
    is_deeply [sort keys %steps], ['Decided by the fail mode', 'Passed', 'Redis servers that answer', 'Refused'];
    is $colour->('Passed', $_), 'green', "passed $_" for 0, 79, 81, 1e6;
    is $colour->('Refused', $_), 'orange', "refused $_" for 0, 79, 81, 1e6;
    is $colour->('Decided by the fail mode', $_->[0]), $_->[1], "fail mode $_->[0]" for [0, 'green'], [0.001, 'red'], [90, 'red'];
    is $colour->('Redis servers that answer', $_->[0]), $_->[1], "answers $_->[0]" for [0, 'red'], [1, 'green'];
};

subtest 'a Redis that is stopped is told of, until it is back' => sub {
    my $node = node(zone => 'rate=1000r/d', server => $api);
    my $prometheus = watch($node, hasty_alerts());
    wait_until('it has scraped', sub { $prometheus->query('ratelimit_build_info') }, 30);
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
    ok wait_until('RatelimitRedisAway is over', sub { !$prometheus->firing('RatelimitRedisAway') }, 30);
};

finish();

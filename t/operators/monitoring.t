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

# The alerts as they are shipped, but with a short time that a condition has to last, and a Redis is slow above 500 ms
# instead of 20: on a busy machine it may take longer than that.
sub quick_alerts {
    my $file = "$scratch/quick.yml";
    my $quick = $alerts =~ s/^(\s+for:) \w+$/$1 3s/gmr;
    $quick =~ s/ > 0\.02$/ > 0.5/m or die 'no alert of a slow Redis';
    write_file($file, $quick);
    return $file;
}

# promtool's result for the alerts' tests with these alerts: (whether they pass, its output). With names: for those of
# the tests that name one of these rules, if any does, one after another up to the first that fails: the short ones
# first, since promtool takes a second or two for all of them.
sub rule_tests {
    my ($text, @names) = @_;
    my $any = join '|', map { quotemeta } @names;
    my ($head, @tests) = split /(?=^  - name: )/m, $tests =~ s{\Q../../doc/monitoring/alerts.yml\E}{alerts.yml}r;
    my @naming = @names ? sort { length $a <=> length $b } grep { /\b(?:$any)\b/ } @tests : ();
    write_file("$scratch/alerts.yml", $text);
    for my $part (@naming ? @naming : join '', @tests) {
        write_file("$scratch/tests.yml", "$head$part");
        my $output = qx(GOGC=off promtool test rules $scratch/tests.yml 2>&1);
        return (0, $output) if $? != 0;
    }
    return (1, '');
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
    my @parts = split /(?=^ +- (?:alert|record): )/m, $alerts;
    is scalar(@parts), 13, 'all rules are found';
    for my $i (1 .. $#parts) {
        my ($name) = $parts[$i] =~ /(?:alert|record): (\S+)/;
        my @users = map { /(?:alert|record): (\S+)/ } grep { /\b\Q$name\E\b/ } @parts;    # it, and the rules that use it
        my $fails_with = sub { return !(rule_tests(join('', @parts[0 .. $i - 1], $_[0], @parts[$i + 1 .. $#parts]), @users))[0] };
        my @comparisons = $parts[$i] =~ /^ .*?( (?:>|==) [\d.]+)$/gm;
        cmp_ok scalar(@comparisons), '>=', 1, "$name has a threshold" if $parts[$i] !~ /expr:.*\(ratelimit:redis_fails\)/;
        for my $comparison (@comparisons) {
            ok $fails_with->($parts[$i] =~ s/\Q$comparison\E$/ > 1e9/mr), "the tests fail if$comparison can never be true";
            ok $fails_with->($parts[$i] =~ s/\Q$comparison\E$/ >= 0/mr), 'or is always true';
        }
        ok $fails_with->($parts[$i] =~ s/for: \w+/for: 0s/r), "the tests fail if $name fires at once" if $parts[$i] =~ /alert:/;
    }
};

subtest 'every metric that the alerts and the dashboard use exists, and every rule can be evaluated' => sub {
    my $node = node(zone => 'rate=2r/d', server => $api, http => 'ratelimit_fleet;');
    my %exported = map { $_ => 1 } $node->get('/ops/metrics')->body =~ /^(ratelimit_\w+)/gm;
    my $prometheus = watch($node, "$top/doc/monitoring/alerts.yml");
    my @rules = $prometheus->rules;
    is_deeply [map { $_->{name} } @rules], [qw(ratelimit:redis_fails ratelimit:without_redis RatelimitRedisFails
        RatelimitRedisSlow RatelimitRefusesMuch RatelimitNearLimit RatelimitTight RatelimitZoneTooSmall RatelimitFleetSmaller
        RatelimitFleetAway RatelimitSettingsDiffer RatelimitOverridesLeftOut)];
    my %row = read_file("$top/doc/operations.md") =~ /^\| `(Ratelimit\w+)` \| (\w+) \|/mg;
    is_deeply \%row, { map { $_->{name} => $_->{labels}{severity} } grep { $_->{type} eq 'alerting' } @rules },
        'operations.md has each alert, with its severity';
    my %lists = map { $_->{name} => $_->{query}{query} } grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} };
    my %queries = ((map { $_->{name} => $_->{query} } @rules), %lists,
        map { my $panel = $_; map { ("panel $panel->{id} $_->{refId}" => $_->{expr}) } @{ $panel->{targets} } } @panels);
    cmp_ok scalar(keys %queries), '>', 25, 'queries are found';
    for my $who (sort keys %queries) {
        my @names = $queries{$who} =~ /\b(ratelimit_\w+)/g;
        isnt "@names", '', "$who uses a metric" if $queries{$who} !~ /\bratelimit:/;
        is "@{[ grep { !$exported{$_} } @names ]}", '', 'which the node exports';
    }
    wait_until('every rule is evaluated', sub { !grep { $_->{health} eq 'unknown' } $prometheus->rules }, 60);
    is_deeply [map { "$_->{name}: $_->{health}" } $prometheus->rules], [map { "$_->{name}: ok" } @rules];
    is $_->{state}, 'inactive', "$_->{name} does not fire" for grep { $_->{type} eq 'alerting' } $prometheus->rules;
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

# A fleet of three nodes: zones of one Redis with each fail mode, and a zone of another Redis.
sub three_nodes {
    my ($redis, $other) = @_;
    my $zones = join '', map { "ratelimit_zone \$arg_k zone=$_ rate=1000r/d redis=main;" } qw(api login plans);
    return map {
        nginx(
            http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 1s; connect_timeout 1s; }"
                . "ratelimit_redis other { server @{[ $other->addr ]}; timeout 1s; connect_timeout 1s; }"
                . "ratelimit_fleet node=edge-$_ redis=main; $zones ratelimit_zone \$arg_k zone=shop rate=1000r/d redis=other;",
            server => "$api location /api { ratelimit zone=api; empty_gif; }"
                . 'location /login { ratelimit zone=login; ratelimit_fail_mode closed; empty_gif; }'
                . 'location /plans { ratelimit zone=plans; ratelimit_fail_mode local; empty_gif; }'
                . 'location /shop { ratelimit zone=shop; empty_gif; }',
        )
    } 1 .. 3;
}

# One request of each zone, on each node.
sub visit {
    my (@nodes) = @_;
    for my $node (@nodes) {
        $node->status("$_?k=x") for qw(/api /login /plans /shop);
    }
    return;
}

for my $fault (qw(KILL STOP)) {
    subtest "a Redis that gets SIG$fault is one alert for three nodes, with what becomes of the requests, until it is back" => sub {
        my ($redis, $other) = (redis(), redis());
        my @nodes = three_nodes($redis, $other);
        my $prometheus = Ratelimit::Prometheus->new(
            targets => [map { $_->port } @nodes], path => '/ops/metrics', rules => quick_alerts());
        my $firing = sub { return join ' ', map { $_->{labels}{alertname} } $prometheus->firing };
        wait_until('Redis is up at each node', sub { $prometheus->query('ratelimit_fleet_up == 1') == 3 }, 30);
        visit(@nodes);
        is $firing->(), '', 'none before';
        $fault eq 'KILL' ? $redis->stop('KILL') : $redis->pause;
        my $text;
        wait_until('the alert and its whole text', sub {
            visit(@nodes);
            my ($alert) = $prometheus->firing;
            $text = $alert ? join "\n", @{ $alert->{annotations} }{qw(summary description)} : '';
            return 4 == grep { $text =~ $_ } qr/3 of 3/, qr/let in.*On 3 nodes/, qr/refused/, qr/alone/;
        }, 60);
        is $firing->(), 'RatelimitRedisFails', 'one alert';
        like $text, qr/^Redis main fails 3 of 3 nodes of ratelimit\n/;
        like $text, qr/\nServers that fail, and for how many nodes: \Q@{[ $redis->addr ]}\E \(3\)\. Requests a second/;
        like $text, qr/ [\d.]+ of zone $_\./ for 'api are let in', 'login are refused', 'plans are counted by each node alone';
        unlike $text, qr/zone shop/, 'a zone of another Redis is no part of it';
        $fault eq 'KILL' ? $redis->start : $redis->resume;
        wait_until('Redis is up at each node', sub { $prometheus->query('ratelimit_redis_up{redis="main"} == 1') == 3 }, 60);
        wait_until('the alert ends', sub { visit(@nodes); return $firing->() eq '' }, 60);
        visit(@nodes) for 1 .. 10;
        is $firing->(), '', 'and no other begins';
    };
}

subtest 'the alert of a smaller fleet names a node that ended by TERM' => sub {
    my @servers = (redis(), redis());
    my @nodes = three_nodes(@servers);
    my $rules = read_file(quick_alerts()) =~ s/fleet_nodes\[5m\]\)\[1h:1m\]/fleet_nodes[3s])[5m:1s]/r;
    write_file("$scratch/fleet.yml", $rules);
    my $prometheus = Ratelimit::Prometheus->new(
        targets => [map { $_->port } @nodes], path => '/ops/metrics', rules => "$scratch/fleet.yml");
    wait_until('a fleet of three', sub { $prometheus->query('min_over_time(ratelimit_fleet_nodes[3s]) == 3') == 3 }, 60);
    my $gone = '127.0.0.1:' . $nodes[1]->port;
    $nodes[1]->stop('TERM');
    my $alert = wait_until('the alert', sub { return ($prometheus->firing('RatelimitFleetSmaller'))[0] }, 60);
    is $alert->{annotations}{description}, "$gone has no metrics any more. With nodes=auto, the others take their share.";
    is_deeply [map { $_->{labels}{alertname} } $prometheus->firing], ['RatelimitFleetSmaller'], 'one alert';
};

finish();

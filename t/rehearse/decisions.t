# ratelimit-rehearse decides as the algorithms say: refusals are counted by a second, simple model of each.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(log_file line rehearse report limit_of);

# Each model is a function of (state, now, cost) in whole seconds, that counts the request and returns true,
# or returns false. L: quota, W: window (s), B: burst or precision.
my %model = (
    fixed_window => sub {
        my ($L, $W) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            my $window = int($now / $W);
            return if ($s->{$window} // 0) + $c > $L;
            $s->{$window} += $c;
            return 1;
        };
    },
    sliding_window_counter => sub {
        my ($L, $W) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            my $window   = int($now / $W);
            my $weighted = int(($s->{ $window - 1 } // 0) * ($W - $now % $W) / $W);
            return if $weighted + ($s->{$window} // 0) + $c > $L;
            $s->{$window} += $c;
            return 1;
        };
    },
    sliding_window_log => sub {
        my ($L, $W) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            my $log = $s->{log} //= [];
            shift @{$log} while @{$log} && $log->[0] <= $now - $W;
            return if @{$log} + $c > $L;
            push @{$log}, ($now) x $c;
            return 1;
        };
    },
    sliding_window_buckets => sub {
        my ($L, $W, $B) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            delete @{$s}{ grep { $_ + $B <= $now - $W } keys %{$s} };
            my $sum = 0;
            $sum += $_ for values %{$s};
            return if $sum + $c > $L;
            $s->{ $now - $now % $B } += $c;
            return 1;
        };
    },
    # Tokens in units of 1/W.
    token_bucket => sub {
        my ($L, $W, $B) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            my $tokens = defined $s->{at} ? $s->{tokens} + ($now - $s->{at}) * $L : $B * $W;
            $tokens = $B * $W if $tokens > $B * $W;
            @{$s}{qw(at tokens)} = ($now, $tokens);
            return if $c * $W > $tokens;
            $s->{tokens} -= $c * $W;
            return 1;
        };
    },
    # A bucket that leaks L units of 1/W each second.
    leaky_bucket => sub {
        my ($L, $W, $B) = @_;
        return sub {
            my ($s, $now, $c) = @_;
            my $water = ($s->{water} // 0) - ($now - ($s->{at} // $now)) * $L;
            $water = 0 if $water < 0;
            @{$s}{qw(at water)} = ($now, $water);
            return if $water + $c * $W > (1 + $B) * $W;
            $s->{water} += $c * $W;
            return 1;
        };
    },
);
$model{gcra} = $model{leaky_bucket};

# algorithm, quota, window (s), burst or precision, parameters of the zone.
my @limits = (
    ['fixed_window',           20, 60,  0,  'rate=20r/m'],
    ['sliding_window_counter', 20, 60,  0,  'rate=20r/m'],
    ['sliding_window_log',     20, 60,  0,  'rate=20r/m'],
    ['sliding_window_buckets', 20, 60,  7,  'rate=20r/m precision=7s'],
    ['token_bucket',           20, 60,  30, 'rate=20r/m burst=30'],
    ['leaky_bucket',           7,  60,  12, 'rate=7r/m burst=12'],
    ['gcra',                   7,  60,  12, 'rate=7r/m burst=12'],
);

# Requests as [time, key, cost]: busy keys, rare ones, and bursts.
sub requests {
    my ($count) = @_;
    srand 7;
    my ($time, @requests) = (0);
    for (1 .. $count) {
        $time++ if rand() < 0.1;
        my $key = rand() < 0.6 ? int rand 12 : 12 + int rand 900;
        push @requests, [$time, $key, rand() < 0.1 ? int rand 5 : 1];
    }
    return @requests;
}

my @requests = requests(60_000);
sub ip_of { my ($key) = @_; return '10.1.' . int($key / 200) . '.' . $key % 200 }

my $log = log_file(map { line(t => $_->[0], ip => ip_of($_->[1]), path => "/?c=$_->[2]") } @requests);

for (@limits) {
    my ($algorithm, $L, $W, $B, $parameters) = @{$_};
    subtest "$algorithm refuses what a simple model refuses" => sub {
        my $passes = $model{$algorithm}->($L, $W, $B);
        my (%state, %count, %refused, %minute);
        for (@requests) {
            my ($time, $key, $cost) = @{$_};
            $key = ip_of($key);
            my $now = 1_795_000_000 + $time;
            my $minute = $minute{ int $now / 60 } //= [0, 0];
            $count{$key}++;
            $minute->[0]++;
            next if $passes->($state{$key} //= {}, $now, $cost);
            $refused{$key}++;
            $minute->[1]++;
        }
        my $refused = 0;
        $refused += $_ for values %refused;
        my $report = report(logs => [$log],
            conf => "ratelimit_zone \$remote_addr zone=z algorithm=$algorithm $parameters;"
                . ' location / { ratelimit zone=z cost=$arg_c; }');
        is $report->{skipped}, 0;
        my $limit = $report->{limits}[0];
        is $limit->{requests}, scalar @requests;
        is $limit->{refused}, $refused, "$refused requests";
        cmp_ok $refused, '>', 1000, 'enough of them';
        is $limit->{keys}, scalar keys %count, 'keys';
        is $limit->{keys_refused}, scalar keys %refused, 'keys refused';
        my @busiest = sort { $count{$b} <=> $count{$a} || ($refused{$b} // 0) <=> ($refused{$a} // 0) } keys %count;
        is_deeply [map { $_->{requests} } @{ $limit->{busiest} }], [map { $count{$_} } @busiest[0 .. 9]];
        is $_->{refused}, $refused{ $_->{key} }, "of $_->{key}" for @{ $limit->{busiest} };
        my ($worst) = sort { $b->[1] <=> $a->[1] || $b->[0] <=> $a->[0] } values %minute;
        is_deeply [@{ $limit->{worst_minute} }{qw(requests refused)}], $worst, 'the worst minute';
    };
}

# A report of these lines under this configuration.
sub of { my ($conf, @lines) = @_; return report(conf => $conf, logs => [log_file(@lines)]) }

sub refused { my ($report, @limit) = @_; my $limit = limit_of($report, @limit); return "$limit->{refused}/$limit->{requests}" }

subtest 'several limits count a request in all of them or in none' => sub {
    my $zones = 'ratelimit_zone a zone=wide rate=5r/d algorithm=fixed_window;'
        . 'ratelimit_zone $remote_addr zone=narrow rate=2r/d algorithm=fixed_window;';
    my @lines = ((map { line(ip => '10.0.0.1') } 1 .. 10), map { line(ip => "10.0.0.$_") } 2 .. 5);
    my $report = of("$zones ratelimit zone=wide; ratelimit zone=narrow;", @lines);
    is refused($report, 'narrow'), '8/14';
    is refused($report, 'wide'),   '1/14', 'refused requests are not counted';
    $report = of("$zones ratelimit zone=wide; ratelimit zone=narrow shadow;", @lines);
    is refused($report, 'wide'),   '9/14', 'a shadow limit refuses nothing';
    is refused($report, 'narrow'), '8/14', 'and counts what fits it and passes';
};

subtest 'a zone counts for all its locations, each with its burst' => sub {
    my $report = of(<<'END', (map { line(path => '/a/') } 1 .. 4), (map { line(path => '/b/') } 1 .. 4));
        ratelimit_zone $remote_addr zone=z rate=1r/d algorithm=gcra;
        location /a/ { ratelimit zone=z burst=1; }
        location /b/ { ratelimit zone=z burst=2; }
END
    is refused($report, 'z', '/a/'), '2/4';
    is refused($report, 'z', '/b/'), '3/4', 'one more than the others have left';
};

subtest 'an empty key or rate is no limit, and off, ratelimit_api and inner limits replace outer ones' => sub {
    my $report = of(<<'END', map { line(path => $_) } ('/', '/off/', '/pages/', '/own/', '/own/x', '/?k=1', '/?k=') x 3);
        ratelimit_zone $arg_k zone=arg rate=1r/d;
        ratelimit_zone $remote_addr zone=address rate=1r/d;
        ratelimit zone=arg;
        server {
            ratelimit zone=address;
            location /off/ { ratelimit off; }
            location /pages/ { ratelimit_api; }
            location /own/ { ratelimit zone=arg; location /own/x { } }
            location / { }
        }
END
    is refused($report, 'arg', 'http'), '0/0';
    is refused($report, 'arg', '/own/'), '0/0';
    is refused($report, 'address'), '8/9';
    $report = of('map $arg_p $rate { default ""; a 2r/d; b 1r/h; c oops; } ratelimit_zone $remote_addr zone=v rate=$rate;'
            . 'ratelimit zone=v;', map { line(path => "/?p=$_") } ('a') x 4, ('b') x 2, ('c') x 3, ('d') x 5);
    is refused($report, 'v'), '3/9', 'each length of window has its own count, and a malformed rate passes';
    $report = of('ratelimit_zone $remote_addr zone=v rate=$arg_r; ratelimit zone=v; ratelimit_fail_mode closed;',
        map { line(path => "/?r=$_") } 'oops', '1r/d', '1r/d');
    is refused($report, 'v'), '2/3', 'unless the fail mode is closed';
};

subtest 'charge= settles what a request cost' => sub {
    my $report = of(<<'END', map { line(status => $_, path => '/login') } 200, 401, 401, 200, 401, 401, 200);
        map $status $tries { 401 1; default 0; }
        ratelimit_zone $remote_addr zone=tries rate=3r/d algorithm=fixed_window;
        location = /login { ratelimit zone=tries charge=$tries; }
END
    is refused($report, 'tries', '= /login'), '2/7', 'only failed logins are counted';
    $report = of('ratelimit_zone $remote_addr zone=bytes rate=30r/d algorithm=token_bucket;'
            . 'ratelimit zone=bytes charge=$body_bytes_sent;', (map { line() } 1 .. 5));
    is refused($report, 'bytes'), '2/5', 'more than the limit is owed';
};

subtest 'block= refuses a key for a time' => sub {
    my $report = of('ratelimit_zone $remote_addr zone=z rate=2r/10s algorithm=sliding_window_log block=60s; ratelimit zone=z;',
        map { line(t => $_) } 0, 1, 2, 30, 61, 62, 63, 64);
    is refused($report, 'z'), '4/8', 'refused at 2, 30 and 61, and again at 64';
};

subtest 'calendar= counts the periods of a time zone, from the billing day of each key' => sub {
    # The time 0 is 18 November 2026, 11:06:40 UTC; the days are those of Berlin, until 23:00 UTC.
    my ($hour, $day) = (3600, 86_400);
    my $zone = 'ratelimit_zone $remote_addr zone=z algorithm=fixed_window calendar=Europe/Berlin';
    my @lines = map { line(t => $_) } 0, 1, 11 * $hour, 12 * $hour, 13 * $hour, 12 * $day, 12 * $day + 12 * $hour, 13 * $day;
    is refused(of("$zone rate=2r/day; ratelimit zone=z;", @lines), 'z'), '1/8', 'the third until midnight';
    is refused(of("$zone rate=4r/month; ratelimit zone=z;", @lines), 'z'), '2/8', 'of November; two are of December';
    is refused(of("$zone rate=4r/month start=19; ratelimit zone=z;", @lines), 'z'), '1/8', 'three before the 19th, five after';
    is refused(of('map $remote_user $day { ~^a 19; default 1; } map $remote_user $rate { ~b$ 1r/year; default 2r/month; }'
            . 'ratelimit_zone $remote_user zone=z algorithm=fixed_window calendar=Europe/Berlin rate=$rate start=$day;'
            . 'ratelimit zone=z;',
        map { my $t = $_; map { line(t => $t, user => $_) } 'a', 'c', 'ab' } 0, 1, 2, $day), 'z'), '6/12',
        'a: the third, c: two, ab: three of a year';
    my $conf = "$zone rate=1r/month start=19; ratelimit zone=z;";
    my $log = log_file(@lines);
    my $report = report(conf => $conf, logs => [$log], options => ['--suggest', '0%']);
    is $report->{limits}[0]{suggested}{rate}, '5r/month', 'the suggested quota is for the same period';
    my (undef, $text) = rehearse(conf => $conf, logs => [$log]);
    like $text, qr{fixed_window, 1r/month in Europe/Berlin from day 19};
};

subtest 'a delay is no refusal' => sub {
    my $conf = 'ratelimit_zone $remote_addr zone=z rate=1r/s algorithm=leaky_bucket; ratelimit zone=z burst=5 delay=2;';
    my $log  = log_file(map { line() } 1 .. 10);
    is refused(report(conf => $conf, logs => [$log]), 'z'), '4/10';
    my (undef, $text) = rehearse(conf => $conf, logs => [$log]);
    like $text, qr/^  delayed       3$/m;
};

subtest 'long keys and hashed keys' => sub {
    my $long = 'x' x 3000;
    my $report = of('ratelimit_zone $http_referer zone=z rate=1r/d hash_key; ratelimit_zone $http_user_agent zone=y rate=1r/d;'
            . 'ratelimit zone=z; ratelimit zone=y shadow;', line(referer => 'secret', agent => $long), line(referer => 'secret', agent => $long . 'y'));
    is refused($report, 'z'), '1/2';
    is $report->{limits}[0]{busiest}[0]{key}, '2bb80d537b1da3e38bd30361aa855686', 'the hash that the module shows';
    is refused($report, 'y'), '0/2';
    is length $report->{limits}[1]{busiest}[0]{key}, 32;
};

finish();

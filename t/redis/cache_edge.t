# The denial cache never refuses a request that Redis would admit. Each probe first reads the state of the
# key in Redis at no cost. If a request would be admitted, the next request must be, since nothing else
# spends the key's quota. The probes cover every moment around the time at which the key is admitted again.

use Ratelimit::Test;
use Time::HiRes qw(time);

my @zones = (
    ['gcra',                   'rate=50r/s algorithm=gcra burst=4'],
    ['gcra',                   'rate=7r/s algorithm=gcra'],
    ['token_bucket',           'rate=40r/s algorithm=token_bucket burst=6'],
    ['leaky_bucket',           'rate=30r/s algorithm=leaky_bucket burst=3', 'nodelay'],
    ['sliding_window_log',     'rate=20r/s algorithm=sliding_window_log'],
    ['sliding_window_counter', 'rate=20r/s algorithm=sliding_window_counter'],
    ['sliding_window_counter', 'rate=3r/s algorithm=sliding_window_counter'],
    ['sliding_window_buckets', 'rate=9r/3s algorithm=sliding_window_buckets precision=1s'],
    ['fixed_window',           'rate=5r/s algorithm=fixed_window'],
);

my $redis = redis();

# Several connections, so that every worker gets one sooner or later.
sub sockets {
    my ($node) = @_;
    return map { http_connect($node->port) } 1 .. 4;
}

sub fetch {
    my ($socket, $path) = @_;
    http_send($socket, $path);
    my $answer = http_read($socket);
    return ($answer->status, $answer->header('X-RateLimit-Remaining'), $answer->header('X-Source'));
}

# Peeks and sends a request in turn for $seconds, or until it has seen enough of both; returns the counts.
sub probe {
    my ($node, $cost, $seconds, $key) = @_;
    my @sockets = sockets($node);
    my %seen = map { $_ => 0 } qw(probes cached edges wrong early);
    my $turn = 0;
    for (my $end = time + $seconds; time < $end && ($seen{edges} < 12 || $seen{cached} < 40);) {
        my (undef, $left) = fetch($sockets[$turn++ % @sockets], "/peek?k=$key");
        my ($status, undef, $source) = fetch($sockets[$turn++ % @sockets], "/?k=$key&c=$cost");
        $seen{probes}++;
        $seen{cached}++ if $status == 429 && $source eq 'cache';
        $seen{edges}++  if $status == 200;
        $seen{wrong}++  if $left >= $cost && $status != 200;
        $seen{early}++  if $status == 200 && $source ne 'redis';
    }
    return \%seen;
}

for my $clock (qw(redis local)) {
    for (@zones) {
        my ($name, $zone, $limit) = @{$_};
        subtest "$zone clock=$clock" => sub {
            my $node = node(redis => $redis, zone => "$zone clock=$clock",
                limit => 'cost=$arg_c ' . ($limit // ''), workers => $clock eq 'redis' ? 2 : 1,
                http => 'keepalive_requests 1000000;',
                server => 'add_header X-Source $ratelimit_source always;');
            my %sum;
            for my $cost (1, 2) {
                next if $cost > 1 && $zone =~ /7r/;    # its capacity is 1
                my $seen = probe($node, $cost, 1.5, "$clock$cost");
                $sum{$_} += $seen->{$_} for keys %{$seen};
            }
            # A slow machine sends too few requests to be refused: then each costs all that the limit allows.
            my $all = $node->get('/peek')->header('X-RateLimit-Limit');
            for (1 .. 20) {
                last if $sum{edges} >= 3 && $sum{cached} >= 20;
                my $seen = probe($node, $all, 1.5, "${clock}all");
                $sum{$_} += $seen->{$_} for keys %{$seen};
            }
            is $sum{wrong}, 0, 'no request that Redis would admit was refused';
            is $sum{early}, 0, 'every admitted request was admitted by Redis';
            cmp_ok $sum{edges}, '>=', 3, "requests were admitted $sum{edges} times";
            cmp_ok $sum{cached}, '>=', 20, "and refused by the cache in $sum{cached} of $sum{probes} probes";
        };
    }
}

# A refusal is dated from when its check was sent. Dated from its reply, which is delayed here, it would
# refuse the first request that Redis would admit again.
sub request_at_edge {
    my ($socket, $peek, $path) = @_;
    my ($status, $source) = (200);
    ($status, undef, $source) = fetch($socket, $path) while $status == 200;
    return if $source ne 'redis';
    (undef, undef, $source) = fetch($socket, $path);
    wait_until('Redis would admit the key', sub { (fetch($peek, '/peek'))[1] > 0 });
    ($status) = fetch($socket, $path);
    return ($status, $source eq 'cache' ? 1 : 0);
}

for my $clock (qw(redis local)) {
    for my $zone (grep { $clock eq 'redis' || /gcra|fixed_window/ } 'rate=2r/s algorithm=gcra', 'rate=2r/s algorithm=token_bucket burst=2',
        'rate=2r/s algorithm=leaky_bucket', 'rate=2r/s algorithm=sliding_window_log',
        'rate=2r/s algorithm=sliding_window_counter', 'rate=3r/3s algorithm=sliding_window_buckets precision=1s',
        'rate=2r/s algorithm=fixed_window') {
        subtest "delayed replies, $zone clock=$clock" => sub {
            my $proxy = proxy(to => $redis->addr);
            my ($slow, $fast) = map { node(redis => $_, zone => "$zone clock=$clock", key => "late$clock",
                    server => 'add_header X-Source $ratelimit_source always;') } $proxy, $redis;
            my ($socket, $peek) = map { http_connect($_->port) } $slow, $fast;
            $proxy->delay(0.2);
            my ($tried, $passed, $cached) = (0, 0, 0);
            for (1 .. 20) {
                my ($status, $known) = request_at_edge($socket, $peek, '/') or next;
                $tried++;
                $passed++ if $status == 200;
                $cached += $known;
                last if $tried >= 2 && $cached;
            }
            cmp_ok $tried, '>=', 1;
            is $passed, $tried, 'every request that Redis would admit is admitted';
            cmp_ok $cached, '>=', 1, 'a refusal was cached';
        };
    }
}

finish();

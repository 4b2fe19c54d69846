# The denial cache never refuses whom Redis would let in. Redis is asked first, by a look that takes
# nothing; if a request would pass, the very next one, which comes later, has to, and nothing else
# takes in between. This at every moment around the time at which a key is let in again.

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

# A connection to an nginx for each of its ports, and to each of its workers sooner or later.
sub sockets {
    my ($node) = @_;
    return map { http_connect($node->port) } 1 .. 4;
}

sub ask {
    my ($socket, $path) = @_;
    http_send($socket, $path);
    my $answer = http_read($socket);
    return ($answer->status, $answer->header('X-RateLimit-Remaining'), $answer->header('X-Source'));
}

# Looks and asks in turn for so many seconds; what came of it.
sub probe {
    my ($node, $cost, $seconds, $key) = @_;
    my @sockets = sockets($node);
    my %seen = map { $_ => 0 } qw(probes cached edges wrong early);
    my $turn = 0;
    for (my $end = time + $seconds; time < $end;) {
        my (undef, $left) = ask($sockets[$turn++ % @sockets], "/peek?k=$key");
        my ($status, undef, $source) = ask($sockets[$turn++ % @sockets], "/?k=$key&c=$cost");
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
                next if $cost > 1 && $zone =~ /7r/;    # one at a time
                my $seen = probe($node, $cost, 1.5, "$clock$cost");
                $sum{$_} += $seen->{$_} for keys %{$seen};
            }
            is $sum{wrong}, 0, 'nobody whom redis would let in was refused';
            is $sum{early}, 0, 'who was let in, was let in by redis';
            cmp_ok $sum{edges}, '>=', 3, "it was let in $sum{edges} times";
            cmp_ok $sum{cached}, '>=', 20, "and refused from memory in $sum{cached} of $sum{probes} probes";
        };
    }
}

# A refusal is known from when its check was sent. Were it from the answer, which comes late here, the
# first whom Redis would let in again was refused for as much longer.
sub ask_at_edge {
    my ($socket, $look, $path) = @_;
    my ($status, $source) = (200);
    ($status, undef, $source) = ask($socket, $path) while $status == 200;
    return if $source ne 'redis';
    (undef, undef, $source) = ask($socket, $path);
    wait_until('redis would let it in', sub { (ask($look, '/peek'))[1] > 0 });
    ($status) = ask($socket, $path);
    return ($status, $source eq 'cache' ? 1 : 0);
}

for my $clock (qw(redis local)) {
    for my $zone (grep { $clock eq 'redis' || /gcra|fixed_window/ } 'rate=2r/s algorithm=gcra', 'rate=2r/s algorithm=token_bucket burst=2',
        'rate=2r/s algorithm=leaky_bucket', 'rate=2r/s algorithm=sliding_window_log',
        'rate=2r/s algorithm=sliding_window_counter', 'rate=3r/3s algorithm=sliding_window_buckets precision=1s',
        'rate=2r/s algorithm=fixed_window') {
        subtest "answers that come late, $zone clock=$clock" => sub {
            my $proxy = proxy(to => $redis->addr);
            my ($slow, $fast) = map { node(redis => $_, zone => "$zone clock=$clock", key => "late$clock",
                    server => 'add_header X-Source $ratelimit_source always;') } $proxy, $redis;
            my ($socket, $look) = map { http_connect($_->port) } $slow, $fast;
            $proxy->delay(0.2);
            my ($asked, $passed, $cached) = (0, 0, 0);
            for (1 .. 8) {
                my ($status, $known) = ask_at_edge($socket, $look, '/') or next;
                $asked++;
                $passed++ if $status == 200;
                $cached += $known;
                last if $asked >= 2 && $cached;
            }
            cmp_ok $asked, '>=', 1;
            is $passed, $asked, 'who would be let in, is';
            cmp_ok $cached, '>=', 1, 'the refusal was known';
        };
    }
}

finish();

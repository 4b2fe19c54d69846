# ratelimit_zone and ratelimit are read alike by nginx -t and by ratelimit-rehearse: the same lines are
# right, and the others get the same message.

use Ratelimit::Rehearse qw(log_file rehearse);
use Ratelimit::Test;

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets
    token_bucket leaky_bucket gcra);

# Words after "ratelimit_zone".
my @zones = (
    (map { "\$arg_k zone=z rate=$_" } qw(1r/s 5r/10s 1r/d 1r/366d 1r/367d 1000000000r/s 1000000001r/s 0r/s -1r/s 5 r/s
        5r 5r/ 5r/x 5r/s2 1.5r/s 05r/s +5r/s 5R/s $arg_r 10r/$arg_w), '', '99999999999999999999r/s', '1r/0s', '5r/1h30m'),
    (map { "$_ rate=1r/s" } '$arg_k zone=z:32k', '$arg_k zone=z:10m', '$arg_k zone=z:10M', '$arg_k zone=z:65536',
        '$arg_k zone=z:31k', '$arg_k zone=z:', '$arg_k zone=z:k', '$arg_k zone=z:1g', '$arg_k zone=z:-1k', '$arg_k zone=z:1kk',
        '$arg_k zone=z:99999999999999999999m', '$arg_k zone=', '$arg_k zone=.z', '$arg_k zone=z/a', '$arg_k zone=z:32k:32k',
        '$arg_k zone=z.-_1', '$arg_k', 'zone=z', 'zone=z zone=y', 'word zone=z', '$arg_k$uri zone=z', '$arg_k Zone=z'),
    '$arg_k zone=z', '$arg_k', 'zone=z rate=1r/s',
    (map { "\$arg_k zone=z rate=5r/m $_" } (map { "algorithm=$_" } @algorithms, 'concurrency', 'sliding', '', 'GCRA'),
        (map { "burst=$_" } 1, 'x', '-1', '', 1000000001), (map { "precision=$_" } '1s', '0', '400d', '1ms'),
        (map { "clock=$_" } 'redis', 'local', 'mine', ''), (map { "nodes=$_" } 1, 0, 10001, 'all', '-2'),
        (map { "cache=$_" } 'yes', '', 'ON'), (map { "lease=$_" } '0', '-1', 'on', '', 1000001, '5r'),
        (map { "block=$_" } '90', '1s', '10m', '366d', '367d', '', '0', '0s', '-5s', '500ms', '1.5m', '10x', '10m5s', '$arg_b'),
        'start=1', 'calendar=UTC', 'calendar=', 'calendar=UTC algorithm=fixed_window',
        'hash_key', 'hash_keys', 'hash_key=on', 'hash_key hash_key', 'hold=5s', 'nodelay', 'shadow', 'speed=5', '=', 'burst',
        'rate=5r/m', 'block=10m block=5m', 'lease=5 block=10m', 'block=10m lease=5', 'block=10m lease=off'),
    (map { my $one = $_; map { "\$arg_k zone=z rate=5r/m algorithm=$one $_" } 'burst=0', 'burst=5', 'precision=5s', 'precision=2m' }
        @algorithms),
    (map { "\$arg_k zone=z rate=$_" } '5r/month', '5r/days', '5r/2month', '0r/year', '1000000001r/day'),
    (map { "\$arg_k zone=z algorithm=fixed_window rate=5r/month $_" } 'start=1', (map { "calendar=$_" } 'UTC', 'Europe/Berlin',
        'Europe/Brelin', '/etc/localtime', '../UTC', 'Europe//Berlin', '$arg_c', ''), (map { "calendar=UTC $_" } (map { "start=$_" } 1, 31,
        0, 32, '', 'x', '$arg_s', '1 start=2'), 'rate=5r/day', 'burst=1', 'lease=5', 'lease=off', 'ahead=5', 'clock=redis', 'clock=local',
        'block=1m', 'cache=off', 'hash_key')),
    (map { "\$arg_k zone=z algorithm=fixed_window calendar=UTC rate=$_" } '5r/d', '5r/day', '5r/week', '5r/year', '5r/year start=3',
        '$arg_r', '$arg_r start=3', '$arg_r start=$arg_s'),
    (map { "\$arg_k zone=z rate=5r/month calendar=UTC algorithm=$_" } @algorithms),
    '$arg_k zone=z rate=10000000r/d algorithm=sliding_window_log', '$arg_k zone=z rate=10000001r/d algorithm=sliding_window_log',
    '$arg_k zone=z rate=1r/d algorithm=gcra burst=60000', '$arg_k zone=z rate=$arg_r algorithm=gcra burst=60000',
    '$arg_k zone=z rate=$arg_r algorithm=sliding_window_buckets precision=2d', '$arg_k zone=z rate=1r/s redis=',
    (map { "$_ zone=z rate=1r/s" } '$upstream_http_x', '$sent_http_etag', '$arg_k$status', '${bytes_sent}', '$request_time', '$upstream_addr',
        '$http_x-api-key', '$cookie_my-id', '${arg_x}-api', '$arg_x-$arg_a', 'remote_addr', 'http_x', 'remote'),
    (map { "\$arg_k zone=z $_" } 'rate=$status', 'rate=$upstream_http_x', 'rate = 1r/s', 'rate=1r/s burst', 'rate=1r/s redis main'),
    (map { "\$arg_k zone=z concurrency=$_" } 1, 1000000000, 1000000001, 0, '', 'x', '$arg_c', '5 hold=1s', '5 hold=1d', '5 hold=25h',
        '5 hold=0', '5 hold=', 'hold=1s 5', '5 hash_key', '5 rate=1r/s', '5 algorithm=gcra', '5 burst=1', '5 precision=1s',
        '5 lease=1', '5 cache=off', '5 block=1m', '5 clock=local', '5 concurrency=5', '5 calendar=UTC',
        '5 start=3'),
);

# Words after "ratelimit", with the zones that follow.
my %zone = (
    z => '$arg_k zone=z rate=1r/s',
    (map { $_ => "\$arg_k zone=$_ rate=1r/d algorithm=$_" } @algorithms),
    v => '$arg_k zone=v rate=$arg_r algorithm=gcra',
    c => '$arg_k zone=c concurrency=2',
    l => '$arg_k zone=l rate=5r/m lease=2',
    a => '$arg_k zone=a rate=5r/m ahead=2',
);
my @limits = (
    'off', 'on', 'off zone=z', 'zone=z off', 'zone=z', 'zone=', 'zone', 'zone=y', 'burst=1', 'shadow', 'z',
    (map { "zone=z $_" } 'burst=1', 'burst=x', 'burst=', 'burst=-1', 'delay=1', 'delay=x', 'nodelay', 'nodelay=on', 'shadow',
        'shadow=on', 'shadow shadow', 'shadow=a shadow=b', 'zone=z', 'cost=0', 'cost=1', 'cost=-1', 'cost=x', 'cost=',
        'cost=1000000000', 'cost=1000000001', 'cost=$arg_c', 'cost=1$arg_c', 'cost=5 cost=5', 'charge=$bytes_sent', 'charge=5',
        'charge=', 'charge=$arg_a charge=$arg_b', (map { "cost=\$$_" } qw(bytes_sent request_length status upstream_http_x sent_http_x request_time arg_a-b)),
        'cost=2', 'cost = 2', 'cost', 'charge=$upstream_http_x-y', 'reserve=$status', 'rate=5r/s', 'nodes=2', 'bursts=5',
        map { "reserve=$_" } '0', '0%', '1', '100%', '101%', '-1', '', '%', 'x', '1.5%', '$arg_r', '$arg_r%', '20% reserve=1',
        '1000000000', '1000000001'),
    (map { my $one = $_; map { "zone=$one $_" } 'reserve=20%', 'reserve=1', 'reserve=5', 'reserve=0', 'reserve=$arg_r',
            'burst=5 reserve=20%', 'shadow reserve=1', 'cost=2', 'burst=5 cost=6', 'burst=5 cost=7', 'burst=5 reserve=50% cost=4' } 'token_bucket', 'gcra', qw(v c l a)),
    (map { my $one = $_; map { "zone=$one $_" } 'burst=0', 'burst=5', 'burst=60000', 'nodelay', 'delay=2' } @algorithms, 'v'),
    (map { "zone=leaky_bucket burst=5 $_" } 'nodelay', 'delay=2', 'nodelay delay=2', 'delay=-1', 'delay=2 delay=2'),
    (map { "zone=c $_" } '', 'burst=1', 'nodelay', 'charge=$arg_c', 'cost=$arg_c', 'shadow'),
);

# With all that a limit may ask for.
my $format = '$remote_addr [$time_local] "$request" $status $request_time $bytes_sent';
my $log = log_file("10.0.0.1 [18/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 0.5 100\n");

# What each of both says about the lines, without the file and the line; empty: they are right.
sub compare {
    my ($what, $http, $server) = @_;
    my ($status, @lines) = conf_test(http => $http, server => $server);
    my $nginx = $status == 0 ? '' : join "\n", @lines;
    $nginx =~ s/^\w+: \[emerg\] //;
    my ($exit, undef, $rehearse) = rehearse(conf => "http { $http server { $server } }", logs => [$log],
        options => ['--format', $format]);
    $rehearse = '' if $exit == 0;
    $rehearse =~ s/^ratelimit-rehearse: //;
    s/ in \S+:\d+\n?\z// for $nginx, $rehearse;
    return is $rehearse, $nginx, $what;
}

my $redis = 'ratelimit_redis main { server 127.0.0.1:6379; }';
compare($_, "$redis ratelimit_zone $_;", 'location / { ratelimit zone=z; }') for @zones;
my $all = join ' ', $redis, map { "ratelimit_zone $_;" } values %zone;
compare($_, $all, "location / { ratelimit $_; } location /z { ratelimit zone=z; }") for @limits;
cmp_ok @zones + @limits, '>=', 200, 'lines were compared';

finish();

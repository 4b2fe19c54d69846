# Scripts in Redis: a connection loads those that its requests need, when Redis does not have them. So
# nodes with many locations are back after a restart of Redis as soon as those with one.

use Ratelimit::Test;

my $slack = $ENV{RATELIMIT_SLACK} // 0.25;    # for a busy machine

my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets gcra);
my ($workers, $locations) = (4, 40);

# Each with four limits, in an order of its own, so that it has a script of its own.
sub location {
    my ($number) = @_;
    my @left = 0 .. $#algorithms;
    my @zones = map { my $i = $number % @left; $number = int($number / @left); splice @left, $i, 1 } 1 .. 4;
    return map { "ratelimit zone=z$_;" } @zones;
}

sub node_of {
    my ($redis, $count) = @_;
    return nginx(workers => $workers,
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } ratelimit_fail_mode closed;"
            . join(' ', 'map $request_id $each { default $request_id; }', map { "ratelimit_zone \$each zone=z$_ rate=1000000r/d algorithm=$algorithms[$_];" } 0 .. $#algorithms),
        server => join ' ', map { "location /$_/ { @{[ location(3 * $_ - 3) ]} try_files /index.html =404; }" } 1 .. $count);
}

sub connected { return scalar(() = $_[0]->cmd('CLIENT', 'LIST') =~ /name=nginx-ratelimit-/g) }
sub scripts   { return $_[0]->cmd('INFO', 'memory') =~ /^number_of_cached_scripts:(\d+)/m ? $1 : die "no number\n" }

my $request = 0;    # so that no key is asked twice

sub failed { my ($node, $count) = @_; return grep { $_ != 200 } map { $node->status("/$_/") } 1 .. $count }

# A stopwatch that ran from the restart until every worker had a connection again.
sub restart {
    my ($redis) = @_;
    $redis->stop('KILL');
    $redis->start;
    my $watch = stopwatch();
    wait_until('every worker is connected', sub { connected($redis) == $workers });
    return $watch;
}

subtest 'only the scripts that requests use are loaded' => sub {
    my $redis = redis();
    my $node = node_of($redis, $locations);
    wait_until('every worker is connected', sub { connected($redis) == $workers });
    my $unused = scripts($redis);
    cmp_ok $unused, '<=', 1, 'none before the first request';
    is_deeply [failed($node, 1)], [], 'no request fails';
    is scripts($redis), $unused + 1, 'one location has one script';
    is_deeply [failed($node, $locations)], [];
    is scripts($redis), $unused + $locations;
};

subtest 'limits whose keys are empty are left out of the script' => sub {
    my $redis = redis();
    my @zones = map { "k$_" } 1 .. 7;
    my $node = nginx(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
            . join('', map { "ratelimit_zone \$arg_$_ zone=$_ rate=9r/d;" } @zones),
        server => 'location / { ' . join(' ', map { "ratelimit zone=$_;" } @zones) . ' try_files /index.html =404; }');
    my $limits = sub { return $node->status('/?' . join '&', map { "k$_=" . ++$request } @_) };
    wait_until('the worker is connected', sub { connected($redis) == 1 });
    my $before = scripts($redis);
    is $limits->(@{$_}), 200 for [1 .. 7], [1, 2], [1 .. 7], [6, 7], [3], [1, 2];
    is scripts($redis), $before + 3, 'all seven, two, one: limits of one kind have one script for each number of them';
};

subtest 'workers with many locations are back after a restart of Redis as soon as with one' => sub {
    for my $count (1, $locations) {
        my $redis = redis();
        my $node = node_of($redis, $count);
        is_deeply [failed($node, $count)], [];
        my $watch = restart($redis);
        $watch->within(0.6 + $slack, sprintf '%d locations: after %.3f s', $count, $watch->elapsed);
        is_deeply [failed($node, $count)], [], 'no request fails then';
    }
};

finish();

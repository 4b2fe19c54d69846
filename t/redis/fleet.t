# Exactness: one key, four nginx nodes of two workers each, 64 clients in parallel, one Redis. Exactly as
# many requests pass as the limit allows.

use Ratelimit::Test;
use Time::HiRes qw(time);

my @windows = map { [$_, "rate=200r/d algorithm=$_"] }
    qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets);
# These refill: 200 at once, and one more every half second.
my @refilling = (
    ['token_bucket', 'rate=2r/s algorithm=token_bucket burst=200'],
    ['gcra',         'rate=2r/s algorithm=gcra burst=199'],
    ['leaky_bucket', 'rate=2r/s algorithm=leaky_bucket burst=199'],
);

my $redis = redis();

sub fleet {
    my (%options) = @_;
    return map { node(%options, redis => $redis, workers => 2) } 1 .. 4;
}

sub passed_of {
    my ($path, @nodes) = @_;
    my @statuses = burst([map { $_->port } @nodes], $path, 600, 64);
    is scalar(@statuses), 600, 'every request is answered';
    is scalar(grep { $_ != 200 && $_ != 429 } @statuses), 0, 'with 200 or 429';
    return scalar grep { $_ == 200 } @statuses;
}

for (@windows) {
    my ($name, $zone) = @{$_};
    subtest "$name admits exactly the quota" => sub {
        $redis->cmd('FLUSHALL');
        is passed_of('/', fleet(zone => $zone)), 200;
    };
}

for (@refilling) {
    my ($name, $zone) = @{$_};
    my $limit = $name eq 'leaky_bucket' ? 'nodelay' : '';
    subtest "$name admits its capacity and the refill meanwhile" => sub {
        $redis->cmd('FLUSHALL');
        my @nodes  = fleet(zone => $zone, limit => $limit);
        my $began  = time;
        my $passed = passed_of('/', @nodes);
        my $most   = 200 + int(2 * (time - $began)) + 1;
        cmp_ok $passed, '>=', 200;
        cmp_ok $passed, '<=', $most;
    };
}

subtest 'several limits of a request stay exact, and a refusal by one is counted in none' => sub {
    $redis->cmd('FLUSHALL');
    my @nodes = fleet(
        zone     => 'rate=150r/d algorithm=sliding_window_log',
        http     => 'ratelimit_zone all zone=all rate=250r/d algorithm=fixed_window;',
        location => 'ratelimit zone=all;',
    );
    is passed_of('/?k=a', @nodes), 150, 'the limit of the first key decides';
    is passed_of('/?k=b', @nodes), 100, 'the rest of the shared limit passes for the second key';
};

subtest 'only whole costs are counted' => sub {
    $redis->cmd('FLUSHALL');
    my @nodes = fleet(zone => 'rate=100r/d algorithm=fixed_window', limit => 'cost=7');
    is passed_of('/', @nodes), 14;
};

finish();

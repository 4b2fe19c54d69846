# This node's clock is set back, in memory: in a zone without Redis, and in one whose fail mode is local. The counts of later
# times may refuse requests, but not for longer than the limit allows, and no block (block=) begins because of that. A block
# that has begun lasts its time, and one that has ended does not come back.

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Test;

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1m',
    'token_bucket', 'gcra burst=9', 'leaky_bucket burst=9',
);
my $block = 5 * 86_400;
my $clock = Chaos::Clock->new;

sub zones {
    my ($more) = @_;
    return join '', map { "ratelimit_zone \$arg_k zone=z$_ rate=10r/h block=5d algorithm=$algorithms[$_] $more;" } 0 .. $#algorithms;
}

sub locations {
    return join '', map {
        "location = /$_ { ratelimit zone=z$_@{[ $algorithms[$_] =~ /leaky/ ? ' nodelay' : '' ]}; try_files /index.html =404; }"
    } 0 .. $#algorithms;
}

# A node of seven zones by the clock that steps, and one of a short block. Two workers share their memory.
sub memory_node {
    my ($place) = @_;
    my $environment = $clock->environment;
    local @ENV{ keys %{$environment} } = values %{$environment};
    my $short = 'ratelimit_zone $arg_k zone=short rate=1r/s block=3s algorithm=fixed_window';
    my %options = (server => locations() . 'location = /short { ratelimit zone=short; try_files /index.html =404; }', workers => 2);
    return nginx(%options, http => zones('') . "$short;") if $place eq 'without Redis';
    my $redis = redis();
    my $addr  = $redis->addr;
    $redis->stop('KILL');
    return nginx(%options, http => "ratelimit_redis main { server $addr; breaker failures=1 open=1h; } ratelimit_fail_mode local;"
            . zones('redis=main') . "$short redis=main;");
}

sub refused_for {
    my ($node, $path) = @_;
    my $answer = $node->get($path);
    return $answer->status == 429 ? $answer->header('Retry-After') : undef;
}

# The seconds for which requests of the key are refused, the first of $times.
sub refusals {
    my ($node, $path, $times) = @_;
    return grep { defined } map { refused_for($node, $path) } 1 .. $times;
}

for my $place ('without Redis', 'fail mode local') {
    for my $forward (0, 2 * 3600) {
        my $name = "$place, the clock goes " . ($forward ? 'forward and back' : 'back');
        my $node = memory_node($place);
        cmp_ok((refusals($node, '/0?k=flood', 11))[-1], '>', 86_400, "$name: before that, a refusal begins a block");
        $clock->step($forward);
        for my $i (0 .. $#algorithms) {
            is $node->status("/$i?k=client"), 200, "$name, $algorithms[$i]: request $_" for 1 .. 6;
        }
        $clock->step(-2 * 3600);
        for my $i (0 .. $#algorithms) {
            my @refused = refusals($node, "/$i?k=client", 13);
            cmp_ok scalar(@refused), '>', 0, "$name, $algorithms[$i]: thirteen more are too many";
            is_deeply [grep { $_ > 2 * 3600 } @refused], [], 'but the key is not blocked';
        }
        for my $i (0 .. $#algorithms) {
            $clock->step(2 * 3600 + 1);
            is $node->status("/$i?k=client"), 200, "$name, $algorithms[$i]: it passes when it was said";
            $clock->step(-2 * 3600 - 1);
        }
        my ($rest) = refusals($node, '/0?k=flood', 1);
        cmp_ok $rest, '<=', $block, "$name: a block lasts its time";
        cmp_ok $rest, '>',  $block - 3600, 'and no less';
    }

    my $node = memory_node($place);
    cmp_ok scalar(refusals($node, '/short?k=b', 5)), '>', 0, "$place: a short block";
    select undef, undef, undef, 3.1;
    $clock->step(-3600);
    $node->status('/short?k=other');
    cmp_ok refused_for($node, '/short?k=b') // 0, '<=', 2, 'does not come back when the clock is set back';
}

finish();

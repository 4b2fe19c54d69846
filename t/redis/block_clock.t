# The clock of Redis is set back, also after a step forward. The counts of later times may refuse requests for a while, but
# no block (block=) begins because of that. A worker that stood still takes no late reply for such a step.

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use IO::Socket::INET;
use Ratelimit::Redis;
use Ratelimit::Test;

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1m',
    'token_bucket', 'gcra burst=9', 'leaky_bucket burst=9',
);
my $clock = Chaos::Clock->new;
$clock->step(600 - time % 3600);    # so that no hour ends before the test does
my $redis = Ratelimit::Redis->new(environment => $clock->environment);
my $node;

sub refused_for {
    my ($path) = @_;
    my $answer = $node->get($path);
    return $answer->status == 429 ? $answer->header('Retry-After') : undef;
}

sub begins_block {
    my ($key) = @_;
    $node->get("/0?k=$key") for 1 .. 11;
    return eval { wait_until('a block', sub { (refused_for("/0?k=$key") // 0) > 86_400 }); 1 };
}

sub new_node {
    return nginx(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 60s; connect_timeout 60s; }"
            . join('', map { "ratelimit_zone \$arg_k zone=z$_ rate=10r/h block=5d algorithm=$algorithms[$_];" } 0 .. $#algorithms),
        server => join('', map {
            "location = /$_ { ratelimit zone=z$_@{[ $algorithms[$_] =~ /leaky/ ? ' nodelay' : '' ]}; try_files /index.html =404; }"
        } 0 .. $#algorithms),
    );
}

for my $forward (0, 2 * 3600) {
    my $name = $forward ? 'the clock goes forward and back' : 'the clock goes back';
    $node = new_node();
    ok begins_block("flood$forward"), "$name: before that, a refusal begins a block";
    if (!$forward) {
        $node->get('/0?k=late') for 1 .. 10;
        my ($worker) = $node->workers;
        my $sent = $redis->calls('evalsha');
        $redis->pause;
        my $unread = $redis->unread;
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $node->port) or die "connect: $@\n";
        print {$client} "GET /0?k=late HTTP/1.0\r\n\r\n";
        wait_until('its check is sent', sub { $redis->unread > $unread });
        pause_processes($worker);
        $redis->resume;
        wait_until('the call is executed', sub { $redis->calls('evalsha') > $sent });
        select undef, undef, undef, 4;    # longer than clocks drift apart
        kill CONT => $worker;
        like join('', <$client>), qr/ 429 /, 'a worker stands still while a refusal is under way';
        ok begins_block('after'), 'then refusals begin blocks as before';
    }
    $clock->step($forward);
    for my $i (0 .. $#algorithms) {
        is $node->status("/$i?k=client$forward"), 200, "$name, $algorithms[$i]: request $_" for 1 .. 6;
    }
    $clock->step(-2 * 3600);
    for my $i (0 .. $#algorithms) {
        my @refused = grep { defined } map { refused_for("/$i?k=client$forward") } 1 .. 12;
        cmp_ok scalar(@refused), '>', 0, "$name, $algorithms[$i]: twelve more are too many";
        select undef, undef, undef, 0.3;    # a block begins behind the decision
        push @refused, refused_for("/$i?k=client$forward") // 0;
        is_deeply [grep { $_ > 86_400 } @refused], [], 'but the key is not blocked';
    }
}

$node = new_node();
ok begins_block('before'), 'before small steps, a refusal begins a block';
for (1 .. 2) {
    $clock->step(-2.9);    # less than clocks drift apart
    is $node->status('/0?k=steps'), 200;
}
my @refused = grep { defined } map { refused_for('/0?k=steps') } 1 .. 12;
cmp_ok scalar(@refused), '>', 0, 'ten more are too many';
is_deeply [grep { $_ > 86_400 } @refused], [], 'but small steps add up to one by which no block begins';

finish();

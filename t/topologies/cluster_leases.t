# Redis Cluster with leases and the denial cache: while slots move, no more requests pass than a limit
# allows, and no lease is lost.

use Ratelimit::Test;
use Time::HiRes qw(time);

my $cluster = cluster();
my $quota   = 15_000;
my $node    = nginx(
    workers => 2,
    http => 'ratelimit_redis main { topology cluster; timeout 5s; connect_timeout 5s; '
        . join('', map { 'server ' . $_->addr . ';' } $cluster->masters) . ' }'
        . "ratelimit_zone k\$arg_k zone=leased rate=${quota}r/d algorithm=fixed_window lease=40;"
        . "ratelimit_zone k\$arg_k zone=beside rate=${quota}r/d algorithm=token_bucket lease=40;"
        . 'ratelimit_zone k$arg_k zone=refused rate=1r/d algorithm=fixed_window;',
    server => 'ratelimit_fail_mode closed; add_header X-Source $ratelimit_source always;'
        . 'location /api/ { ratelimit_api write=on; }'
        . join('', map { s/\{/{ try_files \/index.html =404;/r }
            'location = /leased { ratelimit zone=leased; }',
            'location = /both { ratelimit zone=leased; ratelimit zone=beside; }',
            'location = /refused { ratelimit zone=refused; }',
            'location = /peek { ratelimit zone=leased cost=0; }'),
);

# Moves the slot of a key to another master, key by key; runs $step before and after each step.
sub move_under {
    my ($key, $step, @zones) = @_;
    my $slot = $cluster->slot_of($key);
    my $from = $cluster->node_of_slot($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    $step->();
    $cluster->migrate_begin($slot, $to);
    $step->();
    for my $zone (@zones) {
        $cluster->migrate_key("rl:$zone:{$key}");
        $step->();
    }
    $cluster->migrate_end($slot);
    $step->();
    return;
}

for (['leased', 'leased'], ['both', 'leased', 'beside']) {
    my ($path, @zones) = @{$_};
    subtest "a key that moves keeps its leases and its limit: $path" => sub {
        my $load = load(port => $node->port, path => "/$path?k=$path", clients => 8);
        move_under("k$path", sub { $load->wait_for_more(100) }, @zones);
        my $moving = $load->seen->{200};
        cmp_ok $moving, '<', $quota, 'the key moved before the limit was reached';
        wait_until('the limit is reached', sub { $load->seen->{429} }, 60);
        my $seen = $load->stop;
        is $seen->{failed}, 0, 'no request failed' or diag $seen->{why};
        is join(' ', grep { /^\d+$/ } sort keys %{$seen}), '200 429', 'all requests are decided';
        my @rest = burst($node->port, "/$path?k=$path", 300, 10);
        my $passed = $seen->{200} + grep { $_ == 200 } @rest;
        # On a busy machine the last lease may come after these requests.
        wait_until('the last lease is spent', sub {
            $passed += grep { $_ == 200 } burst($node->port, "/$path?k=$path", 50, 5);
            return $passed >= $quota;
        }) if $path eq 'leased';
        cmp_ok $passed, '<=', $quota, 'no more than the limit pass';
        is $passed, $quota, 'and no fewer' if $path eq 'leased';
        is $node->get("/peek?k=$path")->header('X-RateLimit-Remaining'), 0 if $path eq 'leased';
    };
}

subtest 'a refused key that moves stays refused by the cache, and can be freed on its new master' => sub {
    my $asked = time;    # the latest time at which Redis may have been asked
    is $node->status('/refused?k=moves'), $_ for 200, 429;
    move_under('kmoves', sub {
        my $answer = $node->get('/refused?k=moves');
        is $answer->status, 429;
        # After five seconds the node asks Redis again, once.
        my $is_old = time - $asked >= 5;
        like $answer->header('X-Source'), $is_old ? qr/^(?:cache|redis)$/ : qr/^cache$/;
        $asked = time if $answer->header('X-Source') eq 'redis';
    }, 'refused');
    is $node->status('/api/zones/refused/keys/kmoves', method => 'DELETE'), 204;
    is $node->status('/refused?k=moves'), $_, 'the freed key is admitted once' for 200, 429;
};

subtest 'a key can be freed while its slot moves' => sub {
    is $node->status('/refused?k=between'), $_ for 200, 429;
    my $freed = sub {
        is $node->status('/api/zones/refused/keys/kbetween', method => 'DELETE'), 204;
        is $node->status('/refused?k=between'), $_ for 200, 429;
    };
    move_under('kbetween', $freed, 'refused');
};

is $node->count_log(qr/is away|answered:/), 0, 'no error is logged';

finish();

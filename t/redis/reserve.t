# reserve=: a request passes only if so much of the limit remains after it, in Redis and in memory, over the whole fleet.

use Ratelimit::Backend;
use Ratelimit::Fleet;
use Ratelimit::Remaining qw(remains);
use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Time::HiRes qw(sleep);

my @algorithms = (
    'fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=1h',
    'token_bucket', 'gcra burst=9', 'leaky_bucket burst=9',
);

sub passed {
    my ($node, $path, $times) = @_;
    return scalar grep { $_ == 200 } map { $node->status($path) } 1 .. $times;
}

# A limit of ten: / may use all of it, /low leaves 30 %, /lower leaves six requests.
sub locations {
    my ($more) = @_;
    $more //= '';
    my $file = 'ratelimit_headers x-ratelimit draft; try_files /index.html =404;';
    return "location /low { ratelimit zone=test reserve=30% $more; $file add_header Source \$ratelimit_source always; }
        location /lower { ratelimit zone=test reserve=6 $more; $file }";
}

for my $place ('Redis', 'Redis, by the clock of the node', 'memory', 'memory, as Redis is away') {
    for my $algorithm (@algorithms) {
        subtest "in $place, $algorithm" => sub {
            my $nodelay = $algorithm =~ /leaky/ ? 'nodelay' : '';
            my $zone = "rate=10r/d algorithm=$algorithm" . ($place =~ /clock/ ? ' clock=local' : '');
            my $node = $place eq 'memory'
                ? nginx(
                    http   => "ratelimit_zone k\$arg_k zone=test $zone;",
                    server => "location / { ratelimit zone=test $nodelay; } location = /peek { ratelimit zone=test cost=0;"
                        . 'try_files /index.html =404; }' . locations($nodelay))
                : node(zone => $zone, limit => $nodelay, server => locations($nodelay),
                    http => $place =~ /away/ ? 'ratelimit_fail_mode local;' : '');
            $node->{redis}->stop('KILL') if $place =~ /away/;

            is passed($node, '/lower', 12), 4, 'six of ten remain';
            is passed($node, '/low', 12), 3, 'others leave three';
            my $low = $node->get('/low');
            is $low->header($_), { Limit => 7, Remaining => 0 }->{ s/X-RateLimit-//r }, "$_ of those that leave three"
                for qw(X-RateLimit-Limit X-RateLimit-Remaining);
            like $low->header('RateLimit'), qr/^"test";r=0;t=@{[ $low->header('Retry-After') ]}$/;
            wait_until('their refusal is remembered', sub { $node->get('/low')->header('Source') eq 'cache' })
                if $place eq 'Redis';
            remains($node, 3, 'the limit itself');
            is passed($node, '/', 5), 3, 'a remembered refusal refuses no request that may use the rest';
            my ($half, $whole) = map { $node->get($_)->header('Retry-After') } '/lower', '/';
            cmp_ok $half, '>=', $whole, 'who leaves more waits for longer';
            if ($algorithm =~ /token|gcra|leaky/) {
                my $units = sub { my ($seconds) = @_; return sprintf '%.2f', $seconds / 8640 };
                is_deeply [map { $units->($_) } $whole, $half], ['1.00', '7.00'], 'until its reserve is free';
            }
            is passed($node, '/lower?k=other', 5), 4, 'other keys are not concerned';
        };
    }
}

subtest 'nodes of a fleet keep the reserve together' => sub {
    my $one = node(zone => 'rate=100r/d cache=off', server => locations());
    my $two = node(zone => 'rate=100r/d cache=off', redis => $one->{redis}, server => locations());
    my @low = grep { $_ == 200 } burst([$one->port, $two->port], '/low', 300, 16);
    is scalar(@low), 70, 'of 300 requests of a low priority that arrive together';
    my @high = grep { $_ == 200 } burst([$one->port, $two->port], '/', 100, 16);
    is scalar(@high), 30, 'the others have the rest, exactly';
};

# Two nodes, and a flood of a low priority on each. The limit is ten a second.
sub flooded {
    my ($reserve) = @_;
    my $server = "location /low { ratelimit zone=test $reserve; try_files /index.html =404; }";
    my $one = node(zone => 'rate=10r/s algorithm=token_bucket', server => $server);
    my $two = node(zone => 'rate=10r/s algorithm=token_bucket', redis => $one->{redis}, server => $server);
    my @floods = map { load(port => $_->port, path => '/low', clients => 4) } $one, $two;
    $_->wait_for_more(30) for @floods;
    return { nodes => [$one, $two], floods => \@floods, served => 0 };
}

# Ends the floods: how many of their requests passed.
sub end_of_flood {
    my ($of) = @_;
    my %seen = (200 => 0, 429 => 0);
    for my $flood (@{ $of->{floods} }) {
        my $counts = $flood->stop;
        $seen{$_} += $counts->{$_} // 0 for keys %seen;
    }
    cmp_ok $seen{429}, '>', $seen{200}, "most of the flood is refused: $seen{429} of @{[ $seen{200} + $seen{429} ]}";
    return $seen{200};
}

subtest 'beside a flood of a low priority, a high priority has its share' => sub {
    my ($with, $without) = map { flooded($_) } 'reserve=30%', '';
    for my $i (1 .. 40) {    # five a second
        $_->{served} += passed($_->{nodes}[$i % 2], '/', 1) for $with, $without;
        sleep 0.2;
    }
    my $low = end_of_flood($with);
    is $with->{served}, 40, 'of forty requests';
    cmp_ok $low, '>', 0, "the low priority has what is left: $low";
    end_of_flood($without);
    cmp_ok $without->{served}, '<', 30, "without reserve= the flood takes it: $without->{served} of forty are served";
};

subtest 'a variable gives each class of traffic its reserve' => sub {
    my $map = 'map $arg_class $reserve { high 0; low 20%; lower 5; none ""; other 101%; nothing 100%; default x; }';
    my $node = node(zone => 'rate=10r/d', limit => 'reserve=$reserve', http => $map);
    is passed($node, '/?class=lower', 12), 5;
    is passed($node, '/?class=low', 12), 3;
    is passed($node, '/?class=none', 1), 1, 'an empty value reserves nothing';
    is passed($node, '/?class=high', 12), 1;
    is passed($node, '/?k=a&class=nothing', 2), 0, 'of 100 % nothing passes';
    is $node->get('/?k=a&class=nothing')->header('Retry-After'), undef, 'and never will';
    is passed($node, "/?k=$_&class=$_", 12), 10, 'nor does a malformed value' for qw(other unknown);
    is $node->count_log(qr/invalid reserve/), 1, 'which is logged once';
    is $node->count_log(qr/invalid reserve "101%" for zone "test"/), 1;
};

subtest 'costs, several limits, a shadow, a charge' => sub {
    my $node = node(
        zone   => 'rate=10r/d algorithm=sliding_window_log',
        http   => 'ratelimit_zone $arg_k zone=other rate=2r/d;',
        server => 'location /cost { ratelimit zone=test cost=4 reserve=5; try_files /index.html =404; }
            location /both { ratelimit zone=test reserve=5; ratelimit zone=other; try_files /index.html =404; }
            location /shadow { ratelimit zone=test reserve=5 shadow; try_files /index.html =404; }
            location /charge { ratelimit zone=test reserve=5 charge=$arg_charge; try_files /index.html =404; }',
    );
    is passed($node, '/cost', 3), 1, 'four of ten, and then four more would leave two';
    remains($node, 6, 'of a refused cost nothing is counted');
    is passed($node, '/both', 3), 1;
    is passed($node, '/shadow', 9), 9, 'a shadow refuses nothing';
    remains($node, 5, 'and counts what leaves its reserve');
    is passed($node, '/both?k=a', 9), 2, 'another limit refuses beside it';
    remains($node, 8, 'and nothing more is counted', '?k=a');
    is passed($node, '/charge?k=c&charge=30', 1), 1;
    remains($node, 0, 'a charge takes what is reserved, too', '?k=c');
};

subtest 'concurrency=: over the fleet' => sub {
    my $backend = Ratelimit::Backend->new;
    my $proxy = "proxy_pass http://@{[ $backend->addr ]};";
    my %options = (zone => 'concurrency=10', location => $proxy,
        server => "location /low { ratelimit zone=test reserve=30%; $proxy }");
    my $one = node(%options);
    my $two = node(%options, redis => $one->{redis});
    my $alone = nginx(http => 'ratelimit_zone k$arg_k zone=test concurrency=10;',
        server => "location / { ratelimit zone=test; $proxy } $options{server}");
    for my $nodes ([$one, $two], [$alone]) {
        my ($first, $last) = @{$nodes}[0, -1];
        my @held = ($backend->hold($first, ('/low') x 4), $backend->hold($last, ('/low') x 3));
        for my $node (@{$nodes}) {
            my $refused = $node->get('/low');
            is $refused->status, 429, 'seven of a low priority run';
            is $refused->header('X-RateLimit-Limit') . $refused->header('X-RateLimit-Remaining'), '70';
        }
        push @held, $backend->hold($first, '/', '/'), $backend->hold($last, '/');
        is $last->status('/'), 429, 'and three others';
        $backend->finish;
        http_read($_) for @held;
        wait_until('there is room again', sub { $last->status('/low?for=0') == 200 });

        my @kept = $backend->hold($first, '/?k=b', '/?k=b');
        my @low = burst([map { $_->port } @{$nodes}], '/low?k=b&for=0.05', 120, 16);
        cmp_ok $backend->most('b'), '<=', 7, 'a flood of a low priority leaves three';
        cmp_ok scalar(grep { $_ == 200 } @low), '>', 0;
        $backend->finish;
        http_read($_) for @kept;
    }
};

subtest 'a share is of the limit in force' => sub {
    my $node = member(zone => 'rate=10r/d', server => locations());
    override($node, 'kmore', { rate => '20r/d' });
    override($node, 'kless', { rate => '6r/d' });
    in_force($node, 'kmore', 20);
    in_force($node, 'kless', 6);
    is passed($node, '/low?k=more', 30), 14, '30 % of an override';
    is passed($node, '/?k=more', 30), 6;
    is passed($node, '/low?k=less', 30), 4, 'rounded up';
    is passed($node, '/lower?k=less', 2), 0, 'a number stays';
    is passed($node, '/?k=less', 30), 2;
};

for my $place ('Redis', 'memory') {
    subtest "in $place, a refusal by a reserve begins no block" => sub {
        my $server = locations() . 'location /ops/ { ratelimit_api; }';
        my $zone = 'rate=10r/d block=1h';
        my $node = $place eq 'Redis' ? node(zone => $zone, server => $server)
            : nginx(http => "ratelimit_zone k\$arg_k zone=test $zone;", server => "location / { ratelimit zone=test; } $server");
        is passed($node, '/low', 9), 7;
        is passed($node, '/', 3), 3, 'the key is not blocked';
        is $node->status('/'), 429;
        my $blocked = sub { $node->get($_[0])->header('Retry-After') };
        cmp_ok $blocked->('/'), '>=', 3500, 'what is over the limit itself blocks it';
        is $node->status('/low'), 429;
        my $began;
        wait_until('the block is counted', sub { $began = metric($node, 'ratelimit_blocks_total{zone="test"}') });
        is $began, 1, 'once';
    };
}

subtest 'ratelimit_check and its peek' => sub {
    my $node = node(
        zone   => 'rate=10r/d',
        server => 'location = /ask { ratelimit zone=test reserve=30%; ratelimit_check; }
            location = /look { ratelimit zone=test reserve=30%; ratelimit_check peek; }',
    );
    is passed($node, '/ask', 6), 6;
    my $last = $node->get('/look');
    is $last->status, 200;
    is_deeply decode_json($last->body)->{limits}[0]{remaining}, 1;
    is passed($node, '/ask', 2), 1;
    is $node->status('/look'), 429;
    is passed($node, '/', 5), 3;
};

finish();

# Zones whose shared memory is full: the least recently used keys are evicted, whatever their length and
# state, no request fails, and nothing but the evicted runs is logged.

use Ratelimit::Test;
use Time::HiRes qw(time);

my $long = 'y' x 110;

# An nginx with zones of 32k, or of the sizes in sizes, keyed by k: zones => name => parameters.
sub small_node {
    my (%options) = @_;
    my ($http, $server) = ('keepalive_requests 1000000;', '');
    for my $name (sort keys %{ $options{zones} }) {
        my $size = ($options{sizes} // {})->{$name} // '32k';
        $http .= "ratelimit_zone \$arg_k zone=$name:$size $options{zones}{$name};\n";
        $server .= "location /$name/ { ratelimit zone=$name cost=\$arg_c; try_files /index.html =404; }\n";
    }
    my $node = nginx(%options, http => $http . ($options{http} // ''), server => $server);
    $node->{socket} = http_connect($node->port);
    return $node;
}

# The response to a request on a kept connection.
sub ask {
    my ($node, $path) = @_;
    http_send($node->{socket}, $path);
    return http_read($node->{socket});
}

sub left { return ask(@_)->header('X-RateLimit-Remaining') }

for my $algorithm (qw(gcra sliding_window_counter sliding_window_log)) {
    subtest "tens of thousands of keys: $algorithm evicts the least recently used" => sub {
        my $burst = $algorithm eq 'gcra' ? 'burst=99' : '';
        my $node = small_node(level => 'notice', zones => { zone => "rate=100r/d algorithm=$algorithm $burst" });
        my (%statuses, $evicted);
        my @hot = ('hot', "hot$long", 'h' x 33, 'h' x 32);
        my $expected = 99;
        for my $i (1 .. 20_000) {
            $statuses{ ask($node, "/zone/?k=k$i" . ($i % 3 ? '' : $long))->status }++;
            next if $i % 35;
            my @left = map { left($node, "/zone/?k=$_") } @hot;
            $evicted = "@left at $i" if grep { $_ != $expected } @left;
            $expected = ($expected || 1) - 1 if $expected > 0;
            last if $expected < 1;
        }
        is_deeply [keys %statuses], [200], 'no request fails';
        is $evicted, undef, 'hot keys are never evicted, long or short';
        is left($node, '/zone/?k=k1'), 99, 'cold keys are evicted';
        is $node->log =~ s/^.*\[notice\].*\n//gmr, '', 'nothing else is logged';
    };
}

subtest 'a growing sliding_window_log evicts less recently used keys' => sub {
    my $node = small_node(zones => { zone => 'rate=300r/d algorithm=sliding_window_log' });
    ask($node, "/zone/?k=cold$_") for 1 .. 500;
    my @statuses = map { ask($node, '/zone/?k=hot')->status } 1 .. 310;
    is scalar(grep { $_ == 200 } @statuses), 300, 'the growing key is limited exactly';
    is left($node, '/zone/?k=cold1'), 299;
    is ask($node, '/zone/?k=hot')->status, 429;
    ask($node, "/zone/?k=other$_") for 1 .. 500;
    is left($node, '/zone/?k=hot'), 299, 'it is evicted as a whole';
};

subtest 'a sliding_window_log larger than its zone admits no more than its limit' => sub {
    my $node = small_node(zones => { zone => 'rate=$arg_r algorithm=sliding_window_log' });
    my @statuses = map { ask($node, '/zone/?k=hot&r=3000r/d')->status } 1 .. 3010;
    is scalar(grep { $_ == 200 } @statuses), 3000;
    is left($node, '/zone/?k=other&r=3000r/d'), 2999, 'another key finds room';
};

subtest 'each long key finds room in a zone full of short keys' => sub {
    my $node = small_node(sizes => { zone => '1m' }, zones => { zone => 'rate=300r/d algorithm=fixed_window' });
    ask($node, "/zone/?k=k$_") for 1 .. 9000;
    # In mixed order, so that neighbours in memory are not used together.
    ask($node, '/zone/?k=k' . (3000 + $_ * 7919 % 6000)) for 1 .. 6000;
    my @left = map { left($node, "/zone/?k=$long$_"), left($node, "/zone/?k=$long$_") } 1 .. 100;
    is_deeply \@left, [(299, 298) x 100], 'each long key is counted from its first request';
    my $kept = grep { left($node, '/zone/?k=k' . (3000 + $_ * 7919 % 6000)) < 299 } 1000 .. 6000;
    is $kept, 5001, 'no more keys were evicted than needed';
};

# After many new refused keys, of which only some are named: refuses more keys until one is named;
# returns it.
sub log_again {
    my ($node) = @_;
    my $key = 0;
    return wait_until('a key is logged by its name', sub {
        $key++;
        ask($node, "/zone/?k=again$key&r=1r/d") for 1 .. 2;
        return $node->count_log(qr/limiting requests.*key "again$key"/) == 1 && "again$key";
    });
}

subtest 'a refused key is one line in the log, even if the memory is full' => sub {
    for my $filler ('k', "k$long") {
        my $node = small_node(zones => { zone => 'rate=1r/d algorithm=fixed_window' });
        for my $i (1 .. 400) { ask($node, "/zone/?k=$filler$i") for 1 .. 2 }
        log_again($node);
        my $before = $node->count_log(qr/limited \d+ request/);
        for my $key ('z' x 120, 'short') {
            my %statuses;
            $statuses{ ask($node, "/zone/?k=$key")->status }++ for 1 .. 300;
            is_deeply \%statuses, { 200 => 1, 429 => 299 };
            is $node->count_log(qr/limiting requests.*key "\Q$key\E"/), 1;
        }
        cmp_ok $node->count_log(qr/limited \d+ request/) - $before, '<', 8, 'and few lines about evicted keys';
    }
};

subtest 'counted keys leave room for refused ones' => sub {
    my $node = small_node(zones => { zone => 'rate=$arg_r algorithm=sliding_window_log' });
    ask($node, "/zone/?k=k$_&r=9r/d") for 1 .. 500;
    my @floods = map { 'flood' . $_ x 40 } 1 .. 9;
    for (1 .. 50) {
        ask($node, "/zone/?k=$_&r=1r/d") for @floods;
        ask($node, "/zone/?k=n$_&r=9r/d");
    }
    is $node->count_log(qr/limiting requests.*key "$_"/), 1, 'one line for each refused key' for @floods;
    is $node->count_log(qr/limited \d+ request/), 0, 'no refused key is evicted';
};

subtest 'keys that are admitted again leave room too' => sub {
    my $node;
    for my $try (1 .. 5) {
        $node = small_node(zones => { zone => 'rate=$arg_r algorithm=fixed_window' });
        my $began = time;
        for my $i (1 .. 300) {
            ask($node, "/zone/?k=k$i&r=$_") for '1r/d', '1r/d', '2r/d';
        }
        last if time - $began < 0.9;    # later the first runs have ended, and the test would be weaker
    }
    my $key = log_again($node);
    ask($node, "/zone/?k=$key&r=9r/d");
    my $end = qr/limited 1 request, by zone "zone", key "$key"/;
    $node->wait_for_log($end);
    is $node->count_log($end), 1;
};

subtest 'refused keys leave room for counted ones' => sub {
    my $node = small_node(zones => { zone => 'rate=100r/d algorithm=sliding_window_log' });
    ask($node, "/zone/?k=refused$_&c=101") for 1 .. 500;
    wait_until('all keys are logged', sub { $node->logged_runs('zone') == 500 });
    for my $i (1 .. 100) {
        ask($node, "/zone/?k=more$i&c=101");
        is left($node, "/zone/?k=$_"), 100 - $i, "$_ is counted" or return for qw(a b c), $long;
    }
};

subtest 'workers that are killed leave usable shared memory' => sub {
    my @algorithms = qw(fixed_window sliding_window_log gcra);
    my %burst = map { $_ => $_ eq 'gcra' ? 'burst=49' : '' } @algorithms;
    my $node = nginx(workers => 2, expected => qr/exited on signal 9|was locked by/,
        http => join('', 'map $request_id $each { default $request_id; }', map { "ratelimit_zone \$each zone=all_$_:64k rate=9r/d algorithm=$_;"
            . "ratelimit_zone k\$arg_k zone=one_$_:64k rate=\$arg_r algorithm=$_ $burst{$_};" } @algorithms),
        server => 'location / {' . join('', map { "ratelimit zone=all_$_; ratelimit zone=one_$_;" } @algorithms) . '}');
    my @loads = map { load(port => $node->port, path => '/?r=50r/s', clients => 16) } 1 .. 2;
    survives_kills($node, 25, @loads);
};

finish();

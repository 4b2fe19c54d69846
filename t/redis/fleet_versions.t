# A fleet of nodes of two versions: the present one, and one that is built here as a next version could be, with
# further members in reports and overrides, overrides of new kinds, and other scripts (t/lib/Ratelimit/NextVersion.pm).
# needs: gcc g++ make nlohmann-json3-dev

use FindBin;
use lib "$FindBin::Bin/../chaos";
use Chaos::Clock;
use Ratelimit::Backend;
use Ratelimit::Fleet;
use Ratelimit::NextVersion qw(build_next_version);
use Ratelimit::Redis;
use Ratelimit::StoredValues qw(load_values save_values stored_at);
use Ratelimit::Test;
use File::Copy qw(copy);
use IO::Socket::INET;
use JSON::PP qw(decode_json);
use Ratelimit::Process qw(temp_folder);

my $next_module = build_next_version();
my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log sliding_window_buckets token_bucket gcra
    leaky_bucket);

# The nodes "this" and "next" of one fleet. The zone "apart" has another rate on each; each algorithm has a zone, which
# admits 20 requests of a key.
sub both_versions {
    my $redis = redis();
    my @zones = map { "ratelimit_zone k\$arg_k zone=$_ algorithm=$_ rate="
        . (/gcra|leaky/ ? '1r/d burst=19;' : '20r/d;') } @algorithms;
    my %limit = map { $_ => "ratelimit zone=$_" . (/leaky/ ? ' nodelay;' : ';') } @algorithms;
    $limit{every} = join '', values %limit;
    my $server = join '', map { "location /$_ { $limit{$_} try_files /index.html =404; }" } sort keys %limit;
    return map {
        my ($name, $rate, @module) = @{$_};
        member(redis => $redis, fleet => "node=$name", @module, zone => 'rate=40r/d nodes=auto',
            block => 'breaker failures=1 open=1h;', server => "ratelimit_fail_mode local; $server",
            http => "@zones ratelimit_zone k\$arg_k zone=apart rate=$rate block=1m clock=local cache=off hash_key;")
    } ['this', '5r/m'], ['next', '6r/m', module => $next_module];
}

sub json { my ($node, $path) = @_; return decode_json($node->get("/ops/$path")->body) }

# '' while the node does not list itself: its first report has not been answered.
sub version {
    my ($node) = @_;
    my ($self) = grep { $_->{self} } @{ json($node, 'fleet')->{nodes} };
    return $self ? $self->{version} : '';
}

sub named { my ($name, $list) = @_; return (grep { $_->{name} eq $name } @{$list})[0] }

# What is known of a key in the zone test: {limit, remaining, override and so on}.
sub key { my ($node, $key) = @_; return json($node, "zones/test/keys/$key") }

# The kind of the override that is in force for a key, or ''.
sub kind { my ($node, $key) = @_; return key($node, $key)->{override} // '' }

sub passed { my ($count, $path, @nodes) = @_; return scalar grep { $nodes[$_ % @nodes]->status($path) == 200 } 1 .. $count }

# Makes a change, and checks that the condition holds within two seconds.
sub soon {
    my ($what, $change, $condition) = @_;
    $change->();
    my $watch = stopwatch();
    wait_until($what, $condition);
    return $watch->within(2.5, $what);
}

my ($this, $next) = both_versions();
my $redis = $this->{redis};
my %version = (this => json($this, 'zones')->{version});
$version{next} = "99.$version{this}";

subtest 'each node shows both, with their versions, and sums of both' => sub {
    is passed(50, '/?k=shown', $this, $next), 40;
    for my $node ($this, $next) {
        my $shown = wait_until('all counters of both', sub {
            my $fleet = json($node, 'fleet');
            my $zone  = named('test', $fleet->{zones});
            return $zone && $zone->{passed} + $zone->{refused} == 50 && $fleet;
        });
        is_deeply [@{ $shown->{fleet} }{qw(nodes known unreadable)}], [2, 2, 0];
        for my $name (qw(this next)) {
            my $one = named($name, $shown->{nodes});
            is $one->{version}, $version{$name};
            is_deeply $one->{redis}, [{ redis => 'main', server => $redis->addr, workers => 1, workers_up => 1,
                state => $name eq 'next' ? 'draining' : 'up' }], "$name sees Redis, in a state that may be new";
            is scalar @{ $one->{zones} }, 2 + @algorithms;
        }
        my $zone = named('test', $shown->{zones});
        is_deeply [@{$zone}{qw(nodes passed refused limits settings_differ)}], [2, 40, 10, ['40r/d'], []];
        is_deeply named('apart', $shown->{zones})->{settings_differ}, ['next', 'this'], 'other settings are named';
        is_deeply named('gcra', $shown->{zones})->{settings_differ}, [], 'the same ones are not';
        is_deeply [map { [@{$_}{qw(zone key refused)}] } @{ $shown->{busiest} }], [['test', 'kshown', 10]];
    }
    my ($report) = grep { $_->{name} eq 'next' } map { decode_json($_) } @{ $redis->cmd('HVALS', 'rl:{fleet}:nodes') };
    ok exists $_->{'~ text'}, 'the report has members that this version does not know'
        for $report, map { $report->{$_}[0] } qw(zones redis busiest);
};

# Nodes that are upgraded would be shown as differing if a later version had other digests of the same settings. A setting
# that is added is part of a digest only where it is not the default.
subtest 'the digests of settings stay what they are in each version' => sub {
    my %digest = (test => '73546a60ad624417', fixed_window => 'eee8b8d78022e7d4', gcra => '684f69eb33b5d840',
        leaky_bucket => 'cb339a4b1ab067e8', apart => '9887caed20c5dde4');
    my $node = named('this', json($this, 'fleet')->{nodes});
    is named($_, $node->{zones})->{settings}, $digest{$_}, $_ for sort keys %digest;
};

subtest 'both count requests together, by scripts of their own' => sub {
    is passed(30, "/$_?k=one", $this, $next), 20, $_ for @algorithms;
    is passed(30, '/every?k=several', $this, $next), 20, 'several limits';
};

subtest 'what either changes is in force on the other, and either takes it back' => sub {
    for (['this', $this, $next], ['next', $next, $this]) {
        my ($name, $one, $other) = @{$_};
        soon("changes of $name are in force", sub {
            override($one, "k$name-rate", { rate => '5r/d', for => '1h' });
            override($one, "k$name-block", { block => \1 });
            override($one, "k$name-free", { unlimited => \1 });
            override($one, 'override', { rate => '7r/d' });
        }, sub { key($other, 'kelse')->{limit} == 7 });
        is_deeply [map { kind($other, "k$name-$_") } qw(rate block free)], [qw(rate block unlimited)];
        is key($other, "k$name-rate")->{limit}, 5;
        is $other->status("/?k=$name-block"), 429;
        my @listed = @{ overrides($other)->{overrides} };
        is_deeply [map { $_->{key} } @listed], ["k$name-rate", "k$name-block", "k$name-free", undef], 'they are listed';
        is_deeply [map { $_->{by} } @listed], [("$name 127.0.0.1") x 4];
        cmp_ok $listed[0]{for_seconds_left}, '>', 3590;
        like $redis->cmd('HGET', 'rl:{fleet}:overrides', "ktest\0knext-rate"), qr/"later":/,
            'the text has members that this version does not know' if $name eq 'next';
        soon("changes of $name are taken back", sub {
            is take_back($other, $_), 204 for "k$name-rate", "k$name-block", "k$name-free", 'override';
        }, sub { key($one, 'kelse')->{limit} == 40 });
        is_deeply [map { kind($one, "k$name-$_") } qw(rate block free)], ['', '', ''];
    }
};

subtest 'an override of a kind that only the next version knows' => sub {
    override($this, 'kbefore', { rate => '6r/d' });
    my $lines = $this->count_log(qr/./);
    override($next, $_, { slow => \1 }) for 'kslow', 'override';
    override($next, 'kafter', { rate => '8r/d' });
    in_force($this, 'kafter', 8);
    in_force($next, 'kelse', 1);
    is_deeply [map { key($this, $_)->{limit} } qw(kbefore kslow kelse)], [6, 40, 40], 'this version passes over it';
    is kind($this, 'kslow'), '';
    is_deeply [map { key($next, $_)->{limit} } qw(kbefore kslow kelse)], [6, 1, 1], 'the next version obeys it';
    is passed(20, '/?k=slow', $this), 20;
    is_deeply [map { $next->status('/?k=slow') } 1 .. 2], [200, 429], 'the next version counts it apart';
    is $this->count_log(qr/./), $lines, 'nothing is logged';
    my %listed = map { $_->{key} // '' => $_ } @{ overrides($this)->{overrides} };
    is_deeply [map { $listed{$_}{unknown} ? 1 : 0 } qw(kbefore kslow kafter), ''], [0, 1, 0, 1], 'it is listed as unknown';
    is json($this, 'zones/test/override')->{override}{by}, 'next 127.0.0.1';
    is json($this, 'fleet')->{fleet}{overrides}, 4, 'and counted';
    my $refused = $this->get('/ops/zones/test/keys/kslow/override', method => 'PUT', body => '{"slow":true}');
    is $refused->status, 400;
    like $refused->body, qr/unknown member \\"slow\\"/, 'this version does not set it';
    soon('this version takes it back', sub { is take_back($this, $_), 204 for qw(kslow override kbefore kafter) },
        sub { key($next, 'kelse')->{limit} == 40 });
};

subtest 'a key that either frees is free on the other' => sub {
    for (['this', $this, $next], ['next', $next, $this]) {
        my ($name, $one, $other) = @{$_};
        is passed(41, "/?k=freed-by-$name", $other), 40;
        soon("$name frees it", sub {
            is $one->status("/ops/zones/test/keys/kfreed-by-$name", method => 'DELETE'), 204;
        }, sub { $other->status("/?k=freed-by-$name") == 200 });
    }
};

subtest 'nodes=auto counts nodes of both' => sub {
    for my $node ($this, $next) {
        is metric($node, 'ratelimit_fleet_nodes'), 2;
        is json($node, 'zones/test')->{nodes}, 2;
    }
    $redis->stop('KILL');
    for my $node ($this, $next) {
        wait_until('no connection', sub { $node->status('/peek?k=x') == 200 && $node->count_log(qr/is away/) });
        is passed(30, '/?k=local', $node), 20, 'half of the limit while Redis is away';
    }
};

subtest 'a node is upgraded while it serves, and back: no override is ever not in force' => sub {
    my $other = member(zone => 'rate=40r/d', fleet => 'node=other', module => $next_module);
    # nginx passes no other variables on to the program that it starts.
    my $node = member(redis => $other->{redis}, zone => 'rate=40r/d', fleet => 'node=edge', daemon => 1);
    override($other, 'kblock', { block => \1 });
    override($other, 'kslow', { slow => \1 });
    override($node, 'krate', { rate => '5r/d' });
    wait_until('the block', sub { kind($node, 'kblock') });
    my $load = load(port => $node->port, path => '/?k=block');
    for (['next', $next_module, 1], ['this', undef, 40]) {
        my ($name, $module, $slow) = @{$_};
        $node->configure(module => $module);
        $node->leave_to($node->upgrade);
        wait_until("it is the $name version", sub { version($node) eq $version{$name} });
        is_deeply [map { key($node, "k$_")->{limit} } qw(rate slow)], [5, $slow];
        $load->wait_for_more(20);
    }
    my $seen = $load->stop;
    is $seen->{200} // 0, 0, 'no request of the blocked key passed';
    is $seen->{failed}, 0, 'and none failed' or diag $seen->{why};
    $other->stop('QUIT');
    $other->configure(module => undef);
    $other->start;
    is $other->status('/?k=block'), 429, 'the first decision of the other node, which restarts as the older version';
    override($node, 'krate', { rate => '6r/d' });
    in_force($other, 'krate', 6);
};

# Nodes of a Redis whose clock shows this time, with a zone for each kind of value.
sub nodes_at {
    my ($time, $backend, %modules) = @_;
    my $clock = Chaos::Clock->new;
    $clock->step($time - time);
    my $redis = Ratelimit::Redis->new(environment => $clock->environment);
    my %zone = ((map { $_ => "algorithm=$_ rate=" . (/gcra|leaky/ ? '1r/d burst=19' : '20r/d') } @algorithms),
        blocked => 'rate=2r/m block=2h', hashed => 'rate=20r/d hash_key', held => 'concurrency=3 hold=2h');
    my $http = join '', map { "ratelimit_zone k\$arg_k zone=$_ $zone{$_};" } sort keys %zone;
    my $server = join '', map {
        "location /$_ { ratelimit zone=$_" . (/leaky/ ? ' nodelay;' : ';')
            . ($_ eq 'held' ? " proxy_pass http://@{[ $backend->addr ]}; }" : ' try_files /index.html =404; }')
    } sort keys %zone;
    return map { member(redis => $redis, fleet => "node=$_", zone => 'rate=40r/d', server => $server, http => $http,
        $modules{$_} ? (module => $modules{$_}) : ()) } sort keys %modules;
}

# With RATELIMIT_STORE=yes, which a release needs, this version stores such values before.
subtest 'both read the values of each version in Redis, and count on' => sub {
    my $backend = Ratelimit::Backend->new;
    my @counted = (@algorithms, 'hashed');
    if (($ENV{RATELIMIT_STORE} // '') eq 'yes') {
        my ($node) = nodes_at(1_796_126_400, $backend, writer => undef);    # noon, so that no day ends soon
        my $redis = $node->{redis};
        passed(13, "/$_?k=stored", $node) for @counted;
        passed(3, '/blocked?k=stored', $node);
        my @held = $backend->hold($node, '/held?k=stored', '/held?k=stored');
        override($node, 'krate', { rate => '5r/d', for => '2h', reason => 'of an earlier version' });
        override($node, 'kblock', { block => \1 });
        wait_until('a report', sub { $redis->cmd('HLEN', 'rl:{fleet}:nodes') == 1 });
        save_values($redis, "t/redis/values/$version{this}.tsv");
        $backend->finish;
    }
    my @files = glob 't/redis/values/*.tsv';
    ok scalar @files, 'there are some';
    for my $file (@files) {
        my $later = 600;
        my ($one, $other) = nodes_at(stored_at($file) + $later, $backend, one => undef, other => $next_module);
        load_values($one->{redis}, $file, $later);
        is passed(20, "/$_?k=stored", $one, $other), 7, "$file: $_" for @counted;
        for my $node ($one, $other) {
            my $blocked = $node->get('/blocked?k=stored');
            is $blocked->status, 429, "$file: blocked";
            cmp_ok abs($blocked->header('Retry-After') - 7200 + $later), '<', 60, 'for the rest of its time';
            is json($node, 'zones/held/keys/kstored')->{remaining}, 1, "$file: the units of two requests are held";
            in_force($node, 'krate', 5);
            is kind($node, 'kblock'), 'block', "$file: the overrides are in force";
        }
        my ($listed) = grep { $_->{key} eq 'krate' } @{ overrides($one)->{overrides} };
        is_deeply [@{$listed}{qw(key reason by)}], ['krate', 'of an earlier version', 'writer 127.0.0.1'];
        wait_until('the node that stored them', sub { named('writer', json($_, 'fleet')->{nodes}) }) for $one, $other;
    }
};

# The files that a process has mapped modules of any version from, also those that are replaced since.
sub mapped {
    my ($pid) = @_;
    my %files = map { $_ => 1 } read_file("/proc/$pid/maps") =~ m{ (/\S+/\w*ratelimit_module\.so(?: \(deleted\))?)$}mg;
    return scalar keys %files;
}

subtest 'a reload loads another version into the same process, and later the first one again' => sub {
    my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = member(zone => 'rate=3r/d', fleet => 'node=edge',
        server => 'location /long/ { proxy_pass http://127.0.0.1:' . $backend->sockport . '; }');
    override($node, 'kblock', { block => \1 });
    in_force($node, 'kblock', 3);
    is passed(2, '/?k=counted', $node), 2;

    # A response keeps a worker of the first version, which has read one line of three more requests.
    my $long = http_connect($node->port);
    http_send($long, '/long/');
    my $upstream = $backend->accept or die $!;
    sysread $upstream, my $request, 4000;
    my @late = map { http_connect($node->port) } 1 .. 3;
    print {$late[$_]} 'GET /?k=' . (qw(both both block))[$_] . " HTTP/1.1\r\n" for 0 .. 2;
    is $node->status('/?k=both'), 200, 'of the first version';

    my $load = load(port => $node->port, path => '/?k=block');
    for (['next', $next_module], ['this', undef], ['next', $next_module]) {
        my ($name, $module) = @{$_};
        $node->configure(module => $module);
        $node->reload(gone => !@late);
        wait_until("it is the $name version", sub { version($node) eq $version{$name} });
        wait_until('the worker of the first version is to exit', sub { $node->workers(1) == @late / 3 });
        is mapped($_), 2, 'both versions are mapped' for $node->pid, $node->workers;
        is key($node, 'kblock')->{override}, 'block', 'the overrides are known';
        is key($node, 'kcounted')->{remaining}, 1, 'and the counts of Redis';
        $load->wait_for_more(20);
        next unless @late;
        is $node->status('/?k=both'), 200, 'of the next version';
        is scalar($node->workers(1)), 1, 'a worker of the first version still serves';
        is_deeply [map { print {$_} "Host: localhost\r\n\r\n"; http_read($_)->status } splice @late], [200, 429, 429],
            'and knows what the next one counted and what is blocked';
        is $node->status('/?k=both'), 429;
        print {$upstream} "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nfinally";
        is http_read($long)->body, 'finally';
        wait_until('the worker has exited', sub { !$node->workers(1) });
    }
    my $seen = $load->stop;
    is $seen->{200} // 0, 0, 'no request of the blocked key passed';
    is $seen->{failed}, 0, 'and none failed' or diag $seen->{why};
};

# The loader knows a module by its path.
subtest "a module's file is replaced by another version: an upgrade of nginx loads it, a reload does not" => sub {
    my $folder = temp_folder();
    my $file = "$folder/ngx_http_ratelimit_module.so";
    my $replace = sub { copy($_[0], "$file.new") && rename("$file.new", $file) or die $! };
    $replace->(Ratelimit::Nginx::module());
    my $node = member(zone => 'rate=3r/d', fleet => 'node=edge', module => $file, daemon => 1);
    is $node->status('/?k=a'), 200;
    $replace->($next_module);
    $node->reload(gone => 1);
    is version($node), $version{this}, 'a reload keeps the version that is loaded';
    is mapped($node->pid), 1;
    is $node->status('/?k=a'), 200;
    $node->leave_to($node->upgrade);
    wait_until('the next version', sub { version($node) eq $version{next} });
    is_deeply [map { $node->status('/?k=a') } 1 .. 2], [200, 429], 'the counts go on';
    is $node->stop('QUIT'), undef, 'nginx exits without an error';
};

finish();

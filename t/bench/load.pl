#!/usr/bin/env perl

# The cost of a limit: this module beside no limit, limit_req, lua-nginx-module and weserv's module, in one run,
# with the targets. ROUNDS and SECONDS set the number and length of the measurements of each row. LUA_RESTY_REDIS
# names the folder of lua-resty-redis that has resty/redis.lua; WESERV_NGINX and WESERV_REDIS name weserv's
# module for nginx and the one for Redis that it needs. Without these, their rows are left out.

use strict;
use warnings;

use Ratelimit::Http qw(request);
use Ratelimit::Redis;

use Bench::Generators qw(calls_of_redis generator_version);
use Bench::Measure qw($rounds $seconds measure median figure best by_round spread);
use Bench::Report;
use Bench::Scripts qw(load_script call_words send_calls);
use Bench::Servers qw(location ours redis_block peer weserv versions all_stopped);

my $keys = 100_000;
my $flooders = 250;    # more than a zone\'s counters of refused keys

# One request a minute with a very large burst: nothing is refused, no key expires during the measurement,
# and a key's state shows how many requests it has counted.
my $minute  = 60_000_000;
my $most    = 60_000_000;
my $passing = "algorithm=gcra rate=1r/m burst=@{[ $most - 1 ]}";
my %passing = (algorithm => 'gcra', quota => 1, window => $minute, param => $most);
my @numbers = (0, 1, $minute, $most, 1);    # the numbers of a script\'s call

my $redis  = Ratelimit::Redis->new;
my $digest = load_script($redis, 'gcra');
my $ours   = start_ours();
my $resty  = -e(($ENV{LUA_RESTY_REDIS} // '') . '/resty/redis.lua');
my $by_key = { %passing, key => 'arg_key' };
my $peer   = peer($redis, keys => $by_key, peer_hot => { %passing, key => 'arg_one' },
    three => { %{$by_key}, zones => ['first', 'second', 'third'] },
    $resty ? (resty => { %{$by_key}, zones => ['keys'], client => 'peer_resty' }) : ());
my ($redis_of_weserv, $weserv) = weserv(keys => { key => 'arg_key', burst => $most - 1 },
    hot => { key => 'arg_one', burst => $most - 1 }, refused => { key => 'arg_one', burst => 0 });

sub start_ours {
    my %zones = (
        (map { $_ => "\$arg_key $passing" } qw(keys first second third)),
        hot      => "\$arg_one $passing",
        leases   => "\$arg_one $passing lease=1000",
        refused  => '$arg_one algorithm=gcra rate=1r/m',
        refused_plain => '$arg_one algorithm=gcra rate=1r/m',
        refused_keys => '$arg_key algorithm=gcra rate=1r/m',
        uncached => '$arg_one algorithm=gcra rate=1r/m cache=off',
        held     => '$arg_key concurrency=1000',
    );
    my $http = redis_block($redis) . <<'END';
    limit_req_zone $arg_key zone=req_keys:32m rate=1000000r/s;
    limit_req_zone $arg_one zone=req_hot:1m rate=1000000r/s;
    limit_req_zone $arg_one zone=req_refused:1m rate=1r/m;
    limit_req_zone $arg_key zone=req_refused_keys:1m rate=1r/m;
END
    my $server = location('/none', '')
        . location('/req_keys', 'limit_req zone=req_keys burst=100000 nodelay;')
        . location('/req_hot', 'limit_req zone=req_hot burst=100000 nodelay;')
        . location('/req_refused', 'limit_req zone=req_refused;')
        . location('/req_refused_keys', 'limit_req zone=req_refused_keys;')
        . location('/three', 'ratelimit zone=first; ratelimit zone=second; ratelimit zone=third;');
    for my $zone (sort keys %zones) {
        my ($key, $parameters) = split / /, $zones{$zone}, 2;
        $http .= "ratelimit_zone $key zone=$zone $parameters;\n";
        $server .= location("/$zone", "ratelimit zone=$zone;" . ($zone =~ /plain/ ? ' ratelimit_headers off;' : ''));
    }
    return ours(http => $http, server => $server);
}

# The number of requests that Redis has counted for the hot key of a zone.
sub counted {
    my ($zone) = @_;
    return counted => sub {
        my $state = $redis->cmd('GET', "rl:$zone:{hot}") // die "$zone: Redis has no count\n";
        my $arrival = unpack 'Q>', "\0" . substr $state, 0, 7;    # as lua/gcra.lua stores it
        return $arrival / $minute;
    };
}

# The same in weserv's Redis: the theoretical arrival time of the hot key, in nanoseconds.
sub counted_by_weserv { return $redis_of_weserv->cmd('GET', 'hot_hot') / (1000 * $minute) }

# Load without nginx: the same script and keys. `decisions`: of each call.
sub bare {
    my ($pipeline, $decisions) = @_;
    $decisions //= 1;
    my $calls = 20_000 / $decisions;    # calls a second in the last round
    my @shares = (calls => [1 / $decisions, 1 / $decisions], reads => [1, 1]);
    return @shares, load => sub {
        my ($duration) = @_;
        my $load = calls_of_redis(
            redis => $redis, pipeline => $pipeline, calls => int $calls * $duration, decisions => $decisions,
            words => sub {
                my $first = int rand $keys;    # a key that occurs twice would be read again
                call_words($digest, [map { sprintf 'rl:keys:{k%012d}', ($first + $_) % $keys } 1 .. $decisions], @numbers);
            },
        );
        $calls = $load->{requests} / $load->{seconds} / $decisions;
        return $load;
    };
}

# Each request is one decision in Redis; this module sends up to sixteen checks in a call.
my @each = (calls => [1, 1], reads => [1, 1]);
my @batched = (calls => [1 / 17, 1], reads => [1, 1]);
my @flood = (refused => 1, limit => 1, keys => 1);
my @weserv = (nginx => $weserv, redis => [$redis_of_weserv], command => 'rater.limit', calls => [1, 1]);

# Each row: its name, which is its path unless another is given; its text; options of Bench::Measure; and
# limit: the expected X-RateLimit-Limit.
my @rows = (
    [none => 'no limit', nginx => $ours],
    [req_keys => "limit_req, $keys keys", nginx => $ours],
    [req_hot => 'limit_req, one hot key', nginx => $ours],
    [req_refused => 'limit_req, refused flood', nginx => $ours, refused => 1, keys => 1],
    [req_refused_keys => "limit_req, refused flood of $flooders keys", nginx => $ours, refused => 1,
        keys => $flooders],
    [keys => "this module, $keys keys", nginx => $ours, @batched, limit => $most],
    [hot => 'this module, one hot key, exact', nginx => $ours, calls => [0.005, 1], counted('hot'),
        limit => $most],
    [refused => 'this module, refused flood', nginx => $ours, calls => [0, 0.001], @flood],
    [refused_plain => 'this module, refused flood, no headers', nginx => $ours, calls => [0, 0.001], refused => 1,
        keys => 1],
    [refused_keys => "this module, refused flood of $flooders keys", nginx => $ours, calls => [0, 0.002], @flood,
        keys => $flooders],
    [uncached => 'this module, refused flood, cache=off', nginx => $ours, calls => [0.005, 1], @flood],
    [leases => 'this module, one hot key, lease=1000', nginx => $ours, calls => [0.0001, 0.1],
        counted('leases'), surplus => 0.05, limit => $most],
    [held => "this module, requests at one time, $keys keys", nginx => $ours, calls => [2 / 17, 2],
        reads => [1.99, 2], limit => 1000],
    [three => "this module, three limits, $keys keys", nginx => $ours, @batched, reads => [3, 3],
        limit => $most],
    [peer_keys => "lua cosocket, $keys keys", nginx => $peer, path => '/keys', @each,
        limit => $most],
    [peer_hot => 'lua cosocket, one hot key', nginx => $peer, @each, counted('peer_hot'),
        limit => $most],
    [peer_three => "lua cosocket, three limits, $keys keys", nginx => $peer, path => '/three', calls => [1, 1],
        reads => [3, 3], limit => $most],
    $resty ? [resty => "lua-resty-redis, $keys keys", nginx => $peer, @each, limit => $most] : (),
    $weserv
    ? (
        [weserv_keys => "weserv's module, $keys keys", @weserv, path => '/keys', limit => $most],
        [weserv_hot => 'weserv\'s module, one hot key', @weserv, path => '/hot', counted => \&counted_by_weserv,
            limit => $most],
        [weserv_refused => 'weserv\'s module, refused flood', @weserv, path => '/refused', @flood],
    )
    : (),
    [bare => 'no nginx: 64 calls at a time', bare(64)],
    [bare_8 => 'no nginx: 16 calls of 8 decisions at a time', bare(16, 8)],
    [bare_16 => 'no nginx: 8 calls of 16 decisions at a time', bare(8, 16)],
);
my @calm = (
    map({
        my @few = (connections => $_);
        my $few = ', ' . ($_ == 1 ? 'one connection' : "$_ connections");
        (
            ["none_$_" => "no limit$few", nginx => $ours, path => '/none', @few],
            ["keys_$_" => "this module, $keys keys$few", nginx => $ours, path => '/keys', @batched, @few],
            ["peer_$_" => "lua cosocket, $keys keys$few", nginx => $peer, path => '/keys', @each, @few],
            $weserv ? ["weserv_$_" => "weserv's module, $keys keys$few", @weserv, path => '/keys', @few] : (),
        )
    } 1, 2),
    [round_trip => 'bare round trip: one call at a time', bare(1)],
);
my %row;
for (@rows, @calm) {
    my ($name, $text, @more) = @{$_};
    $row{$name} = {name => $text, path => "/$name", keys => $keys, redis => [$redis], @more};
}

# Requests each location once and checks by its headers whether it limits.
sub probe {
    for my $name (map { $_->[0] } @rows) {
        my ($nginx, $path, $limit) = @{ $row{$name} }{qw(nginx path limit)};
        next unless $nginx;
        my $answer = request($nginx->port, "$path?one=hot&key=k000000000000");
        my $seen = $answer->header('X-RateLimit-Limit') // 'none';
        die "$path: status @{[ $answer->status ]}, X-RateLimit-Limit $seen\n"
            if $seen ne ($limit // 'none') || $answer->status != 200;
    }
    return;
}

sub ratio {
    my ($what, $name, $other) = @_;
    return figure($row{$name}, $what) / figure($row{$other}, $what);
}

# Microseconds of nginx's CPU time that a row adds to no limit.
sub added { return figure($row{ $_[0] }, 'nginx') - figure($row{none}, 'nginx') }

sub absolute_table {
    my @table = (['', 'requests/s', 'best', '+-', 'nginx us', 'Redis us', 'calls', 'p50 us', 'p99 us',
        'nginx busy', 'Redis busy', 'load busy']);
    for my $name (map { $_->[0] } @_) {
        my $row = $row{$name};
        push @table, [
            $row->{name}, map({ sprintf '%.0f', $_ } figure($row, 'requests'), best($row)),
            sprintf('%.0f %%', spread($row)),
            $row->{nginx} ? sprintf '%.2f', figure($row, 'nginx') : '-',
            $row->{calls} ? sprintf '%.2f', figure($row, 'redis') : '-',
            $row->{calls} ? sprintf '%.3f', figure($row, 'calls') : '-',
            map({ sprintf '%.0f', figure($row, $_) } qw(p50 p99)),
            map({ sprintf '%.0f %%', 100 * figure($row, $_) } qw(busy redis_busy load_busy)),
        ];
    }
    return @table;
}

# The rows relative to no limit, to limit_req with similar keys, and to lua-nginx-module.
sub ratio_table {
    my %like = (
        (map { $_ => ['req_keys', 'peer_keys'] } qw(keys peer_keys resty weserv_keys)),
        (map { $_ => ['req_keys', 'peer_three'] } qw(three peer_three)),
        (map { $_ => ['req_hot',  'peer_hot'] } qw(hot leases peer_hot weserv_hot)),
        (map { $_ => ['req_refused'] } qw(refused refused_plain uncached weserv_refused)),
        refused_keys => ['req_refused_keys'],
    );
    my @table = (['', 'requests/s of no limit', 'of limit_req', 'of lua', 'nginx us added', 'of lua',
        'Redis us of lua']);
    for my $name (grep { !/^bare/ } map { $_->[0] } @rows) {
        my ($limit_req, $lua) = @{ $like{$name} // [] };
        push @table, [
            $row{$name}{name},
            map { $_->[0] ? sprintf '%.2f', $_->[1]->() : '-' } (
                [1,                sub { ratio('requests', $name, 'none') }],
                [$limit_req,       sub { ratio('requests', $name, $limit_req) }],
                [$lua,             sub { ratio('requests', $name, $lua) }],
                [$name ne 'none',  sub { added($name) }],
                [$lua,             sub { added($name) / added($lua) }],
                [$lua,             sub { ratio('redis', $name, $lua) }],
            )
        ];
    }
    return @table;
}

# The rows that do what one of weserv's module does, relative to it.
sub weserv_table {
    my %like = (keys => 'weserv_keys', (map { $_ => 'weserv_hot' } qw(hot leases)),
        map { $_ => 'weserv_refused' } qw(refused uncached));
    my @table = (['', 'requests/s of weserv', 'nginx us added of weserv', 'Redis us of weserv', 'p99 of weserv']);
    for my $name (qw(keys hot leases refused uncached)) {
        my $other = $like{$name};
        push @table, [$row{$name}{name}, map { sprintf '%.2f', $_ } ratio('requests', $name, $other),
            added($name) / added($other), ratio('redis', $name, $other), ratio('p99', $name, $other)];
    }
    return @table;
}

sub calm_table {
    my @table = (['', 'requests/s', 'nginx busy', 'p50 us', 'p99 us', 'p50 added', 'p99 added']);
    for my $name (map { $_->[0] } @calm) {
        my $row = $row{$name};
        push @table, [
            $row->{name}, sprintf('%.0f', figure($row, 'requests')),
            $row->{nginx} ? sprintf '%.0f %%', 100 * figure($row, 'busy') : '-',
            map({ sprintf '%.0f', figure($row, $_) } qw(p50 p99)),
            map({ $name =~ /^(?:keys|peer|weserv)/ ? sprintf '%.0f', waited($name, $_) : '-' } qw(p50 p99)),
        ];
    }
    return @table;
}

# Microseconds by which a row's requests take longer than those of no limit with as many connections.
sub waited {
    my ($name, $what) = @_;
    return figure($row{$name}, $what) - figure($row{ $name =~ s/^[a-z]+/none/r }, $what);
}

# Each: text, the value in a round, and its bound: at most, or with 1, at least.
sub target_table {
    my $requests = sub { my @rows = @_; return sub { ratio('requests', @rows) } };
    my @targets = (
        ["$keys keys: nginx CPU added, of the cosocket's", sub { added('keys') / added('peer_keys') }, 0.2],
        $resty
        ? ["$keys keys: nginx CPU added, of lua-resty-redis's", sub { added('keys') / added('resty') }, 0.1]
        : (),
        ["$keys keys: Redis CPU, of the cosocket's", sub { ratio('redis', 'keys', 'peer_keys') }, 0.5],
        ['three limits: Redis CPU, of one limit\'s', sub { ratio('redis', 'three', 'keys') }, 3],
        ['three limits: calls of a request', sub { figure($row{three}, 'calls') }, 0.3],
        ['three limits: requests/s, of one limit\'s', $requests->('three', 'keys'), 0.6, 1],
        ['three limits: requests/s, of the cosocket\'s', $requests->('three', 'peer_three'), 1.25, 1],
        ["requests at one time: nginx CPU added, of one limit's", sub { added('held') / added('keys') }, 1.5],
        ["one hot key, exact: requests/s, of limit_req's", $requests->('hot', 'req_hot'), 0.75, 1],
        ["refused flood: requests/s, of limit_req's", $requests->('refused', 'req_refused'), 0.95, 1],
        ["leases: requests/s, of limit_req's", $requests->('leases', 'req_hot'), 0.9, 1],
        map {
            my $few = $_;
            ["moderate load, connections $few: p99 added, of a round trip's p99",
                sub { waited("keys_$few", 'p99') / figure($row{round_trip}, 'p99') }, 1.5]
        } 1, 2
    );
    my @table = (['target', 'bound', 'measured', 'rounds', 'met']);
    for (@targets) {
        my ($text, $measured, $bound, $least) = @{$_};
        my @values = sort { $a <=> $b } by_round($measured);
        my @met = grep { $least ? $_ >= $bound : $_ <= $bound && $_ > 0 } @values;
        push @table, [$text, ($least ? '>= ' : '<= ') . $bound, sprintf('%.3f', median(@values)),
            sprintf('%.3f to %.3f', @values[0, -1]), @met == @values ? 'yes' : scalar(@met) . " of $rounds"];
    }
    return @table;
}

# Creates every key before the measurement: creating one costs more than changing it. Weserv's Redis has them,
# too, so that it is as full.
sub make_keys {
    for my $server ($redis, $redis_of_weserv // ()) {
        load_script($server, 'gcra');
        for my $zone (qw(keys first second third)) {
            send_calls($server, $keys, sub {
                return call_words($digest, sprintf('rl:%s:{k%012d}', $zone, $_[0]), @numbers);
            });
        }
    }
    send_calls($redis_of_weserv, $keys, sub { ('RATER.LIMIT', sprintf('keys_k%012d', $_[0]), $most - 1, 1, 60) })
        if $weserv;
    return;
}

sub report {
    my $report = Bench::Report->new('load', 'What a limit costs', generator_version(),
        versions($redis, $peer));
    $report->lines(
        "Medians of $rounds rounds of $seconds s, rows interleaved, and the best round; one worker; wrk with one "
            . 'thread and the same requests for every row.',
        'us: microseconds of CPU for each request, nginx\'s and Redis\'s. calls: of scripts, for each '
            . 'request. +-: spread between rounds. busy: share of a processor; the load is wrk\'s, or without '
            . 'nginx the benchmark\'s own.',
        'lua cosocket: lua-nginx-module sends the same script in a call for each request, with only that part of '
            . 'Redis\'s protocol that this needs.',
        $weserv
        ? 'weserv\'s module: rate-limit-nginx-module sends RATER.LIMIT of redis-rate-limiter, a module of Redis, for '
            . 'each request. calls: of this command.'
        : ()
    );
    $report->lines('64 connections, each with one request in flight:');
    $report->table(absolute_table(@rows));
    $report->table(ratio_table());
    if ($weserv) {
        $report->lines('Beside weserv\'s module with the same keys:');
        $report->table(weserv_table());
    }
    $report->lines('Moderate load: one or two connections, each with one request in flight, so that no process is at '
            . 'its limit; beside the round trip of one call of the script:');
    $report->table(calm_table());
    $report->table(target_table());
    $report->warn_of_noise(map { spread($_) } values %row);
    $report->publish;
    return;
}

probe();
make_keys();
measure(@row{ map { $_->[0] } @rows, @calm });
report();
all_stopped();

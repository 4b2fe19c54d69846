#!/usr/bin/env perl

# What a limit costs: this module beside no limit, limit_req and lua-nginx-module, in one run, and the
# targets. ROUNDS and SECONDS say how often and how long each row is measured.

use strict;
use warnings;

use Ratelimit::Http qw(request);
use Ratelimit::Redis;

use Bench::Generators qw(calls_of_redis generator_version);
use Bench::Measure qw($rounds $seconds measure median figure by_round spread);
use Bench::Report;
use Bench::Scripts qw(load_script call_words send_calls);
use Bench::Servers qw(location ours redis_block peer versions all_stopped);

my $keys = 100_000;
my $flooders = 250;    # more than there are counters of the busiest

# One request a minute and very many at once: nothing is refused, no key expires meanwhile, and a key's
# state tells how many requests it has counted.
my $minute  = 60_000_000;
my $most    = 60_000_000;
my $passing = "algorithm=gcra rate=1r/m burst=@{[ $most - 1 ]}";
my %passing = (algorithm => 'gcra', quota => 1, window => $minute, param => $most);
my @numbers = (0, 1, $minute, $most, 1);    # as a call of the script has them

my $redis  = Ratelimit::Redis->new;
my $digest = load_script($redis, 'gcra');
my $ours   = start_ours();
my $peer   = peer($redis, keys => { %passing, key => 'arg_key' },
    peer_hot => { %passing, key => 'arg_one' });

sub start_ours {
    my %zones = (
        (map { $_ => "\$arg_key $passing" } qw(keys first second third)),
        hot      => "\$arg_one $passing",
        leases   => "\$arg_one $passing lease=1000",
        refused  => '$arg_one algorithm=gcra rate=1r/m',
        refused_keys => '$arg_key algorithm=gcra rate=1r/m',
        uncached => '$arg_one algorithm=gcra rate=1r/m cache=off',
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
        $server .= location("/$zone", "ratelimit zone=$zone;");
    }
    return ours(http => $http, server => $server);
}

# How many requests Redis has counted for the hot key of a zone.
sub counted {
    my ($zone) = @_;
    return counted => sub {
        my $arrival = $redis->cmd('GET', "rl:$zone:{hot}") // die "$zone: Redis has no count\n";
        return $arrival / $minute;
    };
}

# Load without nginx: the same script and keys.
sub bare {
    my ($pipeline) = @_;
    my $calls = 20_000;    # a second, in the round before
    return load => sub {
        my ($duration) = @_;
        my $load = calls_of_redis(
            redis => $redis, pipeline => $pipeline, calls => int $calls * $duration,
            words => sub { call_words($digest, sprintf('rl:keys:{k%012d}', rand $keys), @numbers) },
        );
        $calls = $load->{requests} / $load->{seconds};
        return $load;
    };
}

# Each request has a decision of its own in Redis; ours go together up to sixteen in a call.
my @each = (calls => [1, 1], reads => [1, 1]);
my @joint = (calls => [1 / 17, 1], reads => [1, 1]);
my @flood = (refused => 1, limit => 1, keys => 1);

# Each row: its name here, which is its path unless another is given; its text; what Bench::Measure wants
# of it; limit: what X-RateLimit-Limit says there.
my @rows = (
    [none => 'no limit', nginx => $ours],
    [req_keys => "limit_req, $keys keys", nginx => $ours],
    [req_hot => 'limit_req, one hot key', nginx => $ours],
    [req_refused => 'limit_req, refused flood', nginx => $ours, refused => 1, keys => 1],
    [req_refused_keys => "limit_req, refused flood of $flooders keys", nginx => $ours, refused => 1,
        keys => $flooders],
    [keys => "this module, $keys keys", nginx => $ours, @joint, limit => $most],
    [hot => 'this module, one hot key, exact', nginx => $ours, calls => [0.005, 1], counted('hot'),
        limit => $most],
    [refused => 'this module, refused flood', nginx => $ours, calls => [0, 0.001], @flood],
    [refused_keys => "this module, refused flood of $flooders keys", nginx => $ours, calls => [0, 0.002], @flood,
        keys => $flooders],
    [uncached => 'this module, refused flood, cache=off', nginx => $ours, calls => [0.005, 1], @flood],
    [leases => 'this module, one hot key, lease=1000', nginx => $ours, calls => [0.0001, 0.1],
        counted('leases'), surplus => 0.02, limit => $most],
    [three => "this module, three limits, $keys keys", nginx => $ours, calls => [1, 1], reads => [3, 3], limit => $most],
    [peer_keys => "lua-nginx-module, $keys keys", nginx => $peer, path => '/keys', @each,
        limit => $most],
    [peer_hot => 'lua-nginx-module, one hot key', nginx => $peer, @each, counted('peer_hot'),
        limit => $most],
    [bare => 'no nginx: one connection, 64 calls at a time', bare(64), @each],
);
my @calm = (
    map({
        my @few = (connections => $_);
        my $few = ', ' . ($_ == 1 ? 'one connection' : "$_ connections");
        (
            ["none_$_" => "no limit$few", nginx => $ours, path => '/none', @few],
            ["keys_$_" => "this module, $keys keys$few", nginx => $ours, path => '/keys', @joint, @few],
            ["peer_$_" => "lua-nginx-module, $keys keys$few", nginx => $peer, path => '/keys', @each, @few],
        )
    } 1, 2),
    [round_trip => 'bare round trip: one call at a time', bare(1), @each],
);
my %row;
for (@rows, @calm) {
    my ($name, $text, @more) = @{$_};
    $row{$name} = {name => $text, path => "/$name", keys => $keys, redis => [$redis], @more};
}

# Asks each location once: whether it limits is seen in its headers.
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

# Microseconds of nginx's CPU that a row adds to no limit.
sub added { return figure($row{ $_[0] }, 'nginx') - figure($row{none}, 'nginx') }

sub absolute_table {
    my @table = (['', 'requests/s', '+-', 'nginx us', 'Redis us', 'calls', 'p50 us', 'p99 us', 'nginx busy']);
    for my $name (map { $_->[0] } @_) {
        my $row = $row{$name};
        push @table, [
            $row->{name}, sprintf('%.0f', figure($row, 'requests')), sprintf('%.0f %%', spread($row)),
            $row->{nginx} ? sprintf '%.2f', figure($row, 'nginx') : '-',
            $row->{calls} ? sprintf '%.2f', figure($row, 'redis') : '-',
            $row->{calls} ? sprintf '%.3f', figure($row, 'calls') : '-',
            map({ sprintf '%.0f', figure($row, $_) } qw(p50 p99)),
            $row->{nginx} ? sprintf '%.0f %%', 100 * figure($row, 'busy') : '-',
        ];
    }
    return @table;
}

# The rows beside no limit, beside limit_req with the like keys, and beside lua-nginx-module.
sub ratio_table {
    my %like = (
        (map { $_ => ['req_keys', 'peer_keys'] } qw(keys three peer_keys)),
        (map { $_ => ['req_hot',  'peer_hot'] } qw(hot leases peer_hot)),
        (map { $_ => ['req_refused'] } qw(refused uncached)),
        refused_keys => ['req_refused_keys'],
    );
    my @table = (['', 'requests/s of no limit', 'of limit_req', 'of lua', 'nginx us added', 'of lua',
        'Redis us of lua']);
    for my $name (grep { $_ ne 'bare' } map { $_->[0] } @rows) {
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

sub calm_table {
    my @table = (['', 'requests/s', 'nginx busy', 'p50 us', 'p99 us', 'p50 added', 'p99 added']);
    for my $name (map { $_->[0] } @calm) {
        my $row = $row{$name};
        push @table, [
            $row->{name}, sprintf('%.0f', figure($row, 'requests')),
            $row->{nginx} ? sprintf '%.0f %%', 100 * figure($row, 'busy') : '-',
            map({ sprintf '%.0f', figure($row, $_) } qw(p50 p99)),
            map({ $name =~ /^(?:keys|peer)/ ? sprintf '%.0f', waited($name, $_) : '-' } qw(p50 p99)),
        ];
    }
    return @table;
}

# Microseconds that a row's requests take longer than those of no limit from as many connections.
sub waited {
    my ($name, $what) = @_;
    return figure($row{$name}, $what) - figure($row{ $name =~ s/^[a-z]+/none/r }, $what);
}

# Each: text, what is measured in a round, and its bound: at most, or with 1, at least.
sub target_table {
    my $requests = sub { my @rows = @_; return sub { ratio('requests', @rows) } };
    my @targets = (
        ["$keys keys: nginx CPU added, of lua's", sub { added('keys') / added('peer_keys') }, 0.2],
        ["$keys keys: requests/s, of lua's", $requests->('keys', 'peer_keys'), 3, 1],
        ["$keys keys: Redis CPU, of lua's", sub { ratio('redis', 'keys', 'peer_keys') }, 0.5],
        ["one hot key, exact: requests/s, of limit_req's", $requests->('hot', 'req_hot'), 0.7, 1],
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

# Every key is there before anything is measured: to make one costs more than to change it.
sub make_keys {
    for my $zone (qw(keys first second third)) {
        send_calls($redis, $keys, sub {
            return call_words($digest, sprintf('rl:%s:{k%012d}', $zone, $_[0]), @numbers);
        });
    }
    return;
}

sub report {
    my $report = Bench::Report->new('load', 'What a limit costs', generator_version(),
        versions($redis, $peer));
    $report->lines(
        "Medians of $rounds rounds of $seconds s, rows interleaved; one worker; wrk with one thread and "
            . 'the same requests for every row.',
        'us: microseconds of CPU for each request, nginx\'s and Redis\'s. calls: of scripts, for each '
            . 'request. +-: spread between rounds.'
    );
    $report->lines('64 connections, each with one request in flight:');
    $report->table(absolute_table(@rows));
    $report->table(ratio_table());
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

# The fleet in the API: large fleets are whole, and what is forged in Redis has a bound.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json encode_json);

my $zones = 60;

# A node of a fleet with 60 zones.
sub large_member {
    return member(zone => 'rate=3r/d', key => '$arg_k', @_,
        http => join '', map { "ratelimit_zone \$arg_k zone=zone_number_$_ rate=100r/m;" } 2 .. $zones);
}

# Writes reports into Redis as nodes do that live.
sub report {
    my ($redis, @reports) = @_;
    my $id = 0;
    $redis->cmd('HSET', 'rl:{fleet}:nodes', map { ('id' . $id++, $_) } @reports);
    my ($seconds) = @{ $redis->cmd('TIME') };
    $redis->cmd('ZADD', 'rl:{fleet}:alive', map { ($seconds + 3 . '000000', "id$_") } 0 .. $#reports);
    return;
}

# The report of the node itself, once it has two days of history.
sub own_report {
    my ($node) = @_;
    my $report = wait_until('its report', sub { (@{ $node->{redis}->cmd('HVALS', 'rl:{fleet}:nodes') })[0] });
    my $read = decode_json($report);
    my @long = map { my ($name, $step, $steps) = @$_;
        my @counts = (123_456) x $steps;
        ("${name}_start" => $step * (int(time / $step) - $steps + 1), "${name}_passed" => \@counts, "${name}_refused" => \@counts);
    } ['history', 60, 60], ['history_5m', 300, 72], ['history_30m', 1800, 96];
    return { %{$read}, @long };
}

# The answer of /fleet that knows $known nodes, and its length. An answer is used for a second.
sub asked {
    my ($node, $known) = @_;
    return @{ wait_until("$known nodes", sub {
        my $answer = $node->get('/ops/fleet');
        my $fleet = $answer->status == 200 ? decode_json($answer->body) : return;
        return $fleet->{fleet}{known} == $known ? [$fleet, length $answer->body] : undef;
    }) };
}

# The most memory that the only worker has taken, in kilobytes.
sub memory { my ($node) = @_; return read_file('/proc/' . ($node->workers)[0] . '/status') =~ /^VmHWM:\s+(\d+)/m ? $1 : undef }

subtest '150 nodes of 60 zones are whole' => sub {
    my $node = large_member();
    my $own = own_report($node);
    cmp_ok scalar(@{ $own->{zones} }), '==', $zones;
    $_->{passed} = 7 for @{ $own->{zones} };
    report($node->{redis}, map { encode_json({ %{$own}, name => "edge-$_", process => 1000 + $_ }) } 1 .. 149);
    my ($fleet) = asked($node, 150);
    is_deeply [@{ $fleet->{fleet} }{qw(nodes known left_out unreadable)}], [150, 150, 0, 0];
    is scalar(@{ $fleet->{nodes} }), 150;
    is scalar(@{ $fleet->{zones} }), $zones;
    is_deeply [grep { $_->{nodes} != 150 || $_->{passed} != 149 * 7 || $_->{differ} || !$_->{settings} } @{ $fleet->{zones} }], [],
        'each zone is summed over all of them';
};

subtest 'a difference names twenty nodes, and counts all' => sub {
    my $node = large_member();
    my $own = own_report($node);
    my ($zone) = grep { $_->{name} eq 'zone_number_7' } @{ $own->{zones} };
    my $same = encode_json($own);
    substr $zone->{each_setting}, 6, 3, 'fff';    # rate
    $zone->{settings} = 'other';
    my $other = encode_json($own);
    report($node->{redis}, map { ($_ <= 60 ? $same : $other) =~ s/"name":"\Q$own->{name}\E"/"name":"edge-$_"/r } 1 .. 100);
    my ($fleet) = asked($node, 101);
    my ($seen) = grep { $_->{name} eq 'zone_number_7' } @{ $fleet->{zones} };
    is $seen->{differ}, 40;
    is_deeply $seen->{settings_differ}, [map { "edge-$_" } 100, 61 .. 79];
    is_deeply $seen->{differences}, [{ setting => 'rate', differ => 40, nodes => $seen->{settings_differ} }];
    my ($edge) = grep { $_->{name} eq 'edge-99' } @{ $fleet->{nodes} };
    my ($of_node) = grep { $_->{name} eq 'zone_number_7' } @{ $edge->{zones} };
    isnt $of_node->{settings}, $seen->{settings}, 'one that is not named is in the digest';
};

subtest 'nodes that have no room are counted' => sub {
    my $node = large_member();
    my $own = own_report($node);
    report($node->{redis}, map { encode_json({ %{$own}, name => "edge-$_", process => 1000 + $_ }) } 1 .. 700);
    my ($fleet) = asked($node, 701);
    cmp_ok $fleet->{fleet}{left_out}, '>', 100;
    is @{ $fleet->{nodes} } + $fleet->{fleet}{left_out}, 701;
};

# Who can write to Redis: many zones that all differ, with names that are long in JSON.
for (['the same zones', 46, sub { $_[1] }], ['zones of two nodes each', 54, sub { int($_[0] / 2) . "-$_[1]" }],
    ['empty zones', 1000, sub { }]) {
    my ($name, $nodes, $zone_name) = @{$_};
    subtest "forged reports have an answer with a bound: $name" => sub {
        my $node = member(zone => 'rate=3r/d');
        $node->get('/ops/fleet');
        my $before = memory($node);
        my $long = "\x01" x 376;
        report($node->{redis}, map {
            my $i = $_;
            encode_json({ name => "$i$long", zones => [map {
                my $of = $zone_name->($i, $_);
                defined $of ? { name => "$of", settings => "$i", each_setting => sprintf('%03d', $i) x 13, limit => "$i" } : {}
            } 1 .. 250] })
        } 1 .. $nodes);
        my ($fleet, $length) = asked($node, $nodes + 1);
        cmp_ok $length, '<', 16_000_000, "the answer: $length bytes";
        is @{ $fleet->{nodes} } + $fleet->{fleet}{left_out} + $fleet->{fleet}{unreadable}, $nodes + 1, 'no node is forgotten';
        my $taken = memory($node) - $before;
        my $most = $ENV{RATELIMIT_SANITIZED} ? 300_000 : 100_000;  # the sanitizer keeps freed memory for a while
        cmp_ok $taken, '<', $most, "the memory of the worker: $taken KB";
        is_deeply [grep { length $_->{name} > 64 } @{ $fleet->{nodes} }], [], 'names are short';
        is $node->status('/?k=a'), 200;
    };
}

subtest 'a time that no calendar has is not shown' => sub {
    my $node = member(zone => 'rate=3r/d', key => '$arg_k');
    report($node->{redis}, encode_json({ name => 'forged', busiest => [{ zone => 'test', id => 'a', refused => 3, since => 2**53 }] }));
    is((asked($node, 2))[0]{busiest}[0]{since}, 0);
    override($node, 'good', { block => \1, reason => 'seen' });
    for my $member ('at', 'until') {
        change($node->{redis}, 'set', "ktest\0$member", qq({"block":true,"$member":9007199254740992));
    }
    my $listed = overrides($node)->{overrides};
    is scalar(@{$listed}), 3;
    is_deeply [grep { ($_->{until} // 0) > 8.64e12 || ($_->{at} // 0) > 8.64e12 } @{$listed}], [], 'of overrides';
    is scalar(grep { ($_->{reason} // '') eq 'seen' } @{$listed}), 1;
};

finish();

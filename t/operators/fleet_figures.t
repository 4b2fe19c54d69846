# The figures of the fleet in the API: its history, and what limits on trial would refuse.

use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

# Waits until /fleet of the node satisfies the condition; returns it.
sub fleet_where {
    my ($node, $what, $condition) = @_;
    return wait_until($what, sub {
        my $answer = $node->get('/ops/fleet');
        my $fleet = $answer->status == 200 ? decode_json($answer->body) : return;
        return $condition->($fleet) ? $fleet : undef;
    });
}

sub zone_in { my ($fleet, $name) = @_; return (grep { $_->{name} eq $name } @{ $fleet->{zones} })[0] }

# The requests in a history.
sub requests_in {
    my ($history) = @_;
    my $all = 0;
    $all += $_ for @{ $history->{passed} }, @{ $history->{refused} };
    return $all;
}

subtest 'an hour, six hours and two days of all nodes are kept over a reload' => sub {
    my $redis = redis();
    my @nodes = map { member(redis => $redis, zone => 'rate=3r/d', key => '$arg_k', fleet => "node=edge-$_") } 1 .. 2;
    $nodes[$_ % 2]->status('/?k=a') for 1 .. 8;
    my $histories = sub { my ($fleet) = @_; ($fleet->{history}, @{ $fleet->{longer_history} }) };
    my $all = sub { 3 == grep { requests_in($_) == $_[1] } $histories->($_[0]) };
    my $shown = fleet_where($nodes[0], 'all requests', sub { $all->($_[0], 8) });
    is_deeply [map { $_->{step} } $histories->($shown)], [60, 300, 1800];
    is $_->{start} % $_->{step}, 0, 'steps of the clock' for $histories->($shown);
    my ($before) = grep { $_->{name} eq 'edge-1' } @{ fleet_where($nodes[0], 'an age', sub { !grep { $_->{uptime} < 2 } @{ $_[0]{nodes} } })->{nodes} };
    cmp_ok abs($before->{uptime} - $before->{configured}), '<=', 1, 'its configuration is of its start';
    $nodes[0]->reload;
    $nodes[0]->status('/?k=a');
    my $after = fleet_where($nodes[1], 'nine requests, and a new configuration', sub {
        my ($reloaded) = grep { $_->{name} eq 'edge-1' } @{ $_[0]{nodes} };
        return $all->($_[0], 9) && $reloaded->{configured} < $reloaded->{uptime};
    });
    my ($other) = grep { $_->{name} eq 'edge-2' } @{ $after->{nodes} };
    cmp_ok abs($other->{uptime} - $other->{configured}), '<=', 1, 'the other node has not loaded it again';
};

subtest 'what a limit on trial would refuse is summed over the nodes' => sub {
    my $redis = redis();
    my @nodes = map {
        member(redis => $redis, zone => 'rate=9r/d', key => '$arg_k', fleet => "node=edge-$_",
            http => 'ratelimit_zone $arg_k zone=new rate=2r/d;',
            server => 'location /try/ { ratelimit zone=test; ratelimit zone=new shadow; try_files /index.html =404; }')
    } 1 .. 2;
    is $nodes[$_ % 2]->status('/try/?k=a'), 200 for 1 .. 5;
    my $shown = fleet_where($nodes[0], 'all counters', sub {
        my $zone = zone_in($_[0], 'new');
        return $_[0]{fleet}{nodes} == 2 && $zone && $zone->{passed} == 5;
    });
    is_deeply [@{ zone_in($shown, 'new') }{qw(refused would_refuse)}], [0, 3];
    is zone_in($shown, 'test')->{would_refuse}, 0;
    my $sum = 0;
    $sum += $_->{would_refuse} for map { grep { $_->{name} eq 'new' } @{ $_->{zones} } } @{ $shown->{nodes} };
    is $sum, 3, 'each node says its part';
};

finish();

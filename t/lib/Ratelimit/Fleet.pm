package Ratelimit::Fleet;

# Nodes of one fleet, and changes by their API.

use strict;
use warnings;

use Carp qw(croak);
use JSON::PP qw(decode_json encode_json);

use Ratelimit::Build qw(top);
use Ratelimit::FleetKeys qw(all_fleet_keys);
use Ratelimit::Process qw(read_file wait_until);
use Ratelimit::Test;

use Exporter 'import';
our @EXPORT = qw(member override take_back overrides in_force metric fleet_keys change);

my $api = 'location /ops/ { ratelimit_api write=on; } location /seen/ { ratelimit_api; }';

# A node of a fleet, with the options of node() and fleet (parameters of ratelimit_fleet).
sub member {
    my (%options) = @_;
    my $fleet = delete $options{fleet} // '';
    my ($http, $server) = map { delete $options{$_} // '' } qw(http server);
    return node(%options, http => "ratelimit_fleet $fleet; $http", server => "$api $server");
}

# Puts an override: of a key of the zone test, or of $path ("override" for the whole zone). Dies if it is
# refused. Returns the answer's JSON, with the members of its "override".
sub override {
    my ($node, $path, $change) = @_;
    $path = "keys/$path/override" if $path ne 'override';
    my $answer = $node->get("/ops/zones/test/$path", method => 'PUT',
        body => ref $change ? encode_json($change) : $change);
    croak $answer->status . ' ' . $answer->body if $answer->status != 200;
    my $set = decode_json($answer->body);
    return { %{$set}, %{ $set->{override} } };
}

sub take_back {
    my ($node, $path) = @_;
    $path = "keys/$path/override" if $path ne 'override';
    return $node->status("/ops/zones/test/$path", method => 'DELETE');
}

sub overrides {
    my ($node, $arguments) = @_;
    my $answer = $node->get('/ops/zones/test/overrides' . ($arguments // ''));
    croak $answer->status . ' ' . $answer->body if $answer->status != 200;
    return decode_json($answer->body);
}

# The value of a metric without labels, or with those given.
sub metric {
    my ($node, $name) = @_;
    my ($value) = $node->get('/ops/metrics')->body =~ /^\Q$name\E (\S+)$/m;
    return $value;
}

# Waits until the key's limit on the node is $limit.
sub in_force {
    my ($node, $key, $limit) = @_;
    return wait_until("a limit of $limit for $key", sub {
        my $answer = $node->get("/ops/zones/test/keys/$key");
        return $answer->status == 200 && decode_json($answer->body)->{limit} == $limit;
    });
}

# Makes a change in Redis as the API of any version does: set, remove or free; $id as in lua/fleet_sync.lua;
# $text: of set, without its closing brace.
sub change {
    my ($redis, $what, $id, $text, $prefix) = @_;
    my @keys = all_fleet_keys($prefix);
    return $redis->cmd('EVAL', read_file(top() . '/lua/fleet_change.lua'), scalar @keys, @keys, $what, $id, $text // '', 0, 5000);
}

# The fleet's keys in a Redis.
sub fleet_keys { my ($redis) = @_; return $redis->keys_like('rl:{fleet}:*') }

1;

package Ratelimit::FleetKeys;

# The keys of a fleet in Redis.

use strict;
use warnings;

use Exporter 'import';
our @EXPORT = qw(all_fleet_keys);

# All of them, in the order in which lua/fleet_sync.lua and lua/fleet_change.lua take them.
sub all_fleet_keys {
    my ($prefix) = @_;
    $prefix //= 'rl:';
    return map { "$prefix\{fleet}:$_" } qw(alive nodes changes overrides ends events state journal gone);
}

1;

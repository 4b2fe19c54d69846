package Bench::Fleet;

# A node of a fleet that reports what it refuses, and other nodes like it, which are only in Redis.

use strict;
use warnings;

use JSON::PP ();
use Time::HiRes qw(time);

use Ratelimit::Process qw(wait_until);
use Ratelimit::Redis;

use Bench::Servers qw(location ours redis_block);

use Exporter 'import';
our @EXPORT_OK = qw(reporting_node report_like add_nodes keep_alive);

my @limits = map { "limit_$_" } 1 .. 5;    # the zones of a node that reports
my $json   = JSON::PP->new->canonical->utf8;    # as the module writes a report

# A node with @limits: its Redis, its nginx, and its report after it has refused as many keys as a report has.
sub reporting_node {
    my $redis = Ratelimit::Redis->new;
    my $zones = join '', map { "ratelimit_zone \$arg_key zone=$_ rate=1r/d;\n" } @limits;
    my $nginx = ours(http => redis_block($redis) . "ratelimit_fleet node=edge-1;\n$zones",
        server => join '', location('/none', ''), 'location /ops/ { ratelimit_api; }',
        map { location("/$_", "ratelimit zone=$_;") } @limits);
    for my $number (0 .. 39) {    # 203.0.113.N are addresses for examples
        $nginx->get("/$limits[$number % 2]?key=203.0.113." . (100 + int $number / 2)) for 1 .. 3;
    }
    my $report = wait_until('the node reports what it refuses', sub {
        my (undef, $text) = @{ $redis->cmd('HGETALL', 'rl:{fleet}:nodes') };
        my $seen = $json->decode($text // return);
        my $whole = @{ $seen->{busiest} } == 20 && @{ $seen->{zones} } == @limits;
        return $whole && $seen->{redis}[0]{state} eq 'up' ? $seen : undef;
    });
    return ($redis, $nginx, $report);
}

# The report of another node like this one: its figures are larger, and it refuses keys that no other node does.
sub report_like {
    my ($report, $node) = @_;
    my $larger = sub {
        my %member = %{ $_[0] };
        $member{$_} = 1_000_000 + int rand 10_000_000 for grep { exists $member{$_} } qw(passed refused);
        return \%member;
    };
    my @busiest = map { $larger->($_) } @{ $report->{busiest} };
    $_->{id} = join '.', map { 100 + int rand 156 } 1 .. 4 for @busiest;
    return $json->encode({ %{$report}, name => sprintf('edge-%03d', $node), uptime => 1_000_000 + $node,
        zones => [map { $larger->($_) } @{ $report->{zones} }], busiest => \@busiest });
}

# Adds the nodes from the second to this one.
sub add_nodes {
    my ($redis, $report, $nodes) = @_;
    $redis->cmd('HSET', 'rl:{fleet}:nodes', sprintf('%032x', $_), report_like($report, $_)) for 2 .. $nodes;
    return;
}

# Lets them live for nine seconds: a node is away five seconds after its last call.
sub keep_alive {
    my ($redis, $nodes) = @_;
    return $redis->cmd('ZADD', 'rl:{fleet}:alive', map { (int 1e6 * (time + 4), sprintf '%032x', $_) } 2 .. $nodes);
}

1;

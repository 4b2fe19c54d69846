package Chaos::Limits;

# The limits that the nodes enforce, one zone for each, and a location of the zone's name for each.

use strict;
use warnings;

use Exporter 'import';
our @EXPORT_OK = qw(limits zone_lines location_lines let_in);

# name => what the checker has to know: algorithm, quota and window (seconds), burst, precision; and
# lease and key as ratelimit_zone has them, limit and more of its location, weight of its share of the
# requests (1). Those without an algorithm have a new key for each request and let everything in.
my %limits = (
    fixed   => { algorithm => 'fixed_window', quota => 40, window => 2 },
    counter => { algorithm => 'sliding_window_counter', quota => 40, window => 2 },
    log     => { algorithm => 'sliding_window_log', quota => 40, window => 2 },
    buckets => { algorithm => 'sliding_window_buckets', quota => 80, window => 4, precision => 1 },
    token   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40 },
    gcra    => { algorithm => 'gcra', quota => 20, window => 1, burst => 20 },
    leaky   => { algorithm => 'leaky_bucket', quota => 20, window => 1, burst => 5, delay => 0.3 },
    lease   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40, lease => 5 },
    local   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40, weight => 0.5,
        more => 'ratelimit_fail_mode local;' },
    # Two limits in one decision, on two servers of a ring.
    several => { algorithm => 'gcra', quota => 20, window => 1, burst => 20, weight => 2,
        limit => 'ratelimit zone=whole;' },
    whole  => { algorithm => 'token_bucket', quota => 25, window => 1, burst => 50, key => 'all', weight => 0 },
    free   => { weight => 8 },
    closed => { weight => 2, more => 'ratelimit_fail_mode closed;' },
);

sub limits { return \%limits }

sub zone_lines {
    return join '', map { _zone_line($_, $limits{$_}) } sort keys %limits;
}

sub _zone_line {
    my ($name, $limit) = @_;
    return "ratelimit_zone \$arg_k zone=$name rate=1000r/m;\n" unless $limit->{algorithm};
    my $key  = $limit->{key} // '$arg_k';
    my $line = "ratelimit_zone $key zone=$name algorithm=$limit->{algorithm}"
        . " rate=$limit->{quota}r/$limit->{window}s";
    $line .= " burst=$limit->{burst}" if defined $limit->{burst};
    $line .= " precision=$limit->{precision}s" if $limit->{precision};
    $line .= " lease=$limit->{lease}" if $limit->{lease};
    return "$line;\n";
}

sub location_lines {
    my @locations = grep { ($limits{$_}{weight} // 1) > 0 } sort keys %limits;
    return join '', map {
        "location /$_ { ratelimit zone=$_; @{[ $limits{$_}{limit} // '' ]} @{[ $limits{$_}{more} // '' ]}"
            . " try_files /index.html =404; }\n"
    } @locations;
}

# Of a zone, by key: [sent, received] of the requests that Redis let in, or a lease of it; and apart from
# them those that a node let in by its own memory, whose limit is as large. `lag`: how
# much later than it was counted, in seconds, a lease may have been spent.
sub let_in {
    my ($zone, $requests, $lag) = @_;
    my %keys;
    for my $request (@{$requests}) {
        next unless $request->{status} =~ /^(?:PASSED|DELAYED)$/;
        my $source = $request->{source} // '';
        my $in = $request->{zone} eq $zone ? $request->{key}
            : $zone eq 'whole' && $request->{zone} eq 'several' ? 'all' : next;
        $in .= " of node $request->{node} alone" if $source eq 'local';
        # Clocks that are read once in a turn: a millisecond either way.
        my $early = 0.001 + ($source eq 'lease' ? $lag->($request) : 0);
        push @{ $keys{$in} }, [$request->{sent} - $early, $request->{received} + 0.001];
    }
    return \%keys;
}

1;

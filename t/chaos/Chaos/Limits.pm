package Chaos::Limits;

# The limits that the nodes enforce: a zone for each, and a location of the zone's name.

use strict;
use warnings;

use Exporter 'import';
our @EXPORT_OK = qw(limits own_limit zone_lines location_lines let_in);

# name => parameters for the checker: algorithm, quota and window (seconds), burst, precision; lease and key
# of ratelimit_zone; block (seconds); parameters of its `ratelimit`; limit and more of its location; weight, its
# share of the requests (1); file, the response; delay, the seconds that a response may take longer than its
# decision; overrides, which keys get while they are used: limit => JSON. The algorithm `concurrency` has a quota and a hold (seconds). Zones without an
# algorithm have a new key for each request and admit all.
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
    # What a request costs more in the end must not let others through.
    charged => { algorithm => 'gcra', quota => 20, window => 1, burst => 20, parameters => 'charge=2$arg_none' },
    blocked => { algorithm => 'fixed_window', quota => 5, window => 1, block => 1 },
    # Their keys have overrides that change. Those of one zone have one window, or one rate.
    changed => { algorithm => 'fixed_window', quota => 40, window => 2,
        overrides => { 10 => '{"rate":"10r/2s"}', 60 => '{"rate":"60r/2s"}' } },
    bursts => { algorithm => 'gcra', quota => 20, window => 1, burst => 20,
        overrides => { 6 => '{"rate":"20r/s","burst":5}', 41 => '{"rate":"20r/s","burst":40}' } },
    # Its responses take about two seconds.
    busy => { algorithm => 'concurrency', quota => 3, hold => 3, delay => 5,
        more => 'limit_rate 2000; access_log held.log held;', file => 'slow.txt' },
    whole  => { algorithm => 'token_bucket', quota => 25, window => 1, burst => 50, key => 'all', weight => 0 },
    free   => { weight => 8 },
    closed => { weight => 2, more => 'ratelimit_fail_mode closed;' },
);

sub limits { return \%limits }

# $ratelimit_limit of a zone without an override.
sub own_limit {
    my ($zone) = @_;
    return $limits{$zone}{burst} ? 1 + $limits{$zone}{burst} : $limits{$zone}{quota};
}

sub zone_lines {
    return join '', map { _zone_line($_, $limits{$_}) } sort keys %limits;
}

sub _zone_line {
    my ($name, $limit) = @_;
    return "ratelimit_zone \$arg_k zone=$name rate=1000r/m;\n" unless $limit->{algorithm};
    my $key  = $limit->{key} // '$arg_k';
    return "ratelimit_zone $key zone=$name concurrency=$limit->{quota} hold=$limit->{hold}s;\n"
        if $limit->{algorithm} eq 'concurrency';
    my $line = "ratelimit_zone $key zone=$name algorithm=$limit->{algorithm}"
        . " rate=$limit->{quota}r/$limit->{window}s";
    $line .= " burst=$limit->{burst}" if defined $limit->{burst};
    $line .= " precision=$limit->{precision}s" if $limit->{precision};
    $line .= " lease=$limit->{lease}" if $limit->{lease};
    $line .= " block=$limit->{block}s" if $limit->{block};
    return "$line;\n";
}

sub location_lines {
    my @locations = grep { ($limits{$_}{weight} // 1) > 0 } sort keys %limits;
    return join '', map {
        "location /$_ { ratelimit zone=$_ @{[ $limits{$_}{parameters} // '' ]}; @{[ $limits{$_}{limit} // '' ]}"
            . " @{[ $limits{$_}{more} // '' ]} try_files /@{[ $limits{$_}{file} // 'index.html' ]} =404; }\n"
    } @locations;
}

# The admitted requests of a zone by key, as [sent, received]: those that Redis or a lease admitted, and
# separately those that a node's own memory admitted, whose limit is as large. `lag`: code that returns how
# many seconds after it was counted a lease may have been used.
sub let_in {
    my ($zone, $requests, $lag) = @_;
    my %keys;
    for my $request (@{$requests}) {
        next unless $request->{status} =~ /^(?:PASSED|DELAYED)$/;
        my $source = $request->{source} // '';
        my $in = $request->{zone} eq $zone ? $request->{key}
            : $zone eq 'whole' && $request->{zone} eq 'several' ? 'all' : next;
        $in .= " of node $request->{node} alone" if $source eq 'local';
        # nginx reads its clock once in each turn of the loop: a millisecond either way.
        my $early = 0.001 + ($source eq 'lease' ? $lag->($request) : 0);
        push @{ $keys{$in} }, [$request->{sent} - $early, $request->{received} + 0.001];
    }
    return \%keys;
}

1;

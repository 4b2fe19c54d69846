package Chaos::Limits;

# The limits that the nodes enforce: a zone for each, and a location of the zone's name.

use strict;
use warnings;

use Exporter 'import';
our @EXPORT_OK = qw(limits leave_out own_limit counting key_in keys_of zone_lines location_lines let_in);

# name => parameters for the checker: algorithm, quota and window (seconds), burst, precision; lease, ahead and key
# of ratelimit_zone; block (seconds); parameters of its `ratelimit`; with, other zones that count its requests too;
# more of its location; weight, its share of the requests (1); file, the response; delay, the seconds that a
# response may take longer than its decision; overrides, which keys get while they are used: limit => JSON. The
# algorithm `concurrency` has a quota and a hold (seconds). Zones without an algorithm have a new key for each
# request and admit all.
# keys: "new" (one for each request), "client" (one for each), a number of them, "rally" (see Chaos::Clients); default:
# a and b. of: no zone, but another location of that one. charge: what a request costs in the end.
my %limits = (
    fixed   => { algorithm => 'fixed_window', quota => 40, window => 2 },
    counter => { algorithm => 'sliding_window_counter', quota => 40, window => 2 },
    log     => { algorithm => 'sliding_window_log', quota => 40, window => 2 },
    buckets => { algorithm => 'sliding_window_buckets', quota => 80, window => 4, precision => 1 },
    token   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40 },
    gcra    => { algorithm => 'gcra', quota => 20, window => 1, burst => 20 },
    leaky   => { algorithm => 'leaky_bucket', quota => 20, window => 1, burst => 5, delay => 0.3 },
    lease   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40, lease => 5 },
    # They pass before Redis has counted them.
    early => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40, ahead => 3 },
    first => { algorithm => 'sliding_window_log', quota => 40, window => 2, ahead => 3 },
    local   => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 40, weight => 0.5,
        more => 'ratelimit_fail_mode local;' },
    # Two limits in one decision, on two servers of a ring.
    several => { algorithm => 'gcra', quota => 20, window => 1, burst => 20, weight => 2,
        with => ['whole'] },
    # What a request costs more in the end must not let others through; what it costs less refuses nobody.
    charged => { algorithm => 'gcra', quota => 20, window => 1, burst => 20, charge => 2 },
    refunded => { algorithm => 'sliding_window_log', quota => 12, window => 4, charge => 0 },
    blocked => { algorithm => 'fixed_window', quota => 5, window => 1, block => 1 },
    # A block that ends before its window forgets nothing.
    brief => { algorithm => 'sliding_window_log', quota => 20, window => 4, block => 1 },
    # Their keys have overrides that change. Those of one zone have one window, or one rate.
    changed => { algorithm => 'fixed_window', quota => 40, window => 2,
        overrides => { 10 => '{"rate":"10r/2s"}', 60 => '{"rate":"60r/2s"}' } },
    bursts => { algorithm => 'gcra', quota => 20, window => 1, burst => 20,
        overrides => { 6 => '{"rate":"20r/s","burst":5}', 41 => '{"rate":"20r/s","burst":40}' } },
    # Its responses take about two seconds.
    busy => { algorithm => 'concurrency', quota => 3, hold => 3, delay => 5,
        more => 'limit_rate 2000; access_log held-busy.log held;', file => 'slow.txt' },
    # Short and long requests of one key.
    mixed => { algorithm => 'concurrency', quota => 4, hold => 4, more => 'access_log held-mixed.log held;' },
    long  => { of => 'mixed', weight => 0.1, delay => 5, more => 'limit_rate 2000; access_log held-mixed.log held;',
        file => 'slow.txt' },
    # Each client waits for its response before it sends the next request. The second has a limit on another
    # server, which often refuses.
    serial => { algorithm => 'concurrency', quota => 1, hold => 8, keys => 'client', weight => 3 },
    joint  => { algorithm => 'concurrency', quota => 1, hold => 8, keys => 'client', weight => 2, with => ['tight'] },
    tight  => { algorithm => 'token_bucket', quota => 20, window => 1, burst => 20, key => 'tight', weight => 0 },
    whole  => { algorithm => 'token_bucket', quota => 25, window => 1, burst => 50, key => 'all', weight => 0 },
    # The only request of its key.
    once => { algorithm => 'gcra', quota => 1, window => 3600, burst => 0, block => 3600, keys => 'new', weight => 3 },
    # Most requests of many at one time are refused by the first limit, and must not begin a block of the second.
    own    => { algorithm => 'fixed_window', quota => 2, window => 1, keys => 'rally', weight => 0.15, with => ['theirs'] },
    theirs => { algorithm => 'gcra', quota => 10, window => 1, burst => 9, block => 20, key => '$arg_v', weight => 0 },
    # What only tries to refuse begins no block.
    shade  => { algorithm => 'fixed_window', quota => 2, window => 1, block => 1, keys => 10, parameters => 'shadow' },
    shaded => { of => 'shade', keys => 10, weight => 0.1 },
    # What the fail mode refuses is not counted.
    shut => { algorithm => 'sliding_window_log', quota => 40, window => 4, more => 'ratelimit_fail_mode closed;' },
    free   => { weight => 8 },
    closed => { weight => 2, more => 'ratelimit_fail_mode closed;' },
);

sub limits { return \%limits }

# Runs without these limits.
sub leave_out {
    my (@names) = @_;
    for my $name (@names) {
        delete @limits{ $name, grep { ($limits{$_}{of} // '') eq $name } keys %limits };
        for my $limit (values %limits) {
            $limit->{with} = [grep { $_ ne $name } @{ $limit->{with} }] if $limit->{with};
        }
    }
    return;
}

# $ratelimit_limit of a zone without an override.
sub own_limit {
    my ($zone) = @_;
    return $limits{$zone}{burst} ? 1 + $limits{$zone}{burst} : $limits{$zone}{quota};
}

# The zones that count the requests of a location.
sub counting {
    my ($location) = @_;
    my $limit = $limits{$location} // {};
    my @zones = ($limit->{of} // $location, @{ $limit->{with} // [] });
    return @zones;    # in scalar context their number
}

# The key of a request in a zone that counts it.
sub key_in {
    my ($zone, $request) = @_;
    my $key = $limits{$zone}{key} // return $request->{key};
    return $key eq '$arg_v' ? $request->{other} : $key;
}

# The keys of a zone that more than one request uses; clients: their number.
sub keys_of {
    my ($zone, $clients) = @_;
    my $keys = $limits{$zone}{keys} // 2;
    return $keys eq 'client' ? (map { "c$_" } 1 .. $clients)
        : $keys eq '2'       ? ('a', 'b')
        : $keys =~ /\D/      ? ()
        :                      (map { "k$_" } 1 .. $keys);
}

# hold: factor of every `hold=` (1).
sub zone_lines {
    my (%options) = @_;
    return join '', map { _zone_line($_, $limits{$_}, $options{hold} // 1) }
        grep { !$limits{$_}{of} } sort keys %limits;
}

sub _zone_line {
    my ($name, $limit, $hold) = @_;
    return "ratelimit_zone \$arg_k zone=$name rate=1000r/m;\n" unless $limit->{algorithm};
    my $key  = $limit->{key} // '$arg_k';
    return "ratelimit_zone $key zone=$name concurrency=$limit->{quota} hold=@{[ $hold * $limit->{hold} ]}s;\n"
        if $limit->{algorithm} eq 'concurrency';
    my $line = "ratelimit_zone $key zone=$name algorithm=$limit->{algorithm}"
        . " rate=$limit->{quota}r/$limit->{window}s";
    $line .= " burst=$limit->{burst}" if defined $limit->{burst};
    $line .= " precision=$limit->{precision}s" if $limit->{precision};
    $line .= " lease=$limit->{lease}" if $limit->{lease};
    $line .= " ahead=$limit->{ahead}" if $limit->{ahead};
    $line .= " block=$limit->{block}s" if $limit->{block};
    return "$line;\n";
}

sub location_lines {
    my @locations = grep { ($limits{$_}{weight} // 1) > 0 } sort keys %limits;
    return join '', map { _location_line($_, $limits{$_}) } @locations;
}

sub _location_line {
    my ($name, $limit) = @_;
    my ($own, @with) = counting($name);
    my $parameters = $limit->{parameters} // '';
    $parameters .= " charge=$limit->{charge}\$arg_none" if defined $limit->{charge};
    my $others = join ' ', map { "ratelimit zone=$_;" } @with;
    return "location /$name { ratelimit zone=$own $parameters; $others @{[ $limit->{more} // '' ]}"
        . " try_files /@{[ $limit->{file} // 'index.html' ]} =404; }\n";
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
        next unless grep { $_ eq $zone } counting($request->{zone});
        my $in = key_in($zone, $request);
        $in .= " of node $request->{node} alone" if $source eq 'local';
        # nginx reads its clock once in each turn of the loop: a millisecond either way.
        my $early = 0.001 + ($source eq 'lease' ? $lag->($request) : 0);
        push @{ $keys{$in} }, [$request->{sent} - $early, $request->{received} + 0.001];
    }
    return \%keys;
}

1;

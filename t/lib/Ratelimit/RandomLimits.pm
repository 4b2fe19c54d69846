package Ratelimit::RandomLimits;

# Zones and limits by chance, for the properties that ratelimit-rehearse must have with all of them (t/rehearse). Their
# logs have $arg_c, $arg_r, $arg_g and $arg_p: cost, reserve, charge and rate.

use strict;
use warnings;

use Exporter 'import';
our @EXPORT_OK = qw(one_of random_zone random_limit);

sub one_of { my @of = @_; return $of[rand @of] }

sub random_zone {
    my ($name) = @_;
    my $key = one_of('$remote_addr', '$remote_addr', '$remote_addr$uri', 'all');
    return { name => $name, key => $key, quota => 1 + int rand 9, rate => 'concurrency=%s', parameters => '', concurrency => 1 } if rand() < 0.15;
    return { name => $name, key => $key, quota => '$arg_p', rate => 'rate=%s', parameters => '', variable => 1 } if rand() < 0.15;
    my ($algorithm) = one_of('fixed_window', 'sliding_window_counter', 'sliding_window_log', 'sliding_window_buckets precision=5s',
        'token_bucket', 'token_bucket burst=4', 'gcra burst=1', 'leaky_bucket burst=3', 'fixed_window calendar=Europe/Berlin');
    return { name => $name, key => $key, quota => 1 + int(rand 40), rate => $algorithm =~ /calendar/ ? 'rate=%dr/day' : one_of('rate=%dr/m', 'rate=%dr/10s'),
        parameters => "algorithm=$algorithm" . (rand() < 0.3 ? ' block=20s' : '') };
}

sub random_limit {
    my ($zone) = @_;
    my @words = "ratelimit zone=$zone->{name}";
    push @words, one_of('cost=2$arg_none', 'cost=$arg_c', 'cost=0') if rand() < 0.3;
    push @words, 'charge=$arg_g' if !$zone->{concurrency} && rand() < 0.25;
    my $room = $zone->{variable} || $zone->{parameters} =~ /burst/ ? 2 : $zone->{quota};    # for what is reserved
    push @words, one_of('reserve=$arg_r', ('reserve=20%') x ($room > 1), ('reserve=2') x ($room > 2)) if rand() < 0.3;
    push @words, 'shadow' if rand() < 0.2;
    return "@words;";
}

1;

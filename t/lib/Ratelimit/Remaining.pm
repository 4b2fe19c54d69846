package Ratelimit::Remaining;

# What remains of a limit, as a location says that takes nothing (cost=0): /peek unless another is given.

use strict;
use warnings;

use Ratelimit::Process qw(wait_until);
use Test::More;

use Exporter 'import';
our @EXPORT_OK = qw(remaining remains);

# The path may be a query of /peek.
sub remaining {
    my ($node, $path) = @_;
    $path //= '';
    return $node->get($path =~ m{^/} ? $path : "/peek$path")->header('X-RateLimit-Remaining');
}

# Checks that so much remains soon: refunds, charges and releases arrive after the response.
sub remains {
    my ($node, $expected, $what, $path, $seconds) = @_;
    my $seen;
    my $same = sub { ($seen = remaining($node, $path) // 'an unknown number') eq $expected };
    my $arrived = eval { wait_until($what, $same, $seconds); 1 };
    ok $arrived, "$what: $expected remain" or diag "$seen remain";
    return;
}

1;

package Ratelimit::Progress;

# A plugin of prove: how many files have ended is printed after every tenth. ./build.sh test uses it: -PRatelimit::Progress.

use strict;
use warnings;

use TAP::Harness;

our @ISA = ('TAP::Harness');

# prove calls it, and then makes its harness of this class.
sub load {
    my ($class, $prove) = @_;
    $prove->{app_prove}->harness($class);
    return 1;
}

sub aggregate_tests {
    my ($self, $aggregate, @tests) = @_;
    my $ended = 0;
    $self->callback(after_test => sub { print '# ', $ended, ' of ', scalar(@tests), " files\n" if ++$ended % 10 == 0 });
    return $self->SUPER::aggregate_tests($aggregate, @tests);
}

1;

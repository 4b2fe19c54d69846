package Chaos::Clock;

# The clock of one program, which can step while the program runs.

use strict;
use warnings;

use File::Basename qw(dirname);
use Ratelimit::Process qw(temp_folder);

my ($folder, $library, $clocks);

# Option: passes (1: the monotonic clock steps, too, as if time passed).
sub new {
    my ($class, %options) = @_;
    if (!$library) {
        $folder  = temp_folder();
        my $code = dirname(__FILE__) . '/../clock_shift.c';
        my $made = "$folder/clock_shift.so";
        system('cc', qw(-O2 -shared -fPIC -o), $made, $code) == 0 or die "$code cannot be compiled\n";
        $library = $made;
    }
    my $self = bless { %options, path => "$folder/" . ++$clocks, offset => 0 }, $class;
    $self->_write;
    return $self;
}

# Variables for the program's environment.
sub environment {
    my ($self) = @_;
    # A program that is built with the address sanitizer would not start.
    my $asan = join ':', 'verify_asan_link_order=0', $ENV{ASAN_OPTIONS} // ();
    return { LD_PRELOAD => $library, CLOCK_SHIFT => $self->{path}, ASAN_OPTIONS => $asan,
        $self->{passes} ? (CLOCK_SHIFT_MONOTONIC => 1) : () };
}

# Steps the clock by $seconds, forwards or backwards.
sub step {
    my ($self, $seconds) = @_;
    $self->{offset} += $seconds;
    return $self->_write;
}

sub _write {
    my ($self) = @_;
    open my $file, -e $self->{path} ? '+<' : '>', $self->{path} or die "$self->{path}: $!\n";
    syswrite $file, pack 'q', 1_000_000 * $self->{offset};
    return close $file;
}

1;

#!/usr/bin/env perl
# Makes small slips in the code, one at a time, and runs the tests that should notice them.
#
# t/mutate/run.pl            all slips of t/mutate/slips*
# t/mutate/run.pl NAME...    some of them
# t/mutate/run.pl --list     their names
# t/mutate/run.pl --check    only whether each text stands in its file exactly once
#
# Run it after ./build.sh test t/unit/unit.t, in a tree without uncommitted changes of the files: they are changed in
# place, and restored at the end, also by SIGINT and SIGTERM. It ends with status 1 if a slip was not noticed.

use strict;
use warnings;

use FindBin;

my $top = "$FindBin::Bin/../..";
chdir $top or die "$top: $!\n";
my $build = $ENV{BUILD_DIR} // 'build';
my $unit = "$build/unit";
$| = 1;

sub text_of {
    my ($file, $text) = @_;
    open my $handle, defined $text ? '>' : '<', $file or die "$file: $!\n";
    return do { local $/; <$handle> } unless defined $text;
    print {$handle} $text;
    close $handle or die "$file: $!\n";
    return;
}

# The slips: name, file, notice (a gtest filter, or files for prove), from, to. Each is a paragraph of t/mutate/slips.
sub slips {
    my @slips;
    for my $paragraph (grep { !/\A#/ } map { split /\n{2,}/, text_of($_) } glob 't/mutate/slips*') {
        my %slip = (from => '', to => '');
        for (split /\n/, $paragraph) {
            if    (/^- ?(.*)/)      { $slip{from} .= "$1\n" }
            elsif (/^\+ ?(.*)/)     { $slip{to}   .= "$1\n" }
            elsif (/^(\w+): (.*)/) { $slip{$1} = $2 }
            else                    { die "t/mutate/slips: what is \"$_\"?\n" }
        }
        $slip{$_} // die "t/mutate/slips: a slip without $_:\n$paragraph\n" for qw(name file notice);
        push @slips, \%slip;
    }
    return @slips;
}

sub stands_once {
    my ($slip) = @_;
    my $count = () = text_of($slip->{file}) =~ /^\Q$slip->{from}\E/mg;
    return $count == 1;
}

my ($changed, $original);
sub restore {
    text_of($changed, $original) if defined $changed;
    undef $changed;
    return;
}
END { restore() }
local @SIG{qw(INT TERM)} = (sub { exit 130 }) x 2;

sub status_of { return system('sh', '-c', "$_[0] >'$build/mutate.log' 2>&1") }

# The first test that failed.
sub failed_test {
    return text_of("$build/mutate.log") =~ /^\[  FAILED  \] (\S+?),? |^\s*#\s+Failed test '(.*)'$/m ? $1 // $2 : 'it died';
}

# What becomes of a slip: 'noticed' if a test fails, and by which. One that does not build tries no test.
sub result_of {
    my ($slip) = @_;
    my ($make, $test) = $slip->{notice} =~ m{^t/}
        ? ('./build.sh --no-install', "prove $slip->{notice}")
        : ("cmake --build '$unit' --target unit",
            "TRACE_STEPS=1000 timeout 600 '$unit/unit' --gtest_fail_fast --gtest_filter='$slip->{notice}'");
    return 'NO BUILD' if status_of($make) != 0;
    my $status = status_of($test);
    return ($status == 0 ? 'NOT NOTICED' : $status == 124 << 8 ? 'NO END' : 'noticed', failed_test());
}

my @slips = slips();
my ($mode) = grep { /^--/ } @ARGV;
my %wanted = map { $_ => 1 } grep { !/^--/ } @ARGV;
if (($mode // '') eq '--list') {
    print "$_->{name}\n" for @slips;
    exit 0;
}
my @bad = grep { !stands_once($_) } @slips;
print "$_->{name}: its text does not stand in $_->{file} exactly once\n" for @bad;
exit(@bad ? 1 : 0) if @bad || ($mode // '') eq '--check';

-x "$unit/unit" or die "$unit/unit is not there: run ./build.sh test t/unit/unit.t first\n";
my ($noticed, $tried) = (0, 0);
for my $slip (grep { !%wanted || $wanted{ $_->{name} } } @slips) {
    ($changed, $original) = ($slip->{file}, text_of($slip->{file}));
    text_of($changed, $original =~ s/^\Q$slip->{from}\E/$slip->{to}/mr);
    my ($result, $test) = result_of($slip);
    restore();
    $tried++;
    $noticed++ if $result eq 'noticed';
    print join(' ', sprintf('%-12s', $result), $slip->{name}, $result eq 'noticed' ? "by $test" : ()), "\n";
}
print "$noticed of $tried slips were noticed\n";
exit($noticed == $tried ? 0 : 1);

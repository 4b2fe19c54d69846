package Bench::Counts;

# The file that keeps the instruction counts of `./build.sh bench steps`, and what a measurement shows beside it.
#
# Its first line names the versions that "now" was measured with. Each other line: the row, whose instructions (module,
# nginx or Redis), and the counts of each column: two commits of the past, and the commit that has the file.

use strict;
use warnings;

use Ratelimit::Process qw(read_file write_file);

use Exporter 'import';
our @EXPORT_OK = qw(@columns read_counts write_counts with_column print_comparison);

our @columns = qw(7f0d2c1 94e837f now);
my $bound = 1.02;

# { versions, rows: in the file's order [row, whose, { column => count or '-' }] }
sub read_counts {
    my ($path) = @_;
    my ($versions, undef, @lines) = split /\n/, read_file($path);
    my @rows;
    for (@lines) {
        my ($row, $whose, @counts) = split /\t/;
        my %of;
        @of{@columns} = @counts;
        push @rows, [$row, $whose, \%of];
    }
    return { versions => ($versions // '') =~ s/^# //r, rows => \@rows };
}

sub write_counts {
    my ($path, $counts) = @_;
    my $head = join "\t", 'row', 'whose', @columns;
    my @lines = map { my ($row, $whose, $of) = @{$_}; join "\t", $row, $whose, map { $_ // '-' } @{$of}{@columns} }
        @{ $counts->{rows} };
    return write_file($path, join "\n", "# $counts->{versions}", $head, @lines, '');
}

# The kept counts with one column measured again. A measurement of "now" says which rows there are, in which order.
sub with_column {
    my ($kept, $column, $measured) = @_;
    my ($old, $new) = map { by_name($_) } $kept, $measured;
    return { versions => $kept->{versions},
        rows => [map { [@{$_}[0, 1], { %{ $_->[2] }, $column => ($new->{"$_->[0], $_->[1]"} // {})->{$column} }] } @{ $kept->{rows} }] }
        if $column ne 'now';
    return { versions => $measured->{versions},
        rows => [map { [@{$_}[0, 1], { %{ $old->{"$_->[0], $_->[1]"} // {} }, %{ $_->[2] } }] } @{ $measured->{rows} }] };
}

# The counts of each column, by row and whose.
sub by_name {
    my ($counts) = @_;
    return { map { ("$_->[0], $_->[1]" => $_->[2]) } @{ $counts->{rows} } };
}

# Prints one line for each count that differs by more than 2 % from the file's, or that only one of the two has.
# Returns whether none rises. Other versions of the compiler, the libraries or the servers have other counts: nothing
# is compared then.
sub print_comparison {
    my ($kept, $measured) = @_;
    if ($kept->{versions} ne $measured->{versions}) {
        print "Not compared: the file is of $kept->{versions}; here is $measured->{versions}.\n";
        return 1;
    }
    my ($before, $now) = map { by_name($_) } $kept, $measured;
    my ($wrong, $falls) = (0, 0);
    my %names = (%{$before}, %{$now});
    for my $name (sort keys %names) {
        my ($old, $new) = map { ($_->{$name} // {})->{now} } $before, $now;
        if (!defined $old || !defined $new) {
            print "$name: ", defined $old ? 'not measured' : 'not in the file', "\n";
            ++$wrong;
            next;
        }
        my $text = sprintf "%s: %d -> %d (%+.1f %%)\n", $name, $old, $new, 100 * ($new / $old - 1);
        if    ($new > $bound * $old) { ++$wrong; print "Rises: $text" }
        elsif ($bound * $new < $old) { ++$falls; print "Falls: $text" }
    }
    print 'Run "./build.sh bench steps", and say in the commit that changes t/bench/counts.tsv why it does.', "\n"
        if $wrong || $falls;
    print "No count is more than 2 % above t/bench/counts.tsv.\n" if !$wrong;
    return !$wrong;
}

1;

package Bench::Callgrind;

# A program under valgrind's callgrind, and the instructions that it executed between two moments.

use strict;
use warnings;

use Ratelimit::Process qw(read_file temp_folder wait_until write_file);

# $program: what runs; $mark: one of its functions. Each time it enters that function, callgrind writes the counts
# since the last time, so a mark is exact, and no debugger has to interrupt the program.
sub new {
    my ($class, $program, $mark) = @_;
    my $folder = temp_folder();
    # valgrind shows its programs the same processor everywhere, but one without AVX2 on a machine that has none.
    # The tunables of glibc let it choose the same functions for memory and strings on both.
    write_file("$folder/run", <<"RUN");
#!/bin/sh
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX,-BMI1,-BMI2,-ERMS,-FSRM,-MOVBE,-LZCNT,-SSE4_2,-SSSE3
exec valgrind --quiet --vgdb=no --tool=callgrind --dump-line=no --dump-before=$mark \\
    --callgrind-out-file=$folder/counts $program "\$@"
RUN
    chmod 0755, "$folder/run";
    return bless { folder => $folder, marks => 0 }, $class;
}

# The path of a command that runs the program under callgrind.
sub command { return "$_[0]{folder}/run" }

# The counts since the last mark, when `enter` has made the program enter the marked function.
sub counts {
    my ($self, $enter) = @_;
    my $file = "$self->{folder}/counts." . ++$self->{marks};
    $enter->();
    wait_until('callgrind has written its counts', sub { -s $file && read_file($file) =~ /^totals: /m }, 60);
    my $counts = parse(read_file($file));
    unlink $file;
    return $counts;
}

# The counts in a file of callgrind: all; object (path => its own instructions); function (name => its instructions
# with those of what it calls, for functions that do not call themselves).
sub parse {
    my ($text) = @_;
    my (%names, %counts, $object, $callee, $is_call);
    my $name = sub {
        my ($kind, $id, $given) = @_;
        return length $given ? $names{"$kind$id"} = $given : $names{"$kind$id"};
    };
    for my $line (split /\n/, $text) {
        if ($line =~ /^(c?)(ob|fn)=(\(\d+\))(?: (.*))?/) {
            my $named = $name->($2, $3, $4 // '');
            $object = $named if $2 eq 'ob' && !$1;
            $callee = $named if $2 eq 'fn' && $1;
        }
        elsif ($line =~ /^calls=/) { $is_call = 1 }
        elsif ($line =~ /^[-+*\d]\S* (\d+)$/) {
            if   ($is_call) { $counts{function}{$callee} += $1 }
            else            { $counts{object}{$object}   += $1 }
            $is_call = 0;
        }
        elsif ($line =~ /^totals: (\d+)/) { $counts{all} = $1 }
    }
    return \%counts;
}

1;

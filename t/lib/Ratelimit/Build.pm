package Ratelimit::Build;

# Where the sources are, and where ./build.sh puts what it builds: BUILD_DIR, or build/.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Spec;
use Ratelimit::Process qw(write_file);

use Exporter 'import';
our @EXPORT_OK = qw(top build_folder built stand_in without_apt);

my $top = abs_path(dirname(__FILE__) . '/../../..');

sub top { return $top }

sub build_folder { return File::Spec->rel2abs($ENV{BUILD_DIR} // "$top/build") }

# The path of a file that $command builds. Dies and names the command if the file is missing.
sub built {
    my ($name, $command) = @_;
    my $path = build_folder() . "/$name";
    die "$path is not built yet: run $command\n" unless -e $path;
    return $path;
}

# Puts a shell script in place of a program into a folder; returns a PATH that starts with the folder.
sub stand_in {
    my ($bin, $name, $text) = @_;
    mkdir $bin;
    chmod 0755, write_file("$bin/$name", "#!/bin/sh\n$text\n");
    return "$bin:$ENV{PATH}";
}

# A PATH whose apt knows no package: apt takes seconds to read its lists, at each call.
sub without_apt {
    my ($bin) = @_;
    stand_in($bin, $_, 'exit 1') for qw(apt-cache apt-get);
    return "$bin:$ENV{PATH}";
}

1;

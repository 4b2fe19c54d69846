package Ratelimit::Build;

# Where the sources are, and where ./build.sh has put what it built from them: BUILD_DIR, or build/.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Spec;

use Exporter 'import';
our @EXPORT_OK = qw(top build_folder built);

my $top = abs_path(dirname(__FILE__) . '/../../..');

sub top { return $top }

sub build_folder { return File::Spec->rel2abs($ENV{BUILD_DIR} // "$top/build") }

# The path of something that this command builds; dies with the command where it is missing.
sub built {
    my ($name, $command) = @_;
    my $path = build_folder() . "/$name";
    die "$path is not built yet: run $command\n" unless -e $path;
    return $path;
}

1;

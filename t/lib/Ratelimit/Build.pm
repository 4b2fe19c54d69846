package Ratelimit::Build;

# Where the sources are, and where ./build.sh puts what it builds: BUILD_DIR, or build/.

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

# The path of a file that $command builds. Dies and names the command if the file is missing.
sub built {
    my ($name, $command) = @_;
    my $path = build_folder() . "/$name";
    die "$path is not built yet: run $command\n" unless -e $path;
    return $path;
}

1;

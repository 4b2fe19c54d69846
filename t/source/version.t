# The version of the program is the one that the documents and the packages name (doc/releasing.md, step 2).

use Ratelimit::Test;
use Ratelimit::Build qw(top);

my $top = top();
my ($version) = read_file("$top/src/base/version.h") =~ /\bversion = "([\d.]+)"/;
like $version, qr/^\d+\.\d+\.\d+$/, 'src/base/version.h has a version';

# Each place in a file that has the version.
for my $place (
    ['README.md',                              qr/\bVersion (\d+\.\d+\.\d+)/],
    ['packaging/rpm/nginx-mod-ratelimit.spec', qr/^Version:\s+(\S+)/m],
    ['packaging/alpine/APKBUILD',              qr/^pkgver=(\S+)/m],
    ['packaging/alpine/APKBUILD',              qr/module-(\d+\.\d+\.\d+)[.\/]/],
    map { [$_, qr/^.{33,64}tEXtSoftware\0ngx_http_ratelimit_module (\d+\.\d+\.\d+)/s] }  # t/dashboard/pictures.test.mjs
        map { "doc/$_.png" } qw(dashboard fleet fleet-change)
) {
    my ($file, $pattern) = @$place;
    my @named = read_file("$top/$file") =~ /$pattern/g;
    cmp_ok scalar(@named), '>', 0, "$file names it";
    is_deeply [grep { $_ ne $version } @named], [], 'and it is this one';
}

my $number = sub { my ($text) = @_; return sprintf '%04d%04d%04d', split /\./, $text };
my @releases = read_file("$top/CHANGELOG.md") =~ /^## \[(\d+\.\d+\.\d+)\]/mg;
is_deeply [grep { $number->($_) > $number->($version) } @releases], [], 'CHANGELOG.md has no later release';
my ($first) = grep { /\S/ } reverse split /^## /m, read_file("$top/CHANGELOG.md");
cmp_ok scalar(split /\n/, $first), '<=', 60, 'what the first one has is at most 60 lines';

finish();

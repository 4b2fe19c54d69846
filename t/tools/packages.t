# The packages that build the module: packaging/packages, and what cannot read it, agree.

use Ratelimit::Test;
use Ratelimit::Build qw(top);

my $top  = top();
my %uses = read_file("$top/packaging/packages") =~ /^([\w-]+): (.*)/mg;

# The names of Debian's packages on Fedora and on Alpine. Another package brings what has no name here.
my %fedora = ('g++' => 'gcc-c++', make => 'make', openssl => 'openssl', 'libssl-dev' => 'openssl-devel',
    'nlohmann-json3-dev' => 'json-devel', 'libpcre2-dev' => 'pcre2-devel', 'zlib1g-dev' => 'zlib-devel', git => 'git');
my %alpine = ('g++' => 'g++', make => 'make', openssl => 'openssl', 'libssl-dev' => 'openssl-dev',
    'nlohmann-json3-dev' => 'nlohmann-json', 'libpcre2-dev' => 'pcre2-dev', 'zlib1g-dev' => 'zlib-dev', git => 'git');

sub packages_for { return map { split } @uses{@_} }

# What is missing of these packages, by the names of a system, in the part of a file that the pattern finds.
sub missing {
    my ($file, $pattern, @packages) = @_;
    my $found = join ' ', read_file("$top/$file") =~ /$pattern/g;
    my %there = map { $_ => 1 } split /[\s,]+/, $found;
    cmp_ok scalar(keys %there), '>', 2, "packages are found in $file";
    return [sort grep { !$there{$_} } @packages];
}

sub on { my ($names, @packages) = @_; return grep { defined } @{$names}{@packages} }

subtest 'each package has one line for each use, and each use is read' => sub {
    my $scripts = join '', map { read_file($_) } "$top/build.sh", glob "$top/packaging/*.sh $top/.ci/*.sh $top/t/*/run.sh";
    my @read = $scripts =~ /packages_for ([a-z -]+)/g;
    my %read = map { $_ => 1 } map { split } @read;
    is_deeply [sort keys %read], [sort keys %uses];
    is_deeply [grep { my %seen; grep { $seen{$_}++ } split ' ', $uses{$_} } sort keys %uses], [], 'none is named twice';
};

subtest 'Debian' => sub {
    # build-essential, which every package may use, has compilers, make and dpkg-dev.
    my @packages = grep { !/^(?:gcc|g\+\+|make)$/ } packages_for('module', 'rehearse');
    is_deeply missing('packaging/debian/control', qr/^Build-Depends:\n((?: .*\n)+)/m, @packages), [],
        'the package is built with them';
    is_deeply missing('packaging/nginx.org/prebuild', qr/apt-get install .*?((?: [a-z0-9][a-z0-9-]+)+)$/m,
        grep { !/^(?:gcc|g\+\+|make|openssl)$/ } packages_for('module')), [], "nginx.org's script installs them";
};

subtest 'Fedora and Alpine' => sub {
    is_deeply missing('packaging/rpm/nginx-mod-ratelimit.spec', qr/^BuildRequires: +(.*)/m, on(\%fedora, packages_for('module'))), [],
        'the RPM';
    is_deeply missing('packaging/alpine/APKBUILD', qr/^makedepends="(.*)"/m, on(\%alpine, packages_for('module'))), [],
        'the APKBUILD';
    my @any = packages_for('module', 'any-nginx');
    is_deeply missing('packaging/docker/nginx-alpine.Dockerfile', qr/apk add --no-cache (.*)/, on(\%alpine, @any)), [],
        'the image for Alpine';
    is_deeply missing('doc/install.md', qr/`dnf install (.*)`/, on(\%fedora, @any)), [], 'the documents, for Fedora';
    is_deeply missing('doc/install.md', qr/`apk add (.*)`/, on(\%alpine, @any)), [], 'and for Alpine';
};

finish();

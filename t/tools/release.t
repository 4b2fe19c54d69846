# packaging/release.sh: which modules it has built, and the files that it makes of them. build.sh is replaced.
# needs: git

use Ratelimit::Test;
use Ratelimit::Build qw(top);
use Ratelimit::Process qw(temp_folder);

my $top  = top();
my $copy = temp_folder() . '/copy';
system("mkdir -p '$copy/src/base' && cp -r '$top/packaging' '$copy/' && cp '$top/src/base/version.h' '$copy/src/base/'") == 0
    or die 'no copy';
chmod 0755, write_file("$copy/build.sh", <<'END');
#!/bin/sh
cd "$(dirname "$0")" || exit
echo "$*" >>asked
case $1 in
deb) mkdir -p build/deb && echo package >build/deb/p.deb ;;
module)
    folder=$PWD/build/module/$(basename "$3")-$([ "$4" = --arm64 ] && echo aarch64 || echo x86_64)-linux-gnu
    mkdir -p "$folder" && echo "$*" >"$folder/ngx_http_ratelimit_module.so"
    printf '%s\nfits it\n' "$folder/ngx_http_ratelimit_module.so"
    ;;
esac
END
my $git = "git -C '$copy' -c user.name=test -c user.email=test\@localhost";
system("$git init -q && $git add -A && $git commit -q -m all") == 0 or die 'no repository';
delete @ENV{qw(BUILD_DIR)};
my ($version) = read_file("$top/src/base/version.h") =~ /\bversion = "([\d.]+)"/;

# Makes a release with these arguments: the commands of build.sh, and the files.
sub release {
    my ($arguments) = @_;
    unlink "$copy/asked";
    my $printed = qx(cd '$copy' && rm -rf dist && bash packaging/release.sh dist $arguments 2>&1);
    is $?, 0, "release.sh dist $arguments" or diag $printed;
    return ([grep { $_ ne 'deb' } split /\n/, read_file("$copy/asked")], [map { m{/dist/(.*)} } sort glob "$copy/dist/*"]);
}

my $module = "ngx_http_ratelimit_module-$version";
my @others = ("$module-NOTICES.txt", "$module.tar.gz");
my @debs   = (system('command -v dpkg-buildpackage apt-get >/dev/null') == 0 ? 'p.deb' : ());

my ($asked, $files) = release('');
is_deeply $asked, ['module --nginx stable', 'module --nginx mainline', 'module --nginx 1.28.3'], 'without a name: the newest of nginx';

($asked, $files) = release('--arm64 angie-1.12.1 /srv/nginx-1.31.4');
is_deeply $asked, ['module --nginx angie-1.12.1', 'module --nginx angie-1.12.1 --arm64', 'module --source /srv/nginx-1.31.4',
    'module --source /srv/nginx-1.31.4 --arm64'], 'a name is a version, with a slash a folder; each for both processors';
is_deeply $files, [sort 'SHA256SUMS', @debs, @others, map { ("$module-$_-x86_64.so", "$module-$_-aarch64.so") } qw(angie-1.12.1 nginx-1.31.4)],
    'each file has its nginx and its processor in the name';
is qx(cd '$copy/dist' && sha256sum --check --quiet SHA256SUMS 2>&1 && wc -l <SHA256SUMS), (@{$files} - 1) . "\n", 'and its checksum';

is qx(cd '$copy' && bash packaging/release.sh dist 2>&1), "release.sh: dist is not empty, and SHA256SUMS would name its files\n",
    'files of an earlier release are not taken for those of this one';

finish();

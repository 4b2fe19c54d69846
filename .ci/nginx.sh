#!/bin/sh
# Builds a newer nginx than Debian 12's: DEST/src, the configured tree (NGX_SRC for build.sh), and
# DEST/nginx. Usage: [CHECKED=sanitizers|valgrind] sh .ci/nginx.sh DEST
#
# CHECKED: each allocation from a pool is one of its own, as both need it. With `sanitizers`, those of
# addresses and of undefined behaviour; nginx's core reads words at any address, and passes null for
# empty memory, which is not looked for.
set -eu
. "$(dirname "$0")/debian.sh"

dest=${1:?usage: nginx.sh DEST}
version=1.26.3
sha256=69ee2b237744036e61d24b836668aad3040dda461fe6f570f1787eab570c75aa
modules='ssl v2 v3 realip auth_request dav stub_status'

mark=complete-$(cat "$0" | cksum | cut -d' ' -f1)-${CHECKED:-plain}
[ -f "$dest/$mark" ] && exit 0
rm -rf "$dest/src"
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)

debian_lists 'deb-src trixie'
source_of nginx "nginx_$version.orig.tar.gz" "$sha256"
mv "nginx-$version" "$dest/src"
cd "$dest/src"

set -- --with-compat --with-debug
for module in $modules; do
    set -- "$@" "--with-http_${module}_module"
done
checks='-DNGX_DEBUG_PALLOC=1 -g -O1 -Wno-error'
sanitizers='-fsanitize=address,undefined -fno-sanitize=alignment,nonnull-attribute,pointer-overflow'
case ${CHECKED:-} in
sanitizers)
    set -- "$@" "--with-ld-opt=$sanitizers" "--with-cc-opt=$sanitizers -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS $checks"
    ;;
valgrind) set -- "$@" "--with-cc-opt=$checks" ;;
esac
# As Debian does it: build.sh configures the module with the same.
{
    printf 'NGX_CONF_FLAGS=('
    printf "'%s' " "$@"
    echo ')'
} >conf_flags
./configure "$@" >>"$work/log" 2>&1 || fail "nginx's configure failed"
make -s -j"$(nproc)" >>"$work/log" 2>&1 || fail 'it did not build'
cp objs/nginx "$dest/nginx"
touch "$dest/$mark"

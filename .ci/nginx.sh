#!/bin/sh
# Builds an nginx newer than Debian 12's: DEST/src, the configured source tree (NGX_SRC for build.sh), and
# DEST/nginx. Usage: [CHECKED=sanitizers|valgrind] [ONLY=source] sh .ci/nginx.sh DEST [1.26|stable|mainline|angie]
#
# 1.26, the default, is Debian 13's source package. The others are on GitHub, which needs git: stable and mainline
# are nginx's newest releases, angie is the newest of Angie.
#
# ONLY=source makes only DEST/src, configured for nginx's core: the unit tests compile parts of it, and
# nginx-dev has no *.c files.
#
# CHECKED builds for valgrind, or with the address and undefined-behaviour sanitizers. Pools then allocate
# each piece with malloc, so that both tools see its bounds. Two checks are off, since nginx's core fails
# them: unaligned words, and null pointers for empty memory.
set -eu
. "$(dirname "$0")/debian.sh"

dest=${1:?usage: nginx.sh DEST [1.26|stable|mainline|angie]}
upstream=https://github.com/nginx/nginx
tag=release-
program=nginx

# Prints the newest release whose minor number ends in a digit of $1.
newest() {
    git ls-remote --tags "$upstream" "refs/tags/$tag*" |
        sed -n "s|.*refs/tags/$tag\([0-9]*\.[0-9]*$1\.[0-9]*\)\$|\1|p" | sort -V | tail -n 1
}

# nginx's stable releases have even minor numbers, its mainline has odd ones.
case ${2:-1.26} in
1.26)
    version=1.26.3
    sha256=69ee2b237744036e61d24b836668aad3040dda461fe6f570f1787eab570c75aa
    ;;
stable) version=$(newest '[02468]') ;;
mainline) version=$(newest '[13579]') ;;
angie)
    upstream=https://github.com/webserver-llc/angie
    tag=Angie-
    program=angie
    version=$(newest '[0-9]')
    ;;
*)
    echo "nginx.sh: unknown release of nginx: $2" >&2
    exit 1
    ;;
esac
if [ -z "$version" ]; then
    echo "nginx.sh: could not ask $upstream for its newest release" >&2
    exit 1
fi
modules='ssl v2 v3 realip auth_request dav slice stub_status'

mark=complete-$(cksum <"$0" | cut -d' ' -f1)-$version-${CHECKED:-plain}${ONLY:+-$ONLY}
[ -f "$dest/$mark" ] && exit 0
rm -rf "$dest/src"
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)

if [ "${2:-1.26}" = 1.26 ]; then
    debian_lists 'deb-src trixie'
    source_of nginx "nginx_$version.orig.tar.gz" "$sha256"
    mv "nginx-$version" "$dest/src"
else
    work=$dest
    git -c advice.detachedHead=false clone -q --depth 1 --branch "$tag$version" "$upstream" \
        "$dest/src" >"$work/log" 2>&1 || fail "could not fetch $tag$version from $upstream"
    # As release tarballs have it, and Angie's repository.
    [ -f "$dest/src/configure" ] || cp "$dest/src/auto/configure" "$dest/src/configure"
fi
cd "$dest/src"

if [ "${ONLY:-}" = source ]; then
    ./configure --without-http --without-pcre >>"$work/log" 2>&1 || fail "nginx's configure failed"
    touch "$dest/$mark"
    exit 0
fi

set -- --with-compat --with-debug
for module in $modules; do
    set -- "$@" "--with-http_${module}_module"
done
checks='-DNGX_DEBUG_PALLOC=1 -g -O1 -Wno-error'
sanitizers='-fsanitize=address,undefined -fno-sanitize=alignment,nonnull-attribute,pointer-overflow,shift'
case ${CHECKED:-} in
sanitizers)
    set -- "$@" "--with-ld-opt=$sanitizers" "--with-cc-opt=$sanitizers -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS $checks"
    ;;
valgrind) set -- "$@" "--with-cc-opt=$checks" ;;
*) set -- "$@" '--with-cc-opt=-O0 -g0' ;;  # builds in three quarters of the time
esac
# As Debian's nginx-dev has it: build.sh configures the module with the same flags.
{
    printf 'NGX_CONF_FLAGS=('
    printf "'%s' " "$@"
    echo ')'
} >conf_flags
./configure "$@" >>"$work/log" 2>&1 || fail "nginx's configure failed"
make -s -j"$(nproc)" >>"$work/log" 2>&1 || fail 'nginx did not build'
cp "objs/$program" "$dest/nginx"
touch "$dest/$mark"

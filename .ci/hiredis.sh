#!/bin/sh
# Builds hiredis with TLS as static libraries: DEST/include/hiredis, DEST/lib and DEST/COPYING. The unit tests use the
# one of DEST/lib/asserts, which asserts that no server sends an unexpected reply, as Debian 13's own library does.
# Usage: sh .ci/hiredis.sh DEST
#
# Debian 12's hiredis (0.14) is too old, so this builds Debian 13's source package. Without apt it fetches the same
# file from GitHub.
set -eu
. "$(dirname "$0")/debian.sh"

dest=${1:?usage: hiredis.sh DEST}
version=1.2.0
sha256=82ad632d31ee05da13b537c124f819eb88e18851d9cb0c30ae0552084811588c

[ -f "$dest/complete-$version-asserts" ] && [ -f "$dest/COPYING" ] && exit 0
echo 'Fetching and building hiredis: less than a minute' >&2
mkdir -p "$dest/include/hiredis/adapters" "$dest/lib/asserts"
dest=$(cd "$dest" && pwd)

if has_debian; then
    debian_lists 'deb-src trixie'
    source_of hiredis "hiredis_$version.orig.tar.gz" "$sha256"
else
    temporary_folder
    download "https://github.com/redis/hiredis/archive/refs/tags/v$version.tar.gz" hiredis.tar.gz
    unpack hiredis.tar.gz "$sha256"
fi
cd "hiredis-$version"
# Without debug information, which has the names of folders: the build ID of a module would depend on them.
make_with() { make -s clean static USE_SSL=1 OPTIMIZATION=-O2 DEBUG_FLAGS= CFLAGS="-fPIC $1" >>"$work/log" 2>&1; }
make_with '' || fail 'hiredis did not build'
cp libhiredis.a libhiredis_ssl.a "$dest/lib/asserts/"
make_with -DNDEBUG || fail 'hiredis did not build'

cp ./*.h "$dest/include/hiredis/"
cp adapters/*.h "$dest/include/hiredis/adapters/"
cp COPYING "$dest/"
cp libhiredis.a libhiredis_ssl.a "$dest/lib/"
touch "$dest/complete-$version-asserts"

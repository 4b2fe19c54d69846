#!/bin/sh
# Builds hiredis with TLS as static libraries: DEST/include/hiredis, DEST/lib.
# Usage: sh .ci/hiredis.sh DEST
#
# Debian 12's hiredis is too old (0.14), so this takes Debian 13's source package, with lists and
# caches of its own: the machine's apt configuration stays as it is.
set -eu

dest=${1:?usage: hiredis.sh DEST}
version=1.2.0
sha256=82ad632d31ee05da13b537c124f819eb88e18851d9cb0c30ae0552084811588c
tarball=hiredis_$version.orig.tar.gz

[ -f "$dest/complete-$version" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

fail() {
    echo "hiredis.sh: $1" >&2
    tail -n 20 "$work/log" >&2
    exit 1
}

cd "$work"
mkdir -p state/lists/partial cache/archives/partial
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$keyring] http://deb.debian.org/debian trixie main" >sources.list

apt_get() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root \
        "$@" >>"$work/log" 2>&1
}

apt_get update && apt_get source --download-only hiredis ||
    fail 'could not fetch the source of hiredis from deb.debian.org'
echo "$sha256  $tarball" | sha256sum -c - >>log 2>&1 ||
    fail "$tarball is not the one whose SHA-256 is known"

tar xzf "$tarball"
cd "hiredis-$version"
# NDEBUG: hiredis asserts that a server never sends a reply that nobody asked for.
make -s static USE_SSL=1 OPTIMIZATION=-O2 CFLAGS="-fPIC -DNDEBUG" >>"$work/log" 2>&1 || fail 'it did not build'

mkdir -p "$dest/include/hiredis/adapters" "$dest/lib"
cp ./*.h "$dest/include/hiredis/"
cp adapters/*.h "$dest/include/hiredis/adapters/"
cp libhiredis.a libhiredis_ssl.a "$dest/lib/"
touch "$dest/complete-$version"

#!/bin/sh
# Fetches Valkey 8 into DEST; DEST/bin has its programs under the names of Redis's. They need the same
# libraries as Debian 12's redis-server. Usage: sh .ci/valkey.sh DEST
set -eu
. "$(dirname "$0")/debian.sh"

dest=${1:?usage: valkey.sh DEST}
major=8

[ -f "$dest/complete-$major" ] && exit 0
mkdir -p "$dest/bin"
dest=$(cd "$dest" && pwd)

debian_lists 'deb bookworm-backports'
apt_get download valkey-server valkey-sentinel valkey-tools || fail 'could not fetch Valkey'
for package in valkey-*.deb; do
    case $package in
    valkey-*_$major.*) dpkg -x "$package" "$dest" ;;
    *) fail "$package is not Valkey $major" ;;
    esac
done
for name in server sentinel cli; do
    ln -sf "../usr/bin/valkey-$name" "$dest/bin/redis-$name"
done
"$dest/bin/redis-server" --version >>"$work/log" 2>&1 || fail 'Valkey does not run'
touch "$dest/complete-$major"

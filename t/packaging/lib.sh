# shellcheck shell=bash
# To be sourced by the scripts beside it: clean Debian systems to make and try packages in, checks.
#
# check WHAT COMMAND...         prints "ok - WHAT", or what the command said, and ends
# system RELEASE FOLDER         copies a clean system of that release, as debian:RELEASE-slim is one
# inside FOLDER COMMAND...      runs a command in it; what it leaves running ends with it
# sources FOLDER                copies this repository there, as it stands, without what was built

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bases=${BUILD_DIR:-$top/build}/packaging
work=$(mktemp -d /tmp/ratelimit-packaging.XXXXXX)
checks=0

clean_up() { rm -rf --one-file-system "$work"; }
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "not ok - $*" >&2
    exit 1
}

check() {
    local what=$1
    shift
    "$@" >"$work/said" 2>&1 || {
        tail -n 40 "$work/said" >&2
        fail "$what"
    }
    checks=$((checks + 1))
    echo "ok - $what"
}

inside() {
    local root=$1
    shift
    unshare --mount --pid --fork --kill-child --root="$root" --wd=/ --mount-proc \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# The system that is copied, made once. Without services that start when they are installed, without
# manuals, and without what dpkg leaves out of the slim images, so that sizes are near to theirs.
base() {
    local release=$1 root=$bases/$1
    [ ! -f "$root/complete" ] || return 0
    rm -rf "$root"
    mkdir -p "$bases"
    debootstrap --variant=minbase "$release" "$root" http://deb.debian.org/debian
    printf 'deb http://deb.debian.org/debian%s main\n' " $release" " $release-updates" \
        "-security $release-security" >"$root/etc/apt/sources.list"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    printf 'path-exclude %s\n' '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' \
        '/usr/share/info/*' >"$root/etc/dpkg/dpkg.cfg.d/slim"
    echo 'path-include /usr/share/doc/*/copyright' >>"$root/etc/dpkg/dpkg.cfg.d/slim"
    inside "$root" sh -c 'apt-get -qq update && apt-get -qq -y dist-upgrade'
    inside "$root" sh -c 'cd /usr/share && rm -rf man locale info &&
        find doc -type f ! -name copyright -delete && find doc -empty -delete'
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
    touch "$root/complete"
}

system() {
    check "a clean $1" base "$1"
    cp -a "$bases/$1" "$2"
    rm "$2/complete"
}

sources() {
    mkdir -p "$1"
    git -C "$top" ls-files -z --cached --others --exclude-standard |
        tar -c -C "$top" --null --ignore-failed-read -T - | tar -x --no-same-owner -C "$1"
}

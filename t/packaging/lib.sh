# shellcheck shell=bash
# Sourced by the other scripts of this folder: checks, and clean Debian systems to make and test packages in.
#
# check WHAT COMMAND...         prints "ok - WHAT"; if the command fails, prints its output and exits
# system RELEASE FOLDER         copies a clean system of that release, similar to debian:RELEASE-slim
# inside FOLDER COMMAND...      runs a command in it; processes that the command started end with it
# sources FOLDER                copies this repository to FOLDER, with uncommitted changes, without build results

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

# Makes the system that is copied, once. Packages do not start services, and files that the slim images leave
# out are removed, so that sizes are comparable.
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

#!/usr/bin/env bash
# Tests the Debian package: makes it with `./build.sh deb` on a clean system, and installs, uses, removes and
# purges it on another one with nginx. Also tests `./build.sh install` on the first. Needs root and debootstrap,
# and eight minutes of processor time for each release.
# Usage: t/packaging/debian.sh [RELEASE...]     (default: bookworm and trixie)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

name=libnginx-mod-http-ratelimit
[ $# -gt 0 ] || set -- bookworm trixie

has_documents() {
    dpkg-deb -c "$deb" | sed -n 's|.*/usr/share/doc/||p' | tee "$work/documents" &&
        grep -qx "$name/doc/reference.md" "$work/documents" &&
        grep -qx "$name/doc/monitoring/grafana.json" "$work/documents" &&
        grep -qx "$name/doc/monitoring/alerts.yml" "$work/documents"
}

make_package() {
    local root=$1
    sources "$root/src"
    check 'build.sh deb works on a clean system' inside "$root" \
        env DEBFULLNAME=Packager DEBEMAIL=packager@debian.org /src/build.sh deb
    move_default_site "$root"
    deb=$(echo "$root/src/build/deb/${name}_"*.deb)
    [ -f "$deb" ] || fail 'one package'
    echo "# $(basename "$deb"), $(stat -c %s "$deb") bytes"
    check 'the documents in the package are not compressed, since they link to each other' \
        has_documents
    check 'apt installs lintian' inside "$root" \
        apt-get -qq install -y --no-install-recommends lintian
    check 'lintian has no warnings' inside "$root" sh -c \
        'lintian --allow-root --fail-on error,warning /src/build/deb/*.changes'
}

# Prints all files of a system, except data of dpkg, apt and nginx.
files() {
    (cd "$1" && find . -xdev | sort) |
        grep -Ev '^\./(proc|run|tmp|var/(cache|log|lib/(apt|dpkg|nginx)))(/|$)'
}

# Rehearses a log of two requests, and finds the man page in the package.
rehearses() {
    # shellcheck disable=SC2016
    inside "$1" bash -c '
        printf "%s\n" "ratelimit_zone k zone=all rate=1r/d;" "ratelimit zone=all;" >/tmp/limits.conf
        for _ in 1 2; do echo "10.0.0.1 - - [22/Nov/2026:14:06:05 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\""; done |
            ratelimit-rehearse --json /tmp/limits.conf -' >"$work/rehearsal"
    cat "$work/rehearsal"
    grep -q '"requests":2,"refused":1,' "$work/rehearsal"
}

has_man_page() { dpkg-deb -c "$deb" | grep 'usr/share/man/man1/ratelimit-rehearse.1.gz$'; }

# Moves Debian's default site to the port of this test.
move_default_site() {
    sed -i -e '/listen \[::\]:80 /d' -e "s/listen 80 /listen 127.0.0.1:$port /" \
        "$1/etc/nginx/sites-enabled/default"
}

# The smallest configuration of README.md for one machine, which leaves Redis out, beside the default site.
configure() {
    awk '/^```nginx/ { on = 1; next } /^```/ && on { exit } on && !/^ratelimit_redis/' "$top/README.md" \
        >"$1/etc/nginx/conf.d/limits.conf"
}

# Starts nginx and sends the requests in one command, since `inside` ends all processes of a command.
limits() {
    # shellcheck disable=SC2016
    inside "$1" bash -c '
        nginx || exit
        for _ in {1..11}; do
            exec 3<>"/dev/tcp/127.0.0.1/$1"
            printf "GET / HTTP/1.0\r\n\r\n" >&3
            read -r _ status _ <&3
            echo "$status"
        done' limits "$port" >"$work/answers"
    cat "$work/answers"
    [ "$(uniq -c "$work/answers" | xargs)" = '10 200 1 429' ]
}

# shellcheck disable=SC2016
depends_on_nginx() {
    local abi
    abi=$(inside "$1" dpkg-query -W -f '${Provides}' nginx | grep -o 'nginx-abi-[^, ]*')
    inside "$1" dpkg-query -W -f '${Depends}' "$name" | grep -F "$abi"
}

try_package() {
    local root=$1
    check 'apt installs nginx' inside "$root" \
        sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends nginx'
    move_default_site "$root"
    check 'nginx -t passes without the package' inside "$root" nginx -t
    files "$root" >"$work/before"
    cp "$deb" "$root/tmp/"

    check 'apt installs it' inside "$root" \
        sh -c "apt-get -qq install -y --no-install-recommends /tmp/$(basename "$deb")"
    check 'it depends on the binary interface of this nginx' depends_on_nginx "$root"
    check 'nginx -t passes' inside "$root" nginx -t
    configure "$root"
    check 'nginx -t passes with a zone and a limit' inside "$root" nginx -t
    check 'nginx limits' limits "$root"
    rm "$root/etc/nginx/conf.d/limits.conf"
    check 'ratelimit-rehearse is there' rehearses "$root"
    rm "$root/tmp/limits.conf"
    check 'and its man page in the package' has_man_page

    check 'apt removes it' inside "$root" apt-get -qq remove -y "$name"
    check 'nginx -t passes without it' inside "$root" nginx -t
    check 'apt installs it again' inside "$root" apt-get -qq install -y "/tmp/$(basename "$deb")"
    configure "$root"
    check 'nginx -t passes with a zone again' inside "$root" nginx -t
    rm "$root/etc/nginx/conf.d/limits.conf"
    check 'apt purges it' inside "$root" apt-get -qq purge -y --autoremove "$name"
    check 'nginx -t passes' inside "$root" nginx -t
    files "$root" >"$work/after"
    check 'and nothing is left' diff "$work/before" "$work/after"
}

is_gone() {
    ! find "$1" -xdev -name '*ratelimit*' -not -path "$1/src/*" -not -path "$1/tmp/*" | grep .
}

refused_for_the_package() {
    ! inside "$1" /src/build.sh install 2>"$work/refusal" || return 1
    cat "$work/refusal"
    grep -x "build.sh install: .*_module.so belongs to the package $name" "$work/refusal"
}

try_install() {
    local root=$1
    check 'build.sh install' inside "$root" /src/build.sh install
    configure "$root"
    check 'nginx -t passes with a zone' inside "$root" nginx -t
    check 'nginx limits' limits "$root"
    rm "$root/etc/nginx/conf.d/limits.conf"
    check 'build.sh uninstall' inside "$root" /src/build.sh uninstall
    check 'and nothing is left' is_gone "$root"
    check 'apt installs the package' inside "$root" \
        sh -c "apt-get -qq install -y /src/build/deb/${name}_*.deb"
    check 'and build.sh leaves it alone' refused_for_the_package "$root"
}

port=18080
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    port=$((port + 1))
done

for release; do
    echo "# $release"
    system "$release" "$work/maker"
    make_package "$work/maker"
    try_install "$work/maker"
    system "$release" "$work/user"
    try_package "$work/user"
    rm -rf --one-file-system "$work/maker" "$work/user"
done
echo "$checks passed, 0 failed"

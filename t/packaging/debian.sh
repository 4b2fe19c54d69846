#!/usr/bin/env bash
# The Debian package, for real: made with `./build.sh deb` on a fresh system, installed on another
# one beside nginx, used, removed and purged; and `./build.sh install`, on the first. As root, with
# debootstrap; three minutes for each release.
# Usage: t/packaging/debian.sh [RELEASE...]     (bookworm and trixie unless named)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

name=libnginx-mod-http-ratelimit
[ $# -gt 0 ] || set -- bookworm trixie

make_package() {
    local root=$1
    sources "$root/src"
    check 'build.sh deb, where nothing is installed yet' inside "$root" \
        env DEBFULLNAME=Packager DEBEMAIL=packager@debian.org /src/build.sh deb
    rm "$root/etc/nginx/sites-enabled/default"  # listens on port 80
    deb=$(echo "$root/src/build/deb/${name}_"*.deb)
    [ -f "$deb" ] || fail 'one package'
    echo "# $(basename "$deb"), $(stat -c %s "$deb") bytes"
    check 'apt installs lintian' inside "$root" \
        apt-get -qq install -y --no-install-recommends lintian
    check 'lintian has nothing to warn of' inside "$root" sh -c \
        'lintian --allow-root --fail-on error,warning /src/build/deb/*.changes'
}

# All that is on a system, but for what packages' manager and nginx keep of their own.
files() {
    (cd "$1" && find . -xdev | sort) |
        grep -Ev '^\./(proc|run|tmp|var/(cache|log|lib/(apt|dpkg|nginx)))(/|$)'
}

configure() {
    cat >"$1/etc/nginx/conf.d/limits.conf" <<END
ratelimit_zone \$ratelimit_client zone=all rate=2r/d;
server {
    listen 127.0.0.1:$port;
    ratelimit zone=all;
    root /var/www/html;
    index index.nginx-debian.html;
}
END
}

# In one go, since what runs in there ends with it.
limits() {
    # shellcheck disable=SC2016
    inside "$1" bash -c '
        nginx || exit
        for _ in 1 2 3; do
            exec 3<>"/dev/tcp/127.0.0.1/$1"
            printf "GET / HTTP/1.0\r\n\r\n" >&3
            read -r _ status _ <&3
            echo "$status"
        done' limits "$port" >"$work/answers"
    cat "$work/answers"
    [ "$(paste -sd ' ' "$work/answers")" = '200 200 429' ]
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
    rm "$root/etc/nginx/sites-enabled/default"
    check 'nginx -t passes without the package' inside "$root" nginx -t
    files "$root" >"$work/before"
    cp "$deb" "$root/tmp/"

    check 'apt installs it' inside "$root" \
        sh -c "apt-get -qq install -y --no-install-recommends /tmp/$(basename "$deb")"
    check 'for the binary interface of this nginx alone' depends_on_nginx "$root"
    check 'nginx -t passes' inside "$root" nginx -t
    configure "$root"
    check 'nginx -t passes with a zone and a limit' inside "$root" nginx -t
    check 'nginx limits' limits "$root"
    rm "$root/etc/nginx/conf.d/limits.conf"

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

#!/usr/bin/env bash
# Installs the built module and the line that loads it where an nginx looks for them, and ratelimit-rehearse,
# if it is built beside the module, with its man page in /usr/local; or removes all of them.
# Usage: packaging/install.sh install|uninstall MODULE (`./build.sh install` calls it)
#
# RATELIMIT_NGINX names the nginx; RATELIMIT_PREFIX is used in place of /usr/local; DESTDIR is put before every
# path that is written. If any step fails, or nginx does not accept its configuration afterwards, all changes
# are undone.
set -euo pipefail

command=$1
module=$(realpath -m "$2")
name=ngx_http_ratelimit_module
destdir=${DESTDIR:-}
program=$(dirname "$module")/ratelimit-rehearse
manual=$(dirname "${BASH_SOURCE[0]}")/../doc/ratelimit-rehearse.1
usr_local=${destdir}${RATELIMIT_PREFIX:-/usr/local}
changed=()
folder=$(mktemp -d)
trap undo EXIT
trap 'exit 1' INT TERM HUP

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "build.sh $command: $*"
    exit 1
}

# Prints the first [emerg] message of nginx's output on standard input, else the last line. If nginx logs to
# standard error, as Debian's does, the time and the process are removed from the message.
reason() {
    sed -n -e 's/^[^[]*\[emerg\] \([0-9]*#[0-9]*: \)\{0,1\}//p;t end' -e '$p' -e b -e :end -e q
}

# option NAME DEFAULT: prints the full path that nginx was configured with for NAME, or its default.
option() {
    local value
    value=$(sed -n "s/.* --$1=\([^ ]*\).*/\1/p" <<<"$configured")
    value=${value:-$2}
    case $value in
    /*) echo "$value" ;;
    *) echo "$prefix/$value" ;;
    esac
}

find_nginx() {
    local path=$PATH:/usr/local/sbin:/usr/sbin:/usr/local/nginx/sbin
    nginx=${RATELIMIT_NGINX:-$(PATH=$path command -v nginx)} ||
        fail 'no nginx is installed; RATELIMIT_NGINX=path names one in another place'
    configured=$("$nginx" -V 2>&1) || fail "$nginx does not run"
    prefix=$(option prefix /usr/local/nginx)
    modules=$(option modules-path modules)
    conf=$(option conf-path conf/nginx.conf)
    load_line="load_module $modules/$name.so;"
}

# Sets the file `line` that the load_module line is written to: in a folder that nginx.conf includes or, for
# Debian, in modules-available with a `link` to it in modules-enabled. Both are empty if nginx.conf includes no
# folder of modules before its first block.
find_line() {
    local main=$conf included
    [ ! -f "$destdir$conf" ] || main=$destdir$conf
    included=$([ ! -f "$main" ] || sed -n -e '/^[[:space:]]*#/d' -e '/{/q' \
        -e 's|^[[:space:]]*include[[:space:]]\+\([^;]*modules[^;]*\)/\*\.conf;.*|\1|p' "$main")
    included=${included%%$'\n'*}
    line=''
    link=''
    case $included in
    '') return ;;
    /*) ;;
    *) included=$(dirname "$conf")/$included ;;
    esac
    line=$included/mod-http-ratelimit.conf
    if [ "${included##*/}" = modules-enabled ]; then
        line=$prefix/modules-available/mod-http-ratelimit.conf
        link=$included/50-mod-http-ratelimit.conf
    fi
}

# Prepares a path for writing: an existing file is kept under another name, for undo.
take() {
    local parent
    parent=$(dirname "$1")
    if ! mkdir -p "$parent" 2>/dev/null || [ ! -w "$parent" ]; then
        fail "no permission to write to $parent: try as root, or with DESTDIR"
    fi
    if [ -e "$1" ] || [ -L "$1" ]; then
        ln -fP "$1" "$1.old"
    fi
    changed+=("$1")
}

undo() {
    local path
    for path in ${changed[@]+"${changed[@]}"}; do
        rm -f "$path.new"
        if [ -e "$path.old" ] || [ -L "$path.old" ]; then
            mv -fT "$path.old" "$path"
        else
            rm -f "$path"
        fi
    done
    rm -rf "$folder"
}

# keep_changes [WORDS]: completes the changes, so that undo does nothing any more, and prints their paths after WORDS.
keep_changes() {
    local path
    for path in "${changed[@]}"; do
        rm -f "$path.old"
        echo "${1:-}$path"
    done
    changed=()
}

# Checks that nginx loads this build, before anything is changed.
try_module() {
    printf '%s\n' "load_module \"$module\";" "pid $folder/pid;" 'events {}' >"$folder/nginx.conf"
    local answer
    answer=$("$nginx" -t -e stderr -p "$folder/" -c "$folder/nginx.conf" 2>&1) ||
        fail "$nginx does not load this build: $(reason <<<"${answer// in $folder\/nginx.conf:1/}")"
}

# Tests the whole configuration, unless DESTDIR is set or there is none.
try_configuration() {
    [ -z "$destdir" ] && [ -f "$conf" ] || return 0
    local answer
    answer=$("$nginx" -t 2>&1) ||
        fail "nginx -t fails $1, so the changes were undone: $(reason <<<"$answer")"
}

no_package_has_it() {
    local owner
    owner=$([ -n "$destdir" ] || dpkg-query -S "$modules/$name.so" 2>/dev/null) || return 0
    [ -z "$owner" ] || fail "$modules/$name.so belongs to the package ${owner%%:*}"
}

loaded_by_hand() { grep -qs "^[[:space:]]*load_module.*$name" "$destdir$conf"; }

# put PATH [MODE]: writes standard input to a path by renaming, never by overwriting: a running nginx has the old
# module mapped.
put() {
    take "$1"
    install -m "${2:-644}" /dev/stdin "$1.new"
    mv -fT "$1.new" "$1"
}

install_module() {
    local target=$destdir$modules/$name.so replaced=no
    try_module
    no_package_has_it
    [ ! -e "$target" ] || replaced=yes
    put "$target" <"$module"
    if [ -n "$line" ] && ! loaded_by_hand; then
        put "$destdir$line" <<<"$load_line"
        if [ -n "$link" ]; then
            take "$destdir$link"
            ln -sfT "$line" "$destdir$link"
        fi
    fi
    if [ -x "$program" ]; then
        put "$usr_local/bin/ratelimit-rehearse" 755 <"$program"
        put "$usr_local/share/man/man1/ratelimit-rehearse.1" <"$manual"
    fi
    try_configuration 'with the module'
    keep_changes
    if [ -z "$line" ] && ! loaded_by_hand; then
        say "$conf includes no folder of modules, so make this its first line:"
        echo "$load_line"
    fi
    [ $replaced = no ] || [ -n "$destdir" ] ||
        say 'A running nginx keeps the old module, even after a reload: restart it.'
}

uninstall_module() {
    local path loaded=no
    no_package_has_it
    for path in ${link:+"$destdir$link"} ${line:+"$destdir$line"} "$destdir$modules/$name.so" \
        "$usr_local/bin/ratelimit-rehearse" "$usr_local/share/man/man1/ratelimit-rehearse.1"; do
        [ -e "$path" ] || [ -L "$path" ] || continue
        take "$path"
        rm "$path"
        case $path in */ratelimit-rehearse*) ;; *) loaded=yes ;; esac
    done
    [ ${#changed[@]} -gt 0 ] ||
        fail "nothing is installed in $destdir$modules or $usr_local, so nothing was removed"
    try_configuration 'without the module'
    keep_changes 'Removed '
    [ $loaded = no ] || [ -n "$destdir" ] ||
        say 'A running nginx limits until it is reloaded, and keeps the module in memory until it is restarted.'
}

find_nginx
find_line
"${command}_module"

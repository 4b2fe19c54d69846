#!/usr/bin/env bash
# Puts the built module and the line that loads it where an nginx looks for them, or takes both
# away. Usage: packaging/install.sh install|uninstall MODULE (`./build.sh install` calls it)
#
# RATELIMIT_NGINX names the nginx, DESTDIR stands before every path that is written. Either
# everything is done, and nginx accepts its configuration with it, or all is as it was.
set -euo pipefail

command=$1
module=$(realpath -m "$2")
name=ngx_http_ratelimit_module
destdir=${DESTDIR:-}
changed=()
folder=$(mktemp -d)
trap undo EXIT
trap 'exit 1' INT TERM HUP

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "build.sh $command: $*"
    exit 1
}

# Of what nginx said, on standard input, its first complaint, else the last line. Where it logs to
# standard error, as Debian's does, a complaint has the time and the process before it.
reason() {
    sed -n -e 's/^[^[]*\[emerg\] \([0-9]*#[0-9]*: \)\{0,1\}//p;t end' -e '$p' -e b -e :end -e q
}

# The value of one of nginx's configure options, in full, or what nginx takes without it.
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
        fail 'no nginx is installed; RATELIMIT_NGINX=path names one that is elsewhere'
    configured=$("$nginx" -V 2>&1) || fail "$nginx does not run"
    prefix=$(option prefix /usr/local/nginx)
    modules=$(option modules-path modules)
    conf=$(option conf-path conf/nginx.conf)
    load_line="load_module $modules/$name.so;"
}

# Where the line goes: the file `line` in a folder that nginx.conf includes, or for Debian elsewhere
# with a `link` to it in that folder. Both are empty where nginx.conf includes no folder of modules
# before its first block.
find_place() {
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

# From here on a path is ours: what stands there is kept, under another name, for undo.
take() {
    local parent
    parent=$(dirname "$1")
    if ! mkdir -p "$parent" 2>/dev/null || [ ! -w "$parent" ]; then
        fail "no right to write to $parent: try as root, or with DESTDIR"
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

# All is well: undo has nothing to do any more. Prints what has changed.
keep_changes() {
    local path
    for path in "${changed[@]}"; do
        rm -f "$path.old"
        echo "$path"
    done
    changed=()
}

# Whether nginx can load this build at all: asked before anything is touched.
try_module() {
    printf '%s\n' "load_module \"$module\";" "pid $folder/pid;" 'events {}' >"$folder/nginx.conf"
    local answer
    answer=$("$nginx" -t -e stderr -p "$folder/" -c "$folder/nginx.conf" 2>&1) ||
        fail "$nginx does not load this build: $(reason <<<"${answer// in $folder\/nginx.conf:1/}")"
}

# Where the files are those of the nginx that runs here, its whole configuration has to pass.
try_configuration() {
    [ -z "$destdir" ] && [ -f "$conf" ] || return 0
    local answer
    answer=$("$nginx" -t 2>&1) ||
        fail "nginx -t fails $1, so all is as it was: $(reason <<<"$answer")"
}

no_package_has_it() {
    local owner
    owner=$([ -n "$destdir" ] || dpkg-query -S "$modules/$name.so" 2>/dev/null) || return 0
    [ -z "$owner" ] || fail "$modules/$name.so belongs to the package ${owner%%:*}"
}

loaded_by_hand() { grep -qs "^[[:space:]]*load_module.*$name" "$destdir$conf"; }

# Puts standard input at a path by renaming, never by writing over what is there: an nginx that runs
# has the old module mapped, and keeps it.
put() {
    take "$1"
    install -m 644 /dev/stdin "$1.new"
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
    try_configuration 'with the module'
    keep_changes
    if [ -z "$line" ] && ! loaded_by_hand; then
        say "$conf includes no folder of modules, so this has to be its first line:"
        echo "$load_line"
    fi
    [ $replaced = no ] || [ -n "$destdir" ] ||
        say 'An nginx that runs goes on with the old module, even when it is reloaded: restart it.'
}

uninstall_module() {
    local path
    no_package_has_it
    for path in ${link:+"$destdir$link"} ${line:+"$destdir$line"} "$destdir$modules/$name.so"; do
        [ -e "$path" ] || [ -L "$path" ] || continue
        take "$path"
        rm "$path"
    done
    [ ${#changed[@]} -gt 0 ] || fail "nothing is installed in $destdir$modules"
    try_configuration 'without the module'
    keep_changes
}

find_nginx
find_place
"${command}_module"

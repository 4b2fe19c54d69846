#!/usr/bin/env bash
# Builds, demonstrates, tests and measures ngx_http_ratelimit_module. `./build.sh help` lists the commands.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${BUILD_DIR:-$top/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac  # busybox's realpath has no -m
module=$build/ngx_http_ratelimit_module.so
nginx_source=/usr/share/nginx/src
jobs=$(nproc)
may_install=yes step=0 steps=0 nginx_flags=() module_flags=()

# Prints the packages of these uses (packaging/packages).
packages_for() {
    local use
    for use; do sed -n "s/^$use: //p" "$top/packaging/packages"; done | tr ' ' '\n'
}

mapfile -t build_packages < <(packages_for module nginx)
mapfile -t rehearse_packages < <(packages_for rehearse)
[[ "${CC:-} ${CXX:-}" != *clang* ]] || mapfile -t -O ${#build_packages[@]} build_packages < <(packages_for clang)
mapfile -t test_packages < <(packages_for test)  # for every test; "# needs:" in a test names further ones
nginx_tests=(t/redis t/topologies t/node t/operators)  # those that start the nginx under test

help() {
    cat <<END
Usage: ./build.sh [--no-install] [command]

  (none)              build the module for this machine's nginx, or NGX_SRC=dir for a source tree, and
                      ratelimit-rehearse
  module --nginx V | --source TREE | --like PROGRAM
                      build one file for another nginx: a version (1.31.4, stable, angie-1.12.1), a tree, or one
                      that fits this program; it needs only libc and OpenSSL. See doc/install.md. --arm64: on amd64
                      for arm64
  rehearse            build only ratelimit-rehearse, which needs no nginx
  demo [--once]       build, show a limited location of a private nginx and Redis until Enter is pressed, or once
  test [t/… …]        build and run the tests: all, or the named folders and files; --except 'a|b' before
                      them leaves out a.t and b.t; t/README.md lists the tests
  lint                check the code: format, likely mistakes, shell scripts, includes between folders
  format              format the C++ code with clang-format
  test-dashboard [f]  test the dashboard in Chromium: all of t/dashboard, or the named files
  bench [part …]      run all benchmarks, or the named ones: steps (instructions of a request), scripts (compared with
                      textbook scripts), load (compared with limit_req and lua-nginx-module), growth, ring, rehearse,
                      fleet, pages, region; long_logs and soak, only if named.
                      The tables are written into doc/benchmarks.md
  chaos [minutes]     play random faults over every topology while nodes decide, for 8 minutes or the
                      given number, and check every decision.
                      --seed n, --topology name[,name], --fault name[,name], --verbose;
                      --file f adds a summary to f, and --sum f prints a table of all summaries there;
                      --keep f leaves requests, logs and samples in the folder f
  sanitize [t/f.t …]  run the unit tests and the tests with nginx under the address and
                      undefined-behaviour sanitizers; takes long
  valgrind [t/f.t …]  run the tests with nginx under valgrind; takes half an hour
  fuzz [target…] [s]  fuzz the parsers of t/fuzz with libFuzzer: all or the named ones, for 600 seconds
                      each or the given number
  install [rehearse]  install the module, the line that loads it, and ratelimit-rehearse (in /usr/local), if it was
                      built; "rehearse" builds it
  uninstall           remove all of them
  deb                 make a Debian package for this machine's nginx, in build/deb
  test-arm64 [filter] cross-compile the module and the unit tests for arm64, and run them, or some, under qemu-user
  test-packages       make and try the package and the image in clean systems (as root, 15 minutes)
  clean               remove the build folder

BUILD_DIR=dir builds in another folder than build/. RATELIMIT_NGINX and REDIS_SERVER name the programs to
test with; RATELIMIT_NGINX also the nginx to install for. DESTDIR=dir installs under dir.

One test:         ./build.sh test t/redis/cache.t or, once the module is built: prove -v t/redis/cache.t
One GoogleTest:   ./build.sh test t/unit/unit.t builds all; build/unit/unit --gtest_filter='RateText.*' runs some,
                  --gtest_list_tests lists them. After a change: cmake --build build/unit
For an editor:    ./build.sh writes build/compile_commands.json, which clangd finds there

Missing packages are installed with apt-get; with --no-install, the command fails with the list instead.
END
}

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "build.sh: $*"
    exit 1
}

# Says which packages will be installed, and asks if a person is at the terminal (but in CI, which may have one, not).
ask_to_install() {
    local count answer noun=packages
    count=$(apt-get -s install -y --no-install-recommends "$@" 2>/dev/null | grep -c '^Inst ') || count=0
    [ "$count" -ge $# ] || count="$# or more"
    [ "$count" != 1 ] || noun=package
    say "Installing $count $noun with apt-get, some minutes on a new machine: $*"
    if [ -t 0 ] && [ -t 2 ] && [ -z "${CI:-}" ]; then
        read -r -p 'Continue? [Y/n] ' answer
        case $answer in [Nn]*) fail 'nothing was installed' ;; esac
    fi
}

# Installs the packages that are missing.
need() {
    local package missing=() there
    there=$(dpkg-query -W -f='${Package} ${Status}\n' "$@" 2>/dev/null | sed -n 's/ [a-z]* ok installed$//p') || :
    for package in "$@"; do
        [[ " ${there//$'\n'/ } ${missing[*]} " == *" $package "* ]] || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    [ "$may_install" = yes ] || fail "not installed: ${missing[*]}"
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    ask_to_install "${missing[@]}"
    # policy-rc.d keeps packages (nginx, redis-server, prometheus) from starting their services.
    # shellcheck disable=SC2016  # the inner shell expands
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c '
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ] || grep -q "by build.sh" $policy; then
            trap "rm -f $policy" EXIT
            trap "exit 1" INT TERM HUP
            printf "#!/bin/sh\n# by build.sh, until apt-get ends\nexit 101\n" >$policy && chmod 755 $policy
        fi
        apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"' \
        apt "${missing[@]}" >"$build/apt.log" 2>&1 ||
        fail "apt-get could not install ${missing[*]}, see $build/apt.log"
    unset hiredis_package # before its first update, the apt of a new system knows no package
}

# Installs what builds the module, for this machine's nginx, unless NGX_SRC names another one's source; and the named
# packages: all at once, with one question.
need_to_build() {
    if [ -n "${NGX_SRC:-}" ]; then
        need "$@"
        return
    fi
    find_hiredis
    need "${build_packages[@]}" ${hiredis_package:+"$hiredis_package"} "$@"
}

has_hiredis() { pkg-config --atleast-version=1.1.0 hiredis hiredis_ssl 2>/dev/null; }

# Sets hiredis_package unless it is set: apt-cache takes a second. It is empty if hiredis is there, or apt has none that is
# new enough.
find_hiredis() {
    if [ -n "${hiredis_package+set}" ]; then return; fi
    hiredis_package=
    if [ -n "${RATELIMIT_HIREDIS:-}" ] || has_hiredis; then return; fi
    local offered
    offered=$(apt-cache --no-all-versions show libhiredis-dev 2>/dev/null | sed -n 's/^Version: //p') || :
    if dpkg --compare-versions "${offered:-0}" ge 1.1 2>/dev/null; then hiredis_package=libhiredis-dev; fi
}

# Uses the system's hiredis if it is 1.1 or later with TLS, else a static build of a pinned version.
choose_hiredis() {
    if [ -n "${RATELIMIT_HIREDIS:-}" ] || has_hiredis; then return; fi
    find_hiredis
    if [ -n "$hiredis_package" ]; then
        need "$hiredis_package"
        return
    fi
    export RATELIMIT_HIREDIS=$top/build/hiredis
    sh "$top/.ci/hiredis.sh" "$RATELIMIT_HIREDIS"
}

# Copies the tree NGX_SRC, of a release or a git clone: nginx's configure writes into it.
copy_source() {
    [ -f "$NGX_SRC/src/core/nginx.h" ] || fail "$NGX_SRC is not the source of an nginx"
    nginx_source=$build/nginx-source
    mkdir -p "$nginx_source"
    tar -C "$NGX_SRC" -c --exclude=./objs --exclude=./.git --exclude=./Makefile . | tar -C "$nginx_source" -x
    [ -f "$nginx_source/configure" ] || cp "$nginx_source/auto/configure" "$nginx_source/configure"
}

# Runs nginx's configure with the flags of the nginx that the module is built for: `nginx_flags` if set.
configure_nginx() {
    local flags=("${nginx_flags[@]}")
    [ ${#flags[@]} -gt 0 ] || [ -n "${NGX_FLAGS+given}" ] || flags=(--with-compat)
    if [ ${#nginx_flags[@]} -eq 0 ] && [ -f "$nginx_source/conf_flags" ]; then
        # shellcheck source=/dev/null
        . "$nginx_source/conf_flags"
        flags=("${NGX_CONF_FLAGS[@]}")
    fi
    # shellcheck disable=SC2086  # NGX_FLAGS holds several words
    (cd "$nginx_source" && ./configure "${flags[@]}" ${NGX_FLAGS:-} --add-dynamic-module="$top" \
        --builddir="$build/nginx") >"$build/configure.log" 2>&1 ||
        fail "nginx's configure failed, see $build/configure.log"
}

# Says what is done now, and after which of all `steps`, if they are known.
say_step() {
    if [ "$steps" -gt 1 ]; then
        say "[$((++step))/$steps] $*"
    else
        say "$*"
    fi
}

# time_of ALONE SHARED: prints how long ALONE minutes of one processor, and SHARED minutes of two, take with those here.
time_of() {
    local minutes=$(($1 + (2 * $2 + jobs - 1) / jobs)) several=s
    [ "$jobs" -gt 1 ] || several=
    [ "$minutes" -gt 1 ] && minutes="$minutes minutes" || minutes='a minute'
    echo "about $minutes with $jobs processor$several"
}

# say_building FILE WHAT MINUTES: the minutes are those of a first build, with two processors.
say_building() {
    if [ -e "$1" ]; then say_step "Building what has changed of $2"; else say_step "Building $2: $(time_of 0 "$3")"; fi
}

build_module() {
    mkdir -p "$build"
    if [ -n "${NGX_SRC:-}" ]; then copy_source; else need_to_build; fi
    exec 9>"$build/lock"
    flock 9  # two commands may build in one folder, as those of .ci/run do
    choose_hiredis
    # The Makefile depends on the nginx, the build files and the list of sources.
    local stamp
    stamp=$(cd "$top" && {
        echo "$top" "$nginx_source" "${NGX_FLAGS-unset}" "${nginx_flags[*]}" "${RATELIMIT_HIREDIS:-system}" "${RATELIMIT_LINK:-}"
        cksum config config.make "$nginx_source/src/core/nginx.h"
        [ ${#nginx_flags[@]} -gt 0 ] || cksum "$nginx_source/conf_flags" 2>/dev/null
        find src lua -type f | sort
        echo "${CC:-cc}"
    })
    if [ ! -f "$build/nginx/Makefile" ] || [ "$stamp" != "$(cat "$build/nginx/stamp" 2>/dev/null)" ]; then
        say "Configuring nginx for the module: a few seconds"
        configure_nginx
        printf '%s\n' "$stamp" >"$build/nginx/stamp"
    fi
    say_building "$module" 'the module' 1
    (cd "$nginx_source" && make -s -j"$jobs" -f "$build/nginx/Makefile" modules) \
        >"$build/make.log" 2>&1 || {
        tail -n 40 "$build/make.log" >&2
        fail "the module did not build, see $build/make.log"
    }
    # Renamed, not overwritten: a running nginx has the old file mapped.
    cp "$build/nginx/ngx_http_ratelimit_module.so" "$module.new"
    mv "$module.new" "$module"
    exec 9>&-
    module_flags=("-DHIREDIS_DIR=${RATELIMIT_HIREDIS:-}" "-DMODULE_HEADERS=$(module_headers)")
}

# Prints the folders of headers that the module's files include, apart from src, in cmake's form.
module_headers() {
    printf %s "$build/nginx;$build/nginx/ratelimit"
    printf ';%s' "$nginx_source/src/"{core,event,os/unix,http,http/modules,http/v2}
}

# build_programs FOLDER TARGET [FLAG...]: builds a target of src/CMakeLists.txt in a folder, with further flags for cmake.
build_programs() {
    local folder=$1 target=$2
    # cmake refuses a folder of other sources.
    grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$top/src" "$folder/CMakeCache.txt" || rm -rf "$folder"
    cmake -S "$top/src" -B "$folder" "${module_flags[@]}" ${RATELIMIT_ALONE:+-DALONE=ON} \
        ${RATELIMIT_SANITIZED:+-DSANITIZE=ON} "${@:3}" >"$build/cmake.log" 2>&1 ||
        fail "cmake failed, see $build/cmake.log"
    [ ${#module_flags[@]} -eq 0 ] || ln -sf "$folder/compile_commands.json" "$build/compile_commands.json"
    cmake --build "$folder" -j"$jobs" --target "$target" >"$build/$target.log" 2>&1 || {
        grep -E 'error|Error' -A5 "$build/$target.log" | head -n 40 >&2
        fail "$target did not build, see $build/$target.log"
    }
}

# Builds ratelimit-rehearse. For an nginx of one's own, on a system that may lack the packages, it is optional.
build_rehearse() {
    if [ -n "${NGX_SRC:-}" ] && ! (may_install=no && need "${rehearse_packages[@]}") 2>/dev/null; then
        say "ratelimit-rehearse is left out: it needs ${rehearse_packages[*]}"
        return
    fi
    need "${rehearse_packages[@]}"
    say_building "$build/ratelimit-rehearse" ratelimit-rehearse 1
    build_programs "$build/unit" ratelimit-rehearse
    # Renamed, not overwritten: it may run.
    cp "$build/unit/ratelimit-rehearse" "$build/ratelimit-rehearse.new"
    mv "$build/ratelimit-rehearse.new" "$build/ratelimit-rehearse"
}

cpp_files() {
    local folders=("$top/src")
    [ ! -d "$top/t" ] || folders+=("$top/t")  # .dockerignore leaves it out
    find "${folders[@]}" -name node_modules -prune -o \( -name '*.cpp' -o -name '*.h' \) -print | sort
}

# build_unit_tests SUFFIX [FLAG...]: builds in build/unitSUFFIX, with further flags for cmake.
build_unit_tests() {
    local folder=$build/unit$1
    ONLY=source sh "$top/.ci/nginx.sh" "$top/build/nginx-core"
    say_building "$folder/unit" 'the unit tests' 2
    build_programs "$folder" tests -DTESTS=ON -DHIREDIS_DIR="${RATELIMIT_HIREDIS:-}" \
        -DNGINX_SOURCE="$top/build/nginx-core/src" "${@:2}"
}

# Prints the packages that the tests name in "# needs:" lines.
needs_of() { grep -rhs '^# needs: ' -- "$@" | sed 's/^# needs: //' | tr ' ' '\n' | sort -u; }

make_deb() {
    local packages
    mapfile -t packages < <(packages_for rehearse deb)
    need_to_build "${packages[@]}"
    choose_hiredis  # the package depends on Debian's if that is new enough
    say "Building the package, with the module and ratelimit-rehearse: $(time_of 0 3)"
    exec bash "$top/packaging/deb.sh" "$build/deb"
}

run_valgrind() {
    local packages
    mapfile -t packages < <(packages_for test valgrind)
    need_to_build "${packages[@]}"
    [ $# -gt 0 ] || set -- "${nginx_tests[@]}"
    exec bash "$top/.ci/valgrind.sh" "$build" "$@"
}

main() {
    if [ "${1:-}" = --no-install ]; then
        may_install=no
        shift
    fi
    local command=${1:-build} packages
    [ $# -eq 0 ] || shift
    mkdir -p "$build"

    case $command in
    build)
        [ -n "${NGX_SRC:-}" ] || need_to_build "${rehearse_packages[@]}"
        build_module
        build_rehearse
        echo "load_module $module;"
        ;;
    module)
        # shellcheck source=packaging/module.sh
        . "$top/packaging/module.sh" && build_module_file "$@"
        ;;
    rehearse) build_rehearse ;;
    demo)
        mapfile -t packages < <(packages_for demo)
        [ -e "$module" ] || say "Building and showing the demonstration: $(time_of 1 1)"
        need_to_build "${packages[@]}"
        build_module
        exec bash "$top/t/demo.sh" "$module" "$@"
        ;;
    test) . "$top/t/run.sh" && run_tests "$@" ;;
    lint) . "$top/t/run.sh" && run_tests t/source ;;
    format)
        need clang-format
        cpp_files | xargs -d '\n' clang-format -i
        ;;
    test-dashboard) . "$top/t/dashboard/run.sh" ;;
    bench) . "$top/t/bench/run.sh" ;;
    chaos) . "$top/t/chaos/run.sh" ;;
    sanitize) . "$top/.ci/sanitize.sh" ;;
    valgrind) run_valgrind "$@" ;;
    fuzz) . "$top/t/fuzz/run.sh" ;;
    install)
        [ "${1:-}" != rehearse ] || [ -n "${NGX_SRC:-}" ] || need_to_build "${rehearse_packages[@]}"
        build_module
        [ "${1:-}" != rehearse ] || build_rehearse
        exec bash "$top/packaging/install.sh" install "$module"
        ;;
    uninstall) exec bash "$top/packaging/install.sh" uninstall "$module" ;;
    deb) make_deb ;;
    test-arm64) . "$top/.ci/arm64.sh" ;;
    test-packages) . "$top/t/packaging/run.sh" ;;
    clean) rm -rf "$build" ;;
    help | --help | -h) help ;;
    *)
        help >&2
        fail "unknown command $command"
        ;;
    esac
}

main "$@"

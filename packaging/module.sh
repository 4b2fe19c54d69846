# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by build.sh for `./build.sh module`, whose functions and variables it uses.
#
# build_module_file OPTION...   builds the module for any nginx, as one file that needs only libc (with its libm),
#                               libssl and libcrypto, and prints which nginx can load it and the three lines that do
#   --nginx VERSION     1.31.4, or stable or mainline, nginx's newest; or with a name: angie-1.12.1,
#                       freenginx-1.27.1, tengine-3.2.0. The source is fetched with git from GitHub
#   --source TREE       a release that is unpacked, or a git clone. It is copied, not changed
#   --like PROGRAM      fits this nginx: its `nginx -V` names the version and the options. The source is that of
#                       Debian's nginx-dev if it is the same version, TREE if given, else it is fetched
#   --arm64             with --nginx or --source, on Debian: for this release of Debian on arm64
#
# NGX_FLAGS: options of nginx's configure to add. RATELIMIT_HIREDIS: see ../config.

module_name=ngx_http_ratelimit_module
debian_source=/usr/share/nginx/src
mapfile -t module_packages < <(packages_for module any-nginx)

# Prints what NGINX_VERSION and the like are in a source tree.
defined_in() {
    sed -n "s/^#define  *$2  *\"\([0-9.]*\)\".*/\1/p" "$1"/src/core/*.h | head -n 1
}

# Prints NAME-VERSION of a source tree: nginx-1.31.4, angie-1.12.1.
describe_source() {
    local own
    for own in angie tengine; do
        if grep -qs "define *${own^^}_VERSION" "$1"/src/core/*.h; then
            echo "$own-$(defined_in "$1" "${own^^}_VERSION")"
            return
        fi
    done
    own=$(grep -Eo 'freenginx|openresty' "$1/src/core/nginx.h" | head -n 1) || :
    echo "${own:-nginx}-$(defined_in "$1" NGINX_VERSION)"
}

# Fetches the source of NAME-VERSION, and prints its folder.
fetch_source() {
    local name=${1%-*} version=${1##*-} folder=$build/sources/$1 url tag
    case $name in
    nginx) url=nginx/nginx tag=release-$version ;;
    freenginx) url=freenginx/nginx tag=release-$version ;;
    angie) url=webserver-llc/angie tag=Angie-$version ;;
    tengine) url=alibaba/tengine tag=$version ;;
    openresty) fail "the source of openresty is in its bundle: --source openresty-$version/build/nginx-${version%.*}" ;;
    *) fail "no source is known for $1: name one with --source" ;;
    esac
    if [ ! -f "$folder/src/core/nginx.h" ]; then
        command -v git >/dev/null || fail "git is missing to fetch the source of $1; or name one with --source"
        say "Fetching the source of $1"
        rm -rf "$folder"
        mkdir -p "$build/sources"
        git -c advice.detachedHead=false clone -q --depth 1 --branch "$tag" "https://github.com/$url" "$folder" \
            >"$build/source.log" 2>&1 ||
            fail "could not fetch $tag from https://github.com/$url, see $build/source.log; or name a tree with --source"
    fi
    echo "$folder"
}

# Prints nginx-VERSION of nginx's newest release whose minor number ends in a digit of $1.
newest_nginx() {
    local url=https://github.com/nginx/nginx version
    version=$(git ls-remote --tags $url 'refs/tags/release-*' 2>/dev/null |
        sed -n "s|.*refs/tags/release-\([0-9]*\.[0-9]*$1\.[0-9]*\)\$|\1|p" | sort -V | tail -n 1) || :
    [ -n "$version" ] || fail "could not ask $url for the newest nginx"
    echo "nginx-$version"
}

# Reads `nginx -V` of a program: sets `described` (nginx-1.31.4), `options`, those that change the binary
# interface, and its paths. With --with-compat these are that option and the modules of the core that are left out.
read_program() {
    local said words word
    said=$("$1" -V 2>&1) || fail "$1 does not run: ${said%%$'\n'*}"
    described=$(sed -n 's|^[A-Za-z]* version: \([A-Za-z]*\)/\([0-9.]*\).*|\1-\2|p' <<<"$said" | head -n 1)
    described=${described,,}
    [ -n "$described" ] || fail "$1 is no nginx: it does not name its version"
    mapfile -t words < <(sed -n 's/^configure arguments: *//p' <<<"$said" | xargs -n 1 printf '%s\n')
    prefix=/usr/local/nginx modules_path=modules conf_path=conf/nginx.conf
    options=()
    for word in "${words[@]}"; do
        case $word in
        --prefix=*) prefix=${word#*=} ;;
        --modules-path=*) modules_path=${word#*=} ;;
        --conf-path=*) conf_path=${word#*=} ;;
        esac
        case $word in
        --with-compat | --with-debug | --without-*) options+=("$word") ;;
        # What other modules and libraries need is not there, and nothing here depends on it.
        --add-* | --*=dynamic | --with-openssl* | --with-pcre=* | --with-zlib* | --with-libatomic* | --with-ld-opt* | \
            --with-cc* | --with-cpp* | --with-http_xslt* | --with-http_image* | --with-*geoip* | --with-*perl* | \
            --with-google* | --builddir* | --build=*) ;;
        --with-*) [[ " ${words[*]} " == *' --with-compat '* ]] || options+=("$word") ;;
        esac
    done
    case $modules_path in /*) ;; *) modules_path=$prefix/$modules_path ;; esac
    case $conf_path in /*) ;; *) conf_path=$prefix/$conf_path ;; esac
}

# compiles HEADER [CODE]: whether a C++20 program with it compiles.
compiles() {
    printf '#include <%s>\n%s\n' "$1" "${2:-}" | g++ -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}

# Fails with a list of all that is missing here to build a module.
check_tools() {
    local missing=() tool
    for tool in gcc g++ make openssl readelf tar; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    if command -v g++ >/dev/null; then
        compiles compare $'#if __cpp_concepts < 202002L || !defined __clang__ && __GNUC__ < 12\n#error\n#endif' ||
            missing+=('g++ 12 or later')
        compiles openssl/ssl.h || missing+=("OpenSSL's headers (libssl-dev, openssl-devel, openssl-dev)")
        compiles nlohmann/json.hpp ||
            missing+=("JSON for Modern C++ (nlohmann-json3-dev, json-devel, nlohmann-json)")
        compiles zlib.h || missing+=("zlib's headers (zlib1g-dev, zlib-devel, zlib-dev)")
        compiles cstddef $'#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>' || compiles pcre.h ||
            missing+=("PCRE's headers (libpcre2-dev, pcre2-devel, pcre2-dev)")
        [ -f "$(gcc -print-file-name=libstdc++.a)" ] ||
            missing+=("the static libstdc++ (with g++, libstdc++-static, with g++)")
    fi
    [ ${#missing[@]} -eq 0 ] ||
        fail "missing to build a module (packages of Debian, Fedora and RHEL, Alpine):$(printf '\n  %s' "${missing[@]}")"
}

# Prints names of the libraries that the module needs, or of what it exports.
needed_by() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
exported_by() { "${tools}nm" -D --defined-only "$1" | awk '{ print $3 }' | sort; }

# Checks that the module needs and exports nothing that it should not.
check_file() {
    local others
    others=$(needed_by "$1" | grep -Ev '^(lib[cm]\.so\.6|libc\.musl-.*|ld-(linux|musl)-.*|lib(ssl|crypto)\.so\..*)$') || :
    [ -z "$others" ] || fail "the module needs other libraries than libc, libssl and libcrypto: ${others//$'\n'/ }"
    [ "$(exported_by "$1" | tr '\n' ' ')" = 'ngx_module_names ngx_module_order ngx_modules ' ] ||
        fail "the module exports other names than nginx's three: $(exported_by "$1" | tr '\n' ' ')"
}

# Checks that the program loads the module. Its line is printed if it does not.
check_program() {
    local folder said
    folder=$(mktemp -d)
    printf '%s\n' "load_module $2;" "pid $folder/pid;" "error_log stderr;" 'events {}' >"$folder/nginx.conf"
    said=$("$1" -t -p "$folder/" -c "$folder/nginx.conf" 2>&1) || {
        rm -rf "$folder"
        fail "$1 does not load the module: $(grep -m 1 -F '[emerg]' <<<"$said" || echo "$said")"
    }
    rm -rf "$folder"
}

# Prints the newest version of glibc whose symbols the module needs; nothing with another libc.
glibc_of() { "${tools}objdump" -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -u -V | sed -n '$s/GLIBC_//p'; }

# Sets the paths and the program of print_use to those of the project's own packages.
use_packages() {
    case $described in
    angie-*) modules_path=/usr/lib/angie/modules conf_path=/etc/angie/angie.conf program=angie ;;
    openresty-*)
        prefix=/usr/local/openresty/nginx
        modules_path=$prefix/modules conf_path=$prefix/conf/nginx.conf program=openresty
        ;;
    *) modules_path=/usr/lib/nginx/modules conf_path=/etc/nginx/nginx.conf program=nginx ;;
    esac
    paths=', with the paths of its packages'
}

print_use() {
    local file=$1 libraries glibc paths=''
    [ -n "$program" ] || use_packages
    libraries=$(needed_by "$file" | grep -E '^lib(ssl|crypto)' | xargs)
    glibc=$(glibc_of "$file")
    cat <<END
$file
fits ${described/-/ } $fits
on $("${tools}gcc" -dumpmachine | cut -d- -f1) with ${glibc:+glibc $glibc or later, }${libraries/ / and }

These lines load it$paths:
  install -D -m 644 $file $modules_path/$module_name.so
  sed -i '1i load_module $modules_path/$module_name.so;' $conf_path
  $program -t && $program -s reload
END
}

# Reads the options of build_module_file into its variables.
read_options() {
    while [ $# -gt 0 ]; do
        if [ "$1" = --arm64 ]; then
            tools=aarch64-linux-gnu-
            shift
            continue
        fi
        [ $# -gt 1 ] || fail "module: $1 needs a value"
        case $1 in
        --nginx) version=$2 ;;
        --source) tree=$(cd "$2" 2>/dev/null && pwd) || fail "module: there is no folder $2" ;;
        --like) program=$(command -v "$2") || fail "module: there is no program $2" ;;
        *) fail "module: unknown option $1" ;;
        esac
        shift 2
    done
    [ -n "$version$tree$program" ] || fail 'module: name the nginx with --nginx VERSION, --source TREE or --like PROGRAM'
    [ -z "$tools" ] || [ -z "$program" ] || fail 'module: --arm64 goes with --nginx or --source, since --like runs the nginx'
}

# Prepares the compiler for arm64.
prepare_tools() {
    [ -n "$tools" ] || return 0
    # shellcheck source=.ci/cross.sh
    . "$top/.ci/cross.sh"
    need "${cross_packages[@]}"
    cross_to_arm64
    export NGX_MACHINE=aarch64  # for nginx's configure, which does not know it from --crossbuild
    options+=(--crossbuild=Linux::aarch64)
}

build_module_file() {
    local version='' tree='' program='' described='' fits='with --with-compat, which nginx -V shows' options=(--with-compat)
    local prefix modules_path conf_path tools=''
    read_options "$@"
    if command -v apt-get >/dev/null; then need "${module_packages[@]}"; fi
    check_tools
    prepare_tools
    if [ -n "$program" ]; then
        read_program "$program"
        [[ " ${options[*]} " == *' --with-compat '* ]] || fits="with the options of $program, as nginx -V shows them"
        if [ -z "$tree" ] && [ -d $debian_source ] && [ "$(describe_source $debian_source)" = "$described" ]; then
            tree=$debian_source
        fi
    fi
    if [ -n "$version" ]; then
        case $version in
        [0-9]*) version=nginx-$version ;;
        stable) version=$(newest_nginx '[02468]') ;;
        mainline) version=$(newest_nginx '[13579]') ;;
        esac
        [ -z "$program" ] || [ "$version" = "$described" ] || fail "$program is $described, not $version"
        described=$version
    fi
    if [ -z "$tree" ]; then tree=$(fetch_source "$described"); fi
    [ -f "$tree/src/core/nginx.h" ] || fail "$tree is not the source of an nginx"
    described=$(describe_source "$tree")
    say "Building the module for $described"

    export RATELIMIT_HIREDIS=${RATELIMIT_HIREDIS:-$top/build/hiredis} RATELIMIT_LINK=static
    [ -f "$RATELIMIT_HIREDIS/lib/libhiredis.a" ] || sh "$top/.ci/hiredis.sh" "$RATELIMIT_HIREDIS"
    build=$build/module/$described-$("${tools}gcc" -dumpmachine)
    module=$build/$module_name.so NGX_SRC=$tree
    # shellcheck disable=SC2206  # NGX_FLAGS holds several words
    nginx_flags=(
        "--with-cc-opt=-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wno-error -ffile-prefix-map=$top=."
        '--with-ld-opt=-Wl,-z,relro,-z,now,--as-needed' "${options[@]}" ${NGX_FLAGS:-})
    NGX_FLAGS=''
    build_module
    "${tools}strip" --strip-debug -o "$module.new" "$module"
    mv "$module.new" "$module"
    cp "$top/packaging/NOTICES" "$build/"  # of what is linked in: they go with the file
    check_file "$module"
    if [ -n "$program" ]; then check_program "$program" "$module"; fi
    print_use "$module"
}

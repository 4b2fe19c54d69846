# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh test-arm64`, whose functions and variables it uses: cross-compiles the module for
# arm64, and Debian's nginx loads it under qemu-user; then the unit tests, which run there, and the seeds of t/fuzz. So
# the code meets arm64's signs of char, widths, alignments and atomic instructions. An order of memory that only arm64 allows is not seen: the processor that runs
# qemu keeps its own, and t/unit/threads is for that.
# Usage: ./build.sh test-arm64 [FILTER]      FILTER: of GoogleTest
# Redis and openssl, which the tests start, are the machine's own.

. "$top/.ci/cross.sh"
mapfile -t packages < <(packages_for rehearse test)
need "${cross_packages[@]}" "${packages[@]}" openssl nginx-dev

emulate() { qemu-aarch64 -L /usr/$triplet "$@"; }

nginx_loads_module() {
    local file name
    file=$("$top/build.sh" module --source /usr/share/nginx/src --arm64 | sed -n 1p)
    for name in client_body proxy fastcgi uwsgi scgi; do echo "${name}_temp_path $root/temp;"; done >"$root/temp_paths"
    printf '%s\n' "load_module $file;" "pid $root/nginx.pid;" 'events {}' \
        "http { include temp_paths; access_log off; ratelimit_zone all zone=all rate=1r/s; }" >"$root/nginx.conf"
    emulate -E LD_LIBRARY_PATH="$libraries:$root/lib/$triplet" "$root/usr/sbin/nginx" -t -e stderr -c "$root/nginx.conf"
}

nginx_loads_module
cross_to_arm64

(unset CC AR C_INCLUDE_PATH && ONLY=source sh "$top/.ci/nginx.sh" "$top/build/nginx-core")
build_unit_tests -arm64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_LIBRARY_ARCHITECTURE=$triplet -DCMAKE_FIND_ROOT_PATH="$root" \
    -DCMAKE_FIND_ROOT_PATH_MODE_{LIBRARY,INCLUDE,PACKAGE}=ONLY -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath,$libraries"

failed=0
for program in "$build"/unit-arm64/fuzz_*; do
    [ ! -x "$program" ] || emulate "$program" "$top/t/fuzz/seeds/${program##*/fuzz_}" || failed=1
done
# The random traces are shorter than natively.
export TRACE_STEPS=${TRACE_STEPS:-3000}
emulate "$build/unit-arm64/unit" --gtest_brief=1 --gtest_filter="${1:-*}" || failed=1
exit $failed

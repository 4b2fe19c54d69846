# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh test-arm64`, whose functions and variables it uses: cross-compiles the unit tests
# for arm64 and runs them, and the seeds of t/fuzz, under qemu-user. So the code meets arm64's signs of char, widths,
# alignments and atomic instructions. An order of memory that only arm64 allows is not seen: the processor that runs
# qemu keeps its own, and t/unit/threads is for that.
# Usage: ./build.sh test-arm64 [FILTER]      FILTER: of GoogleTest
#
# The libraries are unpacked from Debian's packages into build/arm64, since some replace the machine's own. Redis and
# openssl, which the tests start, are the machine's own.

need g++-aarch64-linux-gnu qemu-user cmake make pkg-config nlohmann-json3-dev redis-server redis-tools openssl
triplet=aarch64-linux-gnu
root=$build/arm64
libraries=$root/usr/lib/$triplet

fetch_libraries() (
    . "$top/.ci/debian.sh"
    mkdir -p "$root"
    export APT_CONFIG=$root/apt.conf
    echo 'APT::Architectures { "arm64"; };' >"$APT_CONFIG"
    debian_lists "deb $(. /etc/os-release && echo "$VERSION_CODENAME")"
    for package in libevent-{2.1-7,core-2.1-7,extra-2.1-7,dev} lib{gtest,gmock}-dev libssl{3,-dev} zlib1g{,-dev} \
        libpcre2-{8-0,dev}; do
        apt_get download "$package:arm64" || fail "could not fetch $package for arm64"
    done
    for package in ./*.deb; do dpkg -x "$package" "$root"; done
    touch "$root/complete"
)

[ -f "$root/complete" ] || fetch_libraries
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export C_INCLUDE_PATH=$root/usr/include:$root/usr/include/$triplet
export CPLUS_INCLUDE_PATH=$C_INCLUDE_PATH
export CC=$triplet-gcc CXX=$triplet-g++ AR=$triplet-ar
export RATELIMIT_HIREDIS=$root/hiredis
sh "$top/.ci/hiredis.sh" "$RATELIMIT_HIREDIS"

(unset CC AR C_INCLUDE_PATH && ONLY=source sh "$top/.ci/nginx.sh" "$top/build/nginx-core")
build_unit_tests -arm64 OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_LIBRARY_ARCHITECTURE=$triplet -DCMAKE_FIND_ROOT_PATH="$root" \
    -DCMAKE_FIND_ROOT_PATH_MODE_{LIBRARY,INCLUDE,PACKAGE}=ONLY -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath,$libraries"

emulate() { qemu-aarch64 -L /usr/$triplet "$@"; }
failed=0
for program in "$build"/unit-arm64/fuzz_*; do
    [ ! -x "$program" ] || emulate "$program" "$top/t/fuzz/seeds/${program##*/fuzz_}" || failed=1
done
# The random traces are shorter than natively. What failed for want of time passes when it runs by itself.
export TRACE_STEPS=${TRACE_STEPS:-3000}
log=$build/unit-arm64/log
run_unit() { emulate "$build/unit-arm64/unit" --gtest_brief=1 --gtest_filter="$1" | tee "$log"; }
run_unit "${1:-*}" || {
    mapfile -t again < <(sed -n 's/^\[  FAILED  \] \([A-Za-z]*[./][^ ,]*\).*/\1/p' "$log" | sort -u)
    if [ ${#again[@]} -gt 0 ] && [ ${#again[@]} -le 5 ]; then
        say "Once more, by themselves: ${again[*]}"
        for test in "${again[@]}"; do run_unit "$test" || failed=1; done
    else
        failed=1
    fi
}
exit $failed

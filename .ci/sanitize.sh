# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh sanitize`, whose functions and variables it uses: runs the unit tests and the
# tests that start nginx, or the named ones of the latter only, under the address and undefined-behaviour sanitizers.
# Usage: ./build.sh sanitize [t/f.t ...]

mapfile -t packages < <(needs_of "$top/t/unit/unit.t")
need "${build_packages[@]}" "${test_packages[@]}" "${packages[@]}"
choose_hiredis
build_unit_tests -sanitize ON
[ $# -gt 0 ] || ctest --test-dir "$build/unit-sanitize" --output-on-failure

# Memory that nginx keeps until it ends is no leak. Not lifecycle.t: an upgraded nginx has no
# ASAN_OPTIONS, and the sanitizer keeps freed memory for a while. Nor fleet_versions.t, which loads two versions.
CHECKED=sanitizers sh "$top/.ci/nginx.sh" "$build/nginx-sanitize"
export ASAN_OPTIONS=detect_odr_violation=0:detect_leaks=0:abort_on_error=0
export UBSAN_OPTIONS=print_stacktrace=1
export BUILD_DIR=$build/sanitized NGX_SRC=$build/nginx-sanitize/src
export RATELIMIT_NGINX=$build/nginx-sanitize/nginx
[ $# -gt 0 ] || set -- --except 'lifecycle|fleet_versions' "${nginx_tests[@]}"
exec "$top/build.sh" test "$@"

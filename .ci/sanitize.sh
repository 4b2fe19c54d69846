# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh sanitize`, whose functions and variables it uses: runs the unit tests and the
# tests that start nginx, or the named ones, under the address and undefined-behaviour sanitizers.
# Usage: ./build.sh sanitize [t/f.t ...]

mapfile -t packages < <(packages_for test rehearse && cd "$top" && needs_of t/unit "${nginx_tests[@]}")
need_to_build "${packages[@]}"
choose_hiredis

# Memory that nginx keeps until it ends is no leak; t/unit/unit.t finds those of the unit tests. Not lifecycle.t: the
# sanitizer keeps freed memory for a while. Nor fleet_versions.t, which loads two versions. The random traces compare
# decisions, which are the same as without sanitizers: fewer steps are enough for errors of memory.
CHECKED=sanitizers sh "$top/.ci/nginx.sh" "$build/nginx-sanitize"
export ASAN_OPTIONS=detect_odr_violation=0:detect_leaks=0:abort_on_error=0
export UBSAN_OPTIONS=print_stacktrace=1 TRACE_STEPS=${TRACE_STEPS:-3000}
export BUILD_DIR=$build/sanitized NGX_SRC=$build/nginx-sanitize/src RATELIMIT_SANITIZED=1
export RATELIMIT_NGINX=$build/nginx-sanitize/nginx
[ $# -gt 0 ] || set -- --except 'lifecycle|fleet_versions' t/unit "${nginx_tests[@]}"
exec "$top/build.sh" test "$@"

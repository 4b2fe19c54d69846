#!/usr/bin/env bash
# Builds the fuzz targets of this folder with clang's libFuzzer and sanitizers, and runs each for so
# many seconds, 600 unless given. Ends with an error at the first finding.
# Usage: bash t/fuzz/run.sh [seconds [target...]]
#
# Targets: the .cpp files here. What they have learnt is kept in build/fuzz/corpus.
set -eu
cd "$(dirname "$0")"
top=$(cd ../.. && pwd)
build=${BUILD_DIR:-$top/build}/fuzz
hiredis=${RATELIMIT_HIREDIS:-$top/build/hiredis}
seconds=${1:-600}
[ $# -eq 0 ] || shift
[ $# -ne 0 ] || set -- *.cpp

mkdir -p "$build"
sources="$top/src/limit/*.cpp $top/src/redis/*.cpp $top/src/check/script_reply.cpp
    $top/src/check/script_call.cpp $top/src/http/api/path.cpp $top/src/http/api/json_text.cpp"
flags="-std=c++20 -O1 -g -I$top/src -isystem $hiredis/include
    -fsanitize=address,undefined -fno-sanitize-recover=all"

# shellcheck disable=SC2086
objects() {
    local source object
    for source in $sources; do
        object=$build/$(echo "${source#"$top"/src/}" | tr / -).o
        [ "$object" -nt "$source" ] || echo "$object $source"
    done | xargs -r -P "$(nproc)" -n 2 sh -c 'clang++ '"$(echo $flags)"' -fsanitize=fuzzer-no-link -c -o "$0" "$1"'
}

objects
for target in "$@"; do
    name=$(basename "$target" .cpp)
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    # shellcheck disable=SC2086
    clang++ $flags -fsanitize=fuzzer -o "$build/$name" "$name.cpp" "$build"/*.o \
        "$hiredis/lib/libhiredis_ssl.a" "$hiredis/lib/libhiredis.a" -lssl -lcrypto
    echo "$name, $seconds s"
    "$build/$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$build/$name-" "$corpus" >"$build/$name.log" 2>&1 || {
        tail -n 40 "$build/$name.log"
        exit 1
    }
    grep -E 'number_of_executed_units|new_units_added' "$build/$name.log"
done

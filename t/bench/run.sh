# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh bench`, whose functions and variables it uses: runs the named benchmarks of this
# folder, or all but soak. Each writes its tables into doc/benchmarks.md.
# Usage: ./build.sh bench [part...]      part: a .pl file here

[ $# -gt 0 ] || set -- scripts load growth ring rehearse fleet pages region
if [ "$*" != rehearse ]; then
    mapfile -t packages < <(packages_for rehearse test bench)
    need_to_build "${packages[@]}"
    build_module
    build_programs "$build/unit" bench
fi
[[ " $* " != *' rehearse '* ]] || build_rehearse
export BUILD_DIR=$build
for part; do
    [ -f "$top/t/bench/$part.pl" ] || fail "the benchmark has no part $part"
    perl -I"$top/t/lib" -I"$top/t/bench" "$top/t/bench/$part.pl"
done

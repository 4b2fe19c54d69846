# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh bench`, whose functions and variables it uses: runs the named benchmarks of this
# folder, or all but long_logs and soak. Each writes its tables into doc/benchmarks.md; steps.pl says what COMPARE and COLUMN do.
# Usage: ./build.sh bench [part...]      part: a .pl file here

[ $# -gt 0 ] || set -- steps scripts load growth ring rehearse fleet pages region
parts=("$@")
has_part() { [[ " ${parts[*]} " =~ \ ($1)\  ]]; }  # has_part 'A|B': whether one of these runs

for part; do
    [ -f "$top/t/bench/$part.pl" ] || fail "the benchmark has no part $part"
done
mapfile -t bench_packages < <(
    packages_for test
    [ "$*" = steps ] || packages_for bench
    ! has_part steps || packages_for valgrind
    ! has_part 'scripts|load|growth|fleet' || packages_for rehearse
)
! has_part 'rehearse|long_logs' || build_rehearse
if [ "$*" != rehearse ]; then
    need "${build_packages[@]}" "${bench_packages[@]}"
    build_module
fi
! has_part 'scripts|load|growth|fleet' || build_programs "$build/unit" bench
export BUILD_DIR=$build
for part; do
    perl -I"$top/t/lib" -I"$top/t/bench" "$top/t/bench/$part.pl"
done

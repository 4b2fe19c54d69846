# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh fuzz`, whose functions and variables it uses: builds the targets of this folder
# with libFuzzer and runs them, for the given seconds each (600 by default). Fails at the first finding.
# Usage: ./build.sh fuzz [target...] [seconds]
#
# Targets: the .cpp files here, except replay.cpp. They start with seeds/TARGET and the corpus of earlier
# runs, which is kept in build/fuzz/corpus.

mapfile -t packages < <(packages_for clang rehearse)
need "${packages[@]}" libevent-dev dpkg-dev ca-certificates
choose_hiredis
build_unit_tests -fuzz -DSANITIZE=ON -DFUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS='-O1 -g'
folder=$build/unit-fuzz kept=$build/fuzz
cd "$top/t/fuzz" || exit

seconds=600
targets=()
for word in "$@"; do
    case $word in
    *[!0-9]*) targets+=("$word") ;;
    *) seconds=$word ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename -as .cpp ./*.cpp | grep -vx replay)

for target in "${targets[@]}"; do
    if [ ! -f "$target.cpp" ] || [ ! -x "$folder/fuzz_$target" ]; then
        fail "t/fuzz has no target $target"
    fi
    corpus=$kept/corpus/$target
    mkdir -p "$corpus"
    words=()
    [ ! -f "$target.dict" ] || words=("-dict=$target.dict")
    echo "$target, $seconds s"
    "$folder/fuzz_$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$kept/$target-" "${words[@]}" "$corpus" "seeds/$target" \
        >"$kept/$target.log" 2>&1 || {
        tail -n 40 "$kept/$target.log"
        exit 1
    }
    grep -E 'number_of_executed_units|new_units_added' "$kept/$target.log"
done

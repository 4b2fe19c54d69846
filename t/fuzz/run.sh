#!/usr/bin/env bash
# Lets libFuzzer run targets of this folder, built in a folder as fuzz_TARGET, each for so many seconds,
# 600 unless given. Ends with an error at the first finding.
# Usage: bash t/fuzz/run.sh FOLDER KEPT [target...] [seconds]; ./build.sh fuzz builds them and runs this.
#
# Targets: the .cpp files here, but replay.cpp. They begin with seeds/TARGET, and with what they have
# learnt before, which is kept in KEPT/corpus.
set -euo pipefail
cd "$(dirname "$0")"
folder=$1 kept=$2
shift 2

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
        echo "t/fuzz has no target $target" >&2
        exit 1
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

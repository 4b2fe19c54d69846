#!/usr/bin/env bash
# Runs libFuzzer on targets of this folder, built as FOLDER/fuzz_TARGET, for the given seconds each (600 by
# default). Fails at the first finding.
# Usage: bash t/fuzz/run.sh FOLDER KEPT [target...] [seconds]; ./build.sh fuzz builds them and runs this.
#
# Targets: the .cpp files here, except replay.cpp. They start with seeds/TARGET and the corpus of earlier
# runs, which is kept in KEPT/corpus.
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

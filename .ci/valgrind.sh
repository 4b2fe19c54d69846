#!/usr/bin/env bash
# Runs tests with an nginx under valgrind. Tests may fail because valgrind is slow: only valgrind's reports count.
# Usage: .ci/valgrind.sh BUILD TEST... (`./build.sh valgrind` installs what it needs and calls it)
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:?usage: valgrind.sh BUILD TEST...}
shift
folder=$build/nginx-valgrind

fail() {
    echo "build.sh valgrind: $*" >&2
    exit 1
}

CHECKED=valgrind sh "$top/.ci/nginx.sh" "$folder"
rm -rf "$folder/reports"
mkdir "$folder/reports"
cat >"$folder/run" <<END
#!/bin/sh
exec valgrind --quiet --vgdb=no --trace-children=yes --leak-check=full --show-leak-kinds=definite \\
    --suppressions=$top/.ci/valgrind.supp --log-file=$folder/reports/%p $folder/nginx "\$@"
END
chmod +x "$folder/run"
BUILD_DIR=$build/valgrind NGX_SRC=$folder/src RATELIMIT_NGINX=$folder/run "$top/build.sh" test "$@" ||
    echo 'Some tests failed, which may be due to the slowness of valgrind.' >&2
[ -n "$(ls -A "$folder/reports")" ] || fail 'no nginx ran under valgrind'
find "$folder/reports" -type f -size +0 -exec cat {} + | grep . && fail 'valgrind found something'
echo 'valgrind found nothing.'

#!/usr/bin/env bash
# Tests the dashboard, in a browser where one is needed; npm installs the packages of package-lock.json.
# Usage: ./build.sh test-dashboard [file.test.mjs...], which installs Node.js and Chromium first
#
# By default it runs against the mock of mock.mjs. RATELIMIT_DASHBOARD and RATELIMIT_TRAFFIC make
# page.test.mjs run against a real node (see there). CHROMIUM names another browser.
set -eu
cd "$(dirname "$0")"

if ! node -e 'process.exit(process.versions.node.split(".")[0] >= 18 ? 0 : 1)' 2>/dev/null; then
    echo 'run.sh: Node.js 18 or later is needed' >&2
    exit 1
fi
if [ ! -x "${CHROMIUM:-/usr/bin/chromium}" ]; then
    echo 'run.sh: Chromium is needed: run ./build.sh test-dashboard, or set CHROMIUM' >&2
    exit 1
fi
# Installs again if the lock file is newer than the installed packages.
if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
fi
[ $# -gt 0 ] || set -- *.test.mjs
# One file after another, each with its own node: not every Node.js 18 has --test-concurrency.
failed=0
for file; do
    node --test "$file" || failed=1
done
exit $failed

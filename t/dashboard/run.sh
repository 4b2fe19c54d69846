# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh test-dashboard`, whose functions and variables it uses: tests the dashboard, in a
# browser where one is needed; npm installs the packages of package-lock.json.
# Usage: ./build.sh test-dashboard [file.test.mjs...]
#
# By default it runs against the mock of mock.mjs. RATELIMIT_DASHBOARD and RATELIMIT_TRAFFIC make
# page.test.mjs run against a real node (see there). CHROMIUM names another browser. RATELIMIT_PICTURES=yes makes
# pictures.test.mjs write the pictures of doc/.

# Node.js may come from elsewhere than Debian.
command -v node >/dev/null || need nodejs
command -v npm >/dev/null || need npm
[ -x "${CHROMIUM:-/usr/bin/chromium}" ] || need chromium
[ -z "${RATELIMIT_PICTURES:-}" ] || need pngquant
cd "$top/t/dashboard" || exit
node -e 'process.exit(process.versions.node.split(".")[0] >= 18 ? 0 : 1)' || fail 'Node.js 18 or later is needed'
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

#!/usr/bin/env bash
# Makes the files of a release on this system and processor: the module for some nginx, the Debian package for this
# system's nginx, and the sources; and SHA256SUMS of them.
# Usage: packaging/release.sh DEST [--arm64] [NGINX...]
#
# NGINX are values of `./build.sh module --nginx`, or folders of sources as its --source takes them, with a slash in the
# name; the default is nginx's newest stable and mainline and 1.28. --arm64, on Debian 12 for amd64, also makes each
# module for arm64.
# .github/workflows/release.yml runs it for each release, on both processors; it needs no workflow.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${1:?usage: release.sh DEST [--arm64] [NGINX...]}
shift
processors=('')
if [ "${1:-}" = --arm64 ]; then
    processors+=(--arm64)
    shift
fi
[ $# -gt 0 ] || set -- stable mainline 1.28.3
mkdir -p "$dest"
if [ -n "$(ls -A "$dest")" ]; then
    echo "release.sh: $dest is not empty, and SHA256SUMS would name its files" >&2
    exit 1
fi
dest=$(cd "$dest" && pwd)
name=ngx_http_ratelimit_module
version=$(sed -n 's/.*version = "\(.*\)";/\1/p' "$top"/src/*/version.h)

for nginx; do
    source=--nginx
    [[ $nginx != */* ]] || source=--source
    for processor in "${processors[@]}"; do
        said=$("$top/build.sh" module "$source" "$nginx" ${processor:+"$processor"})
        printf '%s\n' "$said"
        file=${said%%$'\n'*}
        folder=$(basename "$(dirname "$file")")  # nginx-1.31.4-x86_64-linux-gnu
        cp "$file" "$dest/$name-$version-${folder%-linux-gnu}.so"
    done
done

if command -v dpkg-buildpackage apt-get >/dev/null; then
    "$top/build.sh" deb
    cp "${BUILD_DIR:-$top/build}"/deb/*.deb "$dest/"
fi
cp "$top/packaging/NOTICES" "$dest/$name-$version-NOTICES.txt"  # of what the modules have linked in
git -C "$top" archive --prefix="$name-$version/" --output="$dest/$name-$version.tar.gz" HEAD

cd "$dest"
rm -f SHA256SUMS
sha256sum -- * >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
cat SHA256SUMS

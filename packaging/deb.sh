#!/usr/bin/env bash
# Makes the Debian package libnginx-mod-http-ratelimit for this machine's nginx.
# Usage: packaging/deb.sh DEST (`./build.sh deb` installs what it needs and calls it)
#
# RATELIMIT_HIREDIS: see ../config. VERSION sets another version than the source's; DEBFULLNAME and DEBEMAIL
# set the packager, as for Debian's own tools.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${1:?usage: deb.sh DEST}
package=libnginx-mod-http-ratelimit
hiredis=${RATELIMIT_HIREDIS:-}
# The package's sources, besides packaging/debian.
parts=(config config.make src lua doc LICENSE README.md CHANGELOG.md packaging/NOTICES)
cd "$top"

of_git() { git -C "$top" "$@" 2>/dev/null; }

# Prints the time of the last change, in seconds since the epoch.
changed_at() { of_git log -1 --format=%ct || stat -c %Y CHANGELOG.md; }

# Prints the package's version. Until CHANGELOG.md has the release, the minute of the last change is added:
# such versions increase, and apt orders them before the release. The Debian release comes last, since each
# has another nginx.
version() {
    local version=${VERSION:-}
    if [ -z "$version" ]; then
        version=$(sed -n 's/.*version = "\(.*\)";/\1/p' src/base/version.h)
        grep -qF "## [$version] - " CHANGELOG.md ||
            version=$version~$(date -u -d "@$(changed_at)" +%y%m%d%H%M)
    fi
    # shellcheck source=/dev/null
    (. /etc/os-release && printf '%s-1~%s%s\n' "$version" "${ID/debian/deb}" "${VERSION_ID:-}")
}

maintainer() {
    local name=${DEBFULLNAME:-} email=${DEBEMAIL:-}
    name=${name:-$(of_git config user.name || echo 'the ngx_http_ratelimit_module authors')}
    email=${email:-$(of_git config user.email || echo "$(id -un)@$(hostname)")}
    echo "$name <$email>"
}

# Prints a licence in the format of Debian's copyright files: a space before each line, a dot for an empty one.
licence() { sed -e 's/^[[:space:]]*$/./' -e 's/^/ /' "$1"; }

# Prints the notice of the project $1 in NOTICES.
notice() { awk -v name="$1" '/^== / { printing = index($0, "== " name " ") == 1; next } printing' packaging/NOTICES; }

copyright_file() {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ngx_http_ratelimit_module

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE)
License: BSD-2-clause
$(licence LICENSE)
END
    [ -z "$hiredis" ] || cat <<END

Files: hiredis
Copyright: $(sed -n 's/^Copyright (c) //p' "$hiredis/COPYING" | sed '2,$s/^/ /')
License: BSD-3-clause
$(licence "$hiredis/COPYING")
Comment: Linked into the module, since this release of Debian has an older version.
END
    cat <<END

Files: nlohmann-json
Copyright: 2013-2022 Niels Lohmann
License: Expat
$(licence <(notice 'JSON for Modern C++'))

Files: CLI11
Copyright: 2017-2022 University of Cincinnati
License: BSD-3-clause
$(licence <(notice CLI11))
END
}

changelog_file() {
    local commit
    commit=$(of_git describe --always --abbrev=12 --exclude='*' --dirty=', with changes') || commit='its source'
    cat <<END
$package ($(version)) unstable; urgency=medium

  * Built from $commit; see CHANGELOG.md.

 -- $(maintainer)  $(date -u -R -d "@$(changed_at)")
END
}

rm -rf "$dest"
mkdir -p "$dest/$package"
dest=$(cd "$dest" && pwd)
tree=$dest/$package
cp -r --parents "${parts[@]}" "$tree/"
cp -r packaging/debian "$tree/debian"
MAINTAINER=$(maintainer) awk '$1 == "Maintainer:" { $2 = ENVIRON["MAINTAINER"] } { print }' \
    packaging/debian/control >"$tree/debian/control"
if [ -n "$hiredis" ]; then  # there, so that the names of its folders in the debug information are relative
    cp -r "$hiredis" "$tree/hiredis"
    export RATELIMIT_HIREDIS=$tree/hiredis
fi
copyright_file >"$tree/debian/copyright"
changelog_file >"$tree/debian/changelog"

cd "$tree"
if ! dpkg-buildpackage -b -us -uc ${hiredis:+-P"pkg.$package.hiredis"} >"$dest/log" 2>&1; then
    tail -n 40 "$dest/log" >&2
    echo "build.sh deb: the package could not be made, see $dest/log" >&2
    exit 1
fi
ls "$dest/${package}_"*.deb

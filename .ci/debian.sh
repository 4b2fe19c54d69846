# shellcheck shell=sh
# Sourced by the other scripts of this folder, after `set -eu`: fetches packages of other Debian releases,
# with separate lists and caches, so that the machine's apt configuration is not changed.
#
# debian_lists "deb trixie" ...   enters a temporary folder, $work, and fetches the lists of these releases
# has_debian                      whether apt-get and Debian's keys are here. On Ubuntu they are in debian-archive-keyring
# temporary_folder                enters a folder that is removed at the end, $work
# download URL FILE               fetches a file with curl or wget
# unpack FILE SHA256              checks and unpacks a tarball here
# apt_get WORDS...                runs apt-get with these lists; apt verifies Debian's signature
# fail WORDS                      prints an error with the end of $work/log, and exits

fail() {
    echo "$(basename "$0"): $1" >&2
    tail -n 20 "$work/log" >&2
    exit 1
}

apt_with_lists() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root "$@"
}

apt_get() { apt_with_lists "$@" >>"$work/log" 2>&1; }

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
has_debian() { command -v apt-get >/dev/null && [ -f "$keyring" ]; }

temporary_folder() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    chmod 755 "$work"
    cd "$work" || exit
}

download() {
    if command -v curl >/dev/null; then
        curl -fsSL -o "$2" "$1" >>"$work/log" 2>&1
    else
        wget -q -O "$2" "$1" >>"$work/log" 2>&1
    fi || fail "could not fetch $1"
}

unpack() {
    echo "$2  $1" | sha256sum -c - >>"$work/log" 2>&1 || fail "$1 has an unexpected SHA-256"
    tar xzf "$1"
}

debian_lists() {
    temporary_folder
    mkdir -p state/lists/partial cache/archives/partial
    for release; do
        echo "${release%% *} [signed-by=$keyring]" \
            "http://deb.debian.org/debian ${release#* } main" >>sources.list
    done
    apt_get update || fail 'could not fetch the lists of deb.debian.org'
}

# source_of PACKAGE TARBALL SHA256: fetches the tarball of a source package and unpacks it here. Not the other files of
# the package: a mirror may have deleted them already when it gets a new revision of the same version.
source_of() {
    uri=$(apt_with_lists source --print-uris "$1" 2>>"$work/log" | sed -n "s|^'\([^']*/$2\)'.*|\1|p")
    [ -n "$uri" ] || fail "deb.debian.org has no $2"
    /usr/lib/apt/apt-helper download-file "$uri" "$2" >>"$work/log" 2>&1 || fail "could not fetch $2 from deb.debian.org"
    unpack "$2" "$3"
}

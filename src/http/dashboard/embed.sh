#!/bin/sh
# Puts the dashboard together and prints it as the C++ header that the module serves it from: the page,
# and the hashes with which its Content-Security-Policy allows its script and its style.
# Usage: sh embed.sh > dashboard_page.h
#        sh embed.sh page > page.html
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# page.html as it is written; a line @file@ is replaced by that file as it is written.
page() {
    while IFS= read -r line; do
        case $line in
        @*.css@ | @*.js@)
            file=${line#@}
            cat "$here/${file%@}"
            ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$here/page.html"
}

# The hash of everything between the lines <tag> and </tag>, including the line feed after <tag>: a
# browser hashes the same bytes.
hash_of() {
    {
        echo
        sed -n "/^<$1>\$/,/^<\/$1>\$/p" "$2" | sed -e 1d -e '$d'
    } | openssl dgst -sha256 -binary | openssl base64
}

# Bytes as character literals: a string literal this long is more than a compiler has to accept, and
# numbers above 127 do not fit a char on every machine.
bytes() { od -An -v -t o1 "$1" | sed -e "s/ *\([0-7][0-7]*\)/'\\\\\1',/g"; }

header() {
    script=$(hash_of script "$1")
    style=$(hash_of style "$1")
    cat <<END
#pragma once

#include <string_view>

namespace ratelimit::dashboard {

/// Sources for script-src and style-src that allow the page's one script and its one style.
inline constexpr std::string_view script_hash = "sha256-$script";
inline constexpr std::string_view style_hash = "sha256-$style";

inline constexpr char page_bytes[] = {
$(bytes "$1")
};

/// UTF-8.
inline constexpr std::string_view page{ page_bytes, sizeof page_bytes };

}  // namespace ratelimit::dashboard
END
}

whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
page >"$whole"
case ${1:-header} in
header) header "$whole" ;;
page) cat "$whole" ;;
*)
    echo 'usage: sh embed.sh [header | page]' >&2
    exit 1
    ;;
esac

#!/bin/sh
# Assembles the dashboard and prints it as a C++ header for the module: the page, and the hashes of its script
# and its style for the Content-Security-Policy.
# Usage: sh embed.sh > dashboard_page.h
#        sh embed.sh page > page.html
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# Prints page.html with each line @file@ replaced by that file.
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

# Prints the hash of everything between the lines <tag> and </tag>, including the line feed after <tag>, as
# browsers hash it.
hash_of() {
    {
        echo
        sed -n "/^<$1>\$/,/^<\/$1>\$/p" "$2" | sed -e 1d -e '$d'
    } | openssl dgst -sha256 -binary | openssl base64
}

# Prints a file as character literals: a string literal of this length exceeds what compilers must accept,
# and numbers above 127 do not fit a char on every machine.
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

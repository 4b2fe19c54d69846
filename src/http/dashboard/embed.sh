#!/bin/sh
# Puts the dashboard together, and prints it as the C++ header that the module serves it from: the page,
# and what its Content-Security-Policy needs to allow its script and its style.
# Usage: sh embed.sh > dashboard_page.h
#        sh embed.sh page > page.html
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# The page, with the files where page.html names them, without indentation, empty lines, whole lines of
# comment, and spaces beside punctuation: it has to fit one literal. Of a script, only what stands before
# a line's first quotation mark is in no string for sure, as no string of ours spans lines.
page() {
    awk -v here="$here" '
        function style(line) {
            gsub(/: /, ":", line)
            gsub(/; /, ";", line)
            gsub(/, /, ",", line)
            gsub(/;? *\}/, "}", line)
            gsub(/ *\{ */, "{", line)
            return line
        }
        function script(line,    code, rest, operator) {
            code = match(line, /[\047"`]/) ? substr(line, 1, RSTART - 1) : line
            rest = substr(line, length(code) + 1)
            while (match(code, / ([=!]==|=>|&&|[|][|]|[?][?]|[-+*\/]?=|[<>]=?|[?:*\/]) |[,:;{] | [}{]/)) {
                operator = substr(code, RSTART, RLENGTH)
                gsub(/ /, "", operator)
                code = substr(code, 1, RSTART - 1) operator substr(code, RSTART + RLENGTH)
            }
            return code rest
        }
        function put(line) {
            sub(/^[ \t]+/, "", line)
            if (line == "" || line ~ /^\/\// || line ~ /^\/\*.*\*\/$/) { return }
            print file ~ /\.css$/ ? style(line) : file ~ /\.js$/ ? script(line) : line
        }
        /<pre/, /<\/pre>/ { print; next }
        /^@[a-z]+\.(css|js)@$/ {
            file = here "/" substr($0, 2, length($0) - 2)
            while ((got = (getline line < file)) > 0) { put(line) }
            if (got < 0) { print "embed.sh: " file " cannot be read" > "/dev/stderr"; exit 1 }
            close(file)
            file = ""
            next
        }
        { put($0) }
    ' "$here/page.html"
}

# What stands between a tag's lines <tag> and </tag>, to the byte, as the browser hashes it.
hash_of() {
    {
        echo
        sed -n "/^<$1>\$/,/^<\/$1>\$/p" "$2" | sed -e 1d -e '$d'
    } | openssl dgst -sha256 -binary | openssl base64
}

# The page's lines as raw strings that are far below any compiler's limit, set side by side.
literals() {
    awk -v most=4000 '
        index($0, ")html\"") { print "embed.sh: line " NR " ends a raw string" > "/dev/stderr"; exit 1 }
        NR > 1 && size + length($0) > most { printf ")html\"\n    R\"html("; size = 0 }
        { print; size += length($0) + 1 }
    ' "$1"
}

header() {
    script=$(hash_of script "$1")
    style=$(hash_of style "$1")
    cat <<END
#pragma once

#include <string_view>

namespace ratelimit::dashboard {

/// What the page's one script and its one style are allowed by, in script-src and style-src.
inline constexpr std::string_view script_hash = "sha256-$script";
inline constexpr std::string_view style_hash = "sha256-$style";

/// UTF-8.
END
    printf 'inline constexpr std::string_view page =\n    R"html('
    literals "$1"
    printf ')html";\n\n}  // namespace ratelimit::dashboard\n'
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

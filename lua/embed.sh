#!/bin/sh
# Prints the C++ header that holds the scripts, without comments and indentation: a file as one text,
# or, where lines "--- name" part it, as pieces, each with the name above it.
# Usage: sh embed.sh file.lua... > lua_scripts.h
set -eu

cat <<END
#pragma once

#include <string_view>

namespace ratelimit::lua {

struct Piece {
    std::string_view name, text;
};
END

# Only whole lines of comment: no script has a string that spans lines.
for file in "$@"; do
    name=$(basename "$file" .lua)
    if grep -q '^---' "$file"; then
        printf '\ninline constexpr Piece %s[] = { { "", R"lua(' "$name"
        sed -e 's/^[[:space:]]*//' -e 's/^--- \(.*\)/)lua" }, { "\1", R"lua(/' -e '/^--/d' -e '/^$/d' "$file"
        printf ')lua" } };\n'
    else
        printf '\ninline constexpr std::string_view %s = R"lua(' "$name"
        sed -e 's/^[[:space:]]*//' -e '/^--/d' -e '/^$/d' "$file"
        printf ')lua";\n'
    fi
done

printf '\n}  // namespace ratelimit::lua\n'

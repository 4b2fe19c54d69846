#!/bin/sh
# Prints a C++ header with the Lua sources, without comments and indentation. A file that has lines
# "--- name" becomes an array of pieces, each with the name above it (the first has no name). Any
# other file becomes one string.
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

# Removes only lines that are all comment. No string in a script spans lines.
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

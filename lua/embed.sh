#!/bin/sh
# Prints the C++ header that holds the scripts, without comments and indentation.
# Usage: sh embed.sh file.lua... > lua_scripts.h
set -eu

cat <<END
#pragma once

#include <string_view>

namespace ratelimit::lua {
END

for file in "$@"; do
    printf '\ninline constexpr std::string_view %s = R"lua(' "$(basename "$file" .lua)"
    # Only whole lines of comment: no script has a string that spans lines.
    sed -e 's/^[[:space:]]*//' -e '/^--/d' -e '/^$/d' "$file"
    printf ')lua";\n'
done

printf '\n}  // namespace ratelimit::lua\n'

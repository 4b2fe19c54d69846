#pragma once

#include <stdexcept>
#include <string>

namespace ratelimit::rehearse {

/// Something that the user gave cannot be used: a file, an option, a line of the configuration. The
/// message is one line for the user.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Where a directive is written.
struct Place {
    std::string file;
    std::size_t line = 0;  // from 1

    std::string text() const { return file + ":" + std::to_string(line); }
};

/// "message in file:line", as nginx writes it.
[[noreturn]] inline void fail_at(const Place& place, const std::string& message)
{
    throw InputError(message + " in " + place.text());
}

}  // namespace ratelimit::rehearse

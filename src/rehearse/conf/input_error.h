#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace ratelimit::rehearse {

/// Something that the user gave cannot be used: a file, an option, a line of the configuration. The
/// message is one line for the user.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// "what: why", with the reason of errno.
[[noreturn]] inline void fail_by_errno(const std::string& what)
{
    throw InputError(what + ": " + std::strerror(errno));
}

/// A file of C that closes itself.
struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

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

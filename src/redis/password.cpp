#include "redis/password.h"

#include "redis/error_table.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>

namespace ratelimit::redis {

namespace {

constexpr milliseconds pause{ 1000 };

/// The first line. Sets `reason` if there is none.
std::string first_line(const std::string& path, std::string& reason)
{
    std::string line;
    errno = 0;
    std::ifstream file(path);
    const int error = errno;
    std::getline(file, line);
    if (line.ends_with('\r')) {
        line.pop_back();
    }
    reason.clear();
    if (!file.is_open()) {
        reason = std::strerror(error);
    } else if (line.empty()) {
        reason = errno == EISDIR ? std::strerror(EISDIR) : "its first line is empty";
    }
    return line;
}

}  // namespace

Password Password::in_file(std::string path, std::string& reason)
{
    Password password(first_line(path, reason));
    password.state_->file = std::move(path);
    return password;
}

std::string Password::lost(std::string_view reason, milliseconds now) const noexcept
try {
    if (state_ == nullptr || state_->file.empty() || !refuses_password(reason)
        || now < state_->next_read) {
        return std::string(reason);
    }
    state_->next_read = now + pause;
    std::error_code error;
    const auto status = std::filesystem::status(state_->file, error);
    const bool waits = exists(status) && !is_regular_file(status);  // a pipe would block the worker
    std::string failure = "it is not a regular file";
    std::string line = waits ? std::string() : first_line(state_->file, failure);
    if (failure.empty()) {
        state_->text = std::move(line);
        return std::string(reason);
    }
    return std::string(reason) + ", and its password cannot be read again from " + state_->file
        + ": " + failure;
} catch (const std::exception&) {
    return {};  // out of memory: it is read again when the next connection is lost
}

}  // namespace ratelimit::redis

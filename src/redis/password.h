#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// The password of a user in Redis: a text, or the first line of a file, which may change while the
/// process runs. Copies share what was read last. One thread.
class Password {
public:
    Password() = default;
    Password(std::string text) : state_(std::make_shared<State>(State{ std::move(text), {}, {} }))
    {
    }
    Password(const char* text) : Password(std::string(text)) {}

    /// Reads the file. `reason` is empty, or why it cannot be used.
    static Password in_file(std::string path, std::string& reason);

    /// There is none.
    bool empty() const noexcept { return state_ == nullptr || state_->text.empty(); }
    std::string_view text() const noexcept
    {
        return state_ == nullptr ? std::string_view{} : std::string_view(state_->text);
    }

    /// A connection was lost for this reason, at `now`. If Redis refused its password, reads the
    /// file again, at most once a second. Returns a copy of the reason, and why that failed, if it
    /// did. Empty: out of memory.
    std::string lost(std::string_view reason, milliseconds now) const noexcept;

private:
    struct State {
        std::string text;
        std::string file;             // empty: none
        milliseconds next_read{ 0 };  // not before
    };

    std::shared_ptr<State> state_;
};

}  // namespace ratelimit::redis

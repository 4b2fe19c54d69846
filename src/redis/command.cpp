#include "redis/command.h"

#include <array>
#include <charconv>

namespace ratelimit::redis {

namespace {

class Digits {
public:
    explicit Digits(std::int64_t number) noexcept
        : end_(std::to_chars(text_.data(), text_.data() + text_.size(), number).ptr)
    {
    }
    std::string_view view() const noexcept
    {
        return { text_.data(), static_cast<std::size_t>(end_ - text_.data()) };
    }

private:
    std::array<char, 24> text_{};
    char* end_;
};

void append_bulk(std::string& out, std::string_view text)
{
    out += '$';
    out += Digits(static_cast<std::int64_t>(text.size())).view();
    out += "\r\n";
    out += text;
    out += "\r\n";
}

}  // namespace

std::string plain_command(std::initializer_list<std::string_view> words)
{
    std::string text = "*";
    text += Digits(static_cast<std::int64_t>(words.size())).view();
    text += "\r\n";
    for (const std::string_view word : words) {
        append_bulk(text, word);
    }
    return text;
}

std::string auth_command(std::string_view username, std::string_view password)
{
    if (username.empty()) {
        return plain_command({ "AUTH", password });
    }
    return plain_command({ "AUTH", username, password });
}

void ScriptArguments::begin(std::string_view sha, ArgumentCount count)
{
    constexpr std::size_t fixed = 3;  // EVALSHA, the digest, the number of keys
    text_.clear();
    text_ += '*';
    text_ += Digits(static_cast<std::int64_t>(fixed + count.keys + count.args)).view();
    text_ += "\r\n$7\r\nEVALSHA\r\n";
    bulk(sha);
    arg(static_cast<std::int64_t>(count.keys));
}

void ScriptArguments::arg(std::int64_t number)
{
    bulk(Digits(number).view());
}

void ScriptArguments::bulk(std::string_view text)
{
    append_bulk(text_, text);
}

}  // namespace ratelimit::redis

#include "redis/command.h"

#include "base/decimal.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

namespace ratelimit::redis {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view marks = "$\r\n\r\n";  // of a bulk string
constexpr std::size_t length_room = most_digits + marks.size();
constexpr std::string_view evalsha = "\r\n$7\r\nEVALSHA\r\n";
constexpr std::string_view eval = "\r\n$4\r\nEVAL\r\n";

char* put(char* out, std::string_view text) noexcept
{
    return out + text.copy(out, text.size());
}

char* put_number(char* out, std::int64_t number) noexcept
{
    if (number >= 0 && number <= 99) {  // fast path for most lengths and numbers of keys
        if (number > 9) {
            *out++ = static_cast<char>('0' + number / 10);
        }
        *out = static_cast<char>('0' + number % 10);
        return out + 1;
    }
    return std::to_chars(out, out + most_digits, number).ptr;
}

char* put_double(char* out, double number) noexcept
{
    auto bits = std::bit_cast<std::uint64_t>(number);
    if constexpr (std::endian::native == std::endian::big) {
        bits = __builtin_bswap64(bits);
    }
    std::memcpy(out, &bits, sizeof(bits));
    return out + sizeof(bits);
}

void append_bulk(std::string& out, std::string_view text)
{
    out += '$';
    out += std::to_string(text.size());
    out += "\r\n";
    out += text;
    out += "\r\n";
}

}  // namespace

std::string plain_command(std::initializer_list<std::string_view> words)
{
    std::string text = "*";
    text += std::to_string(words.size());
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

std::string time_command(std::string_view key)
{
    constexpr std::string_view text = "return redis.call('TIME')";
    return key.empty() ? plain_command({ "EVAL", text, "0" })
                       : plain_command({ "EVAL", text, "1", key });
}

void ScriptArguments::begin(Script script, std::string_view named, ArgumentCount count)
{
    constexpr std::size_t fixed = 3;  // EVALSHA, the digest, the number of keys
    used_ = 0;
    char* end = room(most_digits + marks.size() + evalsha.size());
    *end++ = '*';
    end = put_number(end, static_cast<std::int64_t>(fixed + count.keys + count.args));
    used_up_to(put(end, script == Script::digest ? evalsha : eval));
    bulk(named);
    arg(static_cast<std::int64_t>(count.keys));
}

void ScriptArguments::arg(std::int64_t number)
{
    std::array<char, most_digits> digits{};
    const char* const end = put_number(digits.data(), number);
    bulk({ digits.data(), static_cast<std::size_t>(end - digits.data()) });
}

void ScriptArguments::begin_packed()
{
    packed_at_ = used_;
    room(length_room);
    used_ += length_room;
}

void ScriptArguments::packed(std::span<const std::int64_t> numbers)
{
    char* end = room(numbers.size() * sizeof(double));
    for (const std::int64_t number : numbers) {
        end = put_double(end, static_cast<double>(number));
    }
    used_up_to(end);
}

void ScriptArguments::end_packed(std::size_t once)
{
    const std::size_t part = once * sizeof(double);
    const char* const parts = buffer_.data() + packed_at_ + length_room;
    std::size_t size = used_ - packed_at_ - length_room;
    // Each part equals the one before it.
    if (part > 0 && size > part && std::memcmp(parts, parts + part, size - part) == 0) {
        size = part;
    }
    char* end = buffer_.data() + packed_at_;
    *end++ = '$';
    end = put(put_number(end, static_cast<std::int64_t>(size)), line_end);
    std::memmove(end, parts, size);
    used_up_to(end + size);
    used_up_to(put(room(line_end.size()), line_end));
}

void ScriptArguments::whole(std::string_view command)
{
    used_ = 0;
    used_up_to(put(room(command.size()), command));
}

void ScriptArguments::bulk(std::string_view text)
{
    char* end = room(most_digits + marks.size() + text.size());
    *end++ = '$';
    end = put(put_number(end, static_cast<std::int64_t>(text.size())), line_end);
    used_up_to(put(put(end, text), line_end));
}

}  // namespace ratelimit::redis

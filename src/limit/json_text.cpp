#include "limit/json_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace ratelimit {

namespace {

/// Whether JSON has the character as it is.
bool is_plain(char character) noexcept
{
    return character >= ' ' && character < '\x7f' && character != '"' && character != '\\';
}

/// The length in bytes of the first character of `text`; 0: it is not well-formed UTF-8.
std::size_t utf8_length(std::string_view text) noexcept
{
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    std::size_t length = 1;
    unsigned least = 0x80;  // bounds of the second byte, RFC 3629
    unsigned most = 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        least = lead == 0xE0 ? 0xA0 : least;
        most = lead == 0xED ? 0x9F : most;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        least = lead == 0xF0 ? 0x90 : least;
        most = lead == 0xF4 ? 0x8F : most;
    } else {
        return 0;
    }
    if (text.size() < length || byte(1) < least || byte(1) > most) {
        return 0;
    }
    for (std::size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xC0U) != 0x80) {
            return 0;
        }
    }
    return length;
}

}  // namespace

void append_json_string(std::string& quoted, std::string_view text)
{
    quoted += '"';
    while (true) {
        const auto plain = std::find_if_not(text.begin(), text.end(), is_plain);
        quoted.append(text.begin(), plain);
        text.remove_prefix(static_cast<std::size_t>(plain - text.begin()));
        if (text.empty()) {
            break;
        }
        const std::size_t length = utf8_length(text);
        const char character = text.front();
        if (length == 0) {
            quoted += "\\ufffd";
        } else if (character == '"' || character == '\\') {
            quoted += '\\';
            quoted += character;
        } else if (static_cast<unsigned char>(character) < ' ' || character == '\x7f') {
            std::array<char, 7> room{};
            std::snprintf(room.data(), room.size(), "\\u%04X", static_cast<unsigned>(character));
            quoted += room.data();
        } else {
            quoted += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    quoted += '"';
}

std::string json_string(std::string_view text)
{
    std::string quoted;
    append_json_string(quoted, text);
    return quoted;
}

void JsonText::begin_value(std::string_view name)
{
    if (!first_) {
        text_ += ',';
    }
    first_ = false;
    if (!name.empty()) {
        append_json_string(text_, name);
        text_ += ':';
    }
}

JsonText& JsonText::begin_object(std::string_view name)
{
    begin_value(name);
    text_ += '{';
    first_ = true;
    return *this;
}

JsonText& JsonText::end_object()
{
    text_ += '}';
    first_ = false;
    return *this;
}

JsonText& JsonText::begin_array(std::string_view name)
{
    begin_value(name);
    text_ += '[';
    first_ = true;
    return *this;
}

JsonText& JsonText::end_array()
{
    text_ += ']';
    first_ = false;
    return *this;
}

JsonText& JsonText::text(std::string_view name, std::optional<std::string_view> value)
{
    if (!value) {
        return null(name);
    }
    begin_value(name);
    append_json_string(text_, *value);
    return *this;
}

JsonText& JsonText::number(std::string_view name, std::uint64_t value)
{
    begin_value(name);
    text_ += std::to_string(value);
    return *this;
}

JsonText& JsonText::number(std::string_view name, std::int64_t value)
{
    begin_value(name);
    text_ += std::to_string(value);
    return *this;
}

JsonText& JsonText::number(std::string_view name, double value)
{
    std::array<char, 64> room{};
    begin_value(name);
    const int length = std::snprintf(room.data(), room.size(), "%.6f", value);
    text_.append(room.data(), static_cast<std::size_t>(length));
    return *this;
}

JsonText& JsonText::flag(std::string_view name, bool value)
{
    begin_value(name);
    text_ += value ? "true" : "false";
    return *this;
}

JsonText& JsonText::null(std::string_view name)
{
    begin_value(name);
    text_ += "null";
    return *this;
}

}  // namespace ratelimit

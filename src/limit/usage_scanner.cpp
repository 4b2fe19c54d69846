#include "limit/usage_scanner.h"

#include <algorithm>
#include <utility>

namespace ratelimit {

namespace {

constexpr std::size_t most_names = 16;
constexpr std::size_t longest_name = 64;
constexpr std::string_view data_field = "data:";

bool is_digit(char byte) noexcept
{
    return byte >= '0' && byte <= '9';
}

/// The names behind the first `count` ones.
std::string_view without_names(std::string_view path, std::uint64_t count) noexcept
{
    for (; count > 0; --count) {
        const auto dot = path.find('.');
        if (dot == path.npos) {
            return {};
        }
        path.remove_prefix(dot + 1);
    }
    return path;
}

}  // namespace

bool UsageScanner::is_path(std::string_view path) noexcept
{
    std::size_t names = 0;
    while (true) {
        const std::string_view name = path.substr(0, path.find('.'));
        if (name.empty() || name.size() > longest_name || ++names > most_names
            || name.find_first_of("\"\\$[]/*>'") != name.npos) {
            return false;
        }
        if (name.size() == path.size()) {
            return true;
        }
        path.remove_prefix(name.size() + 1);
    }
}

void UsageScanner::read(std::string_view text) noexcept
{
    if (format_ == Format::json) {
        read_json(text);
    } else {
        read_events(text);
    }
}

/// Of the object that is open last, which is on the path. Empty: the path is shorter.
std::string_view UsageScanner::name_of_level() const noexcept
{
    const std::string_view rest = without_names(path_, on_path_ - 1);
    return rest.substr(0, rest.find('.'));
}

void UsageScanner::begin_json() noexcept
{
    depth_ = on_path_ = 0;
    in_string_ = escaped_ = names_follow_ = found_ = in_number_ = false;
}

void UsageScanner::open(bool object) noexcept
{
    const bool named = depth_ == 0 || (found_ && !without_names(path_, on_path_).empty());
    const bool on_path = depth_ == on_path_ && object && named;
    ++depth_;
    on_path_ += on_path ? 1 : 0;
    names_follow_ = on_path;
    found_ = false;
}

void UsageScanner::close() noexcept
{
    if (depth_ > 0) {
        --depth_;
    }
    on_path_ = std::min(on_path_, depth_);
    names_follow_ = found_ = false;
}

/// One byte outside of strings and numbers.
void UsageScanner::take(char sign) noexcept
{
    switch (sign) {
    case '{':
    case '[':
        open(sign == '{');
        break;
    case '}':
    case ']':
        close();
        break;
    case '"':
        in_string_ = true;
        escaped_ = false;
        is_name_ = names_follow_;
        matched_ = 0;
        break;
    case ',':
        names_follow_ = depth_ > 0 && depth_ == on_path_;
        found_ = false;
        break;
    case ':':
        names_follow_ = false;
        break;
    default:
        break;
    }
}

void UsageScanner::read_json(std::string_view text) noexcept
{
    while (!text.empty()) {
        if (in_string_) {
            text = read_string(text);
        } else if (in_number_) {
            text = read_number(text);
        } else {
            const char sign = text.front();
            if (is_digit(sign) || sign == '-') {
                in_number_ = true;
                is_value_ = found_ && without_names(path_, on_path_).empty();
                number_ = 0;
                continue;
            }
            take(sign);
            text.remove_prefix(1);
        }
    }
}

/// Returns what follows the string, or nothing.
std::string_view UsageScanner::read_string(std::string_view text) noexcept
{
    const std::string_view name = is_name_ ? name_of_level() : std::string_view{};
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
        const char sign = text[at];
        if (escaped_) {
            escaped_ = false;
        } else if (sign == '\\') {
            escaped_ = true;
            is_name_ = false;
        } else if (sign == '"') {
            in_string_ = false;
            found_ = is_name_ && matched_ == name.size();
            return text.substr(at + 1);
        } else if (is_name_) {
            is_name_ = matched_ < name.size() && name[matched_] == sign;
            ++matched_;
        }
    }
    return {};
}

/// Returns what follows the number, or nothing.
std::string_view UsageScanner::read_number(std::string_view text) noexcept
{
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
        const char sign = text[at];
        if (is_digit(sign)) {
            number_ = std::min(number_ * 10 + (sign - '0'), most + 1);
        } else if (sign == '.' || sign == 'e' || sign == 'E' || sign == '-' || sign == '+') {
            is_value_ = false;
        } else {
            in_number_ = false;
            if (is_value_ && number_ <= most) {
                value_ = number_;
            }
            return text.substr(at);
        }
    }
    return {};
}

/// Lines end with LF, CR LF or CR; an empty one ends an event, whose data is one JSON text.
void UsageScanner::read_events(std::string_view text) noexcept
{
    while (!text.empty()) {
        text = read_line(text);
    }
}

std::string_view UsageScanner::read_line(std::string_view text) noexcept
{
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    std::string_view part = text.substr(0, end);
    if (!part.empty()) {
        empty_ = after_cr_ = false;
    }
    while (line_ == Line::begin && !part.empty()) {
        line_ = part.front() == data_field[field_] ? Line::begin : Line::other;
        part.remove_prefix(1);
        if (line_ == Line::begin && ++field_ == data_field.size()) {
            line_ = Line::data;
        }
    }
    if (line_ == Line::data) {
        read_json(part);
    }
    if (end == text.size()) {
        return {};
    }
    if (line_ == Line::data) {
        read_json("\n");
    }
    const bool second_half = text[end] == '\n' && std::exchange(after_cr_, false);
    if (empty_ && !second_half) {
        begin_json();
    }
    after_cr_ = text[end] == '\r';
    line_ = Line::begin;
    field_ = 0;
    empty_ = true;
    return text.substr(end + 1);
}

}  // namespace ratelimit

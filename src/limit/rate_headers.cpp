#include "limit/rate_headers.h"

#include <charconv>

namespace ratelimit {

namespace {

constexpr std::size_t most_digits = 20;
constexpr std::string_view separator = ", ";
constexpr std::string_view frame = R"("";q=;w=)";

char* put(char* out, std::string_view text) noexcept
{
    return out + text.copy(out, text.size());
}

/// RFC 9651, section 4.1.6: a quoted string, its quotes and backslashes escaped.
char* put_string(char* out, std::string_view text) noexcept
{
    *out++ = '"';
    for (const char character : text) {
        if (character == '"' || character == '\\') {
            *out++ = '\\';
        }
        *out++ = character;
    }
    *out++ = '"';
    return out;
}

char* put_parameter(char* out, char name, std::int64_t value) noexcept
{
    *out++ = ';';
    *out++ = name;
    *out++ = '=';
    return std::to_chars(out, out + most_digits, value).ptr;
}

/// `put_parameters` gets the end of what is written and a member, and returns the new end.
template <class PutParameters>
std::string_view list_of(
    std::span<const HeaderMember> members, char* out, PutParameters&& put_parameters) noexcept
{
    char* end = out;
    for (const HeaderMember& member : members) {
        if (end != out) {
            end = put(end, separator);
        }
        end = put_parameters(put_string(end, member.zone), member);
    }
    return { out, static_cast<std::size_t>(end - out) };
}

}  // namespace

std::size_t header_room(std::span<const HeaderMember> members) noexcept
{
    std::size_t room = 0;
    for (const HeaderMember& member : members) {
        room += separator.size() + 2 * member.zone.size() + frame.size() + 2 * most_digits;
    }
    return room;
}

std::string_view policy_header(std::span<const HeaderMember> members, char* out) noexcept
{
    return list_of(members, out, [](char* end, const HeaderMember& member) {
        end = put_parameter(end, 'q', member.limit);
        return put_parameter(end, 'w', whole_seconds(member.window));
    });
}

std::string_view state_header(std::span<const HeaderMember> members, char* out) noexcept
{
    return list_of(members, out, [](char* end, const HeaderMember& member) {
        end = put_parameter(end, 'r', member.remaining);
        return put_parameter(end, 't', whole_seconds(member.reset));
    });
}

}  // namespace ratelimit

#include "limit/rate_headers.h"

#include <array>
#include <charconv>

namespace ratelimit {

namespace {

/// RFC 9651, section 4.1.6: a quoted string, its quotes and backslashes escaped.
void append_string(std::string& out, std::string_view text)
{
    out += '"';
    for (const char character : text) {
        if (character == '"' || character == '\\') {
            out += '\\';
        }
        out += character;
    }
    out += '"';
}

void append_parameter(std::string& out, std::string_view name, std::int64_t value)
{
    std::array<char, 24> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    static_cast<void>(error);  // 24 digits hold every 64-bit number
    out += ';';
    out += name;
    out += '=';
    out.append(digits.data(), end);
}

template <class Parameters>
std::string list_of(std::span<const HeaderMember> members, Parameters&& append_parameters)
{
    std::string out;
    for (const HeaderMember& member : members) {
        if (!out.empty()) {
            out += ", ";
        }
        append_string(out, member.zone);
        append_parameters(out, member);
    }
    return out;
}

}  // namespace

std::string policy_header(std::span<const HeaderMember> members)
{
    return list_of(members, [](std::string& out, const HeaderMember& member) {
        append_parameter(out, "q", member.limit);
        append_parameter(out, "w", whole_seconds(member.window));
    });
}

std::string state_header(std::span<const HeaderMember> members)
{
    return list_of(members, [](std::string& out, const HeaderMember& member) {
        append_parameter(out, "r", member.remaining);
        append_parameter(out, "t", whole_seconds(member.reset));
    });
}

}  // namespace ratelimit

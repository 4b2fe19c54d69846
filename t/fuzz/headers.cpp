// RateLimit and RateLimit-Policy: what is written is a list of RFC 9651 that says the same.

#include "fuzz.h"

#include "limit/rate_headers.h"

#include <cstring>
#include <string>
#include <vector>

using namespace ratelimit;

namespace {

/// Reads `"name";key=number;key=number, ...` back, as RFC 9651 parses a list.
class ListReader {
public:
    explicit ListReader(std::string_view text) : text_(text) {}

    void expect(std::string_view what)
    {
        must(text_.starts_with(what));
        text_.remove_prefix(what.size());
    }
    std::string name()
    {
        expect("\"");
        std::string name;
        while (!text_.starts_with('"')) {
            if (text_.starts_with('\\')) {
                text_.remove_prefix(1);
                must(text_.starts_with('"') || text_.starts_with('\\'));
            }
            must(!text_.empty() && text_.front() >= ' ' && text_.front() < '\x7f');
            name += text_.front();
            text_.remove_prefix(1);
        }
        expect("\"");
        return name;
    }
    std::int64_t number()
    {
        const auto end = std::min(text_.find_first_not_of("0123456789"), text_.size());
        must(end >= 1 && end <= 15);
        const auto value = std::stoll(std::string(text_.substr(0, end)));
        text_.remove_prefix(end);
        return value;
    }
    bool empty() const { return text_.empty(); }

private:
    std::string_view text_;
};

std::int64_t take_number(std::string_view& input, std::int64_t most)
{
    std::uint64_t number = 0;
    const std::size_t size = std::min(input.size(), sizeof(number));
    std::memcpy(&number, input.data(), size);
    input.remove_prefix(size);
    return static_cast<std::int64_t>(number % static_cast<std::uint64_t>(most));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    constexpr std::int64_t year_us = 31'622'400'000'000;
    auto input = text_of(data, size);
    std::vector<HeaderMember> members;
    while (!input.empty() && members.size() < 8) {
        HeaderMember member;
        member.zone = take_text(input);
        for (const char character : member.zone) {
            if (character < ' ' || character >= '\x7f') {
                return 0;  // no zone has such a name
            }
        }
        member.limit = take_number(input, 1'000'000'001);
        member.window = microseconds{ take_number(input, year_us) };
        member.remaining = take_number(input, 1'000'000'001);
        member.reset = microseconds{ take_number(input, year_us) };
        members.push_back(member);
    }
    std::vector<char> room(header_room(members) + 1);
    room.back() = '!';
    for (const bool policy : { true, false }) {
        ListReader reader(
            policy ? policy_header(members, room.data()) : state_header(members, room.data()));
        must(room.back() == '!');
        for (const HeaderMember& member : members) {
            must(reader.name() == member.zone);
            reader.expect(policy ? ";q=" : ";r=");
            must(reader.number() == (policy ? member.limit : member.remaining));
            reader.expect(policy ? ";w=" : ";t=");
            must(reader.number() == whole_seconds(policy ? member.window : member.reset));
            if (&member != &members.back()) {
                reader.expect(", ");
            }
        }
        must(reader.empty());
    }
    return 0;
}

// RateLimit and RateLimit-Policy: the written list parses by RFC 9651 to the same values.

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

void read_policies(ListReader reader, const std::vector<HeaderMember>& members)
{
    for (const HeaderMember& member : members) {
        const QuotaPolicy policy = quota_policy(member.policy);
        if (&member != &members.front()) {
            reader.expect(", ");
        }
        must(reader.name() == member.zone);
        reader.expect(";q=");
        must(reader.number() == policy.quota);
        if (member.unit != QuotaUnit::requests) {
            reader.expect(";qu=");
            must(reader.name().find("-") != std::string::npos);
        }
        if (member.policy.algorithm != Algorithm::concurrency) {
            reader.expect(";w=");
            must(reader.number() == policy.window_s);
        }
        if (policy.burst) {
            reader.expect(";ratelimit-burst=");
            must(reader.number() == *policy.burst);
        }
    }
    must(reader.empty());
}

void read_states(ListReader reader, const std::vector<HeaderMember>& members)
{
    bool first = true;
    for (const HeaderMember& member : members) {
        if (!member.state) {
            continue;
        }
        if (!first) {
            reader.expect(", ");
        }
        first = false;
        must(reader.name() == member.zone);
        reader.expect(";r=");
        must(reader.number() == member.state->remaining);
        if (member.policy.algorithm != Algorithm::concurrency) {
            reader.expect(";t=");
            must(reader.number() == whole_seconds(effective_window(member.policy, *member.state)));
        }
    }
    must(reader.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    constexpr std::int64_t year_s = 31'622'400;
    auto input = text_of(data, size);
    std::vector<HeaderMember> members;
    while (!input.empty() && members.size() < 8) {
        HeaderMember member;
        member.zone = take_text(input);
        for (const char character : member.zone) {
            if (character < ' ' || character >= '\x7f') {
                return 0;  // not a valid name of a zone
            }
        }
        member.policy.algorithm = static_cast<Algorithm>(take_number(input, algorithm_count));
        member.policy.rate.quota = 1 + take_number(input, 1'000'000'000);
        member.policy.rate.window = std::chrono::seconds{ 1 + take_number(input, year_s) };
        member.policy.burst = 1 + take_number(input, 1'000'000'000);
        member.unit = static_cast<QuotaUnit>(take_number(input, 3));
        if (take_number(input, 4) != 0) {
            member.state = Verdict{ true, take_number(input, 1'000'000'001),
                                    std::chrono::seconds{ take_number(input, year_s) } };
        }
        members.push_back(member);
    }
    std::vector<char> room(header_room(members) + 1);
    room.back() = '!';
    read_policies(ListReader(policy_header(members, room.data())), members);
    must(room.back() == '!');
    read_states(ListReader(state_header(members, room.data())), members);
    must(room.back() == '!');
    return 0;
}

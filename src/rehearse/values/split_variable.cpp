#include "rehearse/values/variables.h"

#include "limit/rate_text.h"

#include <cstdint>
#include <optional>

namespace ratelimit::rehearse {

namespace {

/// MurmurHash2 of Austin Appleby with the seed 0, as nginx's ngx_murmur_hash2.
std::uint32_t murmur2(std::string_view text) noexcept
{
    constexpr std::uint32_t factor = 0x5bd1e995;
    auto hash = static_cast<std::uint32_t>(text.size());
    while (text.size() >= 4) {
        std::uint32_t part = 0;
        for (unsigned i = 0; i < 4; ++i) {
            part |= std::uint32_t{ static_cast<unsigned char>(text[i]) } << (8U * i);
        }
        part *= factor;
        part ^= part >> 24U;
        part *= factor;
        hash = (hash * factor) ^ part;
        text.remove_prefix(4);
    }
    for (std::size_t i = text.size(); i-- > 0;) {
        hash ^= std::uint32_t{ static_cast<unsigned char>(text[i]) } << (8U * i);
    }
    if (!text.empty()) {
        hash *= factor;
    }
    hash ^= hash >> 13U;
    hash *= factor;
    return hash ^ (hash >> 15U);
}

/// "0.5%" in hundredths of a percent. Empty: no such share.
std::optional<std::uint32_t> hundredths_of(std::string_view text)
{
    if (!text.ends_with('%')) {
        return std::nullopt;
    }
    text.remove_suffix(1);
    const auto dot = text.find('.');
    const auto whole = parse_number(text.substr(0, dot), 0, 100);
    std::string digits(dot == text.npos ? "" : text.substr(dot + 1));
    if (!whole || digits.size() > 2) {
        return std::nullopt;
    }
    digits.resize(2, '0');
    const auto part = parse_number(digits, 0, 99);
    return part ? std::optional(static_cast<std::uint32_t>(*whole * 100 + *part)) : std::nullopt;
}

/// The variable of a split_clients block.
class Split {
public:
    Split(Scope& scope, const Directive& directive)
        : source_(scope.compile(directive.args[0], directive.place))
    {
        constexpr std::uint32_t all = 10'000;  // hundredths of a percent
        std::uint32_t sum = 0;
        std::uint32_t end = 0;
        for (const Directive& entry : directive.block) {
            if (entry.args.size() != 1 || entry.has_block) {
                fail_at(entry.place, "invalid number of the split_clients parameters");
            }
            if (entry.name == "*") {
                parts_.push_back({ 0, entry.args[0] });
                continue;
            }
            const auto share = hundredths_of(entry.name);
            sum += share.value_or(0);
            if (!share || *share == 0 || sum > all) {
                fail_at(entry.place, "invalid percent value \"" + entry.name + "\"");
            }
            end += static_cast<std::uint32_t>(*share * std::uint64_t{ 0xffffffff } / all);
            parts_.push_back({ end, entry.args[0] });
        }
    }

    std::string_view operator()(Values& values, std::string& own) const
    {
        const std::uint32_t hash = murmur2(source_.value(values, own));
        for (const Part& part : parts_) {
            if (hash < part.end || part.end == 0) {
                return part.value;
            }
        }
        return {};
    }

private:
    struct Part {
        std::uint32_t end;  // of its hashes; 0: all others
        std::string value;
    };

    Expression source_;
    std::vector<Part> parts_;
};

}  // namespace

Variable::Function make_split(Scope& scope, const Directive& directive)
{
    return Split(scope, directive);
}

}  // namespace ratelimit::rehearse

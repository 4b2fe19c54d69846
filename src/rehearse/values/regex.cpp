#include "rehearse/values/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace ratelimit::rehearse {

namespace {

std::uint32_t number_of(const pcre2_code* code, std::uint32_t what)
{
    std::uint32_t number = 0;
    pcre2_pattern_info(code, what, &number);
    return number;
}

}  // namespace

Regex::Regex(const std::string& pattern, bool caseless, const Place& place)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string text = "(*LIMIT_MATCH=1000000)" + pattern;  // steps of one match
    pcre2_code* code = pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), caseless ? PCRE2_CASELESS : 0,
        &error, &offset, nullptr);
    if (code == nullptr) {
        PCRE2_UCHAR message[256] = {};
        pcre2_get_error_message(error, message, sizeof(message));
        fail_at(
            place,
            "invalid regular expression \"" + pattern + "\" ("
                + reinterpret_cast<const char*>(message) + ")");
    }
    code_ = { code, pcre2_code_free };
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, matches are only slower
    match_ = { pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free };
    if (match_ == nullptr) {
        throw std::bad_alloc();
    }
    const std::uint32_t size = number_of(code, PCRE2_INFO_NAMEENTRYSIZE);
    PCRE2_SPTR table = nullptr;
    pcre2_pattern_info(code, PCRE2_INFO_NAMETABLE, &table);
    for (std::uint32_t i = 0; i < number_of(code, PCRE2_INFO_NAMECOUNT); ++i, table += size) {
        const std::size_t number = std::size_t{ table[0] } << 8U | table[1];
        names_[reinterpret_cast<const char*>(table + 2)] = number;
    }
}

std::optional<std::size_t> Regex::capture_named(std::string_view name) const
{
    if (name.size() == 1 && name[0] >= '1' && name[0] <= '9') {
        return static_cast<std::size_t>(name[0] - '0');
    }
    const auto found = names_.find(name);
    return found == names_.end() ? std::nullopt : std::optional(found->second);
}

bool Regex::matches(std::string_view subject) const
{
    return pcre2_match(
               code_.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), 0, 0,
               match_.get(), nullptr)
        >= 0;
}

bool Regex::matches(std::string_view subject, std::vector<std::string_view>& captures) const
{
    if (!matches(subject)) {
        return false;
    }
    captures.assign(pcre2_get_ovector_count(match_.get()), {});
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_.get());
    for (std::size_t i = 0; i < captures.size(); ++i) {
        const PCRE2_SIZE from = ends[2 * i];
        const PCRE2_SIZE to = ends[2 * i + 1];
        if (from != PCRE2_UNSET && from <= to) {
            captures[i] = subject.substr(from, to - from);
        }
    }
    return true;
}

}  // namespace ratelimit::rehearse

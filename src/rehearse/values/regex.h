#pragma once

#include "rehearse/conf/input_error.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace ratelimit::rehearse {

/// A regular expression of PCRE2, as nginx uses it.
class Regex {
public:
    /// Throws InputError if the pattern is malformed.
    Regex(const std::string& pattern, bool caseless, const Place& place);

    /// Whether it matches anywhere in the subject. A match that needs too many steps is none.
    bool matches(std::string_view subject) const;

    /// The same, and the captures: 0 is the whole match; those that took no part are empty. They
    /// are views of the subject.
    bool matches(std::string_view subject, std::vector<std::string_view>& captures) const;

    /// The numbers of the named captures.
    const std::map<std::string, std::size_t, std::less<>>& names() const { return names_; }
    /// The capture that a name or a digit means; empty: none.
    std::optional<std::size_t> capture_named(std::string_view name) const;

private:
    std::shared_ptr<pcre2_real_code_8> code_;
    std::shared_ptr<pcre2_real_match_data_8> match_;
    std::map<std::string, std::size_t, std::less<>> names_;
};

}  // namespace ratelimit::rehearse

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ratelimit::http {

inline constexpr double us_a_second = 1e6;

/// Writes a JSON text. Commas between values are added automatically.
class JsonText {
public:
    JsonText& begin_object(std::string_view name = {});
    JsonText& end_object();
    JsonText& begin_array(std::string_view name = {});
    JsonText& end_array();

    /// Adds a member to an object. Bytes of `value` that are not UTF-8 are written as U+FFFD.
    JsonText& text(std::string_view name, std::string_view value);
    JsonText& number(std::string_view name, std::int64_t value);
    JsonText& number(std::string_view name, std::uint64_t value);
    JsonText& seconds(std::string_view name, double value);  // to the microsecond
    JsonText& flag(std::string_view name, bool value);
    JsonText& null(std::string_view name);

    const std::string& str() const& noexcept { return text_; }
    std::string str() && noexcept { return std::move(text_); }

private:
    void begin_value(std::string_view name);
    void quoted(std::string_view text);

    std::string text_;
    bool first_ = true;  // the next value is the first of its object or array
};

}  // namespace ratelimit::http

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ratelimit {

using Seconds = std::chrono::duration<double>;
using Microseconds = std::chrono::duration<double, std::micro>;

/// Empty if the value is 0 or an empty text.
template <class T>
std::optional<T> or_null(T value)
{
    return value == T{} ? std::nullopt : std::optional<T>(std::move(value));
}

/// A string of JSON. Bytes that are not UTF-8 are written as U+FFFD.
std::string json_string(std::string_view text);
void append_json_string(std::string& quoted, std::string_view text);

/// Writes a JSON text. Commas between values are added automatically. An empty value is null.
class JsonText {
public:
    JsonText& begin_object(std::string_view name = {});
    JsonText& end_object();
    JsonText& begin_array(std::string_view name = {});
    JsonText& end_array();

    /// Adds a member to an object.
    JsonText& text(std::string_view name, std::optional<std::string_view> value);
    JsonText& number(std::string_view name, std::int64_t value);
    JsonText& number(std::string_view name, std::uint64_t value);
    JsonText& number(std::string_view name, double value);  // six digits after the point
    // Where these are inlined, gcc 12 warns that an empty value may be read.
    template <class T>
    [[gnu::noinline]] JsonText& number(std::string_view name, const std::optional<T>& value)
    {
        return value ? number(name, *value) : null(name);
    }
    JsonText& seconds(std::string_view name, Seconds value) { return number(name, value.count()); }
    template <class T>
    [[gnu::noinline]] JsonText& seconds(std::string_view name, const std::optional<T>& value)
    {
        return value ? seconds(name, *value) : null(name);
    }
    JsonText& flag(std::string_view name, bool value);
    JsonText& null(std::string_view name);

    std::size_t size() const noexcept { return text_.size(); }

    /// Ends the object that is all of the text, and returns the text with the end of a line.
    std::string finish()
    {
        end_object();
        text_ += '\n';
        return std::move(text_);
    }

private:
    void begin_value(std::string_view name);

    std::string text_;
    bool first_ = true;  // the next value is the first of its object or array
};

}  // namespace ratelimit

#include "rehearse/log/log_format.h"

#include "limit/percent_text.h"
#include "rehearse/conf/input_error.h"

#include <algorithm>
#include <cstring>

namespace ratelimit::rehearse {

namespace {

/// Lines of text: literals between variables.
class TextFormat : public LogFormat {
public:
    TextFormat(std::string_view format, Escape escape, std::string title)
        : LogFormat(std::move(title), escape)
    {
        std::string literal;
        while (!format.empty()) {
            const std::string name = format.front() == '$' ? take_variable(format) : "";
            if (name.empty()) {
                literal += format.front();
                format.remove_prefix(1);
                continue;
            }
            if (literal.empty() && !names_.empty()) {
                throw InputError(
                    "the log format has $" + names_.back() + " and $" + name
                    + " without any text between them, so that a line cannot be divided");
            }
            literals_.push_back(std::move(literal));
            literal.clear();
            names_.push_back(name);
        }
        literals_.push_back(std::move(literal));
        if (names_.empty()) {
            throw InputError("the log format has no variable");
        }
    }

private:
    /// Apache writes a quote in a value as \", nginx as \x22 (or with escape=json as \"), so that a
    /// quote behind a backslash ends no value.
    std::size_t find_literal(std::string_view line, std::string_view literal) const noexcept
    {
        auto at = line.find(literal);
        if (!literal.starts_with('"') || escape() == Escape::none) {
            return at;
        }
        while (at != std::string_view::npos && is_escaped(line, at)) {
            at = line.find(literal, at + 1);
        }
        return at;
    }

    /// Whether an odd number of backslashes stands before this place.
    static bool is_escaped(std::string_view line, std::size_t at) noexcept
    {
        std::size_t count = 0;
        while (count < at && line[at - count - 1] == '\\') {
            ++count;
        }
        return count % 2 == 1;
    }

    bool split(std::string_view line, std::vector<std::string_view>& values) override
    {
        if (!line.starts_with(literals_.front())) {
            return false;
        }
        line.remove_prefix(literals_.front().size());
        for (std::size_t i = 0; i + 1 < values.size(); ++i) {
            const auto end = find_literal(line, literals_[i + 1]);
            if (end == std::string_view::npos) {
                return false;
            }
            values[i] = line.substr(0, end);
            line.remove_prefix(end + literals_[i + 1].size());
        }
        if (!line.ends_with(literals_.back())) {
            return false;
        }
        line.remove_suffix(literals_.back().size());
        // A line with more than the format has is another format's.
        if (escape() == Escape::standard && !literals_.back().empty()
            && find_literal(line, literals_.back()) != std::string_view::npos) {
            return false;
        }
        values.back() = line;
        return true;
    }

    std::vector<std::string> literals_;  // before each variable, and behind the last
};

/// Decodes what follows a backslash at `at`; returns how many characters that are. 0: no escape.
std::size_t unescape_one(std::string_view text, std::size_t at, Escape escape, std::string& out)
{
    const bool json = escape == Escape::json;
    const std::string_view rest = text.substr(at + 1);
    const std::string_view hex = json ? "u00" : "x";  // nginx writes control characters so
    if (rest.starts_with(hex)) {
        const auto byte = hex_byte(rest, hex.size());
        out.append(byte ? 1 : 0, byte.value_or('\0'));
        return byte ? 1 + hex.size() + 2 : 0;
    }
    const std::string_view from = json ? "\"\\/nrtbf" : "\"\\";  // also of Apache
    constexpr std::string_view to = "\"\\/\n\r\t\b\f";
    const auto found = rest.empty() ? rest.npos : from.find(rest.front());
    if (found == rest.npos) {
        return 0;
    }
    out += to[found];
    return 2;
}

}  // namespace

std::string take_variable(std::string_view& text)
{
    const bool braces = text.size() > 1 && text[1] == '{';
    const std::size_t start = braces ? 2 : 1;
    constexpr std::string_view letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    std::size_t end = std::min(text.find_first_not_of(letters, start), text.size());
    if (end == start || (braces && (end == text.size() || text[end] != '}'))) {
        return {};
    }
    // $1 is one digit, whatever follows it.
    if (!braces && text[start] >= '1' && text[start] <= '9') {
        end = start + 1;
    }
    std::string name(text.substr(start, end - start));
    text.remove_prefix(braces ? end + 1 : end);
    return name;
}

void unescape(std::string_view value, Escape escape, std::string& out)
{
    out.clear();
    std::size_t at = 0;
    while (at < value.size()) {
        const std::size_t taken = value[at] == '\\' ? unescape_one(value, at, escape, out) : 0;
        if (taken == 0) {
            out += value[at];
        }
        at += std::max<std::size_t>(1, taken);
    }
}

std::optional<std::size_t> LogFormat::index_of(std::string_view name) const noexcept
{
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? std::nullopt : std::optional(found - names_.begin());
}

void LogFormat::begin(bool arrival, bool concurrency)
{
    has_end_ = concurrency;
    values_.resize(names_.size());
    address_index_ = index_of("remote_addr");
    status_index_ = index_of("status");
    duration_index_.reset();
    if (arrival || concurrency) {
        duration_index_ = index_of(duration_variable);
        if (!duration_index_) {
            throw InputError("--arrival needs $request_time, which " + title_ + " does not have");
        }
    }
    for (const auto variable :
         { TimeVariable::msec, TimeVariable::time_iso8601, TimeVariable::time_local }) {
        if (const auto index = index_of(name_of(variable))) {
            time_index_ = *index;
            time_ = LogTime(variable);
            return;
        }
    }
    throw InputError(title_ + " has no time: $time_local, $time_iso8601 or $msec");
}

/// Whether the values can be those of their variables: text before the address, as of a format that
/// begins with the server's name, would become a part of it.
bool LogFormat::is_plausible() const noexcept
{
    if (address_index_ && values_[*address_index_].find(' ') != std::string_view::npos) {
        return false;
    }
    const std::string_view status = status_index_ ? values_[*status_index_] : std::string_view();
    return status == "-" || status.find_first_not_of("0123456789") == std::string_view::npos;
}

bool LogFormat::read(std::string_view line, Record& out)
{
    if (!split(line, values_) || !is_plausible()) {
        return false;
    }
    const auto time = time_.parse(values_[time_index_]);
    if (!time) {
        return false;
    }
    out.clear();
    out.time = *time;
    if (duration_index_) {
        const auto duration = parse_decimal_seconds(values_[*duration_index_]);
        if (!duration || *duration > out.time) {
            return false;
        }
        out.time -= *duration;
    }
    out.end = has_end_ ? *time : out.time;
    for (const std::size_t index : wanted_) {
        out.add(values_[index]);
    }
    return true;
}

std::unique_ptr<LogFormat> text_format(std::string_view format, Escape escape, std::string title)
{
    return std::make_unique<TextFormat>(format, escape, std::move(title));
}

}  // namespace ratelimit::rehearse

#include "rehearse/log/log_format.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

using LogJson = nlohmann::json;

bool is_ascii(char letter) noexcept
{
    return static_cast<signed char>(letter) >= 0;
}

/// nginx writes each byte from 0x80 on unchanged, but the parser takes only UTF-8. It reads such a
/// byte as the character U+E000 + byte. `own` holds the text if it differs from the line.
std::string_view widened(std::string_view line, std::string& own)
{
    if (std::all_of(line.begin(), line.end(), is_ascii)) {
        return line;
    }
    for (const char letter : line) {
        if (is_ascii(letter)) {
            own += letter;
        } else {
            own += { '\xee', (letter & 0x40) == 0 ? '\x82' : '\x83',
                     static_cast<char>(letter & 0xbf) };
        }
    }
    return own;
}

/// Makes such characters bytes again. The parser's text is UTF-8.
void narrow(std::string& text)
{
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const bool wide = text[at] == '\xee' && (text[at + 1] == '\x82' || text[at + 1] == '\x83');
        if (wide) {
            text[end++] =
                static_cast<char>(text[at + 1] == '\x82' ? text[at + 2] : text[at + 2] | 0x40);
            at += 2;
        } else {
            text[end++] = text[at];
        }
    }
    text.resize(end);
}

/// Takes the members of an object at the top of a text, with its values as text. Members of
/// objects in it are called OBJECT.MEMBER.
template <class Use>
class Members : public nlohmann::json_sax<LogJson> {
public:
    /// `use(name, value)` is called for each.
    explicit Members(const Use& use) : use_(use) {}

    bool null() override { return scalar({}); }
    bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
    bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
    bool number_unsigned(number_unsigned_t value) override { return scalar(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
    bool string(string_t& value) override
    {
        narrow(value);
        return scalar(value);
    }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override
    {
        ++arrays_;
        return open();
    }
    bool end_array() override
    {
        --arrays_;
        return close();
    }
    bool key(string_t& name) override
    {
        if (arrays_ == 0 && depth_ <= max_depth) {
            narrow(name);
            names_.resize(depth_);
            names_.back() = name;
        }
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const LogJson::exception&) override
    {
        return false;
    }

private:
    static constexpr std::size_t max_depth = 8;  // of objects whose members are taken

    bool open()
    {
        ++depth_;
        return arrays_ == 0 || depth_ > 1;  // an array at the top is no line of a log
    }
    bool close()
    {
        --depth_;
        return true;
    }
    bool scalar(std::string_view value)
    {
        if (depth_ == 0) {
            return false;
        }
        if (arrays_ > 0 || depth_ > max_depth) {
            return true;
        }
        if (depth_ == 1) {
            use_(names_.front(), value);
            return true;
        }
        whole_name_ = names_.front();
        for (std::size_t i = 1; i < depth_; ++i) {
            whole_name_ += '.' + names_[i];
        }
        use_(whole_name_, value);
        return true;
    }

    const Use& use_;
    std::size_t depth_ = 0;
    std::size_t arrays_ = 0;
    std::vector<std::string> names_;  // of the members that lead to the current value
    std::string whole_name_;
};

/// Calls `use(name, value)` for the members of a line. False: the line is no object.
template <class Use>
bool read_members(std::string_view line, const Use& use)
{
    std::string own;
    Members reader(use);
    return LogJson::sax_parse(widened(line, own), &reader);
}

class JsonFormat : public LogFormat {
public:
    explicit JsonFormat(std::vector<std::string> names)
        : LogFormat("the first object of the log", Escape::none)
    {
        names_ = std::move(names);
        texts_.resize(names_.size());
    }

private:
    bool split(std::string_view line, std::vector<std::string_view>& values) override
    {
        for (auto& text : texts_) {
            text.clear();
        }
        // Members mostly come in the same order.
        std::size_t next = 0;
        const auto set = [&](const std::string& name, std::string_view value) {
            for (std::size_t i = 0; i < names_.size(); ++i) {
                const std::size_t at = (next + i) % names_.size();
                if (names_[at] == name) {
                    texts_[at] = value == "-" ? "" : value;  // without escape=json
                    next = at + 1;
                    return;
                }
            }
        };
        if (!read_members(line, set)) {
            return false;
        }
        values.assign(texts_.begin(), texts_.end());
        return true;
    }

    std::vector<std::string> texts_;
};

}  // namespace

std::unique_ptr<LogFormat> json_format(const std::vector<std::string>& lines, std::size_t least)
{
    std::vector<std::string> names;
    std::size_t objects = 0;
    for (const std::string& line : lines) {
        std::vector<std::string> found;
        const auto add = [&found](const std::string& name, std::string_view) {
            found.push_back(name);
        };
        if (read_members(line, add) && !found.empty() && ++objects == 1) {
            names = std::move(found);
        }
    }
    return objects < least ? nullptr : std::make_unique<JsonFormat>(std::move(names));
}

}  // namespace ratelimit::rehearse

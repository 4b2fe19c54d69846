#include "rehearse/conf/conf_text.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <glob.h>
#include <iterator>
#include <optional>

namespace ratelimit::rehearse {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_depth = 100;     // of blocks and includes together
constexpr std::size_t max_files = 10'000;  // included ones

bool is_space(char letter) noexcept
{
    return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

/// The words of one file, by the rules of nginx's ngx_conf_read_token.
class Lexer {
public:
    enum class End : std::uint8_t { semicolon, open, close, file };

    Lexer(std::string_view text, const std::string& file) : text_(text), place_{ file, 1 } {}

    /// Reads the words up to the end of a directive: `;`, `{`, `}` or the end of the file. `start`
    /// is set to the place of the first word.
    End read(std::vector<std::string>& words, Place& start)
    {
        words.clear();
        for (;;) {
            skip_space();
            if (words.empty()) {
                start = place_;
            }
            if (text_.empty()) {
                return words.empty() ? End::file : fail("unexpected end of file");
            }
            switch (text_.front()) {
            case ';':
                text_.remove_prefix(1);
                return words.empty() ? fail("unexpected \";\"") : End::semicolon;
            case '{':
                text_.remove_prefix(1);
                return words.empty() ? fail("unexpected \"{\"") : End::open;
            case '}':
                text_.remove_prefix(1);
                return words.empty() ? End::close : fail("unexpected \"}\"");
            default:
                words.push_back(word());
            }
        }
    }

    /// Skips the block of a directive that holds Lua: braces in its strings and comments do not
    /// count.
    void skip_lua_block()
    {
        std::size_t depth = 1;
        while (depth > 0) {
            if (text_.empty()) {
                fail("unexpected end of file, expecting \"}\"");
            }
            if (skip_lua_text()) {
                continue;
            }
            const char letter = take();
            depth += letter == '{' ? 1 : 0;
            depth -= letter == '}' ? 1 : 0;
        }
    }

    const Place& place() const { return place_; }

private:
    [[noreturn]] End fail(const std::string& what) const { fail_at(place_, what); }

    char take()
    {
        const char letter = text_.front();
        place_.line += letter == '\n' ? 1 : 0;
        text_.remove_prefix(1);
        return letter;
    }

    void skip(std::size_t count)
    {
        while (count-- > 0 && !text_.empty()) {
            take();
        }
    }

    /// A string or a comment of Lua. False: there is none here.
    bool skip_lua_text()
    {
        const std::size_t dashes = text_.starts_with("--") ? 2 : 0;
        const std::string_view rest = text_.substr(dashes);
        const auto bracket = rest.starts_with('[') ? rest.find_first_not_of('=', 1) : rest.npos;
        if (bracket != rest.npos && rest[bracket] == '[') {  // [[ … ]], [=[ … ]=], …
            const std::string closing = ']' + std::string(bracket - 1, '=') + ']';
            const auto end = rest.find(closing, bracket);
            skip(end == rest.npos ? text_.size() : dashes + end + closing.size());
            return true;
        }
        if (dashes > 0) {
            skip(text_.find('\n'));
            return true;
        }
        if (text_.front() != '"' && text_.front() != '\'') {
            return false;
        }
        const char quote = take();
        for (char letter = '\0'; letter != quote && letter != '\n' && !text_.empty();) {
            letter = take();
            if (letter == '\\') {
                skip(1);
            }
        }
        return true;
    }

    void skip_space()
    {
        while (!text_.empty()) {
            if (text_.front() == '#') {
                text_.remove_prefix(std::min(text_.find('\n'), text_.size()));
            } else if (is_space(text_.front())) {
                take();
            } else {
                return;
            }
        }
    }

    /// A backslash quotes the next character. `\t`, `\r` and `\n` are control characters; before
    /// other characters than quotation marks and itself, the backslash stays.
    void take_into(std::string& out)
    {
        out += take();
        if (out.back() != '\\') {
            return;
        }
        if (text_.empty()) {
            fail("unexpected end of file");
        }
        constexpr std::string_view from = "\"'\\trn";
        constexpr std::string_view to = "\"'\\\t\r\n";
        const char letter = take();
        if (const auto found = from.find(letter); found != from.npos) {
            out.back() = to[found];
        } else {
            out += letter;
        }
    }

    std::string quoted(char quote)
    {
        std::string out;
        take();
        for (;;) {
            if (text_.empty()) {
                fail("unexpected end of file, expecting a quotation mark");
            }
            if (text_.front() == quote) {
                break;
            }
            take_into(out);
        }
        take();
        if (!text_.empty() && !is_space(text_.front())
            && std::strchr(";{)", text_.front()) == nullptr) {
            fail(std::string("unexpected \"") + text_.front() + "\"");
        }
        return out;
    }

    std::string word()
    {
        if (text_.front() == '"' || text_.front() == '\'') {
            return quoted(text_.front());
        }
        std::string out;
        while (!text_.empty() && !is_space(text_.front()) && text_.front() != ';') {
            if (text_.front() == '{' && (out.empty() || out.back() != '$')) {
                break;
            }
            take_into(out);
        }
        return out;
    }

    std::string_view text_;
    Place place_;
};

/// Reads files and follows includes.
class ConfReader {
public:
    /// `folder`: that of the main file; empty: includes are errors.
    ConfReader(std::optional<fs::path> folder, std::vector<std::string>& warnings)
        : folder_(std::move(folder)), warnings_(warnings)
    {
    }

    void read_file(const fs::path& path, std::vector<Directive>& out, std::size_t depth)
    {
        if (++files_ > max_files) {
            throw InputError("more than " + std::to_string(max_files) + " files are included");
        }
        std::error_code error;
        std::ifstream file(path, std::ios::binary);
        if (!file || fs::is_directory(path, error)) {
            throw InputError("cannot read " + path.string());
        }
        std::string text(std::istreambuf_iterator<char>(file), {});
        read_text(text, path.string(), out, depth);
    }

    void read_text(
        std::string_view text, const std::string& name, std::vector<Directive>& out,
        std::size_t depth)
    {
        Lexer lexer(text, name);
        read_block(lexer, out, depth, true);
    }

private:
    void read_block(Lexer& lexer, std::vector<Directive>& out, std::size_t depth, bool top)
    {
        if (depth > max_depth) {
            fail_at(lexer.place(), "blocks and includes are nested too deeply");
        }
        std::vector<std::string> words;
        Place start;
        for (;;) {
            const auto end = lexer.read(words, start);
            if (end == Lexer::End::close) {
                return top ? fail_at(start, "unexpected \"}\"") : void();
            }
            if (end == Lexer::End::file) {
                return top ? void() : fail_at(start, "unexpected end of file, expecting \"}\"");
            }
            if (words.front() == "include" && end == Lexer::End::semicolon) {
                include(words, start, out, depth);
                continue;
            }
            Directive& added = out.emplace_back();
            added.name = std::move(words.front());
            added.args.assign(
                std::make_move_iterator(words.begin() + 1), std::make_move_iterator(words.end()));
            added.place = start;
            added.has_block = end == Lexer::End::open;
            if (added.has_block && added.name.ends_with("_by_lua_block")) {
                lexer.skip_lua_block();
            } else if (added.has_block) {
                std::vector<Directive> block;
                read_block(lexer, block, depth + 1, false);
                added.block = std::move(block);
            }
        }
    }

    void include(
        const std::vector<std::string>& words, const Place& place, std::vector<Directive>& out,
        std::size_t depth)
    {
        if (words.size() != 2) {
            fail_at(place, "\"include\" must have one argument");
        }
        if (!folder_) {
            fail_at(place, "\"include\" cannot be followed");
        }
        const fs::path path = *folder_ / words[1];
        if (path.string().find_first_of("*?[") == std::string::npos) {
            std::error_code error;
            if (!fs::is_regular_file(path, error) || !std::ifstream(path)) {
                warnings_.push_back(
                    "\"include\" in " + place.text() + " is passed over, because \"" + path.string()
                    + "\" cannot be read");
                return;
            }
            return read_file(path, out, depth + 1);
        }
        glob_t found{};
        // Not found is not an error, as in nginx.
        if (glob(path.c_str(), 0, nullptr, &found) == 0) {
            const std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
            globfree(&found);
            for (const auto& one : paths) {
                read_file(one, out, depth + 1);
            }
        }
    }

    std::optional<fs::path> folder_;
    std::vector<std::string>& warnings_;
    std::size_t files_ = 0;
};

}  // namespace

std::vector<Directive> read_conf(const std::string& path, std::vector<std::string>& warnings)
{
    std::vector<Directive> all;
    std::error_code error;
    const auto whole = fs::absolute(path, error);
    ConfReader reader(whole.parent_path(), warnings);
    reader.read_file(path, all, 0);
    return all;
}

std::vector<Directive> parse_conf(std::string_view text, const std::string& name)
{
    std::vector<Directive> all;
    std::vector<std::string> warnings;  // none, as includes are errors
    ConfReader(std::nullopt, warnings).read_text(text, name, all, 0);
    return all;
}

}  // namespace ratelimit::rehearse

// UsageScanner: a number of a response, found while it passes.

#include "limit/usage_scanner.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit {
namespace {

using Format = UsageScanner::Format;
using Value = std::optional<std::int64_t>;

/// What is found, however the text is cut: in one piece, in bytes, and in two pieces at each byte.
Value found(std::string_view path, std::string_view text, Format format = Format::json)
{
    UsageScanner whole(path, format);
    whole.read(text);
    UsageScanner bytes(path, format);
    for (const char& byte : text) {
        bytes.read({ &byte, 1 });
    }
    EXPECT_EQ(bytes.value(), whole.value()) << text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        UsageScanner halves(path, format);
        halves.read(text.substr(0, cut));
        halves.read(text.substr(cut));
        EXPECT_EQ(halves.value(), whole.value()) << text << " cut at " << cut;
    }
    return whole.value();
}

Value in_events(std::string_view text)
{
    return found("usage.total_tokens", text, Format::event_stream);
}

TEST(UsageScanner, finds_the_value_of_a_path)
{
    const std::string_view answer =
        R"({"id":"x","choices":[{"message":{"content":"\"usage\":{\"total_tokens\":9}"}}],)"
        R"("usage":{"prompt_tokens":5,"total_tokens":12,"details":{"total_tokens":3}},"z":{"total_tokens":4}})";
    EXPECT_EQ(found("usage.total_tokens", answer), 12);
    EXPECT_EQ(found("usage.prompt_tokens", answer), 5);
    EXPECT_EQ(found("usage.details.total_tokens", answer), 3);
    EXPECT_EQ(found("total_tokens", answer), std::nullopt);
    EXPECT_EQ(found("usage", answer), std::nullopt);
    EXPECT_EQ(found("usage.total", answer), std::nullopt);
    EXPECT_EQ(found("usage.total_tokens.more", answer), std::nullopt);
    EXPECT_EQ(found("n", " { \"n\" :\n 7 } "), 7);
}

TEST(UsageScanner, takes_only_whole_numbers_and_the_last_of_them)
{
    EXPECT_EQ(found("n", R"({"n":1,"n":22})"), 22);
    for (const char* other : { "-1", "1.0", "1e3", "\"5\"", "null", "true", "[7]", "{\"\":7}",
                               "1000000000001", "99999999999999999999999999999999999999" }) {
        EXPECT_EQ(found("n", R"({"n":8,"n":)" + std::string(other) + "}"), 8) << other;
    }
    EXPECT_EQ(found("n", R"({"n":1000000000000})"), UsageScanner::most);
    EXPECT_EQ(found("n", R"({"n":007})"), 7);
}

TEST(UsageScanner, is_not_misled_by_arrays_strings_or_broken_text)
{
    EXPECT_EQ(found("n", R"([{"n":1}])"), std::nullopt);
    EXPECT_EQ(found("a.n", R"({"a":[{"n":1}]})"), std::nullopt);
    EXPECT_EQ(found("n", R"({"x":"n","y":"{\"n\":1}"})"), std::nullopt);
    EXPECT_EQ(found("n", R"({"n\u0000":1,"\u006e":2})"), std::nullopt) << "names with escapes";
    EXPECT_EQ(found("n", R"({"n":"\\","n":3})"), 3);
    EXPECT_EQ(found("n", R"(}}]]{"n":4})"), 4);
    EXPECT_EQ(found("n", R"({"n":4)"), std::nullopt) << "the number may go on";
    EXPECT_EQ(found("n", R"({"n" 4,"n"::5,})"), 5);
    EXPECT_EQ(found("n", ""), std::nullopt);
    EXPECT_EQ(found("n", R"({"n":[""]5})"), std::nullopt) << "a string in an array is not a name";
    UsageScanner deep("n", Format::json);
    for (int i = 0; i < 1'000'000; ++i) {
        deep.read(R"({"n":[)");
    }
    EXPECT_EQ(deep.value(), std::nullopt);
}

TEST(UsageScanner, finds_it_in_the_data_of_events)
{
    EXPECT_EQ(
        in_events("data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":42}}\n\ndata: "
                  "[DONE]\n\n"),
        42);
    EXPECT_EQ(
        in_events("event: x\r\ndata:{\"usage\":\r\ndata: {\"total_tokens\":\r\ndata: 5}}\r\n\r\n"),
        5)
        << "in lines";
    EXPECT_EQ(in_events("data: {\"usage\":{\"total_tokens\":6}}\r\rdata: {\r\r"), 6);
    EXPECT_EQ(in_events("data: {\"usage\":\n\ndata: {\"total_tokens\":6}}\n\n"), std::nullopt)
        << "two events";
    EXPECT_EQ(in_events("date: {\"usage\":{\"total_tokens\":6}}\n\n"), std::nullopt);
    EXPECT_EQ(in_events(": data: {\"usage\":{\"total_tokens\":6}}\n\n"), std::nullopt)
        << "a comment";
    EXPECT_EQ(in_events("data: {\"a\":\"\n\ndata: {\"usage\":{\"total_tokens\":6}}\n\n"), 6)
        << "after a broken event";
}

TEST(UsageScanner, knows_what_a_path_is)
{
    for (const char* path :
         { "a", "a.b", "usage.total_tokens", "a b.c-d", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p" }) {
        EXPECT_TRUE(UsageScanner::is_path(path)) << path;
    }
    for (const std::string& path :
         { std::string(), std::string("."), std::string("a."), std::string(".a"),
           std::string("a..b"), std::string("a\"b"), std::string("a\\b"), std::string(65, 'a'),
           std::string("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q") }) {
        EXPECT_FALSE(UsageScanner::is_path(path)) << path;
    }
}

/// The value that the library reads at a path without arrays, if it is a number that counts.
Value by_library(const nlohmann::json& text, std::initializer_list<const char*> names)
{
    const nlohmann::json* at = &text;
    for (const char* name : names) {
        if (!at->is_object() || !at->contains(name)) {
            return std::nullopt;
        }
        at = &(*at)[name];
    }
    const bool whole = at->is_number_integer() && *at >= 0 && *at <= UsageScanner::most;
    return whole ? Value(at->get<std::int64_t>()) : std::nullopt;
}

nlohmann::json random_json(std::mt19937& random, int depth)
{
    static constexpr const char* names[] = { "a", "b", "usage", "ab", "" };
    switch (depth == 0 ? random() % 5 : random() % 7) {
    case 0:
        return random() % 1000;
    case 1:
        return -static_cast<int>(random() % 10);
    case 2:
        return "a\":{\"usage\":{\\ " + std::to_string(random() % 100);
    case 3:
        return random() % 3 * 0.5;
    case 4:
        return nullptr;
    case 5: {
        auto list = nlohmann::json::array();
        for (auto count = random() % 3; count > 0; --count) {
            list.push_back(random_json(random, depth - 1));
        }
        return list;
    }
    default: {
        auto object = nlohmann::json::object();
        for (auto count = random() % 4; count > 0; --count) {
            object[names[random() % std::size(names)]] = random_json(random, depth - 1);
        }
        return object;
    }
    }
}

TEST(UsageScanner, finds_what_a_library_finds_in_random_texts)
{
    std::mt19937 random(7);
    int values = 0;
    for (int i = 0; i < 20'000; ++i) {
        const nlohmann::json text = { { "a", random_json(random, 1) },
                                      { "usage", random_json(random, 4) } };
        const std::string dumped = text.dump(i % 3 - 1);
        UsageScanner one("a", Format::json);
        one.read(dumped + "\n");
        UsageScanner two("usage.a", Format::json);
        two.read(dumped + "\n");
        EXPECT_EQ(one.value(), by_library(text, { "a" })) << dumped;
        EXPECT_EQ(two.value(), by_library(text, { "usage", "a" })) << dumped;
        values += one.value() ? 1 : 0;
        values += two.value() ? 1 : 0;
    }
    EXPECT_GT(values, 300);
}

/// The same, byte by byte, in the simplest form: what UsageScanner must find in any text.
class Reference {
public:
    explicit Reference(std::vector<std::string> path) : path_(std::move(path)) {}

    void read_json(char sign)
    {
        if (in_string_) {
            read_in_string(sign);
        } else if (
            number_ && std::string_view("0123456789+-.eE").find(sign) != std::string_view::npos) {
            *number_ += sign;
        } else {
            end_number();
            read_between(sign);
        }
    }

    void read_event_stream(const std::string& text)
    {
        std::string line;
        for (std::size_t at = 0; at < text.size(); ++at) {
            if (text[at] != '\r' && text[at] != '\n') {
                line += text[at];
                continue;
            }
            if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {
                ++at;
            }
            end_line(std::exchange(line, ""));
        }
        if (line.starts_with("data:")) {
            read_data(line);
        }
    }

    Value value;

private:
    void read_in_string(char sign)
    {
        if (escaped_) {
            escaped_ = false;
        } else if (sign == '\\') {
            escaped_ = has_escapes_ = true;
        } else if (sign == '"') {
            in_string_ = false;
            const bool equal = is_name_ && !has_escapes_ && on_path_ <= path_.size()
                && string_ == path_[on_path_ - 1];
            found_ = equal;
        } else {
            string_ += sign;
        }
    }

    void read_between(char sign)
    {
        if (sign == '{' || sign == '[') {
            const bool named = depth_ == 0 || (found_ && on_path_ < path_.size());
            names_follow_ = depth_ == on_path_ && sign == '{' && named;
            ++depth_;
            on_path_ += names_follow_ ? 1 : 0;
            found_ = false;
        } else if (sign == '}' || sign == ']') {
            depth_ -= depth_ > 0 ? 1 : 0;
            on_path_ = std::min(on_path_, depth_);
            names_follow_ = found_ = false;
        } else if (sign == '"') {
            in_string_ = true;
            escaped_ = has_escapes_ = false;
            is_name_ = names_follow_;
            string_.clear();
        } else if (sign == ',') {
            names_follow_ = depth_ > 0 && depth_ == on_path_;
            found_ = false;
        } else if (sign == ':') {
            names_follow_ = false;
        } else if (sign == '-' || (sign >= '0' && sign <= '9')) {
            number_ = std::string(1, sign);
        }
    }

    void end_number()
    {
        if (number_ && found_ && on_path_ == path_.size()
            && number_->find_first_not_of("0123456789") == std::string::npos) {
            const double size = std::stod(*number_);
            if (size <= 1e12) {
                value = static_cast<std::int64_t>(size);
            }
        }
        number_.reset();
    }

    void end_line(const std::string& line)
    {
        if (line.empty()) {
            *this = Reference(path_, value);
        } else if (line.starts_with("data:")) {
            read_data(line + "\n");
        }
    }

    void read_data(const std::string& line)
    {
        for (const char sign : line.substr(5)) {
            read_json(sign);
        }
    }

    Reference(std::vector<std::string> path, Value kept) : value(kept), path_(std::move(path)) {}

    std::vector<std::string> path_;
    std::size_t depth_ = 0;
    std::size_t on_path_ = 0;
    std::string string_;
    std::optional<std::string> number_;
    bool in_string_ = false;
    bool escaped_ = false;
    bool has_escapes_ = false;
    bool is_name_ = false;
    bool names_follow_ = false;
    bool found_ = false;
};

/// A text of parts that matter to the scanner, in any order, and some that are whole answers.
std::string random_text(std::mt19937& random)
{
    static constexpr const char* parts[] = { "data:",
                                             "data: ",
                                             "event: x",
                                             "\n",
                                             "\n\n",
                                             "\r\n",
                                             "\r\n\r\n",
                                             "\r",
                                             ":",
                                             ",",
                                             "{",
                                             "}",
                                             "[",
                                             "]",
                                             "\"",
                                             "\\",
                                             "\"u\"",
                                             "\"u\":",
                                             "\"n\"",
                                             "\"n\":",
                                             "\"n\":7",
                                             "u",
                                             "n",
                                             "1",
                                             "23",
                                             "-",
                                             ".5",
                                             "e1",
                                             " ",
                                             "{\"u\":{\"n\":",
                                             "{\"u\":{\"n\":41}}",
                                             "\"text with words\"",
                                             "\\\"",
                                             "\\\\",
                                             "1000000000000",
                                             "9999999999999",
                                             "data: {\"x\":\"y\"}\n\n",
                                             "data: {\"x\":1}\r\n\r\n",
                                             "data: {\"u\":{\"n\":5}}\n\n",
                                             "data: {\"u\":{\"x\":\"n\",\"n\":6}}\r\n\r\n" };
    std::string text;
    for (auto count = random() % 40; count > 0; --count) {
        text += parts[random() % std::size(parts)];
    }
    return text;
}

Value in_random_pieces(std::mt19937& random, std::string_view text, UsageScanner::Format format)
{
    UsageScanner scanner("u.n", format);
    while (!text.empty()) {
        const std::string_view piece = text.substr(0, 1 + random() % 30);
        scanner.read(piece);
        text.remove_prefix(piece.size());
    }
    return scanner.value();
}

TEST(UsageScanner, finds_in_any_text_and_pieces_what_a_reader_of_bytes_finds)
{
    std::mt19937 random(11);
    int values = 0;
    for (int i = 0; i < 100'000; ++i) {
        const std::string text = random_text(random);
        Reference json({ "u", "n" });
        for (const char sign : text) {
            json.read_json(sign);
        }
        Reference events({ "u", "n" });
        events.read_event_stream(text);
        ASSERT_EQ(in_random_pieces(random, text, Format::json), json.value) << text;
        ASSERT_EQ(in_random_pieces(random, text, Format::event_stream), events.value) << text;
        values += (json.value ? 1 : 0) + (events.value ? 1 : 0);
    }
    EXPECT_GT(values, 5'000);
}

}  // namespace
}  // namespace ratelimit

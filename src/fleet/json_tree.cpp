#include "fleet/json_tree.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ratelimit::fleet {

namespace {

using Json = nlohmann::json;

/// Takes what nlohmann's parser reads. Each function returns whether the parser goes on.
class TreeBuilder {
public:
    using Kind = JsonTree::Kind;

    TreeBuilder(JsonTree& top, std::size_t depth) : top_(top), depth_(depth) {}

    bool null() { return add({}); }
    bool boolean(bool value) { return add({ .single = value }); }
    bool number_integer(std::int64_t value) { return add({ .single = value }); }
    bool number_unsigned(std::uint64_t value) { return add({ .single = value }); }
    bool number_float(double value, const std::string&) { return add({ .single = value }); }
    bool string(std::string& value) { return add({ .single = std::move(value) }); }
    bool binary(Json::binary_t&) { return true; }  // JSON has none
    bool key(std::string& name)
    {
        name_ = std::move(name);
        return true;
    }
    bool start_object(std::size_t) { return open(Kind::object); }
    bool start_array(std::size_t) { return open(Kind::array); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

private:
    bool add(JsonTree value)
    {
        value.name = std::exchange(name_, {});
        if (open_.empty()) {
            top_ = std::move(value);
        } else if (open_.size() <= depth_) {
            open_.back()->parts.push_back(std::move(value));
        }
        return true;
    }
    /// What is too deep is open, too, as a part of the value that has no parts.
    bool open(Kind kind)
    {
        const bool kept = open_.size() <= depth_;
        add({ .kind = kind });
        open_.push_back(open_.empty() ? &top_ : kept ? &open_.back()->parts.back() : open_.back());
        return true;
    }
    bool close()
    {
        open_.pop_back();
        return true;
    }

    JsonTree& top_;
    const std::size_t depth_;
    std::vector<JsonTree*> open_;  // the last one is the inner one
    std::string name_;             // of the next member
};

}  // namespace

const JsonTree* JsonTree::find(std::string_view member) const noexcept
{
    const auto found = std::find_if(parts.rbegin(), parts.rend(), [&](const JsonTree& part) {
        return kind == Kind::object && part.name == member;
    });
    return found == parts.rend() ? nullptr : &*found;
}

std::optional<JsonTree> parse_json(std::string_view text, std::size_t depth)
{
    JsonTree top;
    TreeBuilder builder(top, depth);
    return Json::sax_parse(text.begin(), text.end(), &builder) ? std::optional(std::move(top))
                                                               : std::nullopt;
}

}  // namespace ratelimit::fleet

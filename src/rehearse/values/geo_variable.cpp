#include "rehearse/conf/address.h"
#include "rehearse/values/variables.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace ratelimit::rehearse {

namespace {

/// The variable of a `geo`: the longest network with the address, or with `ranges` the range.
class Geo {
public:
    Geo(Scope& scope, const Directive& directive)
    {
        const bool given = directive.args.size() == 2;
        const std::string name = given ? directive.args[0] : "$remote_addr";
        address_ = scope.compile(name, directive.place);
        for (const Directive& entry : directive.block) {
            ranges_only_ = ranges_only_ || (entry.name == "ranges" && entry.args.empty());
        }
        for (const Directive& entry : directive.block) {
            if (!entry.args.empty() || entry.name != "ranges") {
                add(entry);
            }
        }
        std::sort(ranges_.begin(), ranges_.end(), [](const Range& left, const Range& right) {
            return left.first < right.first;
        });
        for (std::size_t i = 1; i < ranges_.size(); ++i) {
            if (ranges_[i].first <= ranges_[i - 1].last) {
                fail_at(ranges_[i].place, "ranges that overlap cannot be followed");
            }
        }
    }

    std::string_view operator()(Values& values, std::string& own) const
    {
        std::string address;
        if (!parse_client(address_.value(values, own), address)) {
            address.assign(ipv4_length, '\xff');  // as nginx does
        }
        return ranges_only_ ? in_ranges(address) : in_networks(address);
    }

private:
    struct Range {
        std::string first;  // bytes of an address
        std::string last;
        std::string value;
        Place place;
    };
    void add(const Directive& entry)
    {
        if (entry.name.starts_with("proxy") || entry.has_block) {
            fail_at(entry.place, "\"" + entry.name + "\" of \"geo\" cannot be followed");
        }
        if (entry.args.size() != 1) {
            fail_at(entry.place, "invalid number of the geo parameters");
        }
        const std::string& value = entry.args[0];
        if (entry.name == "default") {
            default_ = value;
        } else if (entry.name == "delete") {
            remove(entry, value);
        } else if (ranges_only_) {
            add_range(entry);
        } else {
            const auto [bytes, prefix] = network_of(entry, entry.name);
            networks_[{ prefix, bytes.size() }][bytes] = value;
        }
    }

    void add_range(const Directive& entry)
    {
        const auto dash = entry.name.find('-');
        const std::string first = binary_address(entry.name.substr(0, dash));
        const std::string last =
            dash == entry.name.npos ? std::string() : binary_address(entry.name.substr(dash + 1));
        if (first.empty() || first.size() != last.size() || first > last) {
            fail_at(entry.place, "invalid range \"" + entry.name + "\"");
        }
        ranges_.push_back({ first, last, entry.args[0], entry.place });
    }

    void remove(const Directive& entry, const std::string& text)
    {
        if (ranges_only_) {
            fail_at(entry.place, "\"delete\" of ranges cannot be followed");
        }
        const auto [bytes, prefix] = network_of(entry, text);
        networks_[{ prefix, bytes.size() }].erase(bytes);
    }

    static Network network_of(const Directive& entry, const std::string& text)
    {
        const auto network = parse_network(text);
        if (!network) {
            fail_at(entry.place, "invalid network \"" + text + "\"");
        }
        return *network;
    }

    std::string_view in_ranges(const std::string& address) const
    {
        auto after = std::upper_bound(
            ranges_.begin(), ranges_.end(), address,
            [](const std::string& left, const Range& right) { return left < right.first; });
        while (after != ranges_.begin()) {
            --after;
            if (after->first.size() == address.size()) {
                return address <= after->last ? after->value : default_;
            }
        }
        return default_;
    }

    std::string_view in_networks(const std::string& address) const
    {
        std::string cut;
        for (const auto& [kind, networks] : networks_) {
            const auto [prefix, bytes] = kind;
            if (bytes == address.size()) {
                cut = address;
                cut_address(cut, prefix);
                if (const auto found = networks.find(cut); found != networks.end()) {
                    return found->second;
                }
            }
        }
        return default_;
    }

    Expression address_;
    bool ranges_only_ = false;
    std::string default_;
    std::vector<Range> ranges_;
    /// By the length of the prefix, the longest first, and that of addresses in bytes.
    std::map<
        std::pair<unsigned, std::size_t>, std::unordered_map<std::string, std::string>,
        std::greater<>>
        networks_;
};

}  // namespace

Variable::Function make_geo(Scope& scope, const Directive& directive)
{
    return Geo(scope, directive);
}

}  // namespace ratelimit::rehearse

#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ratelimit::rehearse {

/// Values with a `key`, of which a bounded number is remembered: those that come first by `<`.
template <class Value>
class FirstKeys {
public:
    explicit FirstKeys(std::size_t most) : most_(most) {}

    /// Finds or adds a value; valid until the next call.
    Value& operator[](std::string_view key)
    {
        lookup_ = key;
        if (const auto known = values_.find(lookup_); known != values_.end()) {
            return known->second;
        }
        if (values_.size() >= 2 * most_ + 16) {
            drop_last();
        }
        Value& added = values_[lookup_];
        added.key = lookup_;
        return added;
    }

    /// Adds a value, or replaces that of its key, which came later in the order.
    void offer(const Value& value)
    {
        if (most_ > 0 && (!last_ || value < *last_)) {
            (*this)[value.key] = value;
        }
    }

    /// At most this many, in their order.
    std::vector<Value> list(std::size_t count) const
    {
        std::vector<Value> out;
        for (const Value* one : first(count)) {
            out.push_back(*one);
        }
        return out;
    }

private:
    std::vector<const Value*> first(std::size_t count) const
    {
        std::vector<const Value*> all;
        all.reserve(values_.size());
        for (const auto& [key, value] : values_) {
            all.push_back(&value);
        }
        const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()));
        std::partial_sort(all.begin(), end, all.end(), [](const Value* left, const Value* right) {
            return *left < *right;
        });
        all.erase(end, all.end());
        return all;
    }

    void drop_last()
    {
        std::unordered_map<std::string, Value> kept;
        for (const Value* one : first(most_)) {
            last_ = *one;
            kept.insert(values_.extract(one->key));
        }
        values_ = std::move(kept);
    }

    std::size_t most_;
    std::unordered_map<std::string, Value> values_;
    std::optional<Value> last_;  // of those that were remembered when others were dropped
    std::string lookup_;         // its memory is used again
};

}  // namespace ratelimit::rehearse

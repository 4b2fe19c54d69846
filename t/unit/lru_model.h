#pragma once

#include "store/keyed_tree.h"

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit {

using Name = std::pair<std::string, u_char>;  // key and tag

/// The entries that a table must hold.
class LruModel {
public:
    struct Entry {
        int value;
        bool more;
        std::list<Name>::iterator use;
        bool held;
    };

    Entry* find(const Name& name)
    {
        const auto found = entries_.find(name);
        return found == entries_.end() ? nullptr : &found->second;
    }
    void insert(const Name& name, int value)
    {
        entries_[name] = { value, false, uses_.insert(uses_.begin(), name), false };
    }
    void use(const Name& name)
    {
        Entry& entry = entries_.at(name);
        if (!entry.held) {
            uses_.erase(entry.use);
        }
        entry.use = uses_.insert(uses_.begin(), name);
        entry.held = false;
    }
    void hold(const Name& name)
    {
        Entry& entry = entries_.at(name);
        uses_.erase(entry.use);
        entry.held = true;
    }
    void remove(const Name& name)
    {
        const auto found = entries_.find(name);
        if (!found->second.held) {
            uses_.erase(found->second.use);
        }
        entries_.erase(found);
    }
    std::vector<Name> all_of(const std::string& key) const
    {
        std::vector<Name> names;
        for (auto at = entries_.lower_bound({ key, 0 });
             at != entries_.end() && at->first.first == key; ++at) {
            names.push_back(at->first);
        }
        return names;
    }
    std::size_t blocks() const
    {
        std::size_t count = 0;
        for (const auto& [name, entry] : entries_) {
            count +=
                1 + (name.first.size() > KeyedNode::first_bytes ? 1 : 0) + (entry.more ? 1 : 0);
        }
        return count;
    }
    const std::list<Name>& uses() const { return uses_; }  // the most recent first
    const std::map<Name, Entry>& entries() const { return entries_; }

private:
    std::map<Name, Entry> entries_;
    std::list<Name> uses_;
};

}  // namespace ratelimit

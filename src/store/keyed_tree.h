#pragma once

#include "nginx/ngx.h"

#include <cstring>
#include <string_view>

namespace ratelimit {

/// What is found by its key in shared memory. What derives from it is followed by the key's bytes.
struct KeyedNode {
    ngx_rbtree_node_t node;  // its key: the CRC32
    ngx_queue_t queue;       // for the owner's order
    u_char tag;              // nodes of one key and different tags are different
    u_char key_length;
    u_short key_offset;  // of the key's bytes, from the node

    static KeyedNode* of(ngx_queue_t* link) noexcept
    {
        return ngx_queue_data(link, KeyedNode, queue);
    }
    std::string_view key() const noexcept
    {
        return { reinterpret_cast<const char*>(this) + key_offset, key_length };
    }
};

/// A red-black tree of nodes in shared memory, which has the tree as well. The owner has the lock.
class KeyedTree {
public:
    static constexpr std::size_t key_limit = 128;  // bytes

    void init() noexcept { ngx_rbtree_init(&tree_, &sentinel_, &KeyedTree::place); }

    KeyedNode* find(std::string_view key, u_char tag) const noexcept;

    /// How much memory an Entry, which derives from KeyedNode, needs for this key.
    template <class Entry>
    static std::size_t size_of(std::string_view key) noexcept
    {
        return sizeof(Entry) + key.size();
    }
    /// Writes the key behind the entry, and puts it into the tree.
    template <class Entry>
    void insert(Entry& entry, std::string_view key, u_char tag) noexcept
    {
        entry.tag = tag;
        entry.key_length = static_cast<u_char>(key.size());
        entry.key_offset = sizeof(Entry);
        std::memcpy(reinterpret_cast<char*>(&entry) + sizeof(Entry), key.data(), key.size());
        insert_node(entry);
    }
    void remove(KeyedNode& node) noexcept { ngx_rbtree_delete(&tree_, &node.node); }

private:
    static void place(
        ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept;
    void insert_node(KeyedNode& node) noexcept;

    ngx_rbtree_t tree_;
    ngx_rbtree_node_t sentinel_;
};

}  // namespace ratelimit

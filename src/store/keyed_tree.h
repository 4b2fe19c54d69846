#pragma once

#include "nginx/ngx.h"
#include "store/shared_blocks.h"

#include <cstdint>
#include <new>
#include <optional>
#include <string_view>

namespace ratelimit {

/// A node in shared memory that is found by its key. Its block ends with the key's first bytes;
/// what derives from this has the bytes before them. A longer key has a second block.
struct KeyedNode {
    static constexpr std::size_t key_offset = 104;
    static constexpr std::size_t first_bytes = SharedBlocks::size - key_offset;
    static constexpr std::size_t key_limit = 128;

    ngx_rbtree_node_t node;  // its key: the CRC32 and the tag; its data: the length of the key
    ngx_queue_t queue;       // for the owner's order; linked to itself: in no queue
    char* more_bytes;        // of the key; null: none

    static KeyedNode* of(ngx_queue_t* link) noexcept
    {
        return ngx_queue_data(link, KeyedNode, queue);
    }
    /// Nodes of one key and different tags are different.
    u_char tag() const noexcept { return static_cast<u_char>(node.key); }
    std::size_t key_length() const noexcept { return node.data; }
    /// Writes the key to `out`, which has room for key_limit bytes.
    void copy_key(char* out) const noexcept;
    /// Frees the blocks that what derives from this has besides its own.
    void release(SharedBlocks& /*blocks*/) noexcept {}
};

/// A red-black tree of nodes; it is in shared memory itself. The caller has the zone's lock.
class KeyedTree {
public:
    static std::uint32_t hash_of(std::string_view key) noexcept;

    void init() noexcept
    {
        ngx_rbtree_init(&tree_, &sentinel_, &KeyedTree::insert_node);
        size_ = 0;
    }

    /// The number of nodes. May be called without the lock.
    std::size_t size() const noexcept { return size_; }

    KeyedNode* find(std::string_view key, u_char tag) const noexcept
    {
        return find_at(order_of(hash_of(key), tag), key);
    }

    /// Calls `visit` with each node of the key, whatever its tag; it may remove that node.
    template <class Visit>
    void each(std::string_view key, Visit&& visit) const
    {
        const std::uint32_t hash = hash_of(key);
        const auto last = order_of(hash, 0xFF);
        auto next = first_from(order_of(hash, 0));
        while (next && *next <= last) {
            const auto order = *next;
            if (KeyedNode* node = find_at(order, key)) {
                visit(*node);
            }
            next = first_from(order + 1);
        }
    }

    /// Makes an Entry, which derives from KeyedNode, for a key that is not there. Null: no memory.
    template <class Entry>
    Entry* add(std::string_view key, u_char tag, SharedBlocks& blocks) noexcept
    {
        static_assert(sizeof(Entry) <= KeyedNode::key_offset);
        void* more = nullptr;
        if (key.size() > KeyedNode::first_bytes && (more = blocks.allocate()) == nullptr) {
            return nullptr;
        }
        void* block = blocks.allocate();
        if (block == nullptr) {
            if (more != nullptr) {
                blocks.free(more);
            }
            return nullptr;
        }
        auto* entry = new (block) Entry;
        entry->more_bytes = static_cast<char*>(more);
        insert(*entry, key, tag);
        return entry;
    }
    /// Removes it, and frees its blocks.
    void remove(KeyedNode& node, SharedBlocks& blocks) noexcept;

private:
    static ngx_rbtree_key_t order_of(std::uint32_t hash, u_char tag) noexcept
    {
        static_assert(sizeof(ngx_rbtree_key_t) > sizeof(hash), "there is room for the tag");
        return ngx_rbtree_key_t{ hash } << 8U | tag;  // a key's nodes are next to each other
    }
    /// The first order in the tree that is not below this one.
    std::optional<ngx_rbtree_key_t> first_from(ngx_rbtree_key_t order) const noexcept;
    KeyedNode* find_at(ngx_rbtree_key_t order, std::string_view key) const noexcept;
    static void insert_node(
        ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept;
    void insert(KeyedNode& node, std::string_view key, u_char tag) noexcept;

    ngx_rbtree_t tree_;
    ngx_rbtree_node_t sentinel_;
    ngx_atomic_t size_;
};

}  // namespace ratelimit

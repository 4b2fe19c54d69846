#pragma once

#include "nginx/ngx.h"
#include "store/shared_blocks.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>

namespace ratelimit {

/// A node in shared memory that is found by its key. From key_offset on, its block holds the first
/// bytes of the key; derived classes use the bytes before that. A longer key has a second block.
struct KeyedNode {
    static constexpr std::size_t key_offset = 104;
    static constexpr std::size_t first_bytes = SharedBlocks::size - key_offset;
    static constexpr std::size_t key_limit = 128;

    ngx_rbtree_node_t node;  // `key`: the key's hash and the tag; `data`: the length of the key
    ngx_queue_t queue;       // in a UseQueue; linked to itself: in none
    char* more_bytes;        // the rest of the key; null: there is none

    static KeyedNode* of(ngx_queue_t* link) noexcept
    {
        return ngx_queue_data(link, KeyedNode, queue);
    }
    /// Distinguishes the nodes of one key.
    std::uint32_t tag() const noexcept { return static_cast<std::uint32_t>(node.key); }
    std::size_t key_length() const noexcept { return node.data; }
    bool has_key(std::string_view key) const noexcept;
    /// Writes the key to `out`, which must have room for key_limit bytes.
    void copy_key(char* out) const noexcept;
    /// Derived classes free their additional blocks here.
    void release(SharedBlocks& /*blocks*/) noexcept {}
};

/// Nodes in shared memory: a red-black tree for each bucket of hashes, so that a look-up reads few
/// nodes, also among keys that have the same hash on purpose. The caller must hold the zone's lock.
class KeyedTree {
public:
    /// The tree of a bucket. Null: it is empty. May be read without the lock.
    using Root = std::atomic<ngx_rbtree_node_t*>;
    static_assert(Root::is_always_lock_free);

    static std::uint32_t hash_of(std::string_view key) noexcept;

    /// The number of roots for a tree in a zone of this size in bytes: 1/512 to 1/256 of it, and
    /// few keys for each root when all of the zone's blocks are nodes.
    static std::size_t roots_for(std::size_t zone) noexcept
    {
        return std::bit_floor(std::max<std::size_t>(zone / 256 / sizeof(Root), 1));
    }

    /// `roots`: a power of two of them, in shared memory.
    void init(std::span<Root> roots) noexcept
    {
        ngx_rbtree_sentinel_init(&sentinel_);
        size_.store(0, std::memory_order_relaxed);
        roots_ = roots.data();
        mask_ = static_cast<std::uint32_t>(roots.size() - 1);
        for (Root& root : roots) {
            root.store(nullptr, std::memory_order_relaxed);
        }
    }

    /// The number of nodes. May be called without the lock.
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

    /// False: the key has no node. True for a key with a node, and for few others. May be called
    /// without the lock; changes by another process may be seen later.
    bool may_have(std::string_view key) const noexcept
    {
        return size() != 0 && root_of(hash_of(key)).load(std::memory_order_relaxed) != nullptr;
    }

    KeyedNode* find(std::string_view key, std::uint32_t tag) const noexcept;

    /// The key's node with the lowest tag of at least `tag`. Null: there is none.
    KeyedNode* next_of(std::string_view key, std::uint32_t tag) const noexcept;

    /// Adds an Entry, which derives from KeyedNode. The key must have none with this tag. Null: out
    /// of memory.
    template <class Entry>
    Entry* add(std::string_view key, std::uint32_t tag, SharedBlocks& blocks) noexcept
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
    /// Removes the node, and frees its block and that of the rest of its key.
    void remove(KeyedNode& node, SharedBlocks& blocks) noexcept;

private:
    struct Wanted {
        std::uint32_t hash;
        std::string_view key;
        std::uint32_t tag;
    };

    static int compare(const Wanted& wanted, const ngx_rbtree_node_t& node) noexcept;
    Root& root_of(std::uint32_t hash) const noexcept { return roots_[hash & mask_]; }
    /// Calls `change` with the tree of the hash, as nginx's functions take it.
    template <class Change>
    void change_tree(std::uint32_t hash, Change&& change) noexcept;
    static void insert_node(
        ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept;
    void insert(KeyedNode& node, std::string_view key, std::uint32_t tag) noexcept;

    ngx_rbtree_node_t sentinel_;  // the leaf of all trees
    std::atomic<std::size_t> size_;
    Root* roots_;
    std::uint32_t mask_;
};

}  // namespace ratelimit

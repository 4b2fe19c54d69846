#pragma once

#include "nginx/ngx.h"
#include "store/keyed_tree.h"
#include "store/shared_blocks.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace ratelimit {

/// A queue of nodes in shared memory, in the order of their use. A node is in at most one queue.
class UseQueue {
public:
    void init() noexcept { ngx_queue_init(&nodes_); }

    /// The most recently used node. Null: the queue is empty.
    KeyedNode* newest() const noexcept
    {
        return ngx_queue_empty(&nodes_) ? nullptr : KeyedNode::of(ngx_queue_head(&nodes_));
    }
    /// The least recently used node. Null: the queue is empty.
    KeyedNode* oldest() const noexcept
    {
        return ngx_queue_empty(&nodes_) ? nullptr : KeyedNode::of(ngx_queue_last(&nodes_));
    }
    /// Whether there is a node besides the most recently used one.
    bool has_several() const noexcept { return ngx_queue_head(&nodes_) != ngx_queue_last(&nodes_); }

    /// Moves the node to the most recently used end, from any queue that it is in.
    void use(KeyedNode& node) noexcept
    {
        if (&node == newest()) {
            return;
        }
        ngx_queue_remove(&node.queue);
        ngx_queue_insert_head(&nodes_, &node.queue);
    }
    static void remove(KeyedNode& node) noexcept
    {
        ngx_queue_remove(&node.queue);
        ngx_queue_init(&node.queue);
    }

private:
    ngx_queue_t nodes_;  // the most recently used first
};

/// A table in a zone's shared memory. Entries are found by key and tag, and evicted in the order of
/// their last use. The caller must hold the zone's lock.
///
/// Entry derives from KeyedNode. If it has further blocks, it frees them in
/// `void release(SharedBlocks&) noexcept`.
template <class Entry>
class LruTable {
public:
    struct Shared {
        KeyedTree tree;
        UseQueue used;
        ngx_uint_t blocks;  // how many blocks all entries have
        void init(std::span<KeyedTree::Root> roots) noexcept
        {
            tree.init(roots);
            used.init();
            blocks = 0;
        }
    };

    LruTable(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : shared_(&shared), blocks_(pool, shared.blocks)
    {
    }

    ngx_slab_pool_t* pool() const noexcept { return blocks_.pool(); }
    SharedBlocks& blocks() noexcept { return blocks_; }

    /// May be called without the lock.
    std::size_t size() const noexcept { return shared_->tree.size(); }

    /// KeyedTree::may_have.
    bool may_have(std::string_view key) const noexcept { return shared_->tree.may_have(key); }

    /// Null: not found. Fastest for the most recently used entry, such as that of a flood.
    Entry* find(std::string_view key, std::uint32_t tag) const noexcept
    {
        KeyedNode* newest = shared_->used.newest();
        if (newest != nullptr && newest->tag() == tag && newest->has_key(key)) {
            return static_cast<Entry*>(newest);
        }
        return static_cast<Entry*>(shared_->tree.find(key, tag));
    }

    /// An entry of the key, for any tag. Null: it has none.
    Entry* any_of(std::string_view key) const noexcept
    {
        KeyedNode* newest = shared_->used.newest();
        const bool is_newest = newest != nullptr && newest->has_key(key);
        return static_cast<Entry*>(is_newest ? newest : shared_->tree.next_of(key, 0));
    }

    /// Adds an entry as the most recently used one. The key must have none with this tag. Null: out
    /// of memory.
    Entry* insert(std::string_view key, std::uint32_t tag) noexcept
    {
        auto* entry = shared_->tree.template add<Entry>(key, tag, blocks_);
        if (entry != nullptr) {
            use(*entry);
        }
        return entry;
    }

    void use(Entry& entry) noexcept { shared_->used.use(entry); }
    /// Protects the entry from eviction until the next use().
    void pin(Entry& entry) noexcept { UseQueue::remove(entry); }

    void remove(Entry& entry) noexcept
    {
        entry.release(blocks_);
        UseQueue::remove(entry);
        shared_->tree.remove(entry, blocks_);
    }

    /// Evicts the least recently used entry. False: there is none.
    bool forget_oldest() noexcept
    {
        Entry* oldest = static_cast<Entry*>(shared_->used.oldest());
        if (oldest != nullptr) {
            remove(*oldest);
        }
        return oldest != nullptr;
    }

    /// Removes the least recently used entry, and then the next one, if `expired(entry)`. Called
    /// for each new entry, this removes entries faster than they are added.
    template <class Expired>
    void forget_expired(Expired&& expired) noexcept
    {
        for (int i = 0; i < 2; ++i) {
            Entry* oldest = static_cast<Entry*>(shared_->used.oldest());
            if (oldest == nullptr || !expired(*oldest)) {
                return;
            }
            remove(*oldest);
        }
    }

    /// Calls `visit` with each entry of the key, for any tag. `visit` may remove that entry.
    template <class Visit>
    void each(std::string_view key, Visit&& visit) const
    {
        auto* entry = static_cast<Entry*>(shared_->tree.next_of(key, 0));
        while (entry != nullptr) {
            const std::uint32_t tag = entry->tag();
            visit(*entry);
            entry = tag == UINT32_MAX ? nullptr
                                      : static_cast<Entry*>(shared_->tree.next_of(key, tag + 1));
        }
    }

    /// Removes all entries of the key, whatever their tags. Returns whether there was one.
    bool forget_key(std::string_view key) noexcept
    {
        bool found = false;
        each(key, [&](Entry& entry) {
            found = true;
            remove(entry);
        });
        return found;
    }

private:
    Shared* shared_;
    SharedBlocks blocks_;
};

}  // namespace ratelimit

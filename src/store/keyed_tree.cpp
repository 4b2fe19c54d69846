#include "store/keyed_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ratelimit {

namespace {

static_assert(KeyedNode::key_limit <= KeyedNode::first_bytes + SharedBlocks::size);

const KeyedNode& keyed(const ngx_rbtree_node_t* node) noexcept
{
    return *reinterpret_cast<const KeyedNode*>(node);
}

char* first_bytes_of(const KeyedNode& node) noexcept
{
    return reinterpret_cast<char*>(const_cast<KeyedNode*>(&node)) + KeyedNode::key_offset;
}

/// The key's first bytes, and the rest.
std::pair<std::string_view, std::string_view> parts_of(const KeyedNode& node) noexcept
{
    const std::size_t first = std::min(node.key_length(), KeyedNode::first_bytes);
    return { { first_bytes_of(node), first }, { node.more_bytes, node.key_length() - first } };
}

/// The tree's order of keys with the same hash and tag. Negative: `key` comes before the other's.
int compare(std::string_view key, const KeyedNode& other) noexcept
{
    if (key.size() != other.key_length()) {
        return key.size() < other.key_length() ? -1 : 1;
    }
    const auto [first, more] = parts_of(other);
    const int order = key.substr(0, first.size()).compare(first);
    return order != 0 || more.empty() ? order : key.substr(first.size()).compare(more);
}

}  // namespace

void KeyedNode::copy_key(char* out) const noexcept
{
    const auto [first, more] = parts_of(*this);
    out += first.copy(out, first.size());
    more.copy(out, more.size());
}

std::uint32_t KeyedTree::hash_of(std::string_view key) noexcept
{
    auto* bytes = reinterpret_cast<u_char*>(const_cast<char*>(key.data()));
    return ngx_murmur_hash2(bytes, key.size());  // ten times as fast as nginx's CRC32
}

KeyedNode* KeyedTree::find_at(ngx_rbtree_key_t wanted, std::string_view key) const noexcept
{
    for (ngx_rbtree_node_t* node = tree_.root; node != &sentinel_;) {
        bool before = wanted < node->key;
        if (wanted == node->key) {
            const int order = compare(key, keyed(node));
            if (order == 0) {
                return reinterpret_cast<KeyedNode*>(node);
            }
            before = order < 0;
        }
        node = before ? node->left : node->right;
    }
    return nullptr;
}

KeyedNode* KeyedTree::next_of(std::string_view key, std::uint32_t tag) const noexcept
{
    const std::uint32_t hash = hash_of(key);
    const ngx_rbtree_key_t least = order_of(hash, tag);
    ngx_rbtree_node_t* next = nullptr;
    for (ngx_rbtree_node_t* node = tree_.root; node != &sentinel_;) {
        const bool before = node->key < least;
        next = before ? next : node;
        node = before ? node->right : node->left;
    }
    // Other keys may have the same hash.
    while (next != nullptr && next->key >> 32U == hash && compare(key, keyed(next)) != 0) {
        next = ngx_rbtree_next(&tree_, next);
    }
    const bool found = next != nullptr && next->key >> 32U == hash;
    return found ? reinterpret_cast<KeyedNode*>(next) : nullptr;
}

void KeyedTree::add_to_count(const KeyedNode& node, int change) noexcept
{
    Count& count = counts_[(node.node.key >> 32U) % buckets];
    const std::uint8_t before = count.load(std::memory_order_relaxed);
    if (before != std::numeric_limits<std::uint8_t>::max()) {
        count.store(static_cast<std::uint8_t>(before + change), std::memory_order_relaxed);
    }
}

void KeyedTree::insert(KeyedNode& node, std::string_view key, std::uint32_t tag) noexcept
{
    node.node.key = order_of(hash_of(key), tag);
    node.node.data = static_cast<u_char>(key.size());
    const auto first = key.substr(0, KeyedNode::first_bytes);
    first.copy(first_bytes_of(node), first.size());
    key.substr(first.size()).copy(node.more_bytes, key.size() - first.size());
    ngx_queue_init(&node.queue);
    ngx_rbtree_insert(&tree_, &node.node);
    size_ = size_ + 1;
    add_to_count(node, 1);
}

void KeyedTree::remove(KeyedNode& node, SharedBlocks& blocks) noexcept
{
    add_to_count(node, -1);  // before ngx_rbtree_delete, which clears the hash
    ngx_rbtree_delete(&tree_, &node.node);
    size_ = size_ - 1;
    if (node.more_bytes != nullptr) {
        blocks.free(node.more_bytes);
    }
    blocks.free(&node);
}

void KeyedTree::insert_node(
    ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept
{
    char key[KeyedNode::key_limit];
    keyed(node).copy_key(key);
    ngx_rbtree_node_t** link = nullptr;

    while (true) {
        const bool before = node->key != parent->key
            ? node->key < parent->key
            : compare({ key, keyed(node).key_length() }, keyed(parent)) < 0;
        link = before ? &parent->left : &parent->right;
        if (*link == sentinel) {
            break;
        }
        parent = *link;
    }
    *link = node;
    node->parent = parent;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}

}  // namespace ratelimit

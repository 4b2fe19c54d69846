#include "store/keyed_tree.h"

#include <algorithm>
#include <string>
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

/// Negative: `key` comes before the other's.
int compare_keys(std::string_view key, const KeyedNode& other) noexcept
{
    if (key.size() != other.key_length()) {
        return key.size() < other.key_length() ? -1 : 1;
    }
    const auto [first, more] = parts_of(other);
    using Bytes = std::char_traits<char>;
    const int order = Bytes::compare(key.data(), first.data(), first.size());
    return order != 0 ? order : Bytes::compare(key.data() + first.size(), more.data(), more.size());
}

}  // namespace

bool KeyedNode::has_key(std::string_view key) const noexcept
{
    return compare_keys(key, *this) == 0;
}

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

/// The order of a tree: by hash, then key, then tag, so that the nodes of a key are together, and a
/// look-up takes as many steps as the tree is high. Negative: the key and tag come before the
/// node's.
int KeyedTree::compare(const Wanted& wanted, const ngx_rbtree_node_t& node) noexcept
{
    const auto hash = static_cast<std::uint32_t>(node.key >> 32U);
    if (wanted.hash != hash) {
        return wanted.hash < hash ? -1 : 1;
    }
    const int order = compare_keys(wanted.key, keyed(&node));
    if (order != 0) {
        return order;
    }
    const std::uint32_t tag = keyed(&node).tag();
    return wanted.tag == tag ? 0 : wanted.tag < tag ? -1 : 1;
}

KeyedNode* KeyedTree::find(std::string_view key, std::uint32_t tag) const noexcept
{
    KeyedNode* found = next_of(key, tag);
    return found != nullptr && found->tag() == tag ? found : nullptr;
}

KeyedNode* KeyedTree::next_of(std::string_view key, std::uint32_t tag) const noexcept
{
    const Wanted least{ hash_of(key), key, tag };
    ngx_rbtree_node_t* next = nullptr;
    ngx_rbtree_node_t* const root = root_of(least.hash).load(std::memory_order_relaxed);
    for (ngx_rbtree_node_t* node = root; node != nullptr && node != &sentinel_;) {
        const int order = compare(least, *node);
        if (order == 0) {
            return reinterpret_cast<KeyedNode*>(node);
        }
        if (order < 0) {
            next = node;
        }
        node = order < 0 ? node->left : node->right;
    }
    return next != nullptr && next->key >> 32U == least.hash && keyed(next).has_key(key)
        ? reinterpret_cast<KeyedNode*>(next)
        : nullptr;
}

template <class Change>
void KeyedTree::change_tree(std::uint32_t hash, Change&& change) noexcept
{
    Root& root = root_of(hash);
    ngx_rbtree_node_t* const before = root.load(std::memory_order_relaxed);
    ngx_rbtree_t tree;
    ngx_rbtree_init(&tree, &sentinel_, &KeyedTree::insert_node);
    tree.root = before == nullptr ? &sentinel_ : before;
    change(tree);
    root.store(tree.root == &sentinel_ ? nullptr : tree.root, std::memory_order_relaxed);
}

void KeyedTree::insert(KeyedNode& node, std::string_view key, std::uint32_t tag) noexcept
{
    const std::uint32_t hash = hash_of(key);
    static_assert(sizeof(node.node.key) == sizeof(hash) + sizeof(tag));
    node.node.key = ngx_rbtree_key_t{ hash } << 32U | tag;
    node.node.data = static_cast<u_char>(key.size());
    const auto first = key.substr(0, KeyedNode::first_bytes);
    first.copy(first_bytes_of(node), first.size());
    if (node.more_bytes != nullptr) {
        key.substr(first.size()).copy(node.more_bytes, key.size() - first.size());
    }
    ngx_queue_init(&node.queue);
    change_tree(hash, [&node](ngx_rbtree_t& tree) { ngx_rbtree_insert(&tree, &node.node); });
    size_.store(size() + 1, std::memory_order_relaxed);
}

void KeyedTree::remove(KeyedNode& node, SharedBlocks& blocks) noexcept
{
    const auto hash = static_cast<std::uint32_t>(node.node.key >> 32U);
    change_tree(hash, [&node](ngx_rbtree_t& tree) { ngx_rbtree_delete(&tree, &node.node); });
    size_.store(size() - 1, std::memory_order_relaxed);
    if (node.more_bytes != nullptr) {
        blocks.free(node.more_bytes);
    }
    blocks.free(&node);
}

void KeyedTree::insert_node(
    ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept
{
    char both[KeyedNode::key_limit];
    auto [key, more] = parts_of(keyed(node));
    if (!more.empty()) {
        keyed(node).copy_key(both);
        key = { both, keyed(node).key_length() };
    }
    const Wanted added{ static_cast<std::uint32_t>(node->key >> 32U), key, keyed(node).tag() };
    ngx_rbtree_node_t** link = nullptr;

    while (true) {
        link = compare(added, *parent) < 0 ? &parent->left : &parent->right;
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

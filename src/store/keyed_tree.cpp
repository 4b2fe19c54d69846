#include "store/keyed_tree.h"

namespace ratelimit {

namespace {

uint32_t hash_of(std::string_view key) noexcept
{
    auto* bytes = reinterpret_cast<u_char*>(const_cast<char*>(key.data()));
    return ngx_crc32_short(bytes, key.size());
}

const KeyedNode& keyed(const ngx_rbtree_node_t* node) noexcept
{
    return *reinterpret_cast<const KeyedNode*>(node);
}

/// The tree's order; below zero: what is looked for comes before this.
int compare(
    ngx_rbtree_key_t hash, u_char tag, std::string_view key, const KeyedNode& other) noexcept
{
    if (hash != other.node.key) {
        return hash < other.node.key ? -1 : 1;
    }
    if (tag != other.tag) {
        return tag < other.tag ? -1 : 1;
    }
    return key.compare(other.key());
}

}  // namespace

KeyedNode* KeyedTree::find(std::string_view key, u_char tag) const noexcept
{
    const auto hash = hash_of(key);
    for (ngx_rbtree_node_t* node = tree_.root; node != &sentinel_;) {
        const auto order = compare(hash, tag, key, keyed(node));
        if (order == 0) {
            return reinterpret_cast<KeyedNode*>(node);
        }
        node = order < 0 ? node->left : node->right;
    }
    return nullptr;
}

void KeyedTree::insert_node(KeyedNode& node) noexcept
{
    node.node.key = hash_of(node.key());
    ngx_rbtree_insert(&tree_, &node.node);
}

void KeyedTree::place(
    ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept
{
    const KeyedNode& entry = keyed(node);
    ngx_rbtree_node_t** place = nullptr;

    while (true) {
        const auto order = compare(node->key, entry.tag, entry.key(), keyed(parent));
        place = order < 0 ? &parent->left : &parent->right;
        if (*place == sentinel) {
            break;
        }
        parent = *place;
    }
    *place = node;
    node->parent = parent;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}

}  // namespace ratelimit

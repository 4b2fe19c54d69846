#include "store/refused_keys.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ratelimit {

struct RefusedKeys::Entry {
    ngx_rbtree_node_t node;  // its key: the CRC32
    ngx_queue_t queue;       // in Shared::refused, or in Shared::ending since it was let in
    ngx_msec_t began;
    ngx_msec_t last;   // when it took its place in the queue
    ngx_uint_t count;  // of refusals
    Kind kind;
    u_char level;  // of the log
    u_char key_length;
    u_char key_bytes[1];  // key_length of them

    std::string_view key() const noexcept
    {
        return { reinterpret_cast<const char*>(key_bytes), key_length };
    }
    static Entry* of(ngx_queue_t* link) noexcept { return ngx_queue_data(link, Entry, queue); }
    static Entry* of(ngx_rbtree_node_t* node) noexcept { return reinterpret_cast<Entry*>(node); }

    /// The tree's order, below zero: what is looked for comes before this.
    int compare(uint32_t hash, Kind wanted, std::string_view text) const noexcept
    {
        if (hash != node.key) {
            return hash < node.key ? -1 : 1;
        }
        if (wanted != kind) {
            return wanted < kind ? -1 : 1;
        }
        return text.compare(key());
    }
};

struct RefusedKeys::Shared {
    ngx_rbtree_t tree;
    ngx_rbtree_node_t sentinel;
    ngx_queue_t refused;  // newest refusal first
    ngx_queue_t ending;   // newest first
    ngx_atomic_t size;
};

namespace {

constexpr ngx_msec_int_t shortest_run_ms = 1000;
constexpr ngx_msec_int_t idle_limit_ms = 60'000;

class SlabLock {
public:
    explicit SlabLock(ngx_slab_pool_t* pool) noexcept : pool_(pool)
    {
        ngx_shmtx_lock(&pool_->mutex);
    }
    ~SlabLock() { ngx_shmtx_unlock(&pool_->mutex); }
    SlabLock(const SlabLock&) = delete;
    SlabLock& operator=(const SlabLock&) = delete;

private:
    ngx_slab_pool_t* pool_;
};

ngx_msec_int_t elapsed(ngx_msec_t since, ngx_msec_t now) noexcept
{
    return static_cast<ngx_msec_int_t>(now - since);
}

uint32_t hash_of(std::string_view key) noexcept
{
    auto* bytes = reinterpret_cast<u_char*>(const_cast<char*>(key.data()));
    return ngx_crc32_short(bytes, key.size());
}

std::string_view cut(std::string_view key) noexcept
{
    return key.substr(0, RefusedKeys::Ended::key_limit);
}

}  // namespace

void RefusedKeys::prepare(ngx_shm_zone_t& zone) noexcept
{
    static char ours;
    zone.init = &RefusedKeys::set_up;
    zone.data = &ours;  // tells a reload, which hands it over, from a new zone
}

ngx_int_t RefusedKeys::set_up(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    if (old_data != nullptr || zone->shm.exists) {
        return NGX_OK;
    }
    auto* shared = static_cast<Shared*>(ngx_slab_calloc(pool, sizeof(Shared)));
    if (shared == nullptr) {
        return NGX_ERROR;
    }
    ngx_rbtree_init(&shared->tree, &shared->sentinel, &RefusedKeys::place);
    ngx_queue_init(&shared->refused);
    ngx_queue_init(&shared->ending);
    pool->data = shared;
    pool->log_nomem = 0;  // full memory is no event: the oldest makes room
    return NGX_OK;
}

RefusedKeys::RefusedKeys(ngx_shm_zone_t& zone) noexcept
    : pool_(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr)),
      shared_(static_cast<Shared*>(pool_->data))
{
}

bool RefusedKeys::empty() const noexcept
{
    return shared_->size == 0;
}

void RefusedKeys::place(
    ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept
{
    const Entry* entry = Entry::of(node);
    const auto hash = static_cast<uint32_t>(node->key);
    ngx_rbtree_node_t** place = nullptr;

    while (true) {
        const auto order = Entry::of(parent)->compare(hash, entry->kind, entry->key());
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

RefusedKeys::Entry* RefusedKeys::find(std::string_view key, Kind kind, uint32_t hash) const noexcept
{
    for (ngx_rbtree_node_t* node = shared_->tree.root; node != &shared_->sentinel;) {
        Entry* entry = Entry::of(node);
        const auto order = entry->compare(hash, kind, key);
        if (order == 0) {
            return entry;
        }
        node = order < 0 ? node->left : node->right;
    }
    return nullptr;
}

RefusedKeys::Entry* RefusedKeys::insert(std::string_view key, Kind kind, uint32_t hash) noexcept
{
    void* memory = ngx_slab_alloc_locked(pool_, offsetof(Entry, key_bytes) + key.size());
    if (memory == nullptr) {
        return nullptr;
    }
    auto* entry = static_cast<Entry*>(memory);
    entry->node.key = hash;
    entry->count = 0;
    entry->kind = kind;
    entry->key_length = static_cast<u_char>(key.size());
    std::memcpy(entry->key_bytes, key.data(), key.size());
    ngx_rbtree_insert(&shared_->tree, &entry->node);
    ngx_queue_insert_head(&shared_->refused, &entry->queue);
    shared_->size = shared_->size + 1;
    return entry;
}

RefusedKeys::Ended RefusedKeys::remove(Entry& entry) noexcept
{
    Ended ended{ {}, entry.key_length, entry.kind, entry.level, entry.count };
    std::memcpy(ended.key_bytes.data(), entry.key_bytes, entry.key_length);
    ngx_rbtree_delete(&shared_->tree, &entry.node);
    ngx_queue_remove(&entry.queue);
    ngx_slab_free_locked(pool_, &entry);
    shared_->size = shared_->size - 1;
    return ended;
}

bool RefusedKeys::begin(
    std::string_view key, Kind kind, ngx_uint_t level, ngx_msec_t now,
    std::optional<Ended>& forgotten) noexcept
{
    key = cut(key);
    const auto hash = hash_of(key);
    const SlabLock lock(pool_);

    Entry* entry = find(key, kind, hash);
    const bool first = entry == nullptr;
    if (first) {
        entry = insert(key, kind, hash);
        if (entry == nullptr && !ngx_queue_empty(&shared_->refused)) {
            forgotten = remove(*Entry::of(ngx_queue_last(&shared_->refused)));
            entry = insert(key, kind, hash);
        }
        if (entry == nullptr) {
            return false;  // not even room for one: no line rather than one a request
        }
        entry->began = now;
    } else {
        ngx_queue_remove(&entry->queue);
        ngx_queue_insert_head(&shared_->refused, &entry->queue);
    }
    entry->last = now;
    entry->level = static_cast<u_char>(level);
    ++entry->count;
    return first;
}

std::optional<RefusedKeys::Ended> RefusedKeys::let_in(
    std::string_view key, Kind kind, ngx_msec_t now) noexcept
{
    key = cut(key);
    const auto hash = hash_of(key);
    const SlabLock lock(pool_);

    Entry* entry = find(key, kind, hash);
    if (entry == nullptr) {
        return std::nullopt;
    }
    if (elapsed(entry->began, now) >= shortest_run_ms) {
        return remove(*entry);
    }
    ngx_queue_remove(&entry->queue);
    ngx_queue_insert_head(&shared_->ending, &entry->queue);
    entry->last = now;
    return std::nullopt;
}

std::optional<RefusedKeys::Ended> RefusedKeys::sweep(ngx_msec_t now) noexcept
{
    const SlabLock lock(pool_);

    for (const auto& [queue, limit] : { std::pair{ &shared_->ending, shortest_run_ms },
                                        std::pair{ &shared_->refused, idle_limit_ms } }) {
        if (ngx_queue_empty(queue)) {
            continue;
        }
        Entry* oldest = Entry::of(ngx_queue_last(queue));
        if (elapsed(oldest->last, now) >= limit) {
            return remove(*oldest);
        }
    }
    return std::nullopt;
}

}  // namespace ratelimit

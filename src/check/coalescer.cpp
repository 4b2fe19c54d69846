#include "check/coalescer.h"

#include <functional>
#include <utility>

namespace ratelimit {

namespace {

constexpr std::size_t first_buckets = 64;

std::size_t hash_of(std::span<const RemoteCheck> checks) noexcept
{
    std::size_t hash = 0;
    for (const RemoteCheck& check : checks) {
        constexpr std::size_t factor = 31;
        hash = hash * factor + std::hash<std::string_view>{}(check.key);
    }
    return hash;
}

}  // namespace

Coalescer::Coalescer(redis::Client& client) : client_(client), buckets_(first_buckets) {}

Coalescer::~Coalescer() = default;

bool Coalescer::send(CheckGroup& group) noexcept
try {
    if (group.expires_.count() == 0) {
        group.expires_ = client_.now() + client_.longest_wait();
    }
    const std::size_t hash = hash_of(group.checks());
    if (SharedCheck* check = find(hash, group)) {
        // What is on its way is the breaker's trial, or from before it opened: nobody waits for
        // that.
        if (client_.refuses(group.checks().front().key)) {
            return false;
        }
        check->wait(group);
        ++waited_;
        return true;
    }
    SharedCheck& check = add(hash, group);
    if (!check.ask(group)) {
        remove(check);
        return false;
    }
    return true;
} catch (const std::exception&) {
    return false;  // out of memory: as if there were no connection
}

SharedCheck* Coalescer::find(std::size_t hash, const CheckGroup& group) const noexcept
{
    SharedCheck* check = buckets_[bucket_of(hash)];
    while (check != nullptr && !(check->hash_ == hash && check->same(group))) {
        check = check->next_;
    }
    return check;
}

SharedCheck& Coalescer::add(std::size_t hash, const CheckGroup& group)
{
    if (used_ == buckets_.size()) {
        grow();
    }
    if (free_ == nullptr) {
        free_ = &all_.emplace_back(*this);
    }
    SharedCheck& check = *free_;
    check.begin(hash, group);
    free_ = std::exchange(check.next_, buckets_[bucket_of(hash)]);
    buckets_[bucket_of(hash)] = &check;
    ++used_;
    return check;
}

void Coalescer::grow()
{
    std::vector<SharedCheck*> old(2 * buckets_.size());
    std::swap(old, buckets_);
    for (SharedCheck* first : old) {
        while (first != nullptr) {
            SharedCheck*& place = buckets_[bucket_of(first->hash_)];
            SharedCheck* next = std::exchange(first->next_, place);
            place = std::exchange(first, next);
        }
    }
}

void Coalescer::remove(SharedCheck& check) noexcept
{
    SharedCheck** place = &buckets_[bucket_of(check.hash_)];
    while (*place != &check) {
        place = &(*place)->next_;
    }
    *place = std::exchange(check.next_, free_);
    free_ = &check;
    --used_;
}

}  // namespace ratelimit

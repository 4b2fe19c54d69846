#include "rehearse/count/refused_keys.h"

#include <algorithm>
#include <iterator>

namespace ratelimit::rehearse {

namespace {

bool before(const RefusedKey& left, const RefusedKey& right) noexcept
{
    if (left.refused != right.refused) {
        return left.refused > right.refused;
    }
    return left.first != right.first ? left.first < right.first : left.key < right.key;
}

}  // namespace

Evidence::Evidence(Variables& variables)
    : path_(variables.path()),
      agent_(variables.logged("http_user_agent")),
      address_(variables.logged("remote_addr")),
      status_(variables.logged("status"))
{
}

bool Evidence::succeeded(Values& values) const
{
    const std::string_view status = of(status_, values);
    return status.size() == 3 && status.front() == '2';
}

void MainText::add(std::string_view text)
{
    constexpr std::size_t most_bytes = 200;
    text = text.substr(0, most_bytes);
    Place* free = nullptr;
    for (Place& place : places_) {
        if (place.count > 0 && place.text == text) {
            ++place.count;
            return;
        }
        free = place.count == 0 ? &place : free;
    }
    if (free != nullptr) {
        free->text = text;
        free->count = 1;
        return;
    }
    for (Place& place : places_) {
        --place.count;
    }
}

const MainText::Place& MainText::first() const
{
    return *std::max_element(
        places_.begin(), places_.end(),
        [](const Place& left, const Place& right) { return left.count < right.count; });
}

void RefusedKeys::add(
    std::string_view key, std::int64_t now, Values& values, const Evidence& evidence)
{
    lookup_ = key;
    RefusedKey& one = keys_[lookup_];
    if (one.refused++ == 0) {
        one.key = key;
        one.first = now;
    }
    one.succeeded += evidence.succeeded(values) ? 1 : 0;
    const std::string_view path = evidence.path(values);
    one.path.add(path);
    one.folder.add(path.substr(0, path.rfind('/') + 1));
    one.agent.add(evidence.agent(values));
    if (keys_.size() >= 2 * most) {
        drop_least();
    }
}

std::vector<const RefusedKey*> RefusedKeys::first(std::size_t count) const
{
    std::vector<const RefusedKey*> all;
    all.reserve(keys_.size());
    for (const auto& [text, one] : keys_) {
        all.push_back(&one);
    }
    count = std::min(count, all.size());
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(
        all.begin(), end, all.end(),
        [](const RefusedKey* left, const RefusedKey* right) { return before(*left, *right); });
    all.erase(end, all.end());
    return all;
}

void RefusedKeys::drop_least()
{
    std::unordered_map<std::string, RefusedKey> kept;
    kept.reserve(keys_.bucket_count());
    for (const RefusedKey* one : first(most)) {
        kept.insert(keys_.extract(one->key));
    }
    keys_ = std::move(kept);
}

std::vector<RefusedKey> RefusedKeys::list(std::size_t count) const
{
    std::vector<const RefusedKey*> all = first(count);
    std::sort(all.begin(), all.end(), [](const RefusedKey* left, const RefusedKey* right) {
        return before(*left, *right);
    });
    std::vector<RefusedKey> out;
    out.reserve(all.size());
    for (const RefusedKey* one : all) {
        out.push_back(*one);
    }
    return out;
}

}  // namespace ratelimit::rehearse

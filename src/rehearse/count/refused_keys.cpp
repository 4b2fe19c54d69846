#include "rehearse/count/refused_keys.h"

#include <algorithm>

namespace ratelimit::rehearse {

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

void Outcome::note_refusal(
    std::optional<std::string_view> key, std::int64_t now, Values& values,
    const RequestFacts& facts)
{
    const std::uint64_t one_succeeded = facts.succeeded(values) ? 1 : 0;
    succeeded += one_succeeded;
    if (!key) {
        return;
    }
    RefusedKey& one = refused_keys[*key];
    one.first = one.refused++ == 0 ? now : one.first;
    one.succeeded += one_succeeded;
    const std::string_view path = value_of(facts.path, values);
    one.path.add(path);
    one.folder.add(path.substr(0, path.rfind('/') + 1));
    one.agent.add(value_of(facts.agent, values));
}

}  // namespace ratelimit::rehearse

#include "zone/zone.h"

#include "base/hash.h"

#include <algorithm>
#include <charconv>

namespace ratelimit {

namespace {

/// Writes `:record`, unless that is 0. Returns where the text ends.
char* write_record(std::uint32_t record, char* at, char* end) noexcept
{
    if (record == 0) {
        return at;
    }
    *at++ = ':';
    return std::to_chars(at, end, record).ptr;
}

}  // namespace

std::uint64_t Zone::policy_hash(const Policy& of) const noexcept
{
    std::uint64_t hash = mixed(storage_id, static_cast<std::int64_t>(of.algorithm));
    hash = mixed(hash, static_cast<std::int64_t>(clock));
    hash = mixed(hash, of.rate.quota);
    hash = mixed(hash, of.rate.window.count());
    hash = mixed(hash, of.limit());
    if (traits_of(of.algorithm).precision) {
        hash = mixed(hash, of.bucket_width().count());
    }
    if (of.block.count() > 0) {
        hash = mixed(hash, of.block.count());
    }
    if (of.begin.count() != 0) {
        hash = mixed(hash, of.begin.count());
    }
    if (of.override_record != 0) {
        hash = mixed(hash, of.override_record);
    }
    return hash;
}

std::optional<microseconds> Zone::rest_of(const Override& override) const noexcept
{
    if (override.end.count() == 0) {
        return std::nullopt;
    }
    return std::max(override.rest(FleetMemory(*fleet).redis_now()), milliseconds{ 1 });
}

std::optional<Override> Zone::own_override(std::string_view key) const noexcept
{
    const auto& any = key.empty() ? override_slot->whole : override_slot->keys;
    if (any.load(std::memory_order_relaxed) == 0) {
        return std::nullopt;
    }
    const FleetMemory memory(*fleet);
    const auto found =
        memory.table().find(override_slot->zone.load(std::memory_order_relaxed), key);
    if (!found || found->value.kind == Override::Kind::unknown
        || !misfit(found->value, policy).empty()
        || (found->value.end.count() != 0 && found->value.has_ended(memory.redis_now()))) {
        return std::nullopt;
    }
    return found->value;
}

std::optional<Override> Zone::find_override(std::string_view key) const noexcept
{
    auto found = own_override(key);
    return found ? found : own_override({});
}

/// Up to the closing brace. Returns the end. Braces with nothing between them do not choose the
/// hash slot. So closing braces at the beginning of the key, as in addresses of 125.0.0.0/8, go
/// before the opening one, and the rest follows a dot.
char* Zone::write_key(std::string_view key, char* out) const noexcept
{
    const std::size_t closing = std::min(key.find_first_not_of('}'), key.size());
    if (closing == 0) {
        out += key_start.copy(out, key_start.size());
    } else {
        out += key_start.copy(out, key_start.size() - 1);
        out = std::fill_n(out, closing, '}');
        out += std::string_view("{.").copy(out, 2);
    }
    out += key.substr(closing).copy(out, key.size());
    *out++ = '}';
    return out;
}

std::string_view Zone::redis_key(
    std::string_view key, std::uint32_t record, char* out) const noexcept
{
    const char* end = write_record(record, write_key(key, out), out + redis_key_length(key));
    return { out, static_cast<std::size_t>(end - out) };
}

std::string_view Zone::block_key(
    std::string_view key, std::uint32_t override_record, char* out) const noexcept
{
    constexpr std::string_view suffix = ":block";
    char* kind = write_key(key, out);
    kind += suffix.copy(kind, suffix.size());
    const char* end = write_record(override_record, kind, out + redis_key_length(key));
    return { out, static_cast<std::size_t>(end - out) };
}

}  // namespace ratelimit

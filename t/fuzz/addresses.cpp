// Addresses as Redis announces them, and errors that redirect.

#include "fuzz.h"

#include "redis/cluster_slots.h"
#include "redis/endpoint.h"
#include "redis/hash_slot.h"

using namespace ratelimit::redis;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto text = text_of(data, size);
    const Endpoint asked = announced_endpoint("10.0.0.1", 6379);
    parse_endpoint(text, asked);
    is_numeric_address(text);
    must(hash_slot(text) < slot_count);
    if (const auto redirection = read_redirection(text, asked)) {
        must(redirection->slot < slot_count);
    }
    return 0;
}

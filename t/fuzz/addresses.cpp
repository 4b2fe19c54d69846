// Addresses as Redis announces them, and redirection errors.

#include "fuzz.h"

#include "redis/cluster_slots.h"
#include "redis/endpoint.h"
#include "redis/hash_slot.h"

using namespace ratelimit::redis;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto text = text_of(data, size);
    const Endpoint source = announced_endpoint("10.0.0.1", 6379);
    parse_endpoint(text, source);
    is_numeric_address(text);
    must(hash_slot(text) < slot_count);
    if (const auto redirection = read_redirection(text, source)) {
        must(redirection->slot < slot_count);
    }
    return 0;
}

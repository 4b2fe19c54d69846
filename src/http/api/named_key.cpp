#include "http/api/named_key.h"

#include "http/counted_key.h"
#include "http/shown_key.h"
#include "nginx/text.h"

namespace ratelimit::http {

NamedKey named_key(ngx_pool_t* pool, const ZoneConf& zone, const ApiPath& path)
{
    switch (path.named_by) {
    case ApiPath::NamedBy::hash:
        return is_key_hash(path.key)
            ? NamedKey{ path.key, {} }
            : NamedKey{ {}, "invalid hash=, expected 32 digits of 0 to 9 and a to f" };
    case ApiPath::NamedBy::id:
        return path.key.size() <= max_key_length
            ? NamedKey{ path.key, {} }
            : NamedKey{ {}, "invalid id=, expected at most 128 bytes" };
    default:
        break;
    }
    const auto key = typed_key(zone.zone, path.key);
    if (!key) {
        return { {},
                 "invalid key, expected an address, or a network as long as those of the zone; "
                 "id= takes the bytes of a key" };
    }
    const ngx_str_t copy = nginx::copied(pool, *key);
    return { copy.data == nullptr ? std::string_view{} : counted_key(pool, zone, nginx::view(copy)),
             {} };
}

}  // namespace ratelimit::http

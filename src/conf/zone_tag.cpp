#include "conf/zone_tag.h"

#include "nginx/text.h"

#include <set>
#include <span>

namespace ratelimit {

using nginx::view;

void* memory_tag(const ZoneConf& conf)
{
    static std::set<std::string> tags;  // never freed: tags are compared over reloads
    const char hashed = conf.hash_key ? 'h' : '-';
    const std::string_view algorithm = name_of(conf.zone.policy.algorithm);
    const auto& tag =
        *tags.insert(std::string(algorithm) + ' ' + hashed + ' ' + conf.key_text).first;
    return const_cast<std::string*>(&tag);  // nginx only compares the address
}

void warn_of_changed_tag(ngx_conf_t* cf, const ngx_shm_zone_t& memory)
{
    const ngx_cycle_t* running = cf->cycle->old_cycle;
    for (const ngx_list_part_t* part = running == nullptr ? nullptr : &running->shared_memory.part;
         part != nullptr; part = part->next) {
        for (const auto& old : std::span(static_cast<ngx_shm_zone_t*>(part->elts), part->nelts)) {
            if (view(old.shm.name) == view(memory.shm.name) && old.init == memory.init
                && old.tag != memory.tag) {
                ngx_conf_log_error(
                    NGX_LOG_WARN, cf, 0,
                    "\"ratelimit_zone\" \"%V\" had another key, hash_key or algorithm: its memory "
                    "on this node starts empty",
                    &memory.shm.name);
            }
        }
    }
}

}  // namespace ratelimit

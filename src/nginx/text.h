#pragma once

#include "nginx/ngx.h"

#include <cstring>
#include <string_view>

namespace ratelimit::nginx {

inline std::string_view view(const ngx_str_t& text) noexcept
{
    return { reinterpret_cast<const char*>(text.data), text.len };
}

/// For functions of nginx that take u_char* but do not write to it.
inline ngx_str_t borrowed(std::string_view text) noexcept
{
    return { text.size(), const_cast<u_char*>(reinterpret_cast<const u_char*>(text.data())) };
}

/// A copy in the pool, terminated by a zero byte; null data: out of memory.
inline ngx_str_t copied(ngx_pool_t* pool, std::string_view text) noexcept
{
    auto* data = static_cast<u_char*>(ngx_pnalloc(pool, text.size() + 1));
    if (data == nullptr) {
        return { 0, nullptr };
    }
    std::memcpy(data, text.data(), text.size());
    data[text.size()] = '\0';
    return { text.size(), data };
}

/// Sets a variable. `text` must outlive the request.
inline void set_value(ngx_variable_value_t& value, std::string_view text) noexcept
{
    const ngx_str_t str = borrowed(text);
    value.valid = 1;
    value.no_cacheable = 0;
    value.not_found = 0;
    value.len = static_cast<unsigned>(str.len) & 0x0fffffff;
    value.data = str.data;
}

/// Adds a header. Its texts must outlive the response. Null: out of memory.
inline ngx_table_elt_t* add_header(
    ngx_list_t& headers, const ngx_str_t& name, const ngx_str_t& value) noexcept
{
    auto* header = static_cast<ngx_table_elt_t*>(ngx_list_push(&headers));
    if (header != nullptr) {
        *header = {};
        header->hash = 1;
        header->key = name;
        header->value = value;
    }
    return header;
}

/// Writes `bytes` for a log line to `out`, at most `limit` bytes: quotes, backslashes and all bytes
/// that are not printable ASCII as \xHH. Returns the written text.
std::string_view escaped_for_log(std::string_view bytes, char* out, std::size_t limit) noexcept;

}  // namespace ratelimit::nginx

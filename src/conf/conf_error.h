#pragma once

#include "nginx/ngx_http.h"

#include "limit/grammar.h"
#include "nginx/text.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit {

/// The return value of a directive whose line has been logged.
inline char* failed() noexcept
{
    return static_cast<char*>(NGX_CONF_ERROR);
}

/// Logs one line with the directive that is read, its invalid value and the expected one. Returns
/// NGX_CONF_ERROR.
inline char* bad_value(ngx_conf_t* cf, std::string_view value, std::string_view expected) noexcept
{
    const auto* name = static_cast<const ngx_str_t*>(cf->args->elts);
    const ngx_str_t text = nginx::borrowed(value);
    const ngx_str_t wanted = nginx::borrowed(expected);
    ngx_conf_log_error(
        NGX_LOG_EMERG, cf, 0, "\"%V\": invalid \"%V\", expected %V", name, &text, &wanted);
    return failed();
}

/// Logs one line, that of the error. Returns NGX_CONF_ERROR.
inline char* word_error(ngx_conf_t* cf, const WordError& error)
{
    const std::string message =
        error.message(nginx::view(*static_cast<const ngx_str_t*>(cf->args->elts)));
    const ngx_str_t text = nginx::borrowed(message);
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V", &text);
    return failed();
}

/// The words after the directive's name. Valid as long as the configuration.
inline std::vector<std::string_view> words_of(const ngx_conf_t* cf)
{
    const auto* words = static_cast<const ngx_str_t*>(cf->args->elts);
    std::vector<std::string_view> out;
    for (const ngx_str_t& word : std::span(words, cf->args->nelts).subspan(1)) {
        out.push_back(nginx::view(word));
    }
    return out;
}

/// Compiles a copy of a text with variables. Returns NGX_CONF_OK or, after nginx logged what is
/// wrong, NGX_CONF_ERROR.
inline char* compile(ngx_conf_t* cf, std::string_view text, ngx_http_complex_value_t& out) noexcept
{
    ngx_str_t value = nginx::copied(cf->pool, text);
    if (value.data == nullptr) {
        return failed();
    }
    ngx_http_compile_complex_value_t compile{};
    compile.cf = cf;
    compile.value = &value;
    compile.complex_value = &out;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : failed();
}

}  // namespace ratelimit

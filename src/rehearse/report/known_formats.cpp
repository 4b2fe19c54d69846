#include "rehearse/report/known_formats.h"

#include "rehearse/conf/input_error.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

bool is_number(std::string_view text) noexcept
{
    return text == "-"
        || (!text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos);
}

/// Whether at least nine of ten lines have the format, and numbers where it has them.
bool fits(LogFormat& format, const std::vector<std::string>& lines)
{
    for (const char* name : { "status", "body_bytes_sent", "bytes_sent" }) {
        if (const auto index = format.index_of(name)) {
            format.want(*index);
        }
    }
    try {
        format.begin(false, false);
    } catch (const InputError&) {
        return false;  // it has no time
    }
    Record record;
    std::size_t good = 0;
    for (const std::string& line : lines) {
        bool fit = format.read(line, record);
        for (std::size_t i = 0; fit && i < record.count(); ++i) {
            fit = is_number(record.value(i));
        }
        good += fit ? 1 : 0;
    }
    return good * 10 >= lines.size() * 9;
}

}  // namespace

const std::vector<NamedFormat>& known_formats()
{
    static const std::vector<NamedFormat> all = {
        // ingress-nginx, "log-format-upstream"
        { "ingress",
          R"($remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent )"
          R"("$http_referer" "$http_user_agent" $request_length $request_time )"
          R"([$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr )"
          R"($upstream_response_length $upstream_response_time $upstream_status $req_id)" },
        // nginx.org's nginx.conf
        { "main",
          R"($remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent )"
          R"("$http_referer" "$http_user_agent" "$http_x_forwarded_for")" },
        // Apache's: %v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"
        { "vhost_combined",
          R"($server_name:$server_port $remote_addr - $remote_user [$time_local] "$request" $status )"
          R"($body_bytes_sent "$http_referer" "$http_user_agent")" },
        { "combined", std::string(combined_format) },
        // Apache's, and NCSA's
        { "common",
          R"($remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent)" },
    };
    return all;
}

std::string fitting_format(const std::vector<std::string>& lines, const HttpConf& conf)
{
    if (lines.empty()) {
        return {};
    }
    for (const NamedFormat& one : conf.formats) {
        try {
            if (fits(*one.make(), lines)) {
                return "--format " + one.name;
            }
        } catch (const InputError&) {
            continue;  // a format that no line can be divided by
        }
    }
    if (const auto json = json_format(lines)) {
        return fits(*json, lines) ? "--log-format json" : "";
    }
    for (const NamedFormat& one : known_formats()) {
        if (fits(*one.make(), lines)) {
            return "--format " + one.name;
        }
    }
    return {};
}

}  // namespace ratelimit::rehearse

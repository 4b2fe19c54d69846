#pragma once

#include "rehearse/conf/address.h"
#include "rehearse/conf/conf_text.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// An `allow` or a `deny`.
struct AccessRule {
    Network network;  // without bytes: every address, or with `unix_socket` no other
    bool unix_socket = false;
    bool allow = false;
};
using AccessRules = std::vector<AccessRule>;

/// Whether the first rule that fits allows an address, as in nginx's access module. Empty: none
/// fits.
std::optional<bool> allows(const AccessRules& rules, std::string_view address);

/// A code of an `error_page`.
struct ErrorPage {
    int code = 0;
    bool response_changes = false;  // `=`: the log's status is not the code
    int response = 0;               // the log's status; 0: that of the page
    std::string target;             // "@name", a path or a URL
    const Directive* directive = nullptr;
};

/// What a level of the configuration inherits: limits, nginx's steps before them, and where a
/// request goes after them.
struct Surroundings {
    std::shared_ptr<const std::vector<std::size_t>> limits;      // numbers; null or empty: none
    std::shared_ptr<const std::vector<std::size_t>> limit_reqs;  // the same
    bool closed = false;                                         // ratelimit_fail_mode closed
    bool dry_run = false;
    std::shared_ptr<const AccessRules> rules;  // null: none
    const Directive* auth_basic = nullptr;     // null: off
    const Directive* auth_request = nullptr;
    bool any = false;        // `satisfy any`
    bool preaccess = false;  // `ratelimit_phase preaccess`: limits come first
    bool internal = false;
    bool intercepts = false;           // errors of an upstream have pages, too
    bool caches = false;               // answers of an upstream
    bool autoindex = false;            // a folder without an index is listed
    bool recursive_errors = false;     // an error of an error's page has a page, too
    std::int64_t most_body = 1 << 20;  // bytes that a request's body may have; 0: any
    bool limit_req = false;            // that cannot be followed: the log tells what it did
    bool limit_req_dry_run = false;
    const Directive* limit_conn = nullptr;  // null: none
    bool limit_conn_dry_run = false;
    int ratelimit_status = 429;
    int limit_req_status = 503;
    int limit_conn_status = 503;
    const Directive* index = nullptr;  // the first `index` of its level; null: index.html
    std::vector<std::string> index_files{ "index.html" };
    std::shared_ptr<const std::vector<ErrorPage>> error_pages;  // null: none

    /// Whether a request that was refused then may be of limit_conn.
    bool may_refuse_connections() const noexcept
    {
        return limit_conn != nullptr && !limit_conn_dry_run;
    }

    /// The surroundings inside a level with these directives. Throws InputError.
    Surroundings inner(const std::vector<const Directive*>& level) const;
};

/// `limit_except`: the rules for all other methods.
struct LimitExcept {
    std::vector<std::string> methods;  // methods that it leaves alone
    Surroundings inner;

    bool applies_to(std::string_view method) const noexcept;
};

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/log/log_format.h"
#include "rehearse/route/http_conf.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// A format that is known by its name, without a log_format: those of nginx, of Apache and of
/// Kubernetes' ingress-nginx. Null: there is none of that name.
std::unique_ptr<LogFormat> known_format(std::string_view name);

/// The names of the known formats, for messages: "combined, common, ...".
std::string known_format_names();

/// The option that names the format which these lines have: "--format main", or "--log-format
/// json". At least nine of ten must have it. Formats of the configuration are tried first. Empty:
/// none fits.
std::string fitting_format(const std::vector<std::string>& lines, const HttpConf& conf);

}  // namespace ratelimit::rehearse

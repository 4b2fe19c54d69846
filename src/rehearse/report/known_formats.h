#pragma once

#include "rehearse/log/log_format.h"
#include "rehearse/route/http_conf.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// The formats that are known without a log_format: those of nginx, of Apache and of Kubernetes'
/// ingress-nginx. A format stands before those that its lines fit, too: a last variable takes the
/// rest of a line.
const std::vector<NamedFormat>& known_formats();

/// The option that names the format which these lines have: "--format main", or "--log-format
/// json". At least nine of ten must have it. Formats of the configuration are tried first. Empty:
/// none fits.
std::string fitting_format(const std::vector<std::string>& lines, const HttpConf& conf);

}  // namespace ratelimit::rehearse

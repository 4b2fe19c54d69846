#include "rehearse/route/rehearsed.h"

namespace ratelimit::rehearse {

std::unique_ptr<HttpConf> read_site_conf(
    const std::string& path, std::vector<std::string>& warnings)
{
    std::vector<MissingInclude> missing;
    auto conf = read_http_conf(read_conf(path, missing));
    if (conf->titles.empty() && conf->limit_req_titles.empty()) {
        const std::string hint = conf->warnings.empty() ? "" : "; " + conf->warnings.front();
        throw InputError(path + " has no \"ratelimit\" or \"limit_req\" directive" + hint);
    }
    if (!missing.empty()) {
        std::string text = missing.size() == 1
            ? "1 include is passed over, because it cannot be read:"
            : std::to_string(missing.size())
                + " includes are passed over, because they cannot be read:";
        for (const MissingInclude& one : missing) {
            text += (&one == &missing.front() ? " \"" : ", \"") + one.path + "\" in "
                + one.place.text();
        }
        warnings.push_back(std::move(text));
    }
    warnings.insert(warnings.end(), conf->warnings.begin(), conf->warnings.end());
    return conf;
}

Rehearsed::Rehearsed(
    std::unique_ptr<HttpConf> conf, const LogFormat& format,
    std::shared_ptr<std::vector<std::size_t>> wanted, const std::string& server,
    const Rehearsal::Options& options)
    : conf_(std::move(conf)),
      variables_(format, conf_->definitions, std::move(wanted)),
      site_(*conf_, variables_, server),
      evidence_(variables_),
      rehearsal_(conf_->zones, conf_->titles, options, &evidence_),
      limit_reqs_(conf_->limit_req_zones, conf_->limit_req_titles.size(), options, evidence_),
      values_(format.escape())
{
    if (site_.may_doubt()) {
        bounds_.emplace_back(*conf_, false);
        bounds_.emplace_back(*conf_, true);
    }
}

/// Decides the request for each bound: `route` is the likely one, of which the limits are decided.
void Rehearsed::note_bounds(const Record& record, const Route& route, bool met, bool refused)
{
    const Directive* doubt = values_.asker();
    if (doubt != nullptr) {
        ++doubts_[doubt];
    }
    const bool by_nginx = route.limit_req == Result::refused;
    for (Bound& bound : bounds_) {
        if (doubt == nullptr) {
            if (route.plan != nullptr) {
                refused =
                    !rehearsal_.decide_by(bound.decider, nullptr, values_, record.time) || by_nginx;
            }
            bound.requests += met ? 1 : 0;
            bound.refused += met && refused ? 1 : 0;
            continue;
        }
        values_.begin(record, bound.assumed);
        const Route other = site_.find(values_, limit_reqs_, true);
        if (other.plan == nullptr) {
            bound.requests += by_nginx ? 1 : 0;
            bound.refused += by_nginx ? 1 : 0;
            continue;
        }
        const bool passes = rehearsal_.decide_by(bound.decider, other.plan, values_, record.time);
        bound.requests += rehearsal_.any_applied() || by_nginx ? 1 : 0;
        bound.refused += !passes || by_nginx ? 1 : 0;
    }
}

Rehearsed::Result Rehearsed::decide(const Record& record)
{
    values_.begin(record);
    const Route route = site_.find(values_, limit_reqs_);
    bool met = route.limit_req == Result::refused
        || (route.limit_req == Result::passes && route.reached == Reached::none);
    bool refused = route.limit_req == Result::refused;
    if (route.plan != nullptr) {
        refused = !rehearsal_.decide(*route.plan, values_, record.time) || refused;
        met = met || rehearsal_.any_applied() || route.limit_req != Result::unlimited;
    }
    const Reached reached = met ? Reached::limits
        : route.plan != nullptr ? Reached::none
                                : route.reached;
    const Result result = !met ? Result::unlimited : refused ? Result::refused : Result::passes;
    totals_.requests += met ? 1 : 0;
    ++totals_.reached[static_cast<std::size_t>(reached)];
    if (result == Result::refused) {
        ++totals_.refused;
        totals_.succeeded += evidence_.succeeded(values_) ? 1 : 0;
        if (evidence_.has_address()) {
            totals_.clients.add(evidence_.address(values_), record.time, values_, evidence_);
        }
    }
    if (!bounds_.empty()) {
        note_bounds(record, route, met, result == Result::refused);
    }
    if (list_) {
        list_->add(values_, reached, result != Result::refused);
    }
    return result;
}

void Rehearsed::finish()
{
    rehearsal_.finish();
    limit_reqs_.finish();
    if (list_) {
        list_->close();
    }
}

}  // namespace ratelimit::rehearse

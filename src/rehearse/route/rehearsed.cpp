#include "rehearse/route/rehearsed.h"

#include <algorithm>
#include <set>
#include <span>

namespace ratelimit::rehearse {

namespace {

/// The directives with a question that has different answers in these ways.
std::set<const Directive*> askers_of(const std::vector<Values::Answers>& ways)
{
    std::map<std::string_view, bool> first;
    std::set<const Directive*> askers;
    for (const Values::Answers& way : ways) {
        for (const Values::Doubt& one : way) {
            const auto [known, added] = first.emplace(one.question, one.answer);
            if (!added && known->second != one.answer && one.asker != nullptr) {
                askers.insert(one.asker);
            }
        }
    }
    return askers;
}

}  // namespace

std::unique_ptr<HttpConf> read_site_conf(
    const std::string& path, std::vector<std::string>& warnings)
{
    auto conf = read_http_conf(read_conf(path, warnings));
    if (conf->limits.empty() && conf->limit_reqs.empty()) {
        const std::string hint = conf->warnings.empty() ? "" : "; " + conf->warnings.front();
        throw InputError(path + " has no \"ratelimit\" or \"limit_req\" directive" + hint);
    }
    warnings.insert(warnings.end(), conf->warnings.begin(), conf->warnings.end());
    return conf;
}

Rehearsed::Rehearsed(
    std::unique_ptr<HttpConf> conf, LogFormat& format, const std::string& server,
    const Rehearsal::Options& options)
    : conf_(std::move(conf)),
      variables_(format, conf_->definitions),
      facts_(variables_),
      site_(*conf_, variables_, facts_, server),
      rehearsal_(conf_->zones, conf_->limits, options, facts_),
      limit_reqs_(conf_->limit_req_zones, conf_->limit_reqs.size(), options, facts_),
      values_(format.escape())
{
    if (!conf_->limit_reqs.empty()) {
        begin_bounds();  // where limit_req would decide otherwise than it did, further ways open
    }
}

/// Until now, the bounds are what was counted.
void Rehearsed::begin_bounds()
{
    bounds_.emplace(rehearsal_.decider(), totals_);
    limit_reqs_.begin_bounds();
}

void Rehearsed::add_course(const Route& route, std::span<const AskedLimit> asked)
{
    Course course;
    course.refused = route.limit_req == Result::refused;
    course.met = route.limit_req == Result::passes
        && (route.reached == Reached::none || route.plan != nullptr);
    if (route.plan != nullptr) {
        course.asked.assign(asked.begin(), asked.end());
        for (AskedLimit& one : course.asked) {
            one.key = {};  // the next course may overwrite the text
        }
        course.fails_closed = route.plan->fails_closed;
    }
    if (std::find(courses_.begin(), courses_.end(), course) == courses_.end()) {
        courses_.push_back(std::move(course));
    }
}

/// Adds the courses of all ways.
void Rehearsed::follow_all(const std::vector<Values::Answers>& ways)
{
    std::uint64_t followed = 0;
    for (const Values::Answers& way : ways) {
        values_.begin_courses(way, true);
        do {
            const Route route = site_.find(values_, limit_reqs_);
            add_course(
                route,
                route.plan == nullptr ? std::span<const AskedLimit>()
                                      : rehearsal_.asked_by(*route.plan, values_));
            ++followed;
        } while (values_.next_course());
    }
    limit_reqs_.count_followed(followed, values_.record().time);
}

/// Decides the request for the bounds, on all its ways; `likely` is the first. A question is
/// counted if the limits depend on any of the answers.
void Rehearsed::note_bounds(const Route& likely, const Site::Ways& ways)
{
    const Record& record = values_.record();
    courses_.clear();
    if (!ways.fit) {
        courses_.emplace_back();
        if (++unexplained_.requests == 1) {
            unexplained_.first.append(value_of(facts_.path, values_))
                .append(" ")
                .append(value_of(facts_.status, values_));
        }
    }
    const bool one_way = ways.answers.size() == 1 && conf_->limit_reqs.empty();
    if (one_way) {
        add_course(likely, rehearsal_.asked());
    } else {
        follow_all(ways.answers);
    }
    bounds_->decide(courses_, record.time, record.end);
    if (courses_.size() > 1 && (ways.answers.size() > 1 || !ways.fit)) {
        ++doubtful_;
        for (const Directive* one : askers_of(ways.answers)) {
            ++doubts_[one];
        }
    }
}

Rehearsed::Result Rehearsed::decide(const Record& record)
{
    values_.begin(record);
    const Site::Ways ways = site_.ways(values_);
    if (!bounds_ && (ways.answers.size() > 1 || !ways.fit)) {
        begin_bounds();
    }
    if (!ways.route) {
        values_.begin_courses(ways.answers.front());
    }
    const Route route = ways.route ? *ways.route : site_.find(values_, limit_reqs_);
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
        totals_.note_refusal(
            facts_.address == nullptr ? std::nullopt : std::optional(address()), record.time,
            values_, facts_);
    }
    if (bounds_) {
        note_bounds(route, ways);
    }
    if (list_) {
        list_->add(values_, reached, result != Result::refused);
    }
    return result;
}

void Rehearsed::finish()
{
    if (list_) {
        list_->close();
    }
}

}  // namespace ratelimit::rehearse

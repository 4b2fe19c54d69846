#pragma once

#include "rehearse/count/trace.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ratelimit::rehearse {

/// What a limit refuses.
struct Refusals {
    std::uint64_t requests = 0;
    std::uint64_t succeeded = 0;  // of these, with 2xx at that time
    std::uint64_t keys = 0;
};

/// One zone with other rates: all requests are decided again, at all its limits and together with
/// the limits of other zones, which stay as they are configured.
class ZoneReplay {
public:
    ZoneReplay(
        Trace& trace, const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& confs,
        std::size_t zone);

    /// LimitConf::number of the zone's limits.
    const std::vector<std::size_t>& limits() const noexcept { return limits_; }

    /// Whether the zone and its limits may have this rate: nginx accepts it.
    bool fits(const Rate& rate) const;

    /// What the zone's limits refuse, by the index of limits(). Empty: a limit refuses more keys
    /// than `most`, which is by the same index, or has no bound if it is empty.
    std::optional<std::vector<Refusals>> with(
        const Rate& rate, const std::vector<std::uint64_t>& most = {});

    struct Point {
        std::int64_t quota = 0;
        std::vector<Refusals> refusals;  // by this quota
    };

    /// A quota with which each limit of the zone refuses at most this share of its keys; with one
    /// less, nginx refuses the quota, or a limit refuses more keys. `keys`: by the index of
    /// limits(). A larger quota of a zone alone never refuses a key that a smaller one did not, so
    /// the search halves; with limits of other zones beside it, still smaller quotas may do as
    /// well. Empty: every quota refuses more, because the burst is too small.
    std::optional<Point> suggest(double share, const std::vector<std::uint64_t>& keys);

    /// By quota, from the smallest on: about forty of them, up to the first that refuses no key,
    /// and the configured one.
    std::map<std::int64_t, std::vector<Refusals>> curve();

private:
    std::optional<std::vector<Refusals>> with_quota(
        std::int64_t quota, const std::vector<std::uint64_t>& most = {});

    Trace& trace_;
    const std::vector<ZoneConf>& zones_;
    const std::vector<LimitConf>& confs_;
    std::size_t zone_;
    std::vector<std::size_t> limits_;
};

}  // namespace ratelimit::rehearse

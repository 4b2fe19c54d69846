#pragma once

#include "rehearse/count/decider.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace ratelimit::rehearse {

/// What the limits were asked, so that the requests can be decided again with another rate of a
/// zone. It is kept in a temporary file: 24 bytes for each request, and 24 for each of its limits.
class Trace {
public:
    struct Request {
        std::int64_t time = 0;  // us since the epoch
        std::int64_t end = 0;   // the same
        bool fails_closed = false;
        bool succeeded = false;  // with 2xx at that time
        std::span<const AskedLimit> asked;
    };

    /// Throws InputError if there is no temporary file.
    explicit Trace(const std::vector<LimitConf>& limits);

    /// A request that has at least one limit.
    void add(const Request& request);

    /// Calls `use(request)` for each request that can matter to a zone, in the order of their
    /// times, until it returns false. Zones matter to each other if a request has limits of both,
    /// or by way of others.
    template <class Use>
    void replay(std::size_t zone, Use&& use)
    {
        rewind();
        const std::size_t group = group_of(zone);
        Request request;
        while (next(request)) {
            const bool matters = group_of(confs_[request.asked.front().number].zone) == group;
            if (matters && !use(request)) {
                return;
            }
        }
    }

private:
    struct Head {
        std::int64_t time;
        std::int64_t end;
        std::uint32_t limits;
        bool fails_closed;
        bool succeeded;
    };
    struct Limit {
        std::uint64_t key;
        std::int32_t cost;
        std::int32_t charge;
        std::uint32_t number;
        std::uint32_t terms;  // index of terms_
    };

    std::uint32_t number_of(const AskedTerms& terms);
    std::size_t group_of(std::size_t zone) const noexcept;
    void rewind();
    bool next(Request& out);

    File file_;
    const std::vector<LimitConf>& confs_;
    std::vector<std::size_t> groups_;  // by zone: another zone of its group, or itself
    std::vector<AskedTerms> terms_;
    std::map<AskedTerms, std::uint32_t> numbers_;  // of terms_
    std::vector<Limit> limits_;                    // of one request
    std::vector<AskedLimit> asked_;                // the same
};

}  // namespace ratelimit::rehearse

#pragma once

#include "limit/policy.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

namespace ratelimit::rehearse {

/// What a limit was asked, so that it can be replayed under other quotas. It is kept in a temporary
/// file, 32 bytes for each request.
class Trace {
public:
    struct Entry {
        std::int64_t time;  // us since the epoch
        std::int64_t end;   // of the request, the same
        std::uint64_t key;  // a hash
        std::int32_t cost;
        bool succeeded;  // with 2xx at that time
    };

    /// Throws InputError if there is no temporary file.
    Trace();

    void add(const Entry& entry)
    {
        buffer_.push_back(entry);
        if (buffer_.size() == buffer_.capacity()) {
            flush();
        }
    }

    /// Calls `use(entry)` for each entry, in the order of their times, until it returns false.
    template <class Use>
    void replay(Use&& use)
    {
        flush();
        std::rewind(file_.get());
        std::vector<Entry> block(buffer_.capacity());
        std::size_t count = 0;
        do {
            count = std::fread(block.data(), sizeof(Entry), block.size(), file_.get());
            for (std::size_t i = 0; i < count; ++i) {
                if (!use(block[i])) {
                    return;
                }
            }
        } while (count == block.size());
    }

private:
    void flush();

    struct Close {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
    std::vector<Entry> buffer_;
};

/// What a quota refuses.
struct Refusals {
    std::uint64_t requests = 0;
    std::uint64_t succeeded = 0;  // of these, with 2xx at that time
    std::uint64_t keys = 0;
};

/// Replays the trace under a policy. Empty: it refuses more than `most` keys, or is not possible.
std::optional<Refusals> replay(Trace& trace, const Policy& policy, std::uint64_t most);

struct Suggestion {
    std::int64_t quota = 0;
    std::uint64_t keys_refused = 0;  // by this quota
};

/// The smallest quota that would have refused at most this share of the trace's keys, by replaying
/// the trace: the limit alone, with its window and its burst. A larger quota never refuses a key
/// that a smaller one did not, so the search halves. Empty: every quota refuses more, because the
/// burst is too small.
std::optional<Suggestion> suggest(
    Trace& trace, const Policy& policy, double share, std::uint64_t keys);

}  // namespace ratelimit::rehearse

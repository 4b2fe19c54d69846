#pragma once

#include "rehearse/route/route.h"

#include <string>

namespace ratelimit::rehearse {

/// Writes what became of each request, in the order of their times, as CSV: time, the client's
/// address, the request line, and "passed", "refused", or how Reached calls it.
class DecisionList {
public:
    /// Throws InputError if the file cannot be written. Call before LogFormat::begin.
    DecisionList(const std::string& path, Variables& variables);

    void add(Values& values, Reached reached, bool passes);
    /// Throws InputError if not all was written.
    void close();

private:
    std::string path_;
    File file_;
    const Variable* address_;  // null: not in the log
    const Variable* request_;  // the same
};

/// A field of CSV (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace ratelimit::rehearse

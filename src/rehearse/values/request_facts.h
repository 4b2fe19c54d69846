#pragma once

#include "rehearse/values/variables.h"

namespace ratelimit::rehearse {

/// A status with which a file is answered.
inline bool is_success(int status) noexcept
{
    return status == 200 || status == 206 || status == 304;
}

/// What a condition of `if` asks for.
enum class FileKind : std::uint8_t { file, folder, any };

/// What a log says of a request and of what nginx did with it.
struct RequestFacts {
    /// Call before LogFormat::begin.
    explicit RequestFacts(Variables& variables);

    /// $status; 0: not known.
    int status_of(Values& values) const;
    /// Whether it was answered with 2xx at that time.
    bool succeeded(Values& values) const { return status_of(values) / 100 == 2; }
    /// Whether there was a file of this path. Which answers are possible is seen at the end of the
    /// request. `asker`: the directive that wants to know it; null: no warning
    /// names it.
    static bool has_file(Values& values, const Directive* asker, std::string_view path);
    /// The same of a folder.
    static bool has_folder(Values& values, const Directive* asker, std::string_view path);
    /// Whether a file or a folder of the current path was there.
    static bool exists(Values& values, FileKind kind, const Directive& asker);
    /// Whether the log tells which files exist.
    bool knows_files() const noexcept { return upstream != nullptr || final_path != nullptr; }
    /// The status that an upstream answered with: the first of the request, the second after an
    /// internal redirect, and so on. If $upstream_status is not in the log, that of the request.
    int upstream_answer(Values& values, int number) const;
    /// How many upstreams were asked, one after another; 0 also if the log does not tell.
    int asked_upstreams(Values& values) const;
    bool asked_upstream(Values& values) const { return asked_upstreams(values) > 0; }
    /// Whether the body was longer than this: nginx then answers 413 before any limit.
    bool body_is_longer(Values& values, std::int64_t most) const;

    // Null: the log does not have it.
    const Variable* request_uri;  // which may have a scheme and a host
    const Variable* path;         // as the client sent it; empty: the request reaches no location
    const Variable* args;         // the same
    const Variable* method;
    const Variable* host;
    const Variable* address;
    const Variable* agent;
    const Variable* status;
    const Variable* scheme;
    const Variable* body_length;  // $content_length; empty: there was none
    const Variable* upstream_status;
    const Variable* upstream;    // empty where no upstream was asked
    const Variable* final_path;  // $uri at the end of the request; null: `path` is it

private:
    mutable std::uint64_t status_request_ = 0;  // for which `status_` is valid
    mutable int status_ = 0;
};

}  // namespace ratelimit::rehearse

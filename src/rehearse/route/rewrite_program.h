#pragma once

#include "rehearse/values/regex.h"
#include "rehearse/values/request_facts.h"
#include "rehearse/values/variables.h"

#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// `set`, `rewrite`, `if`, `return` and `break` of a server or a location, as nginx's rewrite
/// module executes them.
class RewriteProgram {
public:
    /// Where a request is when the program has ended.
    struct Result {
        enum class End : std::uint8_t {
            here,       // go on in this location
            elsewhere,  // the path was changed: find its location
            answered,   // a redirect or a response
        };
        End end = End::here;
        int status = 0;         // of answered; 0: not known
        bool has_text = false;  // of `return`: then it has no error_page
    };

    /// Names the variables that the directives set, before any of them is compiled.
    static void declare(const std::vector<const Directive*>& directives, Scope& scope);

    /// Compiles the directives that change the request, or a variable that something needs; again,
    /// if that needs more variables. Those that cannot be followed are left out, and named in
    /// `warnings`. Throws InputError if a variable that a limit needs depends on it.
    void compile(
        const std::vector<const Directive*>& directives, Scope& scope, const RequestFacts& facts,
        std::vector<std::string>& warnings);

    bool empty() const noexcept { return steps_.empty(); }
    Result run(Values& values) const;

    /// A condition of `if`.
    struct Condition {
        enum class Kind : std::uint8_t {
            is_set,
            equal,
            matches,
            exists,
            answered,  // it is not known, but the status of its `return` is
        };
        Kind kind = Kind::is_set;
        bool negated = false;
        Expression left;
        Expression right;
        std::optional<RequestRegex> regex;
        FileKind file = FileKind::file;
        const Directive* directive = nullptr;  // of `exists`
        int status = 0;

        bool holds(Values& values, const RequestFacts& facts) const;
    };

    struct Step {
        enum class Kind : std::uint8_t { set, rewrite, answer, stop, condition };
        Kind kind = Kind::stop;
        const Assigned* target = nullptr;
        bool sets_args = false;  // `set $args`: `rewrite` changes them too
        Expression value;
        std::optional<Expression> args;  // of `rewrite`: the new ones
        bool keeps_args = false;         // the old ones are added to them
        std::optional<RequestRegex> regex;
        bool last = false;       // `rewrite ... last` and `break` end the program
        bool stays = false;      // `break`: the location is not left
        bool redirects = false;  // `redirect`, `permanent`, or a URL
        int status = 0;          // of `return` and of redirects
        bool has_text = false;   // of `return`
        Condition condition;
        std::vector<Step> inner;
    };

private:
    /// False: the program has ended.
    bool run(const std::vector<Step>& steps, Values& values, Result& result) const;
    static bool rewrite(const Step& step, Values& values, Result& result);

    std::vector<Step> steps_;
    const RequestFacts* facts_ = nullptr;
};

}  // namespace ratelimit::rehearse

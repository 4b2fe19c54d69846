#pragma once

#include "rehearse/conf/conf_text.h"
#include "rehearse/values/regex.h"
#include "rehearse/values/request_line.h"
#include "rehearse/values/values.h"

#include <deque>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// What the configuration says of variables, for all servers.
struct Definitions {
    /// `map`, `geo` and `split_clients`, by the names of their variables.
    std::map<std::string, const Directive*, std::less<>> blocks;
    bool merge_slashes = true;
    unsigned ipv6_prefix = 64;  // of $ratelimit_client

    /// Null: the variable has none.
    const Directive* block(std::string_view name) const
    {
        const auto found = blocks.find(name);
        return found == blocks.end() ? nullptr : found->second;
    }
};

/// Owns variables, and tells the format which variables of the log they need.
class Variables {
public:
    Variables(LogFormat& format, const Definitions& definitions)
        : format_(format), definitions_(definitions)
    {
    }

    const Definitions& definitions() const noexcept { return definitions_; }

    /// A variable that each line has; null: it has not.
    const Variable* logged(std::string_view name);
    /// The first of them that each line has.
    const Variable* first_logged(std::initializer_list<const char*> names);

    /// Whether each line has this variable; it is not noted as needed.
    bool is_logged(std::string_view name) const noexcept
    {
        return format_.index_of(name).has_value();
    }

    /// `changes`: as of Variable.
    const Variable* computed(Variable::Function function, bool changes = false)
    {
        return &owned_.emplace_back(std::move(function), changes);
    }
    /// Computed from another one by `function(text, own)`; null if that is null.
    template <class Function>
    const Variable* derived(const Variable* source, Function function, bool changes = false)
    {
        const auto compute = [=](Values& values, std::string& own) -> std::string_view {
            return function(source->value(values), own);
        };
        return source == nullptr ? nullptr : computed(compute, changes);
    }

    /// A part of $request; null: the log does not have it.
    const Variable* of_line(std::string_view RequestLine::*part);

    const std::string& log_title() const noexcept { return format_.title(); }

private:
    LogFormat& format_;
    const Definitions& definitions_;
    std::map<std::string, const Variable*, std::less<>> logged_;
    std::deque<Variable> owned_;  // do not move
};

/// A regular expression whose captures become those of the request: $1, and the named ones that
/// something needs.
class RequestRegex : public Regex {
public:
    using Regex::Regex;

    /// Whether the subject matches.
    bool match(std::string_view subject, Values& values) const;

    /// Whether something needs a named capture.
    bool is_needed() const noexcept { return !needed_.empty(); }

private:
    friend class Scope;
    struct Named {
        const Assigned* variable;
        std::size_t number;
    };
    std::vector<Named> needed_;
};

struct RequestFacts;

/// Finds variables by their names.
class Scope {
public:
    Scope(Variables& variables, const RequestFacts& facts) : variables_(variables), facts_(facts) {}

    /// A variable that `set` sets somewhere, or that is a named capture.
    void declare(const std::string& name) { assigned_.try_emplace(name); }
    /// The same for the named captures of a regular expression. Throws InputError.
    void declare_captures(const std::string& pattern, const Place& place);

    /// Compiles text with variables. Throws InputError, with the name and the place, for one that
    /// cannot be followed.
    /// `regex`: its captures are those that Expression::value is given.
    Expression compile(std::string_view text, const Place& place, const Regex* regex = nullptr);
    const Variable* find(std::string_view name, const Place& place);

    /// Of `set $name`: null if nothing needs it so far.
    const Assigned* needed(std::string_view dollar_name) const;
    std::size_t needed_count() const;
    /// Whether something needs $1 and the like.
    bool needs_captures() const noexcept { return needs_captures_; }
    /// Looks up which named captures something needs.
    void bind(RequestRegex& regex) const;

private:
    const Variable* make(const std::string& name);
    const Variable* make_from_request(const std::string& name);
    const Variable* make_from_address(const std::string& name);
    const Variable* make_from_uri(const std::string& name);

    Variables& variables_;
    const RequestFacts& facts_;
    std::map<std::string, Assigned, std::less<>> assigned_;
    bool needs_captures_ = false;
    std::map<std::string, const Variable*, std::less<>> known_;  // null: it is being made
};

/// The variable of a map, geo or split_clients block. Throws InputError.
Variable::Function make_map(Scope& scope, const Directive& directive);
Variable::Function make_geo(Scope& scope, const Directive& directive);
Variable::Function make_split(Scope& scope, const Directive& directive);

}  // namespace ratelimit::rehearse

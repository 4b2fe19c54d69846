#pragma once

#include "rehearse/conf_text.h"
#include "rehearse/regex.h"
#include "rehearse/values.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// What the configuration says of variables, for all servers.
struct Definitions {
    std::map<std::string, const Directive*, std::less<>> maps;
    std::map<std::string, const Directive*, std::less<>> geos;
    unsigned ipv6_prefix = 64;  // of $ratelimit_client
};

/// Owns variables, and notes which variables of the log they need.
class Variables {
public:
    Variables(const LogFormat& format, const Definitions& definitions)
        : format_(format), definitions_(definitions)
    {
    }

    const Definitions& definitions() const noexcept { return definitions_; }

    /// A variable that each line has; null: it has not.
    const Variable* logged(std::string_view name);

    /// Whether each line has this variable; it is not noted as needed.
    bool is_logged(std::string_view name) const noexcept
    {
        return format_.index_of(name).has_value();
    }

    /// Indices of LogFormat::names(), in the order of a record's values.
    const std::vector<std::size_t>& wanted() const noexcept { return wanted_; }

    const Variable* own(std::unique_ptr<Variable> variable)
    {
        owned_.push_back(std::move(variable));
        return owned_.back().get();
    }

    /// The path of a request. Empty: the request reaches no location.
    const Variable* path();

    const std::string& log_title() const noexcept { return format_.title(); }

private:
    const LogFormat& format_;
    const Definitions& definitions_;
    std::vector<std::size_t> wanted_;
    std::map<std::string, const Variable*, std::less<>> logged_;
    const Variable* path_ = nullptr;
    std::vector<std::unique_ptr<Variable>> owned_;
};

/// The variables as one location sees them.
class Scope {
public:
    explicit Scope(Variables& variables) : variables_(variables) {}

    /// `set $name value`, in the order of the configuration. `in_if`: it may not be executed, so
    /// that the variable cannot be followed.
    void add_set(const Directive& directive, bool in_if);
    /// The named captures of a regular expression that the subject has matched.
    void add_captures(const Regex& regex, const Variable* subject);
    /// $server_name, if the log does not have it.
    void set_server_name(std::string name) { server_name_ = std::move(name); }

    /// Compiles text with variables. Throws InputError, with the name and the place, for one that
    /// cannot be followed.
    Expression compile(std::string_view text, const Place& place);
    const Variable* find(std::string_view name, const Place& place);

    Variables& variables() noexcept { return variables_; }

private:
    struct Set {
        std::string value;
        Place place;
        const Set* before = nullptr;  // an earlier one of the same variable
        bool in_if = false;
    };
    struct Capture {
        const Regex* regex;
        const Variable* subject;
        std::size_t number;
    };

    const Variable* make(const std::string& name, const Place& place);
    const Variable* make_set(const std::string& name, const Set& set);
    const Variable* make_from_request(const std::string& name);
    const Variable* make_from_address(const std::string& name);

    Variables& variables_;
    std::map<std::string, Set, std::less<>> sets_;
    std::vector<std::unique_ptr<Set>> overridden_;
    std::map<std::string, Capture, std::less<>> captures_;
    std::string server_name_;
    std::map<std::string, const Variable*, std::less<>> known_;
    std::set<std::string, std::less<>> in_progress_;
};

/// The name of the variable at the start of `text`, which begins with a dollar sign; it is removed
/// from the text. Empty: there is none.
std::string take_variable(std::string_view& text);

/// The variable of a map or geo block. Throws InputError.
std::unique_ptr<Variable> make_map(Scope& scope, const Directive& directive);
std::unique_ptr<Variable> make_geo(Scope& scope, const Directive& directive);

}  // namespace ratelimit::rehearse

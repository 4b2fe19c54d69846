#include "rehearse/route/rewrite_program.h"

#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

using Directives = std::vector<const Directive*>;
using Step = RewriteProgram::Step;
using Condition = RewriteProgram::Condition;

/// As nginx does it in `if` and `rewrite`: one that does not match leaves no $1.
bool match_or_clear(const RequestRegex& regex, std::string_view subject, Values& values)
{
    const bool found = regex.match(subject, values);
    if (!found) {
        values.rewritten().captures.clear();
    }
    return found;
}

/// The words of `if (...)` without the parentheses.
std::vector<std::string> condition_words(const Directive& directive)
{
    std::vector<std::string> words = directive.args;
    if (words.empty() || !words.front().starts_with('(') || !words.back().ends_with(')')) {
        fail_at(directive.place, "\"if\" must have a condition in parentheses");
    }
    words.front().erase(0, 1);
    words.back().pop_back();
    // A parenthesis may stand alone. Between them, an empty word is a text.
    if (words.back().empty()) {
        words.pop_back();
    }
    if (!words.empty() && words.front().empty()) {
        words.erase(words.begin());
    }
    return words;
}

/// A `set` of a variable that something needs: this directive, or the first one in an `if`; null:
/// there is none.
const Directive* needed_set(const Directive& directive, const Scope& scope)
{
    if (directive.name == "set") {
        const bool needed = !directive.args.empty() && scope.needed(directive.args[0]) != nullptr;
        return needed ? &directive : nullptr;
    }
    if (directive.name == "if") {
        for (const Directive& one : directive.block) {
            if (const Directive* found = needed_set(one, scope)) {
                return found;
            }
        }
    }
    return nullptr;
}

/// Whether an `if` changes the request, or a variable that something needs.
bool matters(const Directive& directive, const Scope& scope)
{
    const auto words = condition_words(directive);
    const bool captures = words.size() == 3 && words[1].find('~') != std::string::npos;
    if (captures && scope.needs_captures()) {
        return true;
    }
    return std::any_of(
        directive.block.begin(), directive.block.end(), [&scope](const Directive& one) {
            return needed_set(one, scope) != nullptr || one.name == "rewrite"
                || one.name == "return" || one.name == "break"
                || (one.name == "if" && matters(one, scope));
        });
}

Condition condition_of(const Directive& directive, Scope& scope)
{
    const auto words = condition_words(directive);
    Condition out;
    if (words.size() == 1 && words[0].starts_with('$')) {
        out.left = scope.compile(words[0], directive.place);
        return out;
    }
    if (words.size() == 2) {
        out.negated = words[0].starts_with('!');
        const std::string test = words[0].substr(out.negated ? 1 : 0);
        // The log tells nothing of other files.
        const bool of_path = words[1] == "$request_filename" || words[1] == "$document_root$uri"
            || words[1] == "$realpath_root$uri";
        if (of_path && (test == "-f" || test == "-d" || test == "-e" || test == "-x")) {
            out.kind = Condition::Kind::exists;
            out.directive = &directive;
            out.file = test == "-f" ? FileKind::file
                : test == "-d"      ? FileKind::folder
                                    : FileKind::any;
            return out;
        }
    }
    if (words.size() != 3 || !words[0].starts_with('$')) {
        fail_at(directive.place, "this condition cannot be followed");
    }
    out.left = scope.compile(words[0], directive.place);
    out.negated = words[1].starts_with('!');
    const std::string operation = words[1].substr(out.negated ? 1 : 0);
    if (operation == "=") {
        out.kind = Condition::Kind::equal;
        out.right = scope.compile(words[2], directive.place);
        return out;
    }
    if (operation != "~" && operation != "~*") {
        fail_at(directive.place, "this condition cannot be followed");
    }
    out.kind = Condition::Kind::matches;
    out.regex.emplace(words[2], operation == "~*", directive.place);
    scope.bind(*out.regex);
    return out;
}

/// The status of `return`.
int returned_status(const Directive& directive)
{
    constexpr int moved = 302;  // `return URL`
    return directive.args.empty()
        ? 0
        : static_cast<int>(parse_number(directive.args[0], 0, 999).value_or(moved));
}

Step answer_of(const Directive& directive)
{
    Step step;
    step.kind = Step::Kind::answer;
    step.status = returned_status(directive);
    step.has_text = directive.args.size() > 1 && step.status / 100 != 3;
    return step;
}

/// A condition that cannot be computed, of a block that only answers: whether it held is seen in
/// the status. Empty: it is not such a block, or the log has no status.
std::optional<Condition> condition_by_status(const Directive& directive, const RequestFacts& facts)
{
    if (facts.status == nullptr || directive.block.empty() || directive.block[0].name != "return"
        || directive.block[0].args.empty()) {
        return std::nullopt;
    }
    Condition out;
    out.kind = Condition::Kind::answered;
    out.status = returned_status(directive.block[0]);
    return out;
}

Step rewrite_of(const Directive& directive, Scope& scope)
{
    const auto& args = directive.args;
    directive.expect_args(2, 3);
    Step step;
    step.kind = Step::Kind::rewrite;
    step.regex.emplace(args[0], false, directive.place);
    scope.bind(*step.regex);
    const std::string flag = args.size() == 3 ? args[2] : "";
    step.last = flag == "last" || flag == "break";
    step.stays = flag == "break";
    step.redirects = flag == "redirect" || flag == "permanent" || args[1].starts_with("http://")
        || args[1].starts_with("https://") || args[1].starts_with("$scheme");
    if (step.redirects) {
        step.status = flag == "permanent" ? 301 : 302;
        return step;
    }
    std::string_view text = args[1];
    step.keeps_args = !text.ends_with('?');
    if (!step.keeps_args) {
        text.remove_suffix(1);
    }
    const auto question = text.find('?');
    step.value = scope.compile(text.substr(0, question), directive.place);
    if (question != text.npos) {
        step.args = scope.compile(text.substr(question + 1), directive.place);
    }
    return step;
}

std::vector<Step> steps_of(
    const Directives& directives, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings);

Step if_of(
    const Directive& one, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings)
{
    Step step;
    step.kind = Step::Kind::condition;
    try {
        step.condition = condition_of(one, scope);
    } catch (const InputError&) {
        const auto known = condition_by_status(one, facts);
        if (!known) {
            throw;
        }
        step.condition = *known;
    }
    if (step.condition.kind == Condition::Kind::exists && !facts.knows_files()) {
        step.condition = condition_by_status(one, facts).value_or(step.condition);
    }
    step.inner = steps_of(one.inner(), scope, facts, warnings);
    return step;
}

void add_step(
    const Directive& one, Scope& scope, const RequestFacts& facts, std::vector<Step>& steps,
    std::vector<std::string>& warnings)
{
    if (one.name == "set") {
        const Assigned* target = scope.needed(one.args[0]);
        if (target != nullptr) {
            Step step;
            step.kind = Step::Kind::set;
            step.target = target;
            step.sets_args = one.args[0] == "$args";
            step.value = scope.compile(one.args[1], one.place);
            steps.push_back(std::move(step));
        }
    } else if (one.name == "rewrite") {
        steps.push_back(rewrite_of(one, scope));
    } else if (one.name == "return") {
        steps.push_back(answer_of(one));
    } else if (one.name == "break") {
        steps.emplace_back();
    } else if (one.name == "if" && matters(one, scope)) {
        steps.push_back(if_of(one, scope, facts, warnings));
    }
}

std::vector<Step> steps_of(
    const Directives& directives, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings)
{
    std::vector<Step> steps;
    for (const Directive* one : directives) {
        const Directive* needed = needed_set(*one, scope);
        try {
            add_step(*one, scope, facts, steps, warnings);
        } catch (const InputError& error) {
            // What the client sent stands for $args that cannot be computed.
            const bool is_needed = needed != nullptr && needed->args[0] != "$args";
            if (is_needed && needed == one) {
                throw;
            }
            if (is_needed) {
                fail_at(
                    needed->place,
                    "the variable \"" + needed->args[0]
                        + "\" is set within \"if\", which cannot be followed,");
            }
            warnings.push_back(
                "\"" + one->name + "\" is not followed in " + one->place.text() + ": "
                + error.what());
        }
    }
    return steps;
}

}  // namespace

void RewriteProgram::declare(const Directives& directives, Scope& scope)
{
    for (const Directive* one : directives) {
        if (one->name == "set") {
            if (one->args.size() != 2 || !one->args[0].starts_with('$')) {
                fail_at(one->place, "\"set\" must have a variable and a value");
            }
            scope.declare(one->args[0].substr(1));
        } else if (one->name == "rewrite" && !one->args.empty()) {
            scope.declare_captures(one->args[0], one->place);
        } else if (one->name == "if") {
            const auto words = condition_words(*one);
            if (words.size() == 3 && words[1].find('~') != std::string::npos) {
                scope.declare_captures(words[2], one->place);
            }
            declare(one->inner(), scope);
        }
    }
}

void RewriteProgram::compile(
    const Directives& directives, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings)
{
    facts_ = &facts;
    steps_ = steps_of(directives, scope, facts, warnings);
}

bool Condition::holds(Values& values, const RequestFacts& facts) const
{
    std::string own;
    switch (kind) {
    case Kind::is_set: {
        const std::string_view text = left.value(values, own);
        return !text.empty() && text != "0";
    }
    case Kind::equal: {
        std::string other;
        return (left.value(values, own) == right.value(values, other)) != negated;
    }
    case Kind::matches:
        return match_or_clear(*regex, left.value(values, own), values) != negated;
    case Kind::exists:
        return RequestFacts::exists(values, file, *directive) != negated;
    case Kind::answered:
        break;
    }
    return facts.status_of(values) == status && !facts.asked_upstream(values);
}

bool RewriteProgram::rewrite(const Step& step, Values& values, Result& result)
{
    const std::string path(values.rewritten().path);
    if (!match_or_clear(*step.regex, path, values)) {
        return true;
    }
    if (step.redirects) {
        result = { Result::End::answered, step.status, false };
        return false;
    }
    std::string own;
    std::string uri(step.value.value(values, own));
    std::string args = values.rewritten().args;
    if (step.args) {
        std::string added(step.args->value(values, own));
        if (step.keeps_args && !args.empty()) {
            added += (added.empty() ? "" : "&") + args;
        }
        args = std::move(added);
    } else if (!step.keeps_args) {
        args.clear();
    }
    values.rewritten().path = std::move(uri);
    values.rewritten().args = std::move(args);
    values.rewritten().redirected = true;
    result.end = step.stays ? Result::End::here : Result::End::elsewhere;
    return !step.last;
}

bool RewriteProgram::run(const std::vector<Step>& steps, Values& values, Result& result) const
{
    std::string own;
    for (const Step& step : steps) {
        bool goes_on = true;
        switch (step.kind) {
        case Step::Kind::set: {
            std::string text(step.value.value(values, own));
            if (step.sets_args) {
                values.rewritten().args = text;
            }
            step.target->assign(values, std::move(text));
            break;
        }
        case Step::Kind::rewrite:
            goes_on = rewrite(step, values, result);
            break;
        case Step::Kind::answer:
            result = { Result::End::answered, step.status, step.has_text };
            return false;
        case Step::Kind::stop:
            result.end = Result::End::here;
            return false;
        case Step::Kind::condition:
            goes_on = !step.condition.holds(values, *facts_) || run(step.inner, values, result);
            break;
        }
        if (!goes_on) {
            return false;
        }
    }
    return true;
}

RewriteProgram::Result RewriteProgram::run(Values& values) const
{
    Result result;
    run(steps_, values, result);
    return result;
}

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/conf/conf_text.h"
#include "rehearse/log/log_format.h"
#include "rehearse/log/record.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// The values of variables for one request. Each is computed at most once.
class Values {
public:
    struct Slot {
        std::uint64_t request = 0;  // for which `value` is valid
        std::string_view value;
        std::string own;  // what `value` may refer to
    };

    explicit Values(Escape escape) noexcept : escape_(escape) {}

    /// What `rewrite` and internal redirects change.
    struct Rewritten {
        std::string path;                   // $uri
        std::string args;                   // $args
        bool redirected = false;            // internally: `internal` locations are open
        std::vector<std::string> captures;  // of the last regular expression that has matched
        std::string_view server_name;       // the first name of the server
    };

    /// Begins the next request; `record` must live as long as it. `assumed`: the answer to each
    /// question that the log does not answer; empty: the likely one.
    void begin(const Record& record, std::optional<bool> assumed = std::nullopt) noexcept
    {
        record_ = &record;
        assumed_ = assumed;
        asker_ = nullptr;
        ++request_;
        rewritten_.path.clear();
        rewritten_.args.clear();
        rewritten_.redirected = false;
        rewritten_.captures.clear();
    }
    Rewritten& rewritten() noexcept { return rewritten_; }

    /// Answers a question of a directive that the log does not answer, such as whether there was a
    /// file.
    bool in_doubt(const Directive& asker, bool likely) noexcept
    {
        asker_ = asker_ == nullptr ? &asker : asker_;
        return assumed_.value_or(likely);
    }
    /// The first directive that asked one; null: none did.
    const Directive* asker() const noexcept { return asker_; }

    const Record& record() const noexcept { return *record_; }
    Escape escape() const noexcept { return escape_; }
    std::uint64_t request() const noexcept { return request_; }

    Slot& slot(std::size_t id)
    {
        if (id >= slots_.size()) {
            slots_.resize(id + 1);
        }
        if (slots_[id] == nullptr) {
            slots_[id] = std::make_unique<Slot>();
        }
        return *slots_[id];
    }

private:
    Escape escape_;
    const Record* record_ = nullptr;
    std::uint64_t request_ = 0;
    Rewritten rewritten_;
    std::optional<bool> assumed_;
    const Directive* asker_ = nullptr;
    std::vector<std::unique_ptr<Slot>> slots_;  // do not move: views refer to their text
};

/// A variable that can be computed from a line of the log.
class Variable {
public:
    /// `changes`: during a request, so that it is computed each time; as in nginx, others are not.
    explicit Variable(bool changes = false) noexcept : changes_(changes), id_(next_id++) {}
    virtual ~Variable() = default;
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

    /// Valid until the next request, or if it changes, until the next call.
    std::string_view value(Values& values) const
    {
        Values::Slot& slot = values.slot(id_);
        if (slot.request != values.request() || changes_) {
            slot.value = compute(values, slot.own);
            slot.request = values.request();
        }
        return slot.value;
    }

protected:
    Values::Slot& slot_of(Values& values) const { return values.slot(id_); }

private:
    /// Returns a view of the record, of another variable's value, or of `own`.
    virtual std::string_view compute(Values& values, std::string& own) const = 0;

    inline static std::size_t next_id = 0;
    bool changes_;
    std::size_t id_;
};

/// A variable that `set` or a named capture gives a value, which is empty before.
class Assigned : public Variable {
public:
    Assigned() noexcept : Variable(true) {}

    void assign(Values& values, std::string value) const
    {
        Values::Slot& slot = slot_of(values);
        slot.own = std::move(value);
        slot.request = values.request();
    }

    mutable bool needed = false;  // by a limit, or by what a limit needs

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        if (slot_of(values).request != values.request()) {
            own.clear();
        }
        return own;
    }
};

/// Text with variables.
class Expression {
public:
    struct Part {
        std::string literal;
        const Variable* variable = nullptr;  // null: the literal
    };

    Expression() = default;
    explicit Expression(std::vector<Part> parts) : parts_(std::move(parts)) {}

    const std::vector<Part>& parts() const noexcept { return parts_; }

    /// Uses `own` if it has to put parts together. Valid until the next request or use of `own`.
    std::string_view value(Values& values, std::string& own) const
    {
        if (parts_.empty()) {
            return {};
        }
        if (parts_.size() == 1) {
            const Part& part = parts_.front();
            return part.variable == nullptr ? std::string_view(part.literal)
                                            : part.variable->value(values);
        }
        std::string whole;
        for (const Part& part : parts_) {
            whole += part.variable == nullptr ? std::string_view(part.literal)
                                              : part.variable->value(values);
        }
        own = std::move(whole);
        return own;
    }

private:
    std::vector<Part> parts_;
};

}  // namespace ratelimit::rehearse

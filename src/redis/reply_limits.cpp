#include "redis/reply_limits.h"

#include "redis/context_owner.h"

#include <new>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

/// The memory of an element besides its text, with the allocator's overhead.
constexpr std::size_t each_element = sizeof(redisReply) + 32;

int depth_of(const redisReadTask& task) noexcept
{
    int depth = 1;
    for (const redisReadTask* outer = task.parent; outer != nullptr; outer = outer->parent) {
        ++depth;
    }
    return depth;
}

/// A connection's functions, of which one is replaced. A context points to the first member.
struct ReadFunctions {
    redisContextFuncs replaced;
    const redisContextFuncs* original;
};

}  // namespace

struct ReplyLimits::Hooks {
    static ReplyLimits& of(const redisReadTask* task) noexcept
    {
        return *static_cast<ReplyLimits*>(task->privdata);
    }

    /// hiredis's functions with a check before each. A null pointer is an error of the reader.
    static redisReplyObjectFunctions* replies(const redisReader& reader) noexcept
    {
        static const redisReplyObjectFunctions original = *reader.fn;
        static redisReplyObjectFunctions checked = {
            [](const redisReadTask* task, char* text, std::size_t length) -> void* {
                return of(task).admit(*task, length) ? original.createString(task, text, length)
                                                     : nullptr;
            },
            [](const redisReadTask* task, std::size_t elements) -> void* {
                ReplyLimits& limits = of(task);
                const bool fits = task->type != REDIS_REPLY_PUSH && depth_of(*task) <= most_depth;
                return (fits || limits.refuse("a reply is nested too deep"))
                        && limits.admit(*task, elements * sizeof(void*))
                    ? original.createArray(task, elements)
                    : nullptr;
            },
            [](const redisReadTask* task, long long number) -> void* {
                return of(task).admit(*task, 0) ? original.createInteger(task, number) : nullptr;
            },
            [](const redisReadTask* task, double number, char* text, std::size_t length) -> void* {
                return of(task).admit(*task, length)
                    ? original.createDouble(task, number, text, length)
                    : nullptr;
            },
            [](const redisReadTask* task) -> void* {
                return of(task).admit(*task, 0) ? original.createNil(task) : nullptr;
            },
            [](const redisReadTask* task, int value) -> void* {
                return of(task).admit(*task, 0) ? original.createBool(task, value) : nullptr;
            },
            original.freeObject,
        };
        return &checked;
    }

    static ssize_t read(redisContext* context, char* out, std::size_t size) noexcept
    {
        const auto* functions = reinterpret_cast<const ReadFunctions*>(context->funcs);
        const ssize_t got = functions->original->read(context, out, size);
        auto& limits = *static_cast<ReplyLimits*>(context->privdata);
        if (got > 0 && !limits.admit_bytes(static_cast<std::size_t>(got))) {
            context->err = REDIS_ERR_PROTOCOL;
            return -1;
        }
        return got;
    }

    static ReadFunctions checked(const redisContext& context) noexcept
    {
        ReadFunctions functions{ *context.funcs, context.funcs };
        functions.replaced.read = &Hooks::read;
        return functions;
    }
};

ReplyLimits::ReplyLimits(redisReader& reader, const redisAsyncContext* context) noexcept
    : reader_(reader), context_(context)
{
    // hiredis allocates memory for the number of elements that a reply announces.
    reader_.maxelements = most_elements;
    reader_.fn = Hooks::replies(reader_);
    reader_.privdata = this;
}

bool ReplyLimits::set(redisAsyncContext& context) noexcept
{
    auto* limits = new (std::nothrow) ReplyLimits(*context.c.reader, &context);
    if (limits == nullptr) {
        return false;
    }
    context.c.privdata = limits;
    context.c.free_privdata = [](void* set) { delete static_cast<ReplyLimits*>(set); };
    static const ReadFunctions functions = Hooks::checked(context.c);
    context.c.funcs = &functions.replaced;
    return true;
}

void ReplyLimits::set_for_tls(redisContext& context) noexcept
{
    static const ReadFunctions functions = Hooks::checked(context);
    context.funcs = &functions.replaced;
}

std::string_view ReplyLimits::refusal(const redisAsyncContext& context) noexcept
{
    return static_cast<const ReplyLimits*>(context.c.privdata)->reason_;
}

/// The most memory of the reply that comes next; 0: none is awaited.
std::size_t ReplyLimits::longest() const noexcept
{
    if (context_ == nullptr) {
        return usual_reply;
    }
    const auto* owner = static_cast<const ContextOwner*>(context_->data);
    return owner == nullptr || context_->replies.head == nullptr ? 0 : owner->longest_reply();
}

/// Always false.
bool ReplyLimits::refuse(std::string_view reason) noexcept
{
    reason_ = reason;
    return false;
}

/// Whether the reader may make an element, with text or room of `bytes` bytes.
bool ReplyLimits::admit(const redisReadTask& task, std::size_t bytes) noexcept
{
    taken_ = task.parent == nullptr ? 0 : taken_;
    taken_ += each_element + bytes;
    const std::size_t most = longest();
    return taken_ <= most
        || refuse(most == 0 ? "unexpected reply" : "a reply is larger than any to its command");
}

/// Whether the reader may take so many bytes more.
bool ReplyLimits::admit_bytes(std::size_t bytes) noexcept
{
    const std::size_t begun = reader_.reply == nullptr ? 0 : taken_;
    const std::size_t most = longest();
    return begun + (reader_.len - reader_.pos) + bytes <= most
        || refuse(most == 0 ? "unexpected reply" : "a reply is larger than any to its command");
}

}  // namespace ratelimit::redis

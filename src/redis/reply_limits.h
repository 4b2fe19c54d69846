#pragma once

#include <cstddef>
#include <string_view>

struct redisAsyncContext;
struct redisContext;
struct redisReader;
struct redisReadTask;

namespace ratelimit::redis {

/// The memory in bytes that a reply may take, unless its call needs more.
inline constexpr std::size_t usual_reply = std::size_t{ 256 } * 1024;

/// Bounds what a server can make this process read: how deep a reply is nested, how many elements
/// an array has, and the memory of a reply, also of one that is not complete. hiredis knows only
/// the second, and frees a reply by recursion. A reply that no command awaits is refused too:
/// hiredis may be built with an assertion that there is none. What is refused is an error of the
/// connection.
class ReplyLimits {
public:
    static constexpr int most_depth = 5;  // CLUSTER SLOTS has four levels
    static constexpr long long most_elements = 65'536;

    /// For a reader without a connection, each of whose replies may be as long as usual.
    explicit ReplyLimits(redisReader& reader) noexcept : ReplyLimits(reader, nullptr) {}
    ReplyLimits(const ReplyLimits&) = delete;
    ReplyLimits& operator=(const ReplyLimits&) = delete;

    /// For a connection, whose `data` must point to its ContextOwner or be null. The context owns
    /// the limits. False: out of memory.
    static bool set(redisAsyncContext& context) noexcept;
    /// Call after hiredis has changed the functions by which the context reads, to those of TLS.
    static void set_for_tls(redisContext& context) noexcept;

    /// Why something was refused; empty: nothing was.
    static std::string_view refusal(const redisAsyncContext& context) noexcept;

private:
    struct Hooks;

    ReplyLimits(redisReader& reader, const redisAsyncContext* context) noexcept;
    std::size_t longest() const noexcept;
    bool refuse(std::string_view reason) noexcept;
    bool admit(const redisReadTask& task, std::size_t bytes) noexcept;
    bool admit_bytes(std::size_t bytes) noexcept;

    redisReader& reader_;
    const redisAsyncContext* const context_;
    std::size_t taken_ = 0;    // by the reply that is being read
    std::string_view reason_;  // why something was refused
};

}  // namespace ratelimit::redis

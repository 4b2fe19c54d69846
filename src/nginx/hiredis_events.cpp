#include "nginx/hiredis_events.h"

#include "nginx/clock.h"
#include "nginx/name_lookup.h"
#include "nginx/timer.h"

#include <new>
#include <type_traits>
#include <utility>

#include <hiredis/async.h>
#include <openssl/err.h>

namespace ratelimit::nginx {

namespace {

/// The events of one hiredis context in nginx's loop; hiredis owns the object from attach to
/// cleanup. Reading is level-triggered, since hiredis reads one buffer per call. Writing waits for
/// the kernel's event only until the connection is made and after an incomplete write; otherwise it
/// is a posted event.
class HiredisEvents {
public:
    HiredisEvents(redisAsyncContext& context, ngx_connection_t& connection) noexcept
        : context_(context), connection_(connection)
    {
        connection_.data = this;
        connection_.read->handler = [](ngx_event_t* event) noexcept { of(event).read(); };
        connection_.write->handler = [](ngx_event_t* event) noexcept { of(event).write(); };
        connection_.read->log = connection_.log;
        connection_.write->log = connection_.log;
        context_.ev.data = this;
        context_.ev.addRead = [](void* self) noexcept { add(of(self).connection_.read); };
        context_.ev.delRead = [](void* self) noexcept { remove(of(self).connection_.read); };
        context_.ev.addWrite = [](void* self) noexcept { of(self).want_write(); };
        context_.ev.delWrite = [](void* self) noexcept { remove(of(self).connection_.write); };
        context_.ev.cleanup = [](void* self) noexcept { delete &of(self); };
    }

    ~HiredisEvents()
    {
        for (ngx_event_t* event : { connection_.read, connection_.write }) {
            if (event->posted) {
                ngx_delete_posted_event(event);
            }
            if (event->active) {
                // hiredis closes the descriptor next, which removes it from the kernel's set.
                ngx_del_event(event, kind(event), NGX_CLOSE_EVENT);
            }
        }
        if (ended_ != nullptr) {
            *ended_ = true;
        }
        release(connection_);
    }

    /// Returns the connection to nginx. The descriptor belongs to hiredis.
    static void release(ngx_connection_t& connection) noexcept
    {
        // In this order: ngx_free_connection uses the descriptor.
        ngx_free_connection(&connection);
        connection.fd = static_cast<ngx_socket_t>(-1);
    }

    HiredisEvents(const HiredisEvents&) = delete;
    HiredisEvents& operator=(const HiredisEvents&) = delete;

private:
    static HiredisEvents& of(void* self) noexcept { return *static_cast<HiredisEvents*>(self); }
    static HiredisEvents& of(ngx_event_t* event) noexcept
    {
        return of(static_cast<ngx_connection_t*>(event->data)->data);
    }
    static ngx_int_t kind(const ngx_event_t* event) noexcept
    {
        return event->write ? NGX_WRITE_EVENT : NGX_READ_EVENT;
    }

    static void add(ngx_event_t* event) noexcept
    {
        if (!event->active && ngx_add_event(event, kind(event), NGX_LEVEL_EVENT) != NGX_OK) {
            ngx_log_error(
                NGX_LOG_ERR, event->log, 0, "ratelimit: could not add an event of a connection");
        }
    }

    static void remove(ngx_event_t* event) noexcept
    {
        if (event->posted) {
            ngx_delete_posted_event(event);
        }
        if (event->active) {
            ngx_del_event(event, kind(event), 0);
        }
    }

    void want_write() noexcept
    {
        ngx_event_t* event = connection_.write;
        if (event->active || event->posted) {
            return;
        }
        const bool connected = (context_.c.flags & REDIS_CONNECTED) != 0;
        if (connected && !writing_) {
            ngx_post_event(event, &ngx_posted_events);
            return;
        }
        add(event);
    }

    /// The queue of OpenSSL's errors is shared by all connections of the thread: an old error would
    /// be taken for one of this connection.
    void forget_tls_errors() const noexcept
    {
        if (context_.c.privctx != nullptr) {
            ERR_clear_error();
        }
    }

    void read() noexcept
    {
        forget_tls_errors();
        redisAsyncHandleRead(&context_);
    }

    void write() noexcept
    {
        bool ended = false;
        ended_ = &ended;
        writing_ = true;
        forget_tls_errors();
        redisAsyncHandleWrite(&context_);
        if (ended) {
            return;
        }
        writing_ = false;
        ended_ = nullptr;
    }

    redisAsyncContext& context_;
    ngx_connection_t& connection_;
    bool writing_ = false;   // inside redisAsyncHandleWrite: addWrite means an incomplete write
    bool* ended_ = nullptr;  // set if the context is freed inside redisAsyncHandleWrite
};

/// A posted event of nginx. Posted events run at the end of a turn, in the order of posting, so
/// the write event for commands that `done` issues runs after it in the same turn.
class PostedEvent final : public EndOfTurn {
public:
    explicit PostedEvent(std::function<void()> done) : done_(std::move(done))
    {
        event_.data = this;
        event_.log = ngx_cycle->log;
        event_.handler = [](ngx_event_t* event) noexcept {
            static_cast<PostedEvent*>(event->data)->done_();
        };
    }
    ~PostedEvent() override
    {
        if (event_.posted) {
            ngx_delete_posted_event(&event_);
        }
    }
    PostedEvent(const PostedEvent&) = delete;
    PostedEvent& operator=(const PostedEvent&) = delete;

    void want() noexcept override { ngx_post_event(&event_, &ngx_posted_events); }

private:
    std::function<void()> done_;
    ngx_event_t event_{};
};

}  // namespace

bool NgxLoop::attach(redisAsyncContext& context) noexcept
{
    // nginx would log a line for each attempt to connect.
    static ngx_log_t quiet;
    ngx_connection_t* connection = ngx_get_connection(context.c.fd, &quiet);
    if (connection == nullptr) {
        if (!std::exchange(used_up_, true)) {
            ngx_log_error(
                NGX_LOG_ERR, ngx_cycle->log, 0,
                "ratelimit: no connection to Redis can be made, the fail mode decides: all %ui "
                "worker_connections are in use",
                ngx_cycle->connection_n);
        }
        return false;
    }
    used_up_ = false;
    connection->log = ngx_cycle->log;
    const auto* events = new (std::nothrow) HiredisEvents(context, *connection);
    if (events == nullptr) {
        HiredisEvents::release(*connection);
    }
    return events != nullptr;
}

std::unique_ptr<Timer> NgxLoop::make_timer(std::function<void()> fired)
{
    return std::make_unique<NgxTimer>(std::move(fired));
}

std::unique_ptr<EndOfTurn> NgxLoop::make_end_of_turn(std::function<void()> done)
{
    return std::make_unique<PostedEvent>(std::move(done));
}

std::unique_ptr<Lookup> NgxLoop::look_up(
    const std::string& name, std::function<void(const Addresses&)> done)
{
    return resolvers_.chosen ? look_up_unknown(name, std::move(done)) : nullptr;
}

std::unique_ptr<Lookup> NgxLoop::look_up_unknown(
    const std::string& name, std::function<void(const Addresses&)> done)
{
    if (!resolvers_.any()) {
        return nullptr;
    }
    return std::make_unique<NameLookup>(resolvers_, failed_names_, name, std::move(done));
}

milliseconds NgxLoop::now() const noexcept
{
    return coarse_time();
}

}  // namespace ratelimit::nginx

#pragma once

#include "nginx/guarded.h"
#include "nginx/ngx_http.h"
#include "nginx/pool.h"
#include "nginx/timer.h"

#include <optional>
#include <utility>

namespace ratelimit::http {

/// An API request that waits for Redis. Its response is sent from a posted event. It lives in the
/// request's pool.
class RedisQuery {
public:
    explicit RedisQuery(ngx_http_request_t* r) noexcept : r_(r)
    {
        answer_.data = this;
        answer_.handler = &RedisQuery::resume;
        answer_.log = r->connection->log;
    }
    RedisQuery(const RedisQuery&) = delete;
    RedisQuery& operator=(const RedisQuery&) = delete;
    virtual ~RedisQuery()
    {
        if (answer_.posted) {
            ngx_delete_posted_event(&answer_);
        }
    }

protected:
    /// To be called when the query was sent; returns what the content handler returns. `answered`
    /// later calls `respond`. Until then the client is not watched, and nginx does not free the
    /// request.
    ngx_int_t wait() noexcept
    {
        r_->write_event_handler = ngx_http_request_empty_handler;
        ++r_->blocked;
        ++r_->main->count;
        return NGX_DONE;
    }
    void answered() noexcept { ngx_post_event(&answer_, &ngx_posted_events); }

    /// Returns what a content handler returns, or `again`.
    virtual ngx_int_t respond() = 0;
    /// For `respond`, which is then called again after other events were handled.
    ngx_int_t again()
    {
        // Not ngx_posted_next_events: a worker that exits waits for timers only.
        if (!next_turn_) {
            next_turn_.emplace([this] { answered(); });
            next_turn_->delay_exit(true);
        }
        next_turn_->start(milliseconds{ 1 });
        return NGX_DONE;
    }

    ngx_http_request_t* const r_;

private:
    static void resume(ngx_event_t* event) noexcept
    {
        auto* self = static_cast<RedisQuery*>(event->data);
        ngx_http_request_t* r = self->r_;
        ngx_connection_t* connection = r->connection;
        ngx_http_set_log_request(connection->log, r);
        --r->blocked;
        if (r->write_event_handler != ngx_http_request_empty_handler) {
            // nginx terminated the request meanwhile: its own handler frees the request now.
            ngx_post_event(connection->write, &ngx_posted_events);
            return;
        }
        const ngx_int_t rc = nginx::guarded(
            connection->log, ngx_int_t{ NGX_ERROR }, [self] { return self->respond(); });
        if (self->next_turn_ && self->next_turn_->running()) {
            ++r->blocked;
            return;
        }
        ngx_http_finalize_request(r, rc);
        ngx_http_run_posted_requests(connection);
    }

    ngx_event_t answer_{};
    std::optional<nginx::NgxTimer> next_turn_;
};

/// Makes a query that the request's pool owns, and asks. Returns what a content handler returns.
template <class Query, class... Parameters>
ngx_int_t ask(ngx_http_request_t* r, Parameters&&... parameters)
{
    auto* query = nginx::make<Query>(r->pool, r, std::forward<Parameters>(parameters)...);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

}  // namespace ratelimit::http

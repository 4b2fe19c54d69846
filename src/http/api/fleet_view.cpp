#include "http/api/fleet_view.h"

#include "conf/conf.h"
#include "fleet/nodes_call.h"
#include "http/api/fleet_json.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "nginx/guarded.h"
#include "nginx/timer.h"
#include "node/clocks.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

/// A request that waits for the answer that is being made.
class NodesQuery final : public RedisQuery {
public:
    explicit NodesQuery(ngx_http_request_t* r);
    ~NodesQuery() override;
    using RedisQuery::answered;

    ngx_int_t ask();

private:
    ngx_int_t respond() override;
};

/// The answer of /fleet: made by each worker once a second at most, for all requests that come
/// meanwhile. It is no part of a request, so that a client who leaves ends nothing that others wait
/// for. It lives as long as its worker.
class FleetAnswer final : private fleet::NodesCall {
public:
    explicit FleetAnswer(MainConf& conf)
        : NodesCall(conf.fleet->scripts().nodes, conf.fleet->keys()),
          conf_(conf),
          next_turn_([this] { make(); })
    {
        next_turn_.delay_exit(true);
    }

    /// This worker's. A process without workers has a new one after a reload.
    static FleetAnswer& of(MainConf& conf)
    {
        static FleetAnswer* answer = nullptr;
        if (answer == nullptr || &answer->conf_ != &conf) {
            answer = new FleetAnswer(conf);  // never destroyed: a call may be in flight at exit
        }
        return *answer;
    }

    bool is_fresh() const noexcept
    {
        return made_ && node_clock.monotonic() - *made_ < std::chrono::seconds{ 1 };
    }
    const std::string& text() const noexcept { return text_; }

    void add(NodesQuery& query)
    {
        waiting_.push_back(&query);
        if (waiting_.size() == 1 && !running_) {
            running_ = true;
            answered_ = false;
            routing = {};
            if (!conf_.fleet->redis().client().send(*this)) {
                next_turn_.start(milliseconds{ 1 });
            }
        }
    }
    void remove(NodesQuery& query) noexcept { std::erase(waiting_, &query); }

private:
    /// Takes several turns of the event loop, or a large fleet would delay other requests for
    /// milliseconds.
    void make() noexcept
    {
        const bool again = nginx::guarded(ngx_cycle->log, false, [this] { return step(); });
        if (again) {
            next_turn_.start(milliseconds{ 1 });
            return;
        }
        json_.reset();
        running_ = false;
        made_ = node_clock.monotonic();
        for (NodesQuery* query : waiting_) {
            query->answered();
        }
        waiting_.clear();
    }

    /// True: there is more to do.
    bool step()
    {
        if (!json_) {
            text_.clear();
            json_.emplace(conf_, std::exchange(list_, {}), answered_ && conf_.fleet->is_up());
        }
        if (json_->step()) {
            return true;
        }
        text_ = std::move(*json_).text();
        return false;
    }

    void listed(fleet::NodeList list) noexcept override
    {
        list_ = std::move(list);
        answered_ = true;
        next_turn_.start(milliseconds{ 1 });
    }
    void ended(redis::Fate) noexcept override { next_turn_.start(milliseconds{ 1 }); }

    MainConf& conf_;
    nginx::NgxTimer next_turn_;
    std::vector<NodesQuery*> waiting_;
    bool running_ = false;
    bool answered_ = false;
    fleet::NodeList list_;
    std::optional<FleetJson> json_;
    std::string text_;  // empty: it could not be made
    std::optional<microseconds> made_;
};

NodesQuery::NodesQuery(ngx_http_request_t* r) : RedisQuery(r) {}

NodesQuery::~NodesQuery()
{
    FleetAnswer::of(main_conf(r_)).remove(*this);
}

ngx_int_t NodesQuery::ask()
{
    FleetAnswer& answer = FleetAnswer::of(main_conf(r_));
    if (answer.is_fresh()) {
        return respond();
    }
    answer.add(*this);
    return wait();
}

ngx_int_t NodesQuery::respond()
{
    const std::string& text = FleetAnswer::of(main_conf(r_)).text();
    return text.empty() ? ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }
                        : send_response(r_, NGX_HTTP_OK, json_type, text);
}

}  // namespace

ngx_int_t show_fleet(ngx_http_request_t* r)
{
    if (main_conf(r).fleet == nullptr) {
        return send_error(
            r, NGX_HTTP_NOT_FOUND, "no fleet: that needs the directive ratelimit_fleet");
    }
    return ask<NodesQuery>(r);
}

}  // namespace ratelimit::http

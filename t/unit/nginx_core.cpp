// The parts of nginx that its slab allocator, trees, locks and hashes need.

#include "slab_zone.h"

#include <cstdlib>
#include <mutex>
#include <unistd.h>

namespace {

ngx_log_t test_log;
ngx_cycle_t test_cycle;
std::vector<std::string> log_formats;

}  // namespace

extern "C" {

volatile ngx_cycle_t* ngx_cycle = &test_cycle;
ngx_uint_t ngx_pagesize;
ngx_uint_t ngx_pagesize_shift;
ngx_int_t ngx_ncpu = 1;
ngx_pid_t ngx_pid;
ngx_uint_t ngx_worker;
ngx_int_t ngx_process_slot;

void ngx_log_error_core(ngx_uint_t /*level*/, ngx_log_t*, ngx_err_t, const char* format, ...)
{
    log_formats.emplace_back(format);
}

/// Called after an alert about corrupted memory.
void ngx_debug_point()
{
    std::abort();
}

}  // extern "C"

namespace ratelimit {

void begin_nginx()
{
    static std::once_flag once;
    std::call_once(once, [] {
        test_log.log_level = NGX_LOG_NOTICE;
        test_cycle.log = &test_log;
        ngx_pid = getpid();
        ngx_pagesize = static_cast<ngx_uint_t>(sysconf(_SC_PAGESIZE));
        for (ngx_uint_t n = ngx_pagesize; n > 1; n >>= 1U) {
            ++ngx_pagesize_shift;
        }
        ngx_slab_sizes_init();
    });
}

std::vector<std::string> take_log()
{
    return std::exchange(log_formats, {});
}

}  // namespace ratelimit

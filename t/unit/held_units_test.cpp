// How many units a node's processes hold, with as many processes as nginx can have.

#include "slab_zone.h"

namespace ratelimit {
namespace {

class HeldUnits : public testing::Test {
protected:
    ~HeldUnits() override { ngx_process_slot = 0; }

    void set(ngx_int_t slot, std::int64_t units)
    {
        ngx_process_slot = slot;
        zone_.memory().held_units().set(units);
    }
    std::uint64_t sum() { return zone_.memory().held_units().sum(); }

    TestZone zone_{ std::size_t{ 256 } * 1024 };
};

TEST_F(HeldUnits, each_of_all_processes_is_counted)
{
    ngx_pid = getpid();
    for (ngx_int_t slot = 0; slot < NGX_MAX_PROCESSES; ++slot) {
        set(slot, 2);
    }
    EXPECT_EQ(sum(), 2U * NGX_MAX_PROCESSES);
    set(70, 0);
    EXPECT_EQ(sum(), 2U * NGX_MAX_PROCESSES - 2) << "the process of slot 6 is another one";
}

TEST_F(HeldUnits, what_a_killed_worker_held_is_not_counted)
{
    ngx_pid = getpid();
    set(6, 3);
    zone_.in_killed_worker([this] { set(70, 5); });
    EXPECT_EQ(sum(), 3U);
    set(70, 4);
    EXPECT_EQ(sum(), 7U) << "another worker has its slot";
}

TEST_F(HeldUnits, a_slot_that_nginx_does_not_have_changes_nothing)
{
    ngx_pid = getpid();
    set(NGX_MAX_PROCESSES, 3);
    EXPECT_EQ(sum(), 0U);
}

}  // namespace
}  // namespace ratelimit

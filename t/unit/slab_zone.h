#pragma once

#include "nginx/ngx.h"
#include "store/zone_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <utility>
#include <vector>

namespace ratelimit {

/// Initialises the parts of nginx that the slab allocator needs; once.
void begin_nginx();

/// The formats of the lines that were logged since the last call.
std::vector<std::string> take_log();

/// Another worker process, which does this.
template <class Work>
pid_t start_worker(Work&& work)
{
    const pid_t worker = fork();
    EXPECT_GE(worker, 0);
    if (worker == 0) {
        ngx_pid = getpid();
        work();
        _exit(0);
    }
    return worker;
}

/// Of a worker that has ended or, with WUNTRACED, was stopped; waits for it.
inline int status_of(pid_t worker, int options = 0)
{
    int status = -1;
    EXPECT_EQ(waitpid(worker, &status, options), worker);
    return status;
}

/// Shared memory with nginx's slab allocator, as ngx_init_cycle makes it for a zone. Lines logged
/// before it are forgotten.
class SlabZone {
public:
    explicit SlabZone(std::size_t size)
    {
        begin_nginx();
        take_log();
        zone_.shm.size = size;
        zone_.shm.addr = static_cast<u_char*>(
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        pool()->end = zone_.shm.addr + size;
        pool()->min_shift = 3;
        pool()->addr = zone_.shm.addr;
        EXPECT_EQ(ngx_shmtx_create(&pool()->mutex, &pool()->lock, nullptr), NGX_OK);
        ngx_slab_init(pool());
    }
    ~SlabZone()
    {
        ngx_shmtx_destroy(&pool()->mutex);
        munmap(zone_.shm.addr, zone_.shm.size);
    }
    SlabZone(const SlabZone&) = delete;
    SlabZone& operator=(const SlabZone&) = delete;

    ngx_slab_pool_t* pool() const { return reinterpret_cast<ngx_slab_pool_t*>(zone_.shm.addr); }
    ngx_shm_zone_t& zone() { return zone_; }

    /// The number of pages without blocks.
    ngx_uint_t free_pages() const { return pool()->pfree; }

    /// Runs `work` in a worker process that is then killed, and does what the master does next.
    template <class Work>
    void in_killed_worker(Work&& work)
    {
        const pid_t worker = start_worker([&] {
            work();
            raise(SIGKILL);
        });
        ASSERT_TRUE(WIFSIGNALED(status_of(worker)));
        ngx_shmtx_force_unlock(&pool()->mutex, worker);
    }

private:
    ngx_shm_zone_t zone_{};
};

/// The memory of a zone or of a fleet in the state in which its first worker finds it.
template <class Memory>
class PreparedZone : public SlabZone {
public:
    explicit PreparedZone(std::size_t size) : SlabZone(size)
    {
        EXPECT_EQ(Memory::init(&zone(), nullptr), NGX_OK);
    }
    Memory memory() { return Memory(zone()); }
};

class TestZone : public PreparedZone<ZoneMemory> {
public:
    explicit TestZone(std::size_t size = std::size_t{ 32 } * 1024) : PreparedZone(size) {}

    /// Decides a request of a key that is counted in this memory.
    Verdict decide(const LocalRequest& request, microseconds now, bool take = true)
    {
        const ZoneLock lock(pool());
        return memory().local_limiter().decide(request, now, [take](bool) { return take; });
    }
};

}  // namespace ratelimit

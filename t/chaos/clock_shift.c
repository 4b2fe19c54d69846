// A clock that can step while a program runs: preloaded, it adds to the time of day the
// microseconds in the file named by CLOCK_SHIFT (eight bytes); with CLOCK_SHIFT_MONOTONIC
// to the monotonic clock, too, as if so much time had passed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* shift;
static int shifts_monotonic;

__attribute__((constructor)) static void open_shift(void)
{
    const char* path = getenv("CLOCK_SHIFT");
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void* memory = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    shift = memory != MAP_FAILED ? memory : NULL;
    close(file);
    shifts_monotonic = getenv("CLOCK_SHIFT_MONOTONIC") != NULL;
}

static int is_shifted(clockid_t clock)
{
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) {
        return shifts_monotonic;
    }
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec* now)
{
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && shift != NULL && is_shifted(clock)) {
        int64_t us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + *shift;
        now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
        now->tv_sec = us / 1000000;
    }
    return (int)result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone)
{
    (void)zone;
    struct timespec time;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return result;
}

time_t time(time_t* out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}

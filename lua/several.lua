-- Decides several limits as one: a request is counted in all of them or in none. A shadow limit
-- refuses no request, and counts one only if it would admit it itself. Decides several requests as if
-- they had come one after another: in runs, each of requests of the same costs.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), shadow (1, 0), and of what single.lua has: now, quota,
--          window, param; then for each run: how many requests, and their cost for each limit
-- returns  a string of signed 64-bit big-endian integers: for each run and each limit: taken (how
--          many of its requests, the first ones, were counted), admits_next (1: the limit would admit
--          the next one as well), remaining, reset (us), retry (us; 0: admits_next, -1: never), detail
--          (of the algorithm's commit), and the reset before those were counted (us; 0: none was);
--          then this server's time (us since the epoch; 0: no limit needed it)
-- errors   as single.lua
--
-- Numbers that come as text become floats (+ 0.0): from Lua 5.3 on their products would else wrap
-- at 2^63.

local call, pack = redis.call, struct.pack
local floor, max = math.floor, math.max
local server_now  -- this server's time, where a limit's algorithm is to know that `now` is that
local algorithms = {}
--- algorithms
local fields = 6
local limits = #KEYS
local answer, server_time = {}, 0

local function time_of(now)
    if now ~= 0 then
        return now
    end
    if server_time == 0 then
        local time = call('TIME')
        server_time = time[1] * 1000000.0 + time[2]
        server_now = server_time
    end
    return server_time
end

-- Decides a run, whose numbers are in ARGV from `at` on, by the limits from the i-th on, of which
-- those before let `passing` requests in; returns how many all of them let in. A limit is settled
-- when all behind it are known, so that no limit's state need be kept but in locals.
local function decide(i, at, answers_before, requests, passing)
    if i > limits then
        return passing
    end
    local from = (i - 1) * fields
    local counts, key, now = algorithms[ARGV[from + 1]], KEYS[i], time_of(ARGV[from + 3] + 0.0)
    local quota, window = ARGV[from + 4] + 0.0, ARGV[from + 5] + 0.0
    local param, cost = ARGV[from + 6] + 0.0, ARGV[at + i] + 0.0
    local check, commit = counts.check, counts.commit

    local granted, a, b, c, d, e, f, g = check(key, now, quota, window, param, cost)
    local fit = granted and requests or 0
    if fit > 1 and cost > 0 then
        fit = math.min(requests, max(1, floor(commit(
            key, now, quota, window, param, 0, true, false, a, b, c, d, e, f, g) / cost)))
    end
    local enforced = ARGV[from + 2] ~= '1'
    passing = decide(
        i + 1, at, answers_before, requests, enforced and fit < passing and fit or passing)

    local taken = fit < passing and fit or passing
    local remaining, reset, retry, detail, before
    if taken > 0 and cost > 0 then
        remaining, reset, retry, detail, before = commit(
            key, now, quota, window, param, taken * cost, true, true, a, b, c, d, e, f, g)
        if fit == taken and taken < requests then
            granted, a, b, c, d, e, f, g = check(key, now, quota, window, param, cost)
            remaining, reset, retry = commit(
                key, now, quota, window, param, cost, granted, false, a, b, c, d, e, f, g)
        end
    else
        remaining, reset, retry = commit(
            key, now, quota, window, param, cost, granted, false, a, b, c, d, e, f, g)
    end
    answer[answers_before + i] = pack(
        '>i8i8i8i8i8i8i8', taken, fit > taken and 1 or 0, remaining, reset, retry, detail or 0,
        before or 0)
    return passing
end

local runs = (#ARGV - limits * fields) / (1 + limits)
for run = 0, runs - 1 do
    local at = limits * fields + run * (1 + limits) + 1
    decide(1, at, run * limits, ARGV[at] + 0.0, ARGV[at] + 0.0)
end

answer[runs * limits + 1] = pack('>i8', server_time)
return table.concat(answer)

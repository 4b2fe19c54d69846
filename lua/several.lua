-- Decides several limits as one: a request is counted in all of them or in none. A shadow limit
-- stands in nobody's way, and counts a request only if it would let it in itself. Decides several
-- requests as if they had come one after another: in runs, each of requests of the same costs.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), shadow (1, 0), and of what single.lua has: now, quota,
--          window, param; then for each run: how many requests, and their cost for each limit
-- returns  a string of signed 64-bit big-endian integers: for each run and each limit: taken (so
--          many of its requests, the first ones, were counted), open (1: the limit would let in the
--          next one as well), remaining, reset (us), retry (us; 0: open, -1: never), detail (what
--          the algorithm's settle returns fourth); then this server's time (us since the epoch; 0:
--          no limit needed it)

local fields = 6
local limits = #KEYS
local counts, now, quota, window, param = {}, {}, {}, {}, {}
local server_time
local answer = {}

for i = 1, limits do
    local at = (i - 1) * fields
    counts[i], now[i] = algorithms[ARGV[at + 1]], ARGV[at + 3] + 0
    quota[i], window[i], param[i] = ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
    if now[i] == 0 then
        if not server_time then
            local time = call('TIME')
            server_time = time[1] * 1000000 + time[2]
        end
        now[i] = server_time
    end
end

local function check(i, cost)
    return counts[i].check(KEYS[i], now[i], quota[i], window[i], param[i], cost)
end

local function settle(i, cost, granted, take, state)
    return counts[i].settle(KEYS[i], now[i], quota[i], window[i], param[i], cost, granted, take,
                            unpack(state, 2, 8))
end

-- `fit`: so many requests of the run this limit would let in; `taken`: so many are counted
local function settle_run(i, cost, requests, taken, fit, state)
    local remaining, reset, retry, detail
    if taken > 0 and cost > 0 then
        remaining, reset, retry, detail = settle(i, taken * cost, true, true, state)
        if fit == taken and taken < requests then
            local rest = { check(i, cost) }
            remaining, reset, retry = settle(i, cost, rest[1], false, rest)
        end
    else
        remaining, reset, retry = settle(i, cost, state[1], false, state)
    end
    answer[#answer + 1] = pack(
        '>i8i8i8i8i8i8', taken, fit > taken and 1 or 0, remaining, reset, retry, detail or 0)
end

for at = limits * fields + 1, #ARGV, 1 + limits do
    local requests = ARGV[at] + 0
    local passing = requests
    local costs, states, fits = {}, {}, {}
    for i = 1, limits do
        local cost = ARGV[at + i] + 0
        local state = { check(i, cost) }
        local fit = state[1] and requests or 0
        if fit > 1 and cost > 0 then
            fit = math.min(requests, floor(settle(i, 0, true, false, state) / cost))
        end
        costs[i], states[i], fits[i] = cost, state, fit
        if fit < passing and ARGV[(i - 1) * fields + 2] ~= '1' then
            passing = fit
        end
    end
    for i = 1, limits do
        settle_run(i, costs[i], requests, math.min(fits[i], passing), fits[i], states[i])
    end
end

answer[#answer + 1] = pack('>i8', server_time or 0)
return table.concat(answer)

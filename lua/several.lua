-- Decides several limits as one: a request is counted in all of them or in none. A shadow limit
-- refuses no request. It counts a request if all enforced limits and the shadow limit
-- itself admit it. Several requests are decided as if they had arrived one after another. They are
-- given in runs: the requests of a run follow one another and have the same costs.
--
-- KEYS     one key for each limit, then one for the block of each limit that has one
-- ARGV[1]  for each limit ten doubles, little-endian: algorithm (code), mode, then as in sequence.lua:
--          now, quota, window, param, and the four of a holder, which only concurrency.lua reads
--          mode: 1 for a shadow limit, otherwise 0; and twice the index of the key of its block, if it
--          has one
-- ARGV[2]  in doubles, for each run: the number of requests, and their cost for each limit. At the end,
--          if the call was sent again because its connection was lost, its age: how long ago it was
--          sent first, at the most (us)
-- returns  a string of little-endian doubles. For each run and each limit of it:
--            taken        requests that pass: the first ones of the run. They were counted
--            detail       of the algorithm's commit; 0 if nothing was counted
--            verdict      of the next request of the run, as in sequence.lua
--            remaining    requests, after those counted
--            reset        us, after those counted
--            retry        us, of a request that the limit refuses; otherwise 0; -1: never
--            before       the reset before the requests were counted, us; 0 if nothing was counted.
--                         Of concurrency the place of the holder
--          At the end this server's time, us since the epoch; 0: no limit needed it.
-- errors   as sequence.lua
--
-- A call that was sent again may have been executed before. A request that would be refused passes
-- if it would pass without what that may have counted: if nothing is counted beyond the limit, and if
-- the requests of the call that pass fit in the limit together. It is not counted then, and its reply
-- is as if it were. So no request is refused that passed before, unless requests of the call have
-- different costs, and at most the requests of the call pass beyond the limit. A block that began
-- since the call was sent first may rest on what that counted: it refuses no request of the call, and
-- is dropped. No refusal begins a block as long as what the call counted may have been counted
-- before. What a concurrency limit counts is exact all the same.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, max = math.floor, math.max
local server_now  -- this server's time, once read: a check compares `now` with it
local holder = ARGV[1]
--- record
local algorithms = {}
--- algorithms
local late = 60000000  -- us: a refusal is stated sooner
local limits = #ARGV[1] / 80
local answer, server_time = {}, 0
local runs = #ARGV[2] / 8 / (1 + limits)
local age = runs % 1 > 0 and unpack('<d', ARGV[2], #ARGV[2] - 7)  -- of a call that was sent again
local passed = {}  -- by limit: the cost of the requests of the call that pass

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

-- How many requests of a call that was sent again the i-th limit admits, with those that may have
-- been counted before. `fit`: without them.
local function most_again(i, counts, fit, requests, key, now, quota, window, param, cost)
    if fit == requests or counts.exact then
        return fit
    end
    local limit, higher, larger = quota, quota + cost, param
    if counts.by_capacity then
        limit, higher, larger = param, quota, param + cost
    end
    local most = counts.check(key, now, higher, window, larger, cost)
        and floor((limit - (passed[i] or 0)) / cost) or 0
    return max(fit, math.min(requests, most))
end

-- Of a call that was sent again: what it counts may have been counted before.
local function spare_for(block_key, blocked, now, counts, quota, window, param, cost)
    if block_key and blocked == 0 and cost > 0 then
        spare(block_key, now, now - age,
              counts.by_capacity and param * window / quota or 2 * window, late)
    end
end

-- Decides one run by the limits from the i-th on. Its numbers begin at this byte, and the limits
-- before the i-th admit `counted` of its requests, and `passing` if those that may have been counted
-- before pass, too. Returns both numbers for all limits. A limit commits after the recursion has
-- decided the limits behind it, so its state needs to be kept only in locals.
local function decide(i, at, answers_before, requests, counted, passing)
    if i > limits then
        return counted, passing
    end
    local algorithm, mode, now, quota, window, param, holder_at = unpack(
        '<dddddd', ARGV[1], i * 80 - 79)
    local counts, key, cost = algorithms[algorithm], KEYS[i], unpack('<d', ARGV[2], at + i * 8)
    local check, commit = counts.check, counts.commit
    now = time_of(now)
    local enforced, block_key = mode % 2 == 0, KEYS[floor(mode / 2)]
    local blocked, spared, allowed, record, _ = 0, 0
    if block_key then
--- fetch
--- read
        if age and blocked > 0 and unpack('<d', record) >= now - age then blocked = 0 end
    end

    local granted, a, b, c, d, e, f, g, h, j = check(key, now, quota, window, param, cost, holder_at)
--- apply
    local fit = granted and requests or 0
    if fit > 1 and cost > 0 then
        if counts.exact then  -- units that do not count any longer are swept if they would refuse one
            _, a, b, c, d, e, f, g, h, j = check(
                key, now, quota, window, param, requests * cost, holder_at)
        end
        -- Writes nothing: with f, whether a statement is new, concurrency would write its state twice.
        fit = math.min(requests, max(1, floor(commit(
            key, now, quota, window, param, 0, true, false,
            a, b, c, d, e, not counts.exact and f, g, h, j) / cost)))
    end
    local most = age and blocked == 0 and most_again(
        i, counts, fit, requests, key, now, quota, window, param, cost) or fit
    counted, passing = decide(
        i + 1, at, answers_before, requests, enforced and fit < counted and fit or counted,
        enforced and most < passing and most or passing)

    local through = math.min(most, passing)
    local taken = counts.exact and through or math.min(fit, counted)
    passed[i] = (passed[i] or 0) + through * cost
    local remaining, reset, retry, detail, before
    if taken > 0 and cost > 0 then
        remaining, reset, retry, detail, before = commit(
            key, now, quota, window, param, taken * cost, true, true, a, b, c, d, e, f, g, h, j)
        if fit == taken and taken < requests then
            granted, a, b, c, d, e, f, g, h, j = check(key, now, quota, window, param, cost, holder_at)
            remaining, reset, retry = commit(
                key, now, quota, window, param, cost, granted, false, a, b, c, d, e, f, g, h, j)
        end
    else
        remaining, reset, retry = commit(
            key, now, quota, window, param, cost, allowed, false, a, b, c, d, e, f, g, h, j)
    end
    if age then spare_for(block_key, blocked, now, counts, quota, window, param, cost) end
    if age and retry == 0 then retry = 1 end  -- only what passed uncounted refuses it
    local verdict = (most > through and 1 or 0) + 2 * spared + 4 * blocked
    answer[answers_before + i] = pack(
        '<ddddddd', through, detail or 0, verdict, remaining, reset, retry, before or 0)
    return counted, passing
end

runs = floor(runs)
for run = 0, runs - 1 do
    local at = run * (1 + limits) * 8 + 1
    local requests = unpack('<d', ARGV[2], at)
    decide(1, at, run * limits, requests, requests, requests)
end

answer[runs * limits + 1] = pack('<d', server_time)
return table.concat(answer)

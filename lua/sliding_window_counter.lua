-- sliding_window_counter: the counts of the current and the previous window. The previous count is
-- weighted by the share of that window which the sliding window still covers ("approximated sliding
-- window", Cloudflare 2017: "How we built rate limiting capable of scaling to millions of
-- domains").
--
-- State, 28 bytes, little-endian: the window's start in microseconds since the epoch, its count,
-- the previous window's count (doubles), the window's length in seconds (u32). One byte more is
-- read than a state has: see fixed_window.lua.
--- read
stored = value_of(key, '28')  -- value.lua
--- check
-- start, moved, timed: as in fixed_window.lua, but the key expires at the end of the next window
local start, current, previous, moved, timed = now - now % window, 0, 0, false, false
do
    if #stored == 28 then
        local from, stored_current, stored_previous, length = struct.unpack('<dddI4', stored)
        if not (stored_current >= 0 and stored_previous >= 0
                and stored_current + stored_previous < 2^53
                and stored_current % 1 + stored_previous % 1 == 0) then
            from = 0  -- foreign
        end
        if from == start - window then
            previous = stored_current
        elseif from == start or (from > now and from < 2^53) then
            current, previous = stored_current, stored_previous
            if from - now <= window then
                start = from
                timed = now == server_now and length == window / 1000000
            else
                current, previous, moved = current + previous, 0, true
            end
        end
    end
end
local sum = math.floor(previous * (window - math.max(0, now - start)) / window) + current
local granted = cost == 0 or sum + cost <= quota
--- keeps
current, previous, start, moved, timed, sum
--- charge
cost = math.min(cost, math.max(0, 2^51 - current))
--- before
local before = 0
if current > 0 then
    before = 2 * window - (now - start) - math.ceil(window / current) + 1
elseif sum > 0 then
    before = window - (now - start) - math.ceil(window / previous) + 1
end
--- commit
-- detail: the count of the current window; elapsed: negative if the clock is behind the state
local elapsed, reset, retry = now - start, 0, 0
if take then
    current, sum = current + cost, sum + cost
end
if take or (moved and cost > 0) then
    if timed then
        redis.call('SETRANGE', key, '8', struct.pack('<d', current))
    else
        redis.call('SET', key, struct.pack('<dddI4', start, current, previous, window / 1000000),
                   'PX', string.format('%d', math.ceil((start + 2 * window - now) / 1000)))
    end
end
if current > 0 then
    reset = window - elapsed + window - math.ceil(window / current) + 1
elseif sum > 0 then
    reset = window - math.ceil(window / previous) + 1 - elapsed
end
if not granted then
    if cost > quota then
        retry = -1
    else
        -- The first microsecond in which the weight of a window's count is at most `most` in the
        -- window after it: of the previous count in this window, or of the current one in the next.
        local count, most, past = previous, quota - cost - current, 0
        if most < 0 then
            count, most, past = current, quota - cost, window
        end
        retry = math.max(1, past + window - math.ceil((most + 1) * window / count) + 1 - elapsed)
    end
end
local remaining, detail = quota > sum and quota - sum or 0, current
--- beyond
retry = math.max(0, math.min(cost, sum - quota))
--- refund
-- Subtracts the cost from the window of the check, which may be the previous one by now. If the
-- stored start is ahead of now, the clock ran backwards: then nothing is taken from the previous
-- window, as `taken` may not belong to it.
local function refund(key, taken, _, now, _, window, _, cost)
    local stored = redis.pcall('GETRANGE', key, '0', '28')
    if #stored ~= 28 then
        return
    end
    local start, current, previous, length = struct.unpack('<dddI4', stored)
    if length ~= window / 1000000 then
        return  -- the state of another rate
    elseif start <= taken and taken < start + window then
        redis.call('SETRANGE', key, '8', struct.pack('<d', math.max(0, current - cost)))
    elseif start - window <= taken and taken < start and start <= now then
        redis.call('SETRANGE', key, '16', struct.pack('<d', math.max(0, previous - cost)))
    end
end

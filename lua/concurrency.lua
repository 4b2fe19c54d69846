-- concurrency: how many units are held at one time. A check that passes takes units, and a refund
-- releases them. Units are counted by the time at which they were taken, in nine buckets of
-- hold / 8, so that units that are neither released nor renewed are free again after `hold`, and at most
-- a bucket later.
-- window: the time for which a bucket counts, hold + hold / 8. param: the width of a bucket.
--
-- State, little-endian: the start of the newest bucket in microseconds since the epoch (double),
-- hold in seconds, the sum of all counts, the count of the newest bucket, the counts of the eight
-- before it, newest first (u32): 52 bytes, or 20 without those, if they are 0. The sum may include
-- buckets that do not count any longer. One byte more is read than a state has: see
-- fixed_window.lua. A key without units is deleted.
--- check
-- start  of the bucket to count in: ahead of now, by at most a window, if the clock is behind the
--        state
-- total  units that are held; newest: those of that bucket; older: the counts of those before it,
--        as stored, or '' if they are 0
-- moved  all units get the time now: the stored start was further ahead, because the clock ran
--        backwards, or `hold` was another
-- timed  the stored bucket is that of now, and the key already expires with it
-- last   the start of the newest bucket that has units
local start, total, newest, older, moved, timed = now - now % param, 0, 0, '', false, false
local last = start
do
    local stored = redis.pcall('GETRANGE', key, '0', '52')
    if #stored == 20 or #stored == 52 then
        local from, hold, sum, count = struct.unpack('<dI4I4I4', stored)
        if from == start and hold * 125000 == param then
            total, newest, timed = sum, count, now == server_now
            older = timed or string.sub(stored, 21)  -- not written if timed
        elseif from > now - hold * 1125000 and from < 2^53 and from % (hold * 125000) == 0 then
            if hold * 125000 ~= param or from - now > window then
                total, newest, moved = sum, sum, true
            elseif from > start then
                start, last, total, newest, older = from, from, sum, count, string.sub(stored, 21)
            else
                -- Buckets have begun since: the oldest of the stored ones leave.
                local begun = math.floor((start - from) / param + 0.5)
                last, total = from, sum
                if #stored == 20 then
                    stored = stored .. string.rep('\0', 32)
                end
                for at = 21 + (8 - begun) * 4, 49, 4 do
                    total = total - struct.unpack('<I4', stored, at)
                end
                total = math.max(0, total)
                older = string.rep('\0', (begun - 1) * 4) .. string.sub(stored, 17, 52 - begun * 4)
            end
        end
    elseif stored.err and not string.find(stored.err, 'WRONGTYPE') then
        error(stored.err)  -- for example: the user has no right to read
    end
end
local granted = cost == 0 or total + cost <= quota
--- keeps
start, total, newest, older, moved, timed, last
--- charge
cost = math.min(cost, math.max(0, 2^32 - 1 - total))
--- before
local before = total > 0 and last + window - now or 0
--- commit
local retry, detail = 0, 0
if take then
    total, newest, last = total + cost, newest + cost, start
end
if take or (moved and cost > 0) then
    if timed then
        redis.call('SETRANGE', key, '12', struct.pack('<I4I4', total, newest))
    else
        redis.call('SET', key, struct.pack('<dI4I4I4', start, param / 125000, total, newest) .. older,
                   'PX', string.format('%d', math.ceil((start + window - now) / 1000)))
    end
end
if not granted then
    retry = cost > quota and -1 or 1000000
end
local remaining = quota > total and quota - total or 0
local reset = total > 0 and last + window - now or 0
--- refund
-- Subtracts the cost from the bucket in which it was counted, which the reset of the check tells.
local function refund(key, taken, reset, _, _, window, param, cost)
    local stored = redis.pcall('GETRANGE', key, '0', '52')
    if #stored ~= 52 and #stored ~= 20 then
        return
    end
    local from, hold, sum = struct.unpack('<dI4I4', stored)
    local at = (from - (taken + reset - window)) / param
    if hold * 125000 ~= param or at < 0 or at > (#stored - 20) / 4 or at % 1 ~= 0 then
        return
    end
    local count = struct.unpack('<I4', stored, 17 + at * 4)
    local counted = math.min(cost, count)
    if sum <= counted then
        redis.call('DEL', key)
    elseif counted > 0 then
        redis.call('SETRANGE', key, '12', struct.pack('<I4', sum - counted)
            .. string.sub(stored, 17, 16 + at * 4) .. struct.pack('<I4', count - counted))
    end
end
--- renew
-- Before the check of a renewal, which counts the units again. quota: the start of the bucket in
-- which they are counted.
refund(key, quota, window, nil, nil, window, param, cost)

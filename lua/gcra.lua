-- token_bucket, leaky_bucket and gcra: the generic cell rate algorithm (ITU-T I.371) with one
-- theoretical arrival time (tat). param: the capacity, in requests.
--
-- State: tat in microseconds since the epoch, as a plain number; where it is no whole number of them,
-- as the emission interval window/quota is none, two big-endian doubles (no number begins as those
-- do): tat rounded down, and the rest in units of 1/quota us.
-- All arithmetic is in those units, so that nothing is rounded up to 2^53: `debt` is (tat - now) * quota, and a
-- request of cost c adds c * window to it, up to capacity * window.
--
-- The key goes at the end of the second that tat is in: what moves it within that need not move the
-- key's deadline, by the clock that decides.
--- check
-- cut: the debt was above the capacity; tat, rest: as stored (rest nil: a number)
local full = param * window
local debt, cut = 0, false
local stored = redis.pcall('GET', key)
local tat, rest = tonumber(stored), nil
if not tat and type(stored) == 'string' and #stored == 16 then
    tat, rest = struct.unpack('>dd', stored)
end
if tat and tat >= now and tat < 2^53 then
    -- Another quota (a variable rate) had other units: less than a microsecond either way.
    debt = (tat - now) * quota + (rest and math.min(rest, quota - 1) or 0)
    if debt > full then
        debt, cut = full, true
    end
end
local granted = cost == 0 or debt + cost * window <= full
--- keeps
full, debt, cut, tat, rest
--- settle
-- detail: what is below one microsecond of the debt that it wrote
local retry, detail = 0, 0
if not granted then
    retry = cost > param and -1 or math.ceil((debt + cost * window - full) / quota)
end
if take then
    debt = debt + cost * window
end
if take or (cut and cost > 0) then
    -- fmod is exact, also where the numbers are so large that products are not.
    detail = math.fmod(debt, quota)
    local whole = now + (debt - detail) / quota
    local second = whole - whole % 1000000
    local timed = now == server_now and tat and second <= tat and tat < second + 1000000
    if timed and detail == 0 and not rest then
        redis.call('INCRBY', key, string.format('%d', whole - tat))
    elseif timed and rest then
        redis.call('SETRANGE', key, '0', struct.pack('>dd', whole, detail))
    else
        redis.call('SET', key, detail == 0 and string.format('%d', whole)
                   or struct.pack('>dd', whole, detail),
                   'PX', string.format('%d', math.ceil((second + 1000000 - now) / 1000)))
    end
end
-- At least 0: where numbers pass 2^53, a debt that fits may round to more.
local remaining = math.max(0, math.floor((full - debt) / window))
local reset = math.ceil(debt / quota)

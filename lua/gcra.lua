-- token_bucket, leaky_bucket and gcra: the generic cell rate algorithm (ITU-T I.371) with one
-- theoretical arrival time (tat). param: the capacity, in requests.
--
-- State: three unsigned big-endian integers: tat in microseconds since the epoch, rounded down
-- (u56); the rest of it in units of 1/quota us (u32); the latest time at which a request was counted
-- (u56). Text is no such state: its tat would be above 2^53. One byte more is read: as in
-- fixed_window.
--
-- All arithmetic is in units of 1/quota us, so that nothing is rounded up to 2^53: `debt` is
-- (tat - now) * quota, and a request of cost c adds c * window to it, up to capacity * window.
-- Other policies may have made a debt above this capacity: it stays whole, and drains at the rate. But
-- none brings tat further ahead than 2^52 us (longest_refill in policy.h), nor leaves a key that never
-- expires: such a state is foreign, and would refuse for years. It counts as none.
--
-- A clock that is up to a window behind the latest count finds tat as it is. One further behind ran
-- backwards: then tat and the latest count step back with it, and the debt is what it was.
--
-- The key expires at the end of the second that tat is in: what moves it within that need not move
-- the key's deadline, by the clock that decides.
--- check
-- ahead, rest: the debt in whole microseconds, and what is left of it; tat: as stored, nil if there
-- is no state; latest: the latest count's time; moved: the state stepped back with the clock
local full = param * window
local ahead, rest, tat, latest, moved = 0, 0, nil, now, false
do
    local stored = redis.pcall('GETRANGE', key, '0', '18')
    if #stored == 18 then
        local arrival, fraction, counted = struct.unpack('>I7I4I7', stored)
        if arrival < 2^53 and arrival >= counted then
            tat = arrival
            if counted - now > window then
                moved, arrival = true, arrival - (counted - now)
            elseif counted > now then
                latest = counted
            end
            if arrival >= now then
                -- Another quota (a variable rate) had other units: less than a microsecond.
                ahead, rest = arrival - now, math.min(fraction, quota - 1)
            end
        end
    end
end
local debt = ahead * quota + rest
if debt > full and (now + ahead - latest > 2^52 or redis.pcall('PTTL', key) == -1) then
    debt, ahead, rest, tat, latest, moved = 0, 0, 0, nil, now, false
end
local granted = cost == 0 or debt + cost * window <= full
--- keeps
full, debt, ahead, rest, tat, latest, moved
--- before
local before = ahead + math.ceil(rest / quota)
--- commit
-- detail: what is below one microsecond of the debt that it wrote
local retry, detail = 0, 0
if not granted then
    retry = cost > param and -1 or ahead + math.ceil((rest + cost * window - full) / quota)
end
if take then
    debt = debt + cost * window
    -- fmod is exact, also where the numbers are so large that products and quotients are not.
    rest = math.fmod(debt, quota)
    ahead, detail = math.floor((debt - rest) / quota + 0.5), rest
end
if take or (moved and cost > 0) then
    local whole = now + ahead
    local second = whole - whole % 1000000
    local state = struct.pack('>I7I4I7', whole, rest, latest)
    if now == server_now and tat and not moved and second <= tat and tat < second + 1000000 then
        redis.call('SETRANGE', key, '0', state)
    else
        redis.call('SET', key, state, 'PX',
                   string.format('%d', math.ceil((second + 1000000 - now) / 1000)))
    end
end
-- At least 0: the debt may be of a larger capacity.
local remaining = math.max(0, math.floor((full - debt) / window))
local reset = ahead + math.ceil(rest / quota)
--- refund
-- As much of the debt as would still be the check's own if the bucket were idle otherwise. The debt
-- below it may have been refunded meanwhile: then up to what was in flight at once is lost.
local function refund(key, taken, reset, now, quota, window, _, cost)
    local stored = redis.pcall('GETRANGE', key, '0', '18')
    if #stored ~= 18 then
        return
    end
    local tat, rest, latest = struct.unpack('>I7I4I7', stored)
    if tat < now or tat >= 2^53 or tat < latest then
        return
    end
    local debt = (tat - now) * quota + math.min(rest, quota - 1)
    -- The reset was rounded up to a microsecond.
    local own = math.min(cost * window, (taken + reset - 1 - now) * quota)
    if own >= debt then
        redis.call('DEL', key)
    elseif own > 0 then
        debt = debt - own
        rest = math.fmod(debt, quota)
        local whole = now + math.floor((debt - rest) / quota + 0.5)
        local life = whole - whole % 1000000 + 1000000 - now
        redis.call('SET', key, struct.pack('>I7I4I7', whole, rest, math.min(latest, whole)),
                   'PX', string.format('%d', math.ceil(life / 1000)))
    end
end

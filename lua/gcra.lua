-- token_bucket, leaky_bucket and gcra: the generic cell rate algorithm (ITU-T I.371) with one
-- theoretical arrival time (tat). param: the capacity, in requests.
--
-- State, 18 bytes, unsigned and big-endian: tat in microseconds since the epoch, rounded down
-- (u56); the fraction of tat in units of 1/quota us (u32); the latest time at which a request was
-- counted, in microseconds since the epoch (u56). Any other value is foreign and counts as no
-- state: text, for example, reads as a tat above 2^53. One byte more is read than a state has: see
-- fixed_window.lua.
--
-- All arithmetic is in units of 1/quota us, which is exact up to 2^53. The debt is
-- (tat - now) * quota. A request of cost c adds c * window to it, and passes if the sum is at most
-- capacity * window. A policy with a larger capacity may have stored a larger debt. It is kept
-- whole and drains at the rate. But no policy sets tat more than 2^52 us ahead (longest_refill in
-- src/limit/policy.h) or stores a key without expiry. A state that breaks either rule is foreign,
-- and would refuse for years.
--
-- If the clock is up to a window behind the latest count, tat is used as it is. If it is further
-- behind, it ran backwards: tat and the latest count are moved back by the same amount, so that the
-- debt is unchanged.
--
-- The key expires at the end of the second that tat is in. While tat stays in that second, and the
-- server's clock decides, the expiry need not be set again.
--- read
stored = value_of(key, '18')  -- value.lua
--- check
-- ahead   the debt in whole microseconds; rest: the remainder, in 1/quota us
-- tat     as stored; nil: no state
-- latest  time of the latest count
-- moved   the state was moved back with the clock
local full = param * window
local ahead, rest, tat, latest, moved = 0, 0, nil, now, false
do
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
                -- With a variable rate, the fraction may be in another quota's units. The error is
                -- less than a microsecond.
                ahead, rest = arrival - now, fraction < quota and fraction or quota - 1
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
--- charge
-- A larger debt would be foreign.
cost = math.min(cost, math.max(0, math.floor((2^52 * quota - debt) / window)))
--- before
local before = ahead + math.ceil(rest / quota)
--- commit
if take then
    debt = debt + cost * window
    if debt < 2^53 then
        rest = debt % quota
        ahead = (debt - rest) / quota
    else
        -- fmod is exact even where products and quotients are not, because the numbers are large.
        rest = math.fmod(debt, quota)
        ahead = math.floor((debt - rest) / quota + 0.5)
    end
end
if take or (moved and cost > 0) then
    local whole = now + ahead
    local second = whole - whole % 1000000
    local state = struct.pack('>I7I4I7', whole, rest, latest)
    if now == server_now and tat and not moved and second <= tat and tat < second + 1000000 then
        redis.call('SETRANGE', key, '0', state)
    else
        local life = second + 1000999 - now
        redis.call('SET', key, state, 'PX', string.format('%d', (life - life % 1000) / 1000))
    end
end
--- short
-- The debt, negative if the request is refused: src/check/script_reply.h computes the rest of it.
answers[answer_at + 1] = granted and debt or -1 - debt
--- numbers
-- detail: the part of the new debt below one microsecond, in 1/quota us
local retry, detail = 0, take and rest or 0
if not granted then
    retry = cost > param and -1 or ahead + math.ceil((rest + cost * window - full) / quota)
end
-- The largest cost that the check would pass, although the quotient may be rounded. At least 0: the
-- debt may exceed this capacity.
local remaining = math.floor((full - debt) / window + 0.5)
remaining = math.max(0, debt + remaining * window > full and remaining - 1 or remaining)
local reset = ahead + math.ceil(rest / quota)
--- beyond
retry = math.max(0, math.min(cost, math.ceil((debt - full) / window)))
--- refund
-- Subtracts the part of the cost that would not have drained yet if no other request had been
-- counted after the check. If debt counted before the check was refunded in between, this is too
-- much: by at most the cost of the checks that were in flight together.
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
    -- - 1: the reset was rounded up to a microsecond.
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

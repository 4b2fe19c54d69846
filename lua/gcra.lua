-- token_bucket, leaky_bucket and gcra: the generic cell rate algorithm (ITU-T I.371) with one
-- theoretical arrival time (tat). param: the capacity, in requests.
--
-- State: tat in microseconds since the epoch, as a plain number; where the emission interval
-- window/quota is not a whole number of microseconds, "whole:rest", the rest in units of 1/quota us.
-- All arithmetic is in those units, so that nothing is rounded: `debt` is (tat - now) * quota, and a
-- request of cost c adds c * window to it, up to capacity * window.

-- returns granted, debt, cut (it was above the capacity)
local function check(key, now, quota, window, capacity, cost)
    local stored = pcall('GET', key)
    local full = capacity * window
    local debt, cut = 0, false
    if stored then
        local tat, rest = tonumber(stored), 0
        if not tat and type(stored) == 'string' then
            tat, rest = string.match(stored, '^(%d+):(%d+)$')
            -- Another quota (a variable rate) had other units: less than a microsecond either way.
            tat, rest = tonumber(tat), math.min(rest or 0, quota - 1)
        end
        if tat and tat >= now then
            debt = (tat - now) * quota + rest
            if debt > full then
                debt, cut = full, true
            end
        end
    end
    return cost == 0 or debt + cost * window <= full, debt, cut
end

-- returns remaining, reset, retry, and what is below one microsecond of the debt that it wrote
local function settle(key, now, quota, window, capacity, cost, granted, take, debt, cut)
    local full = capacity * window
    local retry, rest = 0, nil
    if not granted then
        retry = cost > capacity and -1 or ceil((debt + cost * window - full) / quota)
    end
    if take then
        debt = debt + cost * window
    end
    if take or (cut and cost > 0) then
        -- fmod is exact, also where the numbers are so large that products are not.
        rest = math.fmod(debt, quota)
        local whole = (debt - rest) / quota
        call('SET', key, rest == 0 and format('%d', now + whole)
            or format('%d:%d', now + whole, rest), 'PX', format('%d', ceil(debt / quota / 1000)))
    end
    -- At least 0: where numbers pass 2^53, a debt that fits may round to more.
    return max(0, floor((full - debt) / window)), ceil(debt / quota), retry, rest
end

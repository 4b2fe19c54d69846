-- sliding_window_counter: the counts of this window and of the one before, which weighs as much as
-- of its length is still in sight.
--
-- State: "start/current/previous", the window's start in microseconds since the epoch.

-- returns granted, current, previous, start, effective now, moved (as in fixed_window)
local function check(key, now, quota, window, _, cost)
    local start, current, previous, moved = now - now % window, 0, 0, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
        local from, stored_current, stored_previous =
            string.match(stored, '^(%d+)/(%d+)/(%d+)$')
        if from then
            from = from + 0
            if from == start then
                current, previous = stored_current + 0, stored_previous + 0
            elseif from == start - window then
                previous = stored_current + 0
            elseif from > now then
                current, previous = stored_current + 0, stored_previous + 0
                if from - now <= window then
                    start, now = from, from
                else
                    current, previous, moved = current + previous, 0, true
                end
            end
        end
    end
    local sum = floor(previous * (window - now + start) / window) + current
    return cost == 0 or sum + cost <= quota, current, previous, start, now, moved
end

-- The first microsecond of a window in which `previous`, that began it whole and is above `most`,
-- weighs at most `most`.
local function falls_to(previous, most, window)
    return window - ceil((most + 1) * window / previous) + 1
end

-- returns remaining, reset, retry, and the count of this window
local function settle(
    key, _, quota, window, _, cost, granted, take, current, previous, start, now, moved)
    local elapsed = now - start
    if take then
        current = current + cost
    end
    if take or (moved and cost > 0) then
        call('SET', key, format('%d/%d/%d', start, current, previous),
             'PX', format('%d', ceil((2 * window - elapsed) / 1000)))
    end
    local sum = floor(previous * (window - elapsed) / window) + current

    local reset = 0
    if current > 0 then
        reset = window - elapsed + window - ceil(window / current) + 1
    elseif sum > 0 then
        reset = window - ceil(window / previous) + 1 - elapsed
    end

    local retry = 0
    if not granted then
        local most = quota - cost
        if most < 0 then
            retry = -1
        else
            -- While this window lasts, or else in the next, where `current` is the previous one.
            local at = current <= most and falls_to(previous, most - current, window) or window
            if at >= window then
                at = window + (current > most and falls_to(current, most, window) or 0)
            end
            retry = max(1, at - elapsed)
        end
    end
    return quota > sum and quota - sum or 0, reset, retry, current
end

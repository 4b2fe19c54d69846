-- sliding_window_counter: the counts of this window and of the one before, which weighs as much as
-- of its length is still in sight.
--
-- State: "start/current/previous", the window's start in microseconds since the epoch.

-- returns granted, current, previous, start, effective now, moved (as in fixed_window)
local function check(key, now, quota, window, _, cost)
    local start, current, previous, moved = now - now % window, 0, 0, false
    local stored = read(key)
    if stored then
        local from, stored_current, stored_previous = match(stored, '^(%d+)/(%d+)/(%d+)$')
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

-- The first microsecond of a window in which `previous`, that began it whole, weighs at most `most`.
local function falls_to(previous, most, window)
    if previous <= most then
        return 0
    end
    return window - ceil((most + 1) * window / previous) + 1
end

local function settle(
    key, _, quota, window, _, cost, granted, take, current, previous, start, now, moved)
    local elapsed = now - start
    if take then
        current = current + cost
    end
    if take or (moved and cost > 0) then
        write(key, format('%.0f/%.0f/%.0f', start, current, previous), 2 * window - elapsed)
    end
    local sum = floor(previous * (window - elapsed) / window) + current

    local reset = 0
    if current > 0 then
        reset = window - elapsed + falls_to(current, 0, window)
    elseif sum > 0 then
        reset = falls_to(previous, 0, window) - elapsed
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
                at = window + falls_to(current, most, window)
            end
            retry = math.max(1, at - elapsed)
        end
    end
    return quota > sum and quota - sum or 0, reset, retry
end

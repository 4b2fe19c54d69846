-- fixed_window: one count for each window; windows begin at multiples of their length.
--
-- State: "start/count", the window's start in microseconds since the epoch.

-- returns granted, count, start of the window, effective now, moved (taken over from a start far
-- ahead: the clock ran backwards)
local function check(key, now, quota, window, _, cost)
    local start, count, moved = now - now % window, 0, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
        local from, stored_count = string.match(stored, '^(%d+)/(%d+)$')
        if from then
            from = from + 0
            if from == start then
                count = stored_count + 0
            elseif from > now then
                count = stored_count + 0
                if from - now <= window then
                    start, now = from, from
                else
                    moved = true
                end
            end
        end
    end
    return cost == 0 or count + cost <= quota, count, start, now, moved
end

local function settle(key, _, quota, window, _, cost, granted, take, count, start, now, moved)
    local left = start + window - now
    if take then
        count = count + cost
    end
    if take or (moved and cost > 0) then
        call('SET', key, format('%d/%d', start, count), 'PX', format('%d', ceil(left / 1000)))
    end
    local retry = 0
    if not granted then
        retry = cost > quota and -1 or left
    end
    return quota > count and quota - count or 0, left, retry
end

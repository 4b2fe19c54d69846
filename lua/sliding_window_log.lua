-- sliding_window_log: the time of each passed request, for as long as it is in the window.
--
-- State: a timelog of six-byte entries, a request of cost c being c of them, with a trailer of
-- entries (u32), index of the oldest live one (u32), its time (u48), deadline of the key (u48), "sl".

local width, trailer_width, trailer_format = 6, 22, '>I4I4I6I6c2'

-- returns granted, effective now, entries, head (index of the oldest live one; no less than entries:
-- none is live), time of the head, newest time, deadline, moved (all live entries are to take now's
-- time: the clock ran backwards)
local function check(key, now, quota, window, _, cost)
    local text = bytes(key, -(trailer_width + width), -1)
    if #text ~= trailer_width + width or string.sub(text, -2) ~= 'sl' then
        return cost == 0 or cost <= quota, now, 0, 0, 0, 0, 0, false
    end
    local newest = entry_time(text, 1)
    local count, head, head_time, deadline = struct.unpack(trailer_format, text, width + 1)
    local moved = false

    local age = age_of(newest, now)
    local then_now = now
    if age < 0 then
        moved = -age > window
        then_now = now - age
        if not moved then
            now = then_now
        end
        age = 0
    end
    if age >= window then
        head = count
    elseif age_of(head_time, then_now) >= window then
        local first
        head, first = first_live(key, width, then_now, window, head, count)
        head_time = entry_time(first, 1)
    end
    return cost == 0 or count - head + cost <= quota, now, count, head, head_time, newest, deadline,
        moved
end

local function settle(
    key, _, quota, window, _, cost, granted, take, now, count, head, head_time, newest, deadline,
    moved)
    local live = count - head
    local time = struct.pack('>I6', now % modulus)

    if moved and cost > 0 and live > 0 then
        -- As one request of their number, now.
        local trailer = struct.pack(trailer_format, live, 0, now % modulus,
                                    (now + window + slack_of(window)) % modulus, 'sl')
        write(key, string.rep(time, live) .. trailer, window + slack_of(window))
        count, head, deadline = live, 0, now + window + slack_of(window)
    end
    if moved then
        head_time, newest = now % modulus, now % modulus
    end
    if take then
        put(key, width, now, window, window, count, head, deadline, count, string.rep(time, cost),
            function(entries, first, last)
                local oldest = live == 0 and now or head_time
                return struct.pack(trailer_format, entries, first, oldest % modulus,
                                   last % modulus, 'sl')
            end)
        live, newest = live + cost, now
    end

    local retry = 0
    if not granted then
        local leaving = live + cost - quota  -- so many of the oldest make room
        if cost > quota then
            retry = -1
        elseif leaving == 1 or moved then
            retry = window - age_of(head_time, now)
        else
            local at = (head + leaving - 1) * width
            retry = window - age_of(entry_time(bytes(key, at, at + width - 1), 1), now)
        end
    end
    return quota > live and quota - live or 0, live > 0 and window - age_of(newest, now) or 0, retry
end

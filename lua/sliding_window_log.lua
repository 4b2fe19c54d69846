-- sliding_window_log: the time of each passed request, for as long as it is in the window.
--
-- State: one string. First the entries, oldest first: times in microseconds since the epoch, seven
-- bytes each, a request of cost c being c of them. Then a trailer: the newest entry's time is right
-- before it, and it has the number of entries (u32), the index of the oldest live one (u32), its
-- time (u56), the key's deadline (u56) and "sl". So one read of the end tells the state, and one
-- write at the end of the entries appends and renews the trailer. Entries that have left the window
-- stay in front until they are as many as the live ones; then the string is written anew.

-- returns granted, effective now, entries, head (index of the oldest live one; as many as entries:
-- none is live), time of the head, newest time, deadline, moved (all live entries are to take now's
-- time: the clock ran backwards)
local function check(key, now, quota, window, _, cost)
    local text = pcall('GETRANGE', key, '-31', '-1')
    if #text ~= 31 then
        return cost == 0 or cost <= quota, now, 0, 0, 0, 0, 0, false
    end
    local newest, count, head, head_time, deadline, mark = unpack_from('>I7I4I4I7I7c2', text)
    if mark ~= 'sl' then
        return cost == 0 or cost <= quota, now, 0, 0, 0, 0, 0, false
    end

    local at, moved = now, false
    if newest > now then
        at, moved = newest, newest - now > window
        now = moved and now or newest
    end
    local past = at - window  -- what is no later has left
    if newest <= past then
        head = count
    elseif head_time <= past then
        local from = (head + 1) * 7
        local block = call('GETRANGE', key, format('%d', from), format('%d', from + 27))
        local i = 1
        repeat
            head_time = unpack_from('>I7', block, i)
            head, i = head + 1, i + 7
        until head_time > past or i > 22
        if head_time <= past then
            -- Many have left: strides that double, then halves, so that no check reads them all.
            local function time_of(index)
                return (unpack_from('>I7', call('GETRANGE', key, format('%d', index * 7),
                                                format('%d', index * 7 + 6))))
            end
            local gone, live, stride = head, count - 1, 8
            while gone + stride < live and time_of(gone + stride) <= past do
                gone, stride = gone + stride, stride * 2
            end
            live = math.min(live, gone + stride)
            while live - gone > 1 do
                local middle = floor((gone + live) / 2)
                if time_of(middle) <= past then
                    gone = middle
                else
                    live = middle
                end
            end
            head, head_time = live, time_of(live)
        end
    end
    return cost == 0 or count - head + cost <= quota, now, count, head, head_time, newest, deadline,
        moved
end

local function settle(
    key, asked, quota, window, _, cost, granted, take, now, count, head, head_time, newest, deadline,
    moved)
    local live = count - head
    -- A sixteenth longer than needed, so that not every check has to move the deadline. It is a time
    -- of the checks' clock; where that is behind the newest entry, the stored one may be of another.
    local life = window + floor(window / 16)

    if moved then
        head_time, newest = now, now
        if cost > 0 and live > 0 then
            count, head, deadline = live, 0, now + life
            call('SET', key, string.rep(pack('>I7', now), live)
                .. pack('>I4I4I7I7c2', count, head, now, deadline, 'sl'),
                'PX', format('%d', ceil(life / 1000)))
        end
    end
    if take then
        local entries = cost > 1 and string.rep(pack('>I7', now), cost - 1) or ''
        if live == 0 or (head >= 16 and head >= live) then
            local kept = live == 0 and ''
                or call('GETRANGE', key, format('%d', head * 7), format('%d', count * 7 - 1))
            local rest = entries .. pack('>I7I4I4I7I7c2', now, live + cost, 0,
                                         live == 0 and now or head_time, asked + life, 'sl')
            local ms = format('%d', ceil(life / 1000))
            if live < 1000 then
                call('SET', key, kept .. rest, 'PX', ms)
            else
                -- Two writes: to put long strings together costs more.
                call('SET', key, kept, 'PX', ms)
                call('SETRANGE', key, format('%d', live * 7), rest)
            end
        else
            local late = deadline < now + window or asked < now
            deadline = late and asked + life or deadline
            call('SETRANGE', key, format('%d', count * 7), entries
                .. pack('>I7I4I4I7I7c2', now, count + cost, head, head_time, deadline, 'sl'))
            if late then
                call('PEXPIRE', key, format('%d', ceil(life / 1000)))
            end
        end
        live, newest = live + cost, now
    end

    local retry = 0
    if not granted then
        local leaving = live + cost - quota  -- so many of the oldest make room
        if cost > quota then
            retry = -1
        elseif leaving == 1 or moved then
            retry = head_time + window - now
        else
            local from = (head + leaving - 1) * 7
            retry = unpack_from('>I7', call('GETRANGE', key, format('%d', from),
                                            format('%d', from + 6))) + window - now
        end
    end
    return quota > live and quota - live or 0, live > 0 and newest + window - now or 0, retry
end

-- sliding_window_buckets: how many requests passed in each bucket of a fixed width. A bucket counts
-- for as long as its start is in the window. param: the width in microseconds.
--
-- State: one string, built as sliding_window_log's. Entries of thirteen bytes: a bucket's start in
-- microseconds since the epoch (u56), and how many requests passed up to its end (u48), so that any
-- run of buckets is a subtraction. The trailer has the number of entries (u32), the index of the
-- oldest live one (u32), its start (u56), how many requests passed before it (u48), the key's
-- deadline (u56) and "sb".

-- returns granted, effective now, state: nil, or a table with entries, head (as many as entries: none
-- is live), start of the head, base (passed before it), newest start, total, deadline, moved
local function check(key, now, quota, window, _, cost)
    local text = pcall('GETRANGE', key, '-43', '-1')
    if #text ~= 43 then
        return cost == 0 or cost <= quota, now, nil
    end
    local newest, total, count, head, head_time, base, deadline, mark =
        unpack_from('>I7I6I4I4I7I6I7c2', text)
    if mark ~= 'sb' then
        return cost == 0 or cost <= quota, now, nil
    end

    local at, moved = now, false
    if newest > now then
        at, moved = newest, newest - now > window
        now = moved and now or newest
    end
    local past = at - window
    if newest <= past then
        head, base = count, total
    elseif head_time <= past then
        -- Buckets are few: halves alone.
        local gone, live = head, count - 1
        while live - gone > 1 do
            local middle = floor((gone + live) / 2)
            local from = middle * 13
            if unpack_from('>I7', call('GETRANGE', key, format('%d', from),
                                       format('%d', from + 6))) <= past then
                gone = middle
            else
                live = middle
            end
        end
        local from = gone * 13
        local _, before, start = unpack_from('>I7I6I7', call(
            'GETRANGE', key, format('%d', from), format('%d', from + 25)))
        head, head_time, base = live, start, before
    end
    return cost == 0 or total - base + cost <= quota, now,
        { count, head, head_time, base, newest, total, deadline, moved }
end

-- The start of the first bucket, from `first` to `last`, by whose end `wanted` requests had passed.
local function start_of_total(key, wanted, first, last)
    while first < last do
        local middle = floor((first + last) / 2)
        local from = middle * 13 + 7
        if unpack_from('>I6', call('GETRANGE', key, format('%d', from), format('%d', from + 5)))
            >= wanted then
            last = middle
        else
            first = middle + 1
        end
    end
    local from = first * 13
    return (unpack_from('>I7', call('GETRANGE', key, format('%d', from), format('%d', from + 6))))
end

local function settle(key, asked, quota, window, width, cost, granted, take, now, state)
    local count, head, head_time, base, newest, total, deadline, moved =
        unpack(state or { 0, 0, 0, 0, 0, 0, 0, false })
    local bucket = now - now % width
    local life = bucket + window + floor(window / 16) - now
    local trailer = '>I7I6I4I4I7I6I7c2'  -- with the newest entry before it

    if moved then
        newest, head_time = bucket, bucket
        if cost > 0 and count > head then
            total, base, count, head, deadline = total - base, 0, 1, 0, now + life
            call('SET', key, pack(trailer, bucket, total, 1, 0, bucket, 0, deadline, 'sb'),
                 'PX', format('%d', ceil(life / 1000)))
        end
    end
    if take then
        local place = count
        if head >= count then
            base, total, head_time = 0, 0, bucket
        elseif newest >= bucket then
            -- The newest bucket is this one, or ahead: it is written over.
            place, bucket = count - 1, newest
            life = bucket + window + floor(window / 16) - now
        end
        total, newest = total + cost, bucket
        if head >= count or (head >= 16 and head >= count - head) then
            local kept = head >= place and ''
                or call('GETRANGE', key, format('%d', head * 13), format('%d', place * 13 - 1))
            call('SET', key, kept .. pack(trailer, bucket, total, max(place - head, 0) + 1, 0,
                 head_time, base, asked + life, 'sb'), 'PX', format('%d', ceil(life / 1000)))
        else
            -- The deadline is of the checks' clock: one that is behind may have stepped back.
            local late = deadline < bucket + window or asked < now
            deadline = late and asked + life or deadline
            call('SETRANGE', key, format('%d', place * 13), pack(
                 trailer, bucket, total, place + 1, head, head_time, base, deadline, 'sb'))
            if late then
                call('PEXPIRE', key, format('%d', ceil(life / 1000)))
            end
        end
    end

    local sum = total - base
    local retry = 0
    if not granted then
        if cost > quota then
            retry = -1
        else
            local start = moved and head_time
                or start_of_total(key, base + sum + cost - quota, head, count - 1)
            retry = start + window - now
        end
    end
    return quota > sum and quota - sum or 0, sum > 0 and newest + window - now or 0, retry
end

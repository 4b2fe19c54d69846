-- sliding_window_buckets: how many requests passed in each bucket of a fixed width. A bucket counts
-- for as long as its start is in the window. param: the width in microseconds.
--
-- State: a timelog of twelve-byte entries, the bucket's start (u48) and how many requests passed up
-- to its end (u48), with a trailer of entries (u32), index of the oldest live one (u32), its start
-- (u48), how many requests passed before it (u48), deadline of the key (u48), "sb".

local width, trailer_width, trailer_format = 12, 28, '>I4I4I6I6I6c2'

local function entry_total(text, at)
    return struct.unpack('>I6', text, at + 6)
end

-- returns granted, effective now, state: nil, or a table with entries, head (no less than entries:
-- none is live), start of the head, base (total before it), newest start, total, deadline, moved
local function check(key, now, quota, window, _, cost)
    local text = bytes(key, -(trailer_width + width), -1)
    if #text ~= trailer_width + width or string.sub(text, -2) ~= 'sb' then
        return cost == 0 or cost <= quota, now, nil
    end
    local newest, total = entry_time(text, 1), entry_total(text, 1)
    local count, head, head_time, base, deadline =
        struct.unpack(trailer_format, text, width + 1)
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
        head, base = count, total
    elseif age_of(head_time, then_now) >= window then
        local first, before
        head, first, before = first_live(key, width, then_now, window, head, count)
        head_time, base = entry_time(first, 1), entry_total(before, 1)
    end
    return cost == 0 or total - base + cost <= quota, now,
        { count, head, head_time, base, newest, total, deadline, moved }
end

-- The time of the first entry by whose end `wanted` requests had passed.
local function time_of_total(key, wanted, first, last)
    while first < last do
        local middle = floor((first + last) / 2)
        local text = bytes(key, middle * width, (middle + 1) * width - 1)
        if entry_total(text, 1) >= wanted then
            last = middle
        else
            first = middle + 1
        end
    end
    return entry_time(bytes(key, first * width, first * width + 5), 1)
end

local function settle(key, _, quota, window, param, cost, granted, take, now, state)
    local count, head, head_time, base, newest, total, deadline, moved =
        unpack(state or { 0, 0, 0, 0, 0, 0, 0, false })
    local bucket = now - now % param
    local function trailer(entries, first, last)
        return struct.pack(trailer_format, entries, first, head_time % modulus, base,
                           last % modulus, 'sb')
    end

    if moved then
        newest, head_time = bucket, bucket
        if cost > 0 and count > head then
            -- As one bucket, now's.
            total, base, count, head = total - base, 0, 1, 0
            deadline = bucket + window + slack_of(window)
            write(key, struct.pack('>I6I6', bucket % modulus, total) .. trailer(1, 0, deadline),
                  deadline - now)
        end
    end
    if take then
        local at = count
        if head >= count then
            base, total, head_time = 0, 0, bucket
        elseif age_of(newest, bucket) <= 0 then
            -- The newest bucket is this one, or ahead: it is written over.
            at, bucket = count - 1, bucket - age_of(newest, bucket)
        end
        total, newest = total + cost, bucket
        put(key, width, now, bucket + window - now, window, count, head, deadline, at,
            struct.pack('>I6I6', bucket % modulus, total), trailer)
    end

    local sum = total - base
    local retry = 0
    if not granted then
        if cost > quota then
            retry = -1
        else
            local wanted = base + sum + cost - quota
            local time = moved and newest or time_of_total(key, wanted, head, count - 1)
            retry = window - age_of(time, now)
        end
    end
    return quota > sum and quota - sum or 0, sum > 0 and window - age_of(newest, now) or 0, retry
end

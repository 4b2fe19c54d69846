-- sliding_window_buckets: how many requests passed in each bucket of a fixed width: a sliding window
-- log with rounded times. param: the width in microseconds. window: how long a bucket counts from its
-- start, the window of the rate and a width, so that its last request counts for that window.
--
-- State: one string, entries and then a trailer, as in sliding_window_log.lua.
--   entry    13 bytes: a bucket's start in microseconds since the epoch (u56), and how many
--            requests passed up to its end (u48, modulo 2^48): the sum over several buckets is one
--            subtraction
--   trailer  30 bytes: the number of entries (u32), the index of the oldest live one (u32), its
--            start (u56), how many requests passed before it (u48), the key's deadline (u56), "sb"
--- check
-- count  number of entries; head: index of the oldest live one, equal to count if none is live
-- total  how many requests passed up to the newest entry; base: how many before the head
local count, head, head_time, base, newest, total, deadline = 0, 0, 0, 0, 0, 0, 0
do
    local text = redis.pcall('GETRANGE', key, '-43', '-1')
    if #text == 43 then
        local mark
        newest, total, count, head, head_time, base, deadline, mark =
            struct.unpack('>I7I6I4I4I7I6I7c2', text)
        -- Foreign values: as in sliding_window_log.
        if mark ~= 'sb' or head >= count or head_time > newest or (
            (newest - now > window or count >= 5000)
            and redis.call('STRLEN', key) ~= count * 13 + 30) then
            newest, total, count, base = 0, 0, 0, 0
        end
        local past = (newest > now and newest or now) - window
        if newest <= past then
            head, base = count, total
        elseif head_time <= past and redis.call('STRLEN', key) ~= count * 13 + 30 then
            newest, total, count, head, base = 0, 0, 0, 0, 0
        elseif head_time <= past then
            -- There are few buckets: a binary search is enough.
            local gone, live = head, count - 1
            while live - gone > 1 do
                local middle = math.floor((gone + live) / 2)
                local from = middle * 13
                if struct.unpack('>I7', redis.call(
                    'GETRANGE', key, string.format('%d', from), string.format('%d', from + 6)))
                    <= past then
                    gone = middle
                else
                    live = middle
                end
            end
            local from = gone * 13
            local _, before, start = struct.unpack('>I7I6I7', redis.call(
                'GETRANGE', key, string.format('%d', from), string.format('%d', from + 25)))
            head, head_time, base = live, start, before
        end
    elseif text.err and not string.find(text.err, 'WRONGTYPE') then
        error(text.err)  -- for example: the user has no right to read
    end
end
local sum = (total - base) % 2^48
local granted = cost == 0 or sum + cost <= quota
--- keeps
count, head, head_time, base, newest, total, deadline, sum
--- charge
cost = math.min(cost, math.max(0, 2^47 - sum))
--- before
local before = 0
if sum > 0 then
    before = window + (newest - now > window and -(now % param) or newest - now)
end
--- commit
-- at     time to count at: now, or the newest bucket's start if the clock is behind it
-- moved  the clock ran backwards by more than a window: all live entries become one, of now's
--        bucket
local retry, detail, width = 0, 0, param
local moved = newest - now > window
local at = (moved or newest < now) and now or newest
local bucket = at - at % width
local trailer = '>I7I6I4I4I7I6I7c2'  -- with the newest entry before it
if moved then
    newest, head_time = bucket, bucket
    if cost > 0 and count > head then
        local life = bucket + window + math.floor(window / 16) - at
        total, base, count, head, deadline = sum, 0, 1, 0, at + life
        redis.call('SET', key, struct.pack(trailer, bucket, total, 1, 0, bucket, 0, deadline, 'sb'),
                   'PX', string.format('%d', math.ceil(life / 1000)))
    end
end
if take then
    local place = count
    if head >= count then
        base, total, head_time, sum = 0, 0, bucket, 0
    elseif newest >= bucket then
        -- The newest bucket is now's, or ahead of now: its entry is overwritten.
        place, bucket = count - 1, newest
    end
    local life = bucket + window + math.floor(window / 16) - now
    total, newest, sum = (total + cost) % 2^48, bucket, sum + cost
    local append = head < count and (head < 16 or head < count - head)
    if append then
        -- If the server's clock does not decide, the stored deadline may be of another clock.
        local late = deadline < bucket + window or now ~= server_now
        deadline = late and now + life or deadline
        local size = redis.call('SETRANGE', key, string.format('%d', place * 13), struct.pack(
                   trailer, bucket, total, place + 1, head, head_time, base, deadline, 'sb'))
        if size and size ~= (place + 1) * 13 + 30 then
            -- The value was foreign.
            append, place, head, total, base, head_time, sum = false, 0, 0, cost, 0, bucket, cost
        elseif late then
            redis.call('PEXPIRE', key, string.format('%d', math.ceil(life / 1000)))
        end
    end
    if not append then
        local kept = head >= place and '' or redis.call(
            'GETRANGE', key, string.format('%d', head * 13), string.format('%d', place * 13 - 1))
        if #kept ~= math.max(place - head, 0) * 13 then
            -- The value was foreign.
            kept, place, head, total, base, head_time, sum = '', 0, 0, cost, 0, bucket, cost
        end
        redis.call('SET', key, kept .. struct.pack(
                   trailer, bucket, total, math.max(place - head, 0) + 1, 0, head_time, base,
                   now + life, 'sb'), 'PX', string.format('%d', math.ceil(life / 1000)))
    end
end

if not granted then
    if cost > quota then
        retry = -1
    elseif moved then
        retry = head_time + window - now
    else
        -- The first bucket up to whose end `wanted` requests had passed: when it leaves, there is
        -- room.
        local wanted = sum + cost - quota
        local first, last = head, count - 1
        while first < last do
            local middle = math.floor((first + last) / 2)
            local from = middle * 13 + 7
            local upto = redis.call(
                'GETRANGE', key, string.format('%d', from), string.format('%d', from + 5))
            if #upto < 6 or (struct.unpack('>I6', upto) - base) % 2^48 >= wanted then
                last = middle
            else
                first = middle + 1
            end
        end
        local from = first * 13
        local entry = redis.call('GETRANGE', key, string.format('%d', from),
                                 string.format('%d', from + 6))
        retry = math.max(1, (#entry == 7 and struct.unpack('>I7', entry) or newest) + window - now)
    end
end
local remaining, reset = quota > sum and quota - sum or 0, sum > 0 and newest + window - now or 0
--- beyond
retry = math.max(0, math.min(cost, sum - quota))
--- refund
-- Subtracts the cost from the bucket in which the check counted, and from the totals of the buckets
-- after it. That bucket is later than the check's if the newest was: the check's reset tells it.
local function refund(key, taken, reset, _, _, window, _, cost)
    local trailer = redis.pcall('GETRANGE', key, '-36', '-1')
    if #trailer ~= 36 then
        return
    end
    local total, count, head, _, base, deadline, mark = struct.unpack('>I6I4I4I7I6I7c2', trailer)
    if mark ~= 'sb' or head >= count or (total - base) % 2^48 < cost then
        return
    end
    local text = redis.call('GETRANGE', key, '0', string.format('%d', count * 13 + 30))
    if #text ~= count * 13 + 30 then
        return
    end
    local bucket = taken + reset - window
    local index = count - 1
    while index > head and struct.unpack('>I7', text, index * 13 + 1) > bucket do
        index = index - 1
    end
    if struct.unpack('>I7', text, index * 13 + 1) ~= bucket then
        return
    end
    local _, before = struct.unpack('>I7I6', text, math.max(index - 1, 0) * 13 + 1)
    before = index > head and before or base
    local _, upto = struct.unpack('>I7I6', text, index * 13 + 1)
    if (upto - before) % 2^48 < cost then
        return  -- counted in another bucket, because the clock was behind
    end
    -- Empty buckets are removed, because the reset is computed from the newest bucket.
    local changed = {}
    for i = index, count - 1 do
        local start, passed = struct.unpack('>I7I6', text, i * 13 + 1)
        if (passed - cost) % 2^48 ~= before then
            changed[#changed + 1] = struct.pack('>I7I6', start, (passed - cost) % 2^48)
        end
    end
    local kept = string.sub(text, head * 13 + 1, index * 13) .. table.concat(changed)
    if kept == '' then
        redis.call('DEL', key)
        return
    end
    redis.call('SET', key, kept .. struct.pack(
               '>I4I4I7I6I7c2', #kept / 13, 0, struct.unpack('>I7', kept), base, deadline, 'sb'),
               'KEEPTTL')
end

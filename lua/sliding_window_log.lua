-- sliding_window_log: the time of each request that passed, while it is in the window ("sliding
-- window log").
--
-- State: one string, entries (oldest first) and then a trailer; integers are unsigned and
-- big-endian.
--   entry    7 bytes: a time in microseconds since the epoch (u56); a request of cost c has c
--            entries
--   trailer  24 bytes: the number of entries (u32), the index of the oldest live one (u32), its
--            time (u56), the key's deadline (u56; microseconds since the epoch), "sl"
-- A check reads the newest entry and the trailer with one GETRANGE. A commit appends entries and
-- rewrites the trailer with one SETRANGE. Entries that have left the window stay in front until
-- they are at least 16 and as many as the live ones. Then the string is rewritten without them.
--- check
-- count  number of entries; head: index of the oldest live one, equal to count if none is live
local count, head, head_time, newest, deadline = 0, 0, 0, 0, 0
do
    local text = redis.pcall('GETRANGE', key, '-31', '-1')
    if #text == 31 then
        local mark
        newest, count, head, head_time, deadline, mark = struct.unpack('>I7I4I4I7I7c2', text)
        -- A foreign value may look like a trailer. Its length reveals that, but STRLEN costs time:
        -- it is called in rare states, and before the trailer's numbers lead to large reads or
        -- writes.
        if mark ~= 'sl' or head >= count or head_time > newest or (
            (newest - now > window or count >= 5000)
            and redis.call('STRLEN', key) ~= count * 7 + 24) then
            newest, count = 0, 0
        end
        local past = (newest > now and newest or now) - window  -- entries up to here have left
        if newest <= past then
            head = count
        elseif head_time <= past then
            local from = (head + 1) * 7
            local block = redis.call('GETRANGE', key, string.format('%d', from),
                                     string.format('%d', from + 27))
            local i = 1
            while i <= #block - 6 and i <= 22 and head_time <= past do
                head_time = struct.unpack('>I7', block, i)
                head, i = head + 1, i + 7
            end
            if head_time <= past and redis.call('STRLEN', key) ~= count * 7 + 24 then
                newest, count, head = 0, 0, 0
            elseif head_time <= past then
                -- Many have left: an exponential and then a binary search, so that no check reads
                -- all.
                local function time_of(index)
                    return (struct.unpack('>I7', redis.call(
                        'GETRANGE', key, string.format('%d', index * 7),
                        string.format('%d', index * 7 + 6))))
                end
                local gone, live, stride = head, count - 1, 8
                while gone + stride < live and time_of(gone + stride) <= past do
                    gone, stride = gone + stride, stride * 2
                end
                live = math.min(live, gone + stride)
                while live - gone > 1 do
                    local middle = math.floor((gone + live) / 2)
                    if time_of(middle) <= past then
                        gone = middle
                    else
                        live = middle
                    end
                end
                head, head_time = live, time_of(live)
            end
        end
    elseif text.err and not string.find(text.err, 'WRONGTYPE') then
        error(text.err)  -- for example: the user has no right to read
    end
end
local granted = cost == 0 or count - head + cost <= quota
--- keeps
count, head, head_time, newest, deadline
--- charge
-- More entries of one time than the quota refuse no more requests. As many again may be refunded.
cost = math.min(cost, 2 * quota)
--- before
local before = 0
if head < count then
    before = window + (newest - now > window and 0 or newest - now)
end
--- commit
-- at     time to count at: now, or the newest entry's if the clock is behind it
-- moved  the clock ran backwards by more than a window: all live entries get the time now
local live, retry, detail = count - head, 0, 0
local moved = newest - now > window
local at = (moved or newest < now) and now or newest
if moved then
    head_time, newest = at, at
end
if take or (moved and cost > 0) then
    -- The key lives a sixteenth of a window longer than needed, so that not every check has to set
    -- its expiry. If the server's clock does not decide, the stored deadline may be of another
    -- clock.
    local life = at - now + window + math.floor(window / 16)
    if moved and cost > 0 and live > 0 then
        count, head, deadline = live, 0, at + life
        redis.call('SET', key, string.rep(struct.pack('>I7', at), live)
            .. struct.pack('>I4I4I7I7c2', count, head, at, deadline, 'sl'),
            'PX', string.format('%d', math.ceil(life / 1000)))
    end
    if take then
        local entries = cost > 1 and string.rep(struct.pack('>I7', at), cost - 1) or ''
        local append = live > 0 and (head < 16 or head < live)
        if append then
            local late = deadline < at + window or now ~= server_now
            deadline = late and now + life or deadline
            local size = redis.call('SETRANGE', key, string.format('%d', count * 7), entries
                .. struct.pack('>I7I4I4I7I7c2', at, count + cost, head, head_time, deadline, 'sl'))
            if size and size ~= (count + cost) * 7 + 24 then
                append, live = false, 0  -- the value was foreign
            elseif late then
                redis.call('PEXPIRE', key, string.format('%d', math.ceil(life / 1000)))
            end
        end
        if not append then
            local kept = live == 0 and '' or redis.call(
                'GETRANGE', key, string.format('%d', head * 7), string.format('%d', count * 7 - 1))
            if #kept ~= live * 7 then
                kept, live = '', 0  -- the value was foreign
            end
            local rest = entries .. struct.pack('>I7I4I4I7I7c2', at, live + cost, 0,
                                                live == 0 and at or head_time, now + life, 'sl')
            local ms = string.format('%d', math.ceil(life / 1000))
            if live < 1000 then
                redis.call('SET', key, kept .. rest, 'PX', ms)
            else
                -- Two writes cost less than one of a long string put together in Lua.
                redis.call('SET', key, kept, 'PX', ms)
                redis.call('SETRANGE', key, string.format('%d', live * 7), rest)
            end
        end
        live, newest = live + cost, at
    end
end
if not granted then
    local leaving = live + cost - quota  -- how many of the oldest entries must leave
    if cost > quota then
        retry = -1
    else
        local leaves = head_time
        if leaving > 1 and not moved then
            local from = (head + leaving - 1) * 7
            local entry = redis.call('GETRANGE', key, string.format('%d', from),
                                     string.format('%d', from + 6))
            leaves = #entry == 7 and struct.unpack('>I7', entry) or newest
        end
        retry = math.max(1, leaves + window - now)
    end
end
local remaining, reset = quota > live and quota - live or 0, live > 0 and newest + window - now or 0
--- beyond
retry = math.max(0, math.min(cost, live - quota))
--- refund
-- Removes at most `cost` of the entries with the time at which the check counted. That is later than
-- the check if the newest entry was: the check's reset tells it. Entries of one time are
-- interchangeable.
local function refund(key, taken, reset, _, _, window, _, cost)
    local at = taken + reset - window
    local trailer = redis.pcall('GETRANGE', key, '-24', '-1')
    if #trailer ~= 24 then
        return
    end
    local count, head, _, deadline, mark = struct.unpack('>I4I4I7I7c2', trailer)
    if mark ~= 'sl' or head >= count then
        return
    end
    local text = redis.call('GETRANGE', key, '0', string.format('%d', count * 7 + 24))
    if #text ~= count * 7 + 24 then
        return
    end
    local function time_of(index)
        return (struct.unpack('>I7', text, index * 7 + 1))
    end
    local after = count
    while after > head and time_of(after - 1) > at do
        after = after - 1
    end
    local from = after
    while from > head and after - from < cost and time_of(from - 1) == at do
        from = from - 1
    end
    local live = count - head - (after - from)
    if from == after then
        return
    elseif live == 0 then
        redis.call('DEL', key)
        return
    end
    local kept = string.sub(text, head * 7 + 1, from * 7)
        .. string.sub(text, after * 7 + 1, count * 7)
    redis.call('SET', key, kept .. struct.pack(
               '>I4I4I7I7c2', live, 0, struct.unpack('>I7', kept), deadline, 'sl'), 'KEEPTTL')
end

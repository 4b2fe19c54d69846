-- fixed_window: one count for each window ("fixed window counter"). Windows begin at multiples of
-- their length.
--
-- State: two doubles, little-endian: the window's start in microseconds since the epoch, and the
-- count; then the window's length in seconds (u32). Another algorithm's text is no start of our time.
-- One byte more is read than a state has: a value that has it is foreign, and may be very long. Of a
-- value that is no string the reply is an error, a table of length 0.
--- check
-- start: ahead of now, by a window at most, where the clock is behind the state; moved: the state is
-- taken over from a start further ahead, as the clock ran backwards; timed: the key expires at the
-- end of this window, by the clock that decides
local start, count, moved, timed = now - now % window, 0, false, false
do
    local stored = redis.pcall('GETRANGE', key, '0', '20')
    if #stored == 20 then
        local from, stored_count, length = struct.unpack('<ddI4', stored)
        if (from == start or (from > now and from < 2^53))
            and stored_count >= 0 and stored_count < 2^53 and stored_count % 1 == 0 then
            count = stored_count
            if from - now <= window then
                start = from
                timed = now == server_now and length == window / 1000000
            else
                moved = true
            end
        end
    end
end
local granted = cost == 0 or count + cost <= quota
--- keeps
count, start, moved, timed
--- before
local before = start + window - now
--- commit
local left, retry, detail = start + window - now, 0, 0
if take then
    count = count + cost
end
if take or (moved and cost > 0) then
    if timed then
        redis.call('SETRANGE', key, '8', struct.pack('<d', count))
    else
        redis.call('SET', key, struct.pack('<ddI4', start, count, window / 1000000),
                   'PX', string.format('%d', math.ceil((start + window - now) / 1000)))
    end
end
if not granted then
    retry = cost > quota and -1 or left
end
local remaining, reset = quota > count and quota - count or 0, left
--- refund
-- From the window of the check, if that is still the one that is stored.
local function refund(key, taken, _, _, _, window, _, cost)
    local stored = redis.pcall('GETRANGE', key, '0', '20')
    if #stored ~= 20 then
        return
    end
    local start, count, length = struct.unpack('<ddI4', stored)
    if start <= taken and taken < start + window and length == window / 1000000 then
        redis.call('SETRANGE', key, '8', struct.pack('<d', math.max(0, count - cost)))
    end
end

-- fixed_window: one count for each window ("fixed window counter"). Windows begin at multiples of
-- their length since the epoch. A calendar period is one window: param is its begin in microseconds
-- since the epoch, otherwise 0; window is its length, and now is in it. Its key counts nothing else,
-- whatever start the state has: the node that wrote it may have other time zone data. The key is kept
-- an hour longer, for nodes whose clocks or time zone data differ: to them the period may last longer.
--
-- State, 20 bytes, little-endian: the window's start in microseconds since the epoch (double), its
-- count (double), its length in seconds (u32).
--
-- Any other value is foreign and counts as no state. GETRANGE reads one byte more than a state has,
-- so that a longer value is recognised without reading all of it. A key that is not a string has no
-- state.
--- read
stored = value_of(key, '20')  -- value.lua
--- check
-- start  of the window to count in: ahead of now, by at most a window, if the clock is behind the
--        state
-- moved  the stored start was further ahead: the clock ran backwards, and the count is moved to now
-- timed  the stored key already expires at the end of this window by the server's clock
local start, count, moved, timed = param > 0 and param or now - now % window, 0, false, false
do
    if #stored == 20 then
        local from, stored_count, length = struct.unpack('<ddI4', stored)
        if (param > 0 or from == start or (from > now and from < 2^53))
            and stored_count >= 0 and stored_count < 2^53 and stored_count % 1 == 0 then
            count = stored_count
            if param == 0 and from - now <= window then
                start = from
                timed = now == server_now and length == window / 1000000
            else
                moved = param == 0
            end
        end
    end
end
local granted = cost == 0 or count + cost <= quota
--- keeps
count, start, moved, timed
--- charge
cost = math.min(cost, math.max(0, 2^51 - count))
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
                   'PX', string.format('%d', math.ceil((start + window - now) / 1000)
                                             + (param > 0 and 3600000 or 0)))
    end
end
if not granted then
    retry = cost > quota and -1 or left
end
local remaining, reset = quota > count and quota - count or 0, left
--- beyond
retry = math.max(0, math.min(cost, count - quota))
--- refund
-- Subtracts the cost if the window of the check is still the stored one.
local function refund(key, taken, _, _, _, window, param, cost)
    local stored = redis.pcall('GETRANGE', key, '0', '20')
    if #stored ~= 20 then
        return
    end
    local start, count, length = struct.unpack('<ddI4', stored)
    if param > 0 or (start <= taken and taken < start + window and length == window / 1000000) then
        redis.call('SETRANGE', key, '8', struct.pack('<d', math.max(0, count - cost)))
    end
end

-- Gives back what a check took, when a limit on another server has refused the request. Never more
-- than that: where others have been counted since in a way that cannot be told apart, less.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), taken (us since the epoch: the time of the check), reset
--          (us, as the check returned it), and what single.lua has: now, quota, window, param, cost

-- fixed_window: from its window, if that is still the one that is stored.
local function fixed_window(key, taken, _, _, _, window, _, cost)
    local stored = pcall('GETRANGE', key, '0', '20')
    if type(stored) ~= 'string' or #stored ~= 20 then
        return
    end
    local start, count, length = unpack_from('<ddI4', stored)
    if start <= taken and taken < start + window and length == window / 1000000 then
        call('SETRANGE', key, '8', pack('<d', max(0, count - cost)))
    end
end

-- sliding_window_counter: from its window, which may be the previous one by now. A start that is ahead
-- of now tells of a clock that ran backwards: then the window of `taken` is not known.
local function sliding_window_counter(key, taken, _, now, _, window, _, cost)
    local stored = pcall('GETRANGE', key, '0', '28')
    if type(stored) ~= 'string' or #stored ~= 28 then
        return
    end
    local start, current, previous, length = unpack_from('<dddI4', stored)
    if length ~= window / 1000000 then
        return  -- another rate's
    elseif start <= taken and taken < start + window then
        call('SETRANGE', key, '8', pack('<d', max(0, current - cost)))
    elseif start - window <= taken and taken < start and start <= now then
        call('SETRANGE', key, '16', pack('<d', max(0, previous - cost)))
    end
end

-- sliding_window_log: the entries of that very time, of which all are alike.
local function sliding_window_log(key, taken, _, _, _, _, _, cost)
    local text = pcall('GET', key)
    if type(text) ~= 'string' or #text < 31 then
        return
    end
    local count, head, _, deadline, mark = unpack_from('>I4I4I7I7c2', text, #text - 23)
    if mark ~= 'sl' or head >= count or #text ~= count * 7 + 24 then
        return
    end
    local function time_of(index)
        return (unpack_from('>I7', text, index * 7 + 1))
    end
    local after = count
    while after > head and time_of(after - 1) > taken do
        after = after - 1
    end
    local from = after
    while from > head and after - from < cost and time_of(from - 1) == taken do
        from = from - 1
    end
    local live = count - head - (after - from)
    if from == after then
        return
    elseif live == 0 then
        call('DEL', key)
        return
    end
    local kept = string.sub(text, head * 7 + 1, from * 7)
        .. string.sub(text, after * 7 + 1, count * 7)
    call('SET', key, kept .. pack('>I4I4I7I7c2', live, 0, unpack_from('>I7', kept), deadline, 'sl'),
         'KEEPTTL')
end

-- sliding_window_buckets: from its bucket, and from every total behind it.
local function sliding_window_buckets(key, taken, _, _, _, _, width, cost)
    local text = pcall('GET', key)
    if type(text) ~= 'string' or #text < 43 then
        return
    end
    local total, count, head, _, base, deadline, mark =
        unpack_from('>I6I4I4I7I6I7c2', text, #text - 35)
    local bucket = taken - taken % width
    local index = count - 1
    if mark ~= 'sb' or head >= count or #text ~= count * 13 + 30 or total - base < cost then
        return
    end
    while index > head and unpack_from('>I7', text, index * 13 + 1) > bucket do
        index = index - 1
    end
    if index < head or unpack_from('>I7', text, index * 13 + 1) ~= bucket then
        return
    end
    -- A bucket that is left empty goes: the newest one tells when the limit is whole again.
    local _, before = unpack_from('>I7I6', text, max(index - 1, 0) * 13 + 1)
    before = index > head and before or base
    local _, upto = unpack_from('>I7I6', text, index * 13 + 1)
    if upto - before < cost then
        return  -- it was counted in another bucket: the clock had stepped back
    end
    local changed = {}
    for i = index, count - 1 do
        local start, passed = unpack_from('>I7I6', text, i * 13 + 1)
        if passed - cost > before then
            changed[#changed + 1] = pack('>I7I6', start, passed - cost)
        end
    end
    local kept = string.sub(text, head * 13 + 1, index * 13) .. table.concat(changed)
    if kept == '' then
        call('DEL', key)
        return
    end
    call('SET', key, kept .. pack('>I4I4I7I6I7c2', #kept / 13, 0, unpack_from('>I7', kept), base,
         deadline, 'sb'), 'KEEPTTL')
end

-- gcra and its like: as much of the debt as must be the check's own still, were the bucket idle else.
-- What lay below it may have been given back meanwhile: then up to what was on its way at once is lost.
local function gcra(key, taken, reset, now, quota, window, _, cost)
    local stored = pcall('GETRANGE', key, '0', '18')
    if type(stored) ~= 'string' or #stored ~= 18 then
        return
    end
    local tat, rest, latest = unpack_from('>I7I4I7', stored)
    if tat < now or tat >= 2^53 or tat < latest then
        return
    end
    local debt = (tat - now) * quota + math.min(rest, quota - 1)
    -- The reset was rounded up to a microsecond.
    local own = math.min(cost * window, (taken + reset - 1 - now) * quota)
    if own >= debt then
        call('DEL', key)
    elseif own > 0 then
        debt = debt - own
        rest = math.fmod(debt, quota)
        local whole = now + floor((debt - rest) / quota + 0.5)
        local life = whole - whole % 1000000 + 1000000 - now
        call('SET', key, pack('>I7I4I7', whole, rest, math.min(latest, whole)),
             'PX', format('%d', ceil(life / 1000)))
    end
end

local algorithms = {
    ['0'] = fixed_window, ['1'] = sliding_window_counter, ['2'] = sliding_window_log,
    ['3'] = sliding_window_buckets, ['4'] = gcra, ['5'] = gcra, ['6'] = gcra,
}
local fields = 8
for i = 1, #KEYS do
    local at = (i - 1) * fields
    local now = ARGV[at + 4] + 0.0
    if now == 0 then
        local time = call('TIME')
        now = time[1] * 1000000.0 + time[2]
    end
    algorithms[ARGV[at + 1]](KEYS[i], ARGV[at + 2] + 0.0, ARGV[at + 3] + 0.0, now,
                             ARGV[at + 5] + 0.0, ARGV[at + 6] + 0.0, ARGV[at + 7] + 0.0,
                             ARGV[at + 8] + 0.0)
end
return 'OK'

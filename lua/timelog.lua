-- What sliding_window_log and sliding_window_buckets share: a log of entries in one string.
--
-- The string is entries of one width, oldest first, each beginning with a time, and then a trailer,
-- so that one write at the end of the entries appends one and replaces the trailer, and one read of
-- the end gives both. Entries that have left the window stay in front, dead, until they are as many
-- as the live ones; then the string is written anew. Times are in microseconds modulo 2^48 (six
-- bytes), told apart by their distance from now: a window is far below half of that.

local modulus, half = 2 ^ 48, 2 ^ 47
local few_dead = 16  -- not worth a new string

-- How long ago `time` was; negative: it is ahead of now.
local function age_of(time, now)
    local age = (now - time) % modulus
    return age >= half and age - modulus or age
end

local function bytes(key, from, to)
    local text = pcall('GETRANGE', key, format('%.0f', from), format('%.0f', to))
    return type(text) == 'string' and text or ''
end

local function entry_time(text, at)
    return struct.unpack('>I6', text, at)
end

-- Where the live entries begin: the entry at `head` has left the window, the newest, at count - 1,
-- has not. Reads a few entries, then strides that double, then halves: never all of them.
-- returns index, that entry, the entry before it
local function first_live(key, width, now, window, head, count)
    local block = 8
    local text = bytes(key, head * width, (head + block) * width - 1)
    local here = math.min(block, count - head)
    for i = 1, here - 1 do
        if age_of(entry_time(text, i * width + 1), now) < window then
            return head + i, string.sub(text, i * width + 1, (i + 1) * width),
                string.sub(text, (i - 1) * width + 1, i * width)
        end
    end

    local function entry(index)
        return bytes(key, index * width, (index + 1) * width - 1)
    end
    local function is_live(text_of_entry)
        return age_of(entry_time(text_of_entry, 1), now) < window
    end

    local dead, live, stride = head + here - 1, count - 1, block
    local dead_entry, live_entry = entry(dead), nil
    while dead + stride < live do
        local probe = entry(dead + stride)
        if is_live(probe) then
            live, live_entry = dead + stride, probe
            break
        end
        dead, dead_entry, stride = dead + stride, probe, stride * 2
    end
    while live - dead > 1 do
        local middle = floor((dead + live) / 2)
        local probe = entry(middle)
        if is_live(probe) then
            live, live_entry = middle, probe
        else
            dead, dead_entry = middle, probe
        end
    end
    return live, live_entry or entry(live), dead_entry
end

-- A key lives until its newest entry has left the window, and for a sixteenth longer, so that its
-- time to live need not be set anew by every check.
local function slack_of(window)
    return floor(window / 16)
end

-- Writes `entries` and a trailer behind the first `at` of `count` entries; or, when as many are dead
-- as are live, a new string without the dead ones. `trailer(count, head, deadline)` makes the
-- trailer's text, `needed` is how long the newest entry stays.
local function put(key, width, now, needed, window, count, head, deadline, at, entries, trailer)
    local added = #entries / width
    local life = needed + slack_of(window)

    if head >= count then
        write(key, entries .. trailer(added, 0, now + life), life)
    elseif head >= few_dead and head >= count - head then
        local live = bytes(key, head * width, at * width - 1)
        write(key, live .. entries .. trailer(at - head + added, 0, now + life), life)
    else
        local late = -age_of(deadline, now) < needed
        if late then
            deadline = now + life
        end
        call('SETRANGE', key, format('%.0f', at * width),
             entries .. trailer(at + added, head, deadline))
        if late then
            call('PEXPIRE', key, format('%.0f', ceil(life / 1000)))
        end
    end
end

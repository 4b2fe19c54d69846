-- Says that a node is there, ends overrides whose time is over, and returns what has changed since
-- the node's cursor. Needs all keys in one hash slot.
-- KEYS  1 alive: zset, node id by the time (us) of its last call; 2 nodes: hash, node id to state
--       3 changes: zset, id of an override by the version that set it
--       4 overrides: hash, id to JSON text; 5 ends: zset, id by end (ms)
--       6 events: zset, id of what was removed (z, k) or freed (f) by version: those of the last
--       ten minutes, at most the latest 100000. A node that missed one notices it by the sum
--       7 state: hash, version, sum (of the versions in changes, modulo 2^52) and since: when (us)
--       the list of nodes began, also after it was lost; 8 journal: zset, what was changed, by
--       version (lua/fleet_change.lua); 9 gone: zset, nodes of the last days that are forgotten, by
--       the time (us) of their last call: "e" if it ended, else "a", its name, a zero byte, its id
--       8 has an empty member, by the time when it began. 3 to 6 and 9 have an empty member, too,
--       which means nothing. In a cluster that moves the slot, a script whose keys do not all exist
--       is refused, also if none has been moved
-- ARGV  1 node id; 2 its state, empty: only read; 3 cursor; 4 the most changes to return;
--       5 1 if the node reads all overrides: its cursor is as old as the last one that it has read
-- reply  now (us), cursor for the next call, live nodes, how long they have been listed (us; 0 if
--       the node only reads), number of overrides, sum, 1 if there is more, or more to end (else
--       0), the cursor from which the changes follow (0: all overrides do), then for each change
--       its version, id and text (empty for an event), in the order of the versions
-- An id is "z" ZONE for a whole zone, or "k" or "f", ZONE, a zero byte and the key.
-- A version is a whole number. Members with another score are foreign: no node gets them.
-- Complexity  O(log n), 200 ended overrides and 4000 events, beside what is returned

local limit = 2 ^ 52
local live = 5 * 1000000
local forgotten = 3600 * 1000000
local kept = 600 * 1000000
local most_events = 100000
local most_ended = 200
local most_removed = 2000
local longest = 4096
local most_gone = 256
local most_forgotten = 10  -- at once: their states may be long

-- The number of a text or score that a script wrote, else 0.
local function whole(text)
    local number = tonumber(text)
    return number and number >= 0 and number < limit and math.floor(number) or 0
end
local function text(number)
    return string.format('%.0f', number)
end

-- The member of `gone`. The name is the state's first member of that name.
local function gone_member(id, state)
    local _, last = string.find(state, '"name":"', 1, true)
    local name = last and string.match(string.sub(state, last + 1, last + 256), '^[^"\\]*') or ''
    local ended = string.sub(state, -10) == '"ended":1}'
    return (ended and 'e' or 'a') .. name .. '\0' .. string.sub(id, 1, 64)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = math.max(whole(redis.call('HGET', KEYS[7], 'version')), now)
local sum = whole(redis.call('HGET', KEYS[7], 'sum'))

local ended = {}
local listed = 0
if ARGV[2] ~= '' then
    -- A Redis that is full refuses what takes memory, but not after another write in the same
    -- script. What a fleet writes is bounded, and operators need it most when Redis is full.
    redis.call('ZREM', KEYS[1], '')
    local since = whole(redis.call('HGET', KEYS[7], 'since'))
    if since == 0 or since > now or redis.call('ZCARD', KEYS[1]) == 0 then
        since = now
        redis.call('HSET', KEYS[7], 'since', text(now))
    end
    listed = now - since
    if redis.call('ZADD', KEYS[1], text(now), ARGV[1]) == 1 then
        redis.pcall('ZREM', KEYS[9], gone_member(ARGV[1], ARGV[2]))
    end
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    local old = redis.call(
        'ZRANGEBYSCORE', KEYS[1], '-inf', text(now - forgotten), 'WITHSCORES', 'LIMIT', 0,
        most_forgotten)
    for i = 1, #old, 2 do
        local state = redis.call('HGET', KEYS[2], old[i])
        if state then
            redis.pcall('ZADD', KEYS[9], old[i + 1], gone_member(old[i], state))
        end
        redis.call('ZREM', KEYS[1], old[i])
        redis.call('HDEL', KEYS[2], old[i])
    end
    -- All else is done even if the journal is foreign.
    redis.pcall('ZADD', KEYS[8], 'NX', text(now), '')
    redis.pcall('ZADD', KEYS[9], 'NX', '-inf', '')
    if #old > 0 then
        redis.pcall('ZREMRANGEBYRANK', KEYS[9], 1, -1 - most_gone)
    end
    -- Keys of a wrong type fail here, before an override is removed from one of them.
    redis.call('ZADD', KEYS[3], 'NX', -1, '')
    if redis.call('HSTRLEN', KEYS[4], '') == 0 then
        redis.call('HSET', KEYS[4], '', '{}')
    end
    redis.call('ZADD', KEYS[5], 'NX', '+inf', '')
    redis.call('ZADD', KEYS[6], 'NX', '-inf', '')

    ended = redis.call(
        'ZRANGEBYSCORE', KEYS[5], '-inf', text(math.floor(now / 1000)), 'LIMIT', 0, most_ended)
    for _, id in ipairs(ended) do
        local set = tonumber(redis.call('ZSCORE', KEYS[3], id))
        redis.call('ZREM', KEYS[5], id)
        if set then
            version = version + 1 < limit and version + 1 or now
            sum = whole(set) == set and (sum + limit - set) % limit or sum
            redis.call('ZREM', KEYS[3], id)
            redis.call('ZADD', KEYS[6], text(version), id)
        end
        redis.call('HDEL', KEYS[4], id)
    end
    redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))

    local known = redis.call('ZCARD', KEYS[6]) - 1
    local gone = redis.call('ZCOUNT', KEYS[6], '(-inf', '(' .. text(version - kept))
    gone = math.min(math.max(gone, known - most_events), most_removed)
    if gone > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[6], 1, gone)
    end
    -- Foreign, or from before the version was lost: all nodes have read all again since.
    local ahead = redis.call('ZCOUNT', KEYS[6], '(' .. text(version), '+inf')
    if ahead > 0 then
        redis.call('ZREMRANGEBYRANK', KEYS[6], -math.min(ahead, most_removed), -1)
    end
end

local cursor = tonumber(ARGV[3])
local most = tonumber(ARGV[4])
-- Events of that time are forgotten, or this is another Redis than the cursor's.
if cursor > version or (ARGV[5] ~= '1' and cursor < version - kept) then
    cursor = 0
end
local from, to = text(cursor + 1), text(version)
local set = redis.call('ZRANGEBYSCORE', KEYS[3], from, to, 'WITHSCORES', 'LIMIT', 0, most)
local gone = redis.call('ZRANGEBYSCORE', KEYS[6], from, to, 'WITHSCORES', 'LIMIT', 0, most)

-- A text that no node wrote may have any size; nodes pass over it.
local function text_of(id)
    local length = redis.call('HSTRLEN', KEYS[4], id)
    return length > longest and '{}' or redis.call('HGET', KEYS[4], id) or ''
end

-- Changes can be read, whatever the nodes' keys hold.
local nodes = redis.pcall('ZCOUNT', KEYS[1], text(now - live), text(now + live))
local nothing = redis.call('HSTRLEN', KEYS[4], '') == 0 and 0 or 1
local reply = {
    now, version, type(nodes) == 'number' and nodes or 0, listed,
    -- They differ if one of the keys was deleted: nodes notice that, too.
    math.min(redis.call('ZCOUNT', KEYS[3], 0, '+inf'), redis.call('HLEN', KEYS[4]) - nothing),
    sum, 0, cursor,
}
local function add(id, score, of_set)
    if score == math.floor(score) then
        reply[#reply + 1] = score
        reply[#reply + 1] = #id > longest and '' or id
        reply[#reply + 1] = of_set and text_of(id) or ''
    end
end

-- Merges both by version.
local i, j = 1, 1
local taken, last = 0, cursor
while taken < most and (set[i] or gone[j]) do
    local of_set, of_gone = tonumber(set[i + 1]), tonumber(gone[j + 1])
    if of_set and (not of_gone or of_set < of_gone) then
        last = of_set
        add(set[i], of_set, true)
        i = i + 2
    else
        last = of_gone
        add(gone[j], of_gone, false)
        j = j + 2
    end
    taken = taken + 1
end

if taken == most then
    reply[2], reply[7] = math.floor(last), 1
elseif #ended == most_ended and version > cursor then
    reply[7] = 1
elseif cursor == 0 or ARGV[5] == '1' then
    -- If the version was lost, overrides may have later ones. A node that reads all gets them last.
    local ahead = redis.call(
        'ZRANGEBYSCORE', KEYS[3], '(' .. to, '(' .. text(limit), 'WITHSCORES', 'LIMIT', 0, most)
    for k = 1, #ahead, 2 do
        add(ahead[k], tonumber(ahead[k + 1]), true)
    end
end
return reply

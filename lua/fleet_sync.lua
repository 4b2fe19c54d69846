-- Says that a node is there, ends overrides whose time is over, and returns what has changed since
-- the node's cursor. Needs all keys in one hash slot.
-- KEYS  1 alive: zset, node id by the time (us) of its last call; 2 nodes: hash, node id to state
--       3 changes: zset, id of an override by the version that set it
--       4 overrides: hash, id to JSON text; 5 ends: zset, id by end (ms)
--       6 events: zset, id of what was removed (z, k) or freed (f) by version
--       7 state: hash, version and sum (of the versions in changes, modulo 2^52)
-- ARGV  1 node id; 2 its state, empty: only read; 3 cursor; 4 the most changes to return;
--       5 1 if the node reads all overrides: its cursor is as old as the last one that it has read
-- reply  now (us), cursor for the next call, live nodes, number of overrides, sum, 1 if there is
--       more (else 0), then for each change its version, id and text (empty for an event), in the
--       order of the versions
-- An id is "z" ZONE for a whole zone, or "k" or "f", ZONE, a zero byte and the key.
-- Complexity  O(log n) and 100 ended overrides, beside what is returned

local limit = 2 ^ 52
local live = 5 * 1000000
local forgotten = 3600 * 1000000
local kept = 600 * 1000000
local longest = 4096

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = tonumber(redis.call('HGET', KEYS[7], 'version')) or 0
if not (version >= now and version < limit) then
    version = now
end
local sum = tonumber(redis.call('HGET', KEYS[7], 'sum')) or 0
if not (sum >= 0 and sum < limit) then
    sum = 0
end
local function text(number)
    return string.format('%.0f', number)
end

if ARGV[2] ~= '' then
    redis.call('ZADD', KEYS[1], text(now), ARGV[1])
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    local old = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now - forgotten), 'LIMIT', 0, 100)
    for _, node in ipairs(old) do
        redis.call('ZREM', KEYS[1], node)
        redis.call('HDEL', KEYS[2], node)
    end
    local ended = redis.call(
        'ZRANGEBYSCORE', KEYS[5], '-inf', text(math.floor(now / 1000)), 'LIMIT', 0, 100)
    for _, id in ipairs(ended) do
        local set = tonumber(redis.call('ZSCORE', KEYS[3], id))
        redis.call('ZREM', KEYS[5], id)
        if set then
            version = version + 1
            sum = set >= 0 and set < limit and (sum + limit - set) % limit or sum
            redis.call('ZREM', KEYS[3], id)
            redis.call('HDEL', KEYS[4], id)
            redis.call('ZADD', KEYS[6], text(version), id)
        end
    end
    redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', '(' .. text(version - kept))
    redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))
end

local cursor = tonumber(ARGV[3])
local most = tonumber(ARGV[4])
-- Events of that time are forgotten, or this is another Redis than the cursor's.
if cursor > version or (ARGV[5] ~= '1' and cursor < version - kept) then
    cursor = 0
end
local from, to = '(' .. text(cursor), '(' .. text(limit)
local set = redis.call('ZRANGEBYSCORE', KEYS[3], from, to, 'WITHSCORES', 'LIMIT', 0, most)
local gone = redis.call('ZRANGEBYSCORE', KEYS[6], from, to, 'WITHSCORES', 'LIMIT', 0, most)

-- Merges both by version.
local ids, versions, wanted = {}, {}, {}
local i, j = 1, 1
while #ids < most and (set[i] or gone[j]) do
    local of_set, of_gone = tonumber(set[i + 1]), tonumber(gone[j + 1])
    if of_set and (not of_gone or of_set < of_gone) then
        wanted[#wanted + 1] = set[i]
        ids[#ids + 1], versions[#versions + 1] = set[i], of_set
        i = i + 2
    else
        ids[#ids + 1], versions[#versions + 1] = gone[j], of_gone
        wanted[#wanted + 1] = ''  -- no id
        j = j + 2
    end
end
local more = #ids == most

-- What no node wrote may be of any size; a node passes over what it cannot read.
local function text_of(id)
    if id == '' then
        return ''
    end
    local length = redis.call('HSTRLEN', KEYS[4], id)
    return length > longest and '{}' or redis.call('HGET', KEYS[4], id) or ''
end

local reply = {
    now, more and versions[#versions] or version,
    redis.call('ZCOUNT', KEYS[1], text(now - live), text(now + live)),
    redis.call('ZCARD', KEYS[3]), sum,
    more and 1 or 0, cursor,
}
for index, id in ipairs(ids) do
    reply[#reply + 1] = versions[index]
    reply[#reply + 1] = #id > longest and '' or id
    reply[#reply + 1] = text_of(wanted[index])
end
return reply

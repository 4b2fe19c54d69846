-- Lists the nodes of a fleet, the one that was heard of last first, and what happened to it. It
-- writes nothing. Needs all keys in one hash slot.
-- KEYS  1 alive, 2 nodes, 3 journal, 4 gone (as in fleet_sync.lua)
-- ARGV  1 the most nodes to return; 2 the most bytes of their states; 3 the most bytes of one
-- reply  now (us), the number of nodes, when the journal began (us; 0: there is none), the members
--        of the last two days of the journal and of the nodes that are gone, each followed by its
--        score, the latest first; then for each node its id (of a foreign one, the first 64
--        bytes), when it was heard of (us) and its state (empty: longer than one may be). Nodes
--        beyond the limits are left out
-- Complexity  O(n) of what is returned

local most_past = 256
local past = 2 * 24 * 3600 * 1000000
local longest = 4096

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The list of nodes is returned even if this key is foreign.
local function latest(key)
    local all = redis.pcall(
        'ZREVRANGEBYSCORE', key, string.format('%.0f', now + past),
        string.format('%.0f', now - past), 'WITHSCORES', 'LIMIT', 0, most_past)
    local found = {}
    for i = 1, all.err and 0 or #all, 2 do
        if all[i] ~= '' and #all[i] <= longest then
            found[#found + 1] = all[i]
            found[#found + 1] = all[i + 1]
        end
    end
    return found
end

local began = redis.pcall('ZSCORE', KEYS[3], '')
began = type(began) == 'string' and tonumber(began) or 0
local most, room, longest_state = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = {
    now, redis.call('ZCARD', KEYS[1]), began > 0 and began < 2 ^ 52 and began or 0,
    latest(KEYS[3]), latest(KEYS[4]),
}
local alive = redis.call('ZREVRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
for i = 1, #alive, 2 do
    local length = redis.call('HSTRLEN', KEYS[2], alive[i])
    local fits = length <= longest_state and length <= room
    if length <= longest_state and not fits then
        return reply
    end
    room = room - (fits and length or 0)
    reply[#reply + 1] = string.sub(alive[i], 1, 64)
    reply[#reply + 1] = alive[i + 1]
    reply[#reply + 1] = fits and redis.call('HGET', KEYS[2], alive[i]) or ''
end
return reply

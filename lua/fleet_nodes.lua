-- Lists the nodes of a fleet, the one that was heard of last first. It writes nothing. Needs all
-- keys in one hash slot.
-- KEYS  1 alive, 2 nodes (as in fleet_sync.lua)
-- ARGV  1 the most nodes to return; 2 the most bytes of their states; 3 the most bytes of one
-- reply  now (us), the number of nodes, then for each its id (of a foreign one, the first 64
--        bytes), when it was heard of (us) and its state (empty: longer than one may be). Nodes
--        beyond the limits are left out
-- Complexity  O(n) of what is returned

local time = redis.call('TIME')
local most, room, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = { time[1] * 1000000 + time[2], redis.call('ZCARD', KEYS[1]) }
local alive = redis.call('ZREVRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
for i = 1, #alive, 2 do
    local length = redis.call('HSTRLEN', KEYS[2], alive[i])
    local fits = length <= longest and length <= room
    if length <= longest and not fits then
        return reply
    end
    room = room - (fits and length or 0)
    reply[#reply + 1] = string.sub(alive[i], 1, 64)
    reply[#reply + 1] = alive[i + 1]
    reply[#reply + 1] = fits and redis.call('HGET', KEYS[2], alive[i]) or ''
end
return reply

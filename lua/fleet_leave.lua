-- Says that a node has ended: other nodes do not show it any longer. What it has said stays until
-- it is forgotten, since its last hour is part of the fleet's history. Needs all keys in one slot.
-- KEYS  1 nodes (as in fleet_sync.lua)
-- ARGV  1 node id
-- reply  1, or 0 if the node has said nothing
-- Complexity  O(1)

local state = redis.call('HGET', KEYS[1], ARGV[1])
if not state or string.sub(state, -1) ~= '}' then
    return 0
end
-- The first write takes no memory: a Redis that is full then allows the other one, too.
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], string.sub(state, 1, -2) .. ',"ended":1}')
return 1

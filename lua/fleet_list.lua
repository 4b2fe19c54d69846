-- Lists the overrides of a zone, the oldest first, or those of all zones, the newest first, in
-- pages. It writes nothing. Needs all keys in one hash slot.
-- KEYS  1 changes, 2 overrides (as in fleet_sync.lua)
-- ARGV  1 the zone; empty: all; 2 the version after which to begin (0: at the first override); 3
--        the most overrides to return
-- reply  now (ms), the version after which the next page begins (0: there is none), then the id and
--        the text of each
-- Complexity  O(log n) and 5000 overrides of all zones

local limit = 2 ^ 52
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local all = ARGV[1] == ''
local of_zone, of_key = 'z' .. ARGV[1], 'k' .. ARGV[1] .. '\0'
local after, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = { now, 0 }
local found = 0

for _ = 1, 5 do
    local page
    if all then
        -- Scores between two whole numbers are foreign: those just below `before` are passed over.
        local before = after > 0 and after or limit
        page = redis.call(
            'ZREVRANGEBYSCORE', KEYS[1], string.format('%.0f', before - 1), '1', 'WITHSCORES',
            'LIMIT', 0, 1000)
    else
        page = redis.call(
            'ZRANGEBYSCORE', KEYS[1], string.format('%.0f', after + 1),
            string.format('(%.0f', limit), 'WITHSCORES', 'LIMIT', 0, 1000)
    end
    for i = 1, #page, 2 do
        if found == most then
            reply[2] = after
            return reply
        end
        local id, version = page[i], tonumber(page[i + 1])
        -- So that the page after a foreign score begins beyond it in either direction.
        after = all and math.ceil(version) or math.floor(version)
        local is_wanted = all or id == of_zone or string.sub(id, 1, #of_key) == of_key
        local length = is_wanted and redis.call('HSTRLEN', KEYS[2], id) or 0
        -- Nodes pass over overrides without a text, and over scores that are no whole numbers.
        if after == version and length > 0 then
            found = found + 1
            reply[#reply + 1] = id
            reply[#reply + 1] = length <= 4096 and redis.call('HGET', KEYS[2], id) or ''
        end
    end
    if #page < 2000 then
        return reply
    end
end
reply[2] = after
return reply

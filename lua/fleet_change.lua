-- Sets or takes back an override, or tells all nodes that a key was freed. Needs all keys in one
-- hash slot.
-- KEYS  as in fleet_sync.lua, also those that it does not use: where that is refused, since a slot
--       is being moved, this is, too. A member of the journal is "s", "r" or "f", as ARGV[1], the
--       length of the id, a colon, the id and the JSON text
-- ARGV  1 set, remove or free; 2 id (as there, "f" for free); 3 the JSON text without its closing
--       brace: who does it, and for set the override. For set: 4 how long it is in force, ms (0:
--       see 7); 5 the most overrides that there may be; 7 nil or the end, ms since the epoch (0: it
--       is in force until it is taken back).
--       6 nil or empty, or change nothing unless there is an override (*), unless there is none
--       (-), or unless this is the SHA-1 of its text
-- reply  set: the whole text, or an empty one if there are too many; remove: 1, or 0 if there was
--        none; free: 1; any: -1 if ARGV[6] does not hold
-- Complexity  O(log n)

local limit = 2 ^ 52
local most_in_journal = 256

-- The number of a text or score that a script wrote, else 0.
local function whole(text)
    local number = tonumber(text)
    return number and number >= 0 and number < limit and math.floor(number) or 0
end
local function text(number)
    return string.format('%.0f', number)
end

-- Keys of a wrong type must fail before anything is written.
local set = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[2]))
local found = redis.call('HGET', KEYS[4], ARGV[2])
local ends = tonumber(redis.call('ZSCORE', KEYS[5], ARGV[2]))
redis.call('ZCARD', KEYS[6])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if found and ends and ends * 1000 <= now then
    found = false
end
local wanted = ARGV[6] or ''
local differs = found and #wanted > 1 and wanted ~= redis.sha1hex(found)
if differs or found and wanted == '-' or not found and wanted ~= '' and wanted ~= '-' then
    return -1
end
local version = whole(redis.call('HGET', KEYS[7], 'version')) + 1
if not (version >= now and version < limit) then
    version = now
end
local sum = whole(redis.call('HGET', KEYS[7], 'sum'))
if set and whole(set) == set then
    sum = (sum + limit - set) % limit
end

-- What happened is no condition of the change. A journal that was lost begins before it.
local function note(json)
    local letter = string.sub(ARGV[1], 1, 1)
    redis.pcall('ZADD', KEYS[8], 'NX', text(version - 1), '')
    redis.pcall('ZADD', KEYS[8], text(version), letter .. #ARGV[2] .. ':' .. ARGV[2] .. json)
    redis.pcall('ZREMRANGEBYRANK', KEYS[8], 1, -1 - most_in_journal)
end
local at = math.floor(now / 1000)
local json = ARGV[3] .. ',"at":' .. text(at)

-- The first write of each change takes no memory: a Redis that is full then allows the others, too.
if ARGV[1] == 'free' then
    redis.call('ZREM', KEYS[6], ARGV[2])
    redis.call('ZADD', KEYS[6], text(version), ARGV[2])
    redis.call('HSET', KEYS[7], 'version', text(version))
    note(json .. '}')
    return 1
end

if ARGV[1] == 'remove' then
    -- Also what is left of it if another of its keys was deleted.
    local text_found = redis.call('HDEL', KEYS[4], ARGV[2])
    redis.call('ZREM', KEYS[5], ARGV[2])
    if not set then
        return text_found
    end
    redis.call('ZREM', KEYS[3], ARGV[2])
    redis.call('ZADD', KEYS[6], text(version), ARGV[2])
    redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))
    note(json .. '}')
    return 1
end

if not set and redis.call('ZCOUNT', KEYS[3], 0, '+inf') >= tonumber(ARGV[5]) then
    return ''
end
redis.call('ZREM', KEYS[5], ARGV[2])
local lasts = tonumber(ARGV[4])
local ends_at = lasts > 0 and at + lasts or tonumber(ARGV[7] or 0)
local stored = json
if ends_at > 0 then
    stored = stored .. ',"until":' .. text(ends_at)
    redis.call('ZADD', KEYS[5], text(ends_at), ARGV[2])
end
stored = stored .. '}'
redis.call('ZADD', KEYS[3], text(version), ARGV[2])
redis.call('HSET', KEYS[4], ARGV[2], stored)
redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text((sum + version) % limit))
note(stored)
return stored

-- The textbook's sliding window counter: two keys, GET, GET, INCR, EXPIRE.
-- KEYS[1]; ARGV now (us; 0: this server's time), quota, window (us)
local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local quota, window = tonumber(ARGV[2]), tonumber(ARGV[3])
local id = math.floor(now / window)
local current_key = KEYS[1] .. ':' .. id
local previous = tonumber(redis.call('GET', KEYS[1] .. ':' .. (id - 1)) or 0)
local current = tonumber(redis.call('GET', current_key) or 0)
local weight = 1 - (now % window) / window
local sum = math.floor(previous * weight) + current
if sum >= quota then
    return { 0, 0 }
end
redis.call('INCR', current_key)
redis.call('PEXPIRE', current_key, math.ceil(2 * window / 1000))
return { 1, quota - sum - 1 }

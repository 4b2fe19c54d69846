-- The textbook's fixed window: INCR, and EXPIRE with the first request.
-- KEYS[1]; ARGV now (us; 0: this server's time), quota, window (us)
local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local quota, window = tonumber(ARGV[2]), tonumber(ARGV[3])
local key = KEYS[1] .. ':' .. math.floor(now / window)
local count = redis.call('INCR', key)
if count == 1 then
    redis.call('PEXPIRE', key, math.ceil(window / 1000))
end
if count > quota then
    return { 0, 0 }
end
return { 1, quota - count }

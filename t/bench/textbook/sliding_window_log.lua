-- The textbook's sliding window log: a sorted set with a member for each request.
-- KEYS[1]; ARGV now (us; 0: this server's time), quota, window (us), unused, cost (1), a unique text
local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local quota, window = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= quota then
    return { 0, 0 }
end
redis.call('ZADD', KEYS[1], now, ARGV[6])
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return { 1, quota - count - 1 }

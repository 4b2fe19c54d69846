-- The textbook's token bucket: a hash of tokens and the time of the last refill.
-- KEYS[1]; ARGV now (us; 0: this server's time), quota, window (us), capacity
local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local quota, window, capacity = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'time')
local tokens = tonumber(state[1]) or capacity
local time = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + (now - time) * quota / window)
local granted = tokens >= 1
if granted then
    tokens = tokens - 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'time', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity * window / quota / 1000))
return { granted and 1 or 0, math.floor(tokens) }

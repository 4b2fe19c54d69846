-- Decides one limit.
--
-- KEYS[1]  the limit's key
-- ARGV     now (us since the epoch; 0: this server's time), quota, window (us), param, cost
--          param: capacity (token_bucket, leaky_bucket, gcra) or width of a bucket in us
-- returns  a string of four signed 64-bit big-endian integers: granted (1, 0), remaining, reset
--          (us), retry (us; 0: granted, -1: never)

local key, now, quota, window = KEYS[1], ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0
local param, cost = ARGV[4] + 0, ARGV[5] + 0
if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

local granted, a, b, c, d, e, f, g = check(key, now, quota, window, param, cost)
local remaining, reset, retry = settle(
    key, now, quota, window, param, cost, granted, granted and cost > 0, a, b, c, d, e, f, g)

return pack('>i8i8i8i8', granted and 1 or 0, remaining, reset, retry)

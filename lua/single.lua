-- Decides one limit.
--
-- KEYS[1]  the limit's key
-- ARGV     now (us since the epoch; 0: this server's time), quota, window (us), param, cost
--          param: capacity (token_bucket, leaky_bucket, gcra) or width of a bucket in us
-- returns  granted (1, 0), remaining, reset (us), retry (us; 0: granted, -1: never)

local key, now, quota, window = KEYS[1], time_of(ARGV[1] + 0), ARGV[2] + 0, ARGV[3] + 0
local param, cost = ARGV[4] + 0, ARGV[5] + 0

local granted, a, b, c, d, e, f, g = check(key, now, quota, window, param, cost)
local remaining, reset, retry = settle(
    key, now, quota, window, param, cost, granted, granted and cost > 0, a, b, c, d, e, f, g)

return { granted and 1 or 0, remaining, reset, retry }

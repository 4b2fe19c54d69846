-- Decides one limit: the check, then the settling, of its algorithm. Straight code, as every call
-- would make a function anew.
--
-- KEYS[1]  the limit's key
-- ARGV[1]  five doubles, little-endian: now (us since the epoch; 0: this server's time), quota,
--          window (us), param, cost
--          param: capacity (token_bucket, leaky_bucket, gcra) or width of a bucket in us
-- returns  a string of four signed 64-bit big-endian integers: granted (1, 0), remaining, reset
--          (us), retry (us; 0: granted, -1: never)

local key = KEYS[1]
local now, quota, window, param, cost = struct.unpack('<ddddd', ARGV[1])
local server_now
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    server_now = now
end
--- check
local take = granted and cost > 0
--- settle
return struct.pack('>i8i8i8i8', granted and 1 or 0, remaining, reset, retry)

-- Decides one limit for each key, each key for a request of its own: the check of its algorithm, then
-- the commit. Straight code, as every call would make a function again.
--
-- KEYS     the limits' keys, decided independently, in this order
-- ARGV[1]  for each key five doubles, little-endian: now (us since the epoch; 0: this server's
--          time), quota (requests), window (us), param, cost (requests)
--          param: capacity (token_bucket, leaky_bucket, gcra) or width of a bucket in us
-- returns  a string of four signed 64-bit big-endian integers for each key: granted (1, 0),
--          remaining (requests), reset (us), retry (us; 0: granted, -1: never)
-- errors   Redis's own only (OOM, READONLY, ...). A value that is no state of ours is no error: it
--          counts as none, and a request that passes overwrites it.
--
-- Numbers go to Redis as text, by %d: versions differ in how they write large ones themselves, and
-- Lua's own way loses digits.

local server_now  -- this server's time, where a limit's algorithm is to know that `now` is that
local numbers, answers = ARGV[1], {}
for asked = 1, #KEYS do
    local key = KEYS[asked]
    local now, quota, window, param, cost = struct.unpack('<ddddd', numbers, asked * 40 - 39)
    if now == 0 then
        if not server_now then
            local time = redis.call('TIME')
            server_now = time[1] * 1000000.0 + time[2]
        end
        now = server_now
    end
--- check
    local take = granted and cost > 0
--- commit
    answers[asked] = struct.pack('>i8i8i8i8', granted and 1 or 0, remaining, reset, retry)
end
return table.concat(answers)

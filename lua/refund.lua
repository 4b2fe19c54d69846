-- Refunds what checks counted: because a limit on another server refused the request, or because the
-- request cost less in the end. A refund may be less than the check counted, if later requests
-- changed the state. gcra.lua says when it may be more.
--
-- KEYS     one key for each refund
-- ARGV[1]  for each key eight doubles, little-endian: algorithm (code), taken (time of the check, us
--          since the epoch), reset (us, as the check returned it), then as in sequence.lua: now, quota,
--          window, param, cost
-- returns  a string with one byte for each key
-- errors   only those of Redis itself. A value that is not a state of the algorithm is not changed.
--
-- Each algorithm's file defines its refund.

local algorithms = {}
--- algorithms
local server_now
for i = 1, #KEYS do
    local algorithm, taken, reset, now, quota, window, param, cost =
        struct.unpack('<dddddddd', ARGV[1], i * 64 - 63)
    if now == 0 then
        if not server_now then
            local time = redis.call('TIME')
            server_now = time[1] * 1000000.0 + time[2]
        end
        now = server_now
    end
    algorithms[algorithm](KEYS[i], taken, reset, now, quota, window, param, cost)
end
return string.rep('+', #KEYS)

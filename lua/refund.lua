-- Refunds what checks counted, when a limit on another server has refused the request. Never more
-- than that: where others were counted since in a way that cannot be told apart, less.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), taken (us since the epoch: the time of the check), reset
--          (us, as the check returned it), and what single.lua has: now, quota, window, param, cost
-- returns  OK
-- errors   Redis's own only: what is not a state of ours is left as it is
--
-- Each algorithm's file has its refund.

local algorithms = {}
--- algorithms
local fields = 8
for i = 1, #KEYS do
    local at = (i - 1) * fields
    local now = ARGV[at + 4] + 0.0
    if now == 0 then
        local time = redis.call('TIME')
        now = time[1] * 1000000.0 + time[2]
    end
    algorithms[ARGV[at + 1]](KEYS[i], ARGV[at + 2] + 0.0, ARGV[at + 3] + 0.0, now,
                             ARGV[at + 5] + 0.0, ARGV[at + 6] + 0.0, ARGV[at + 7] + 0.0,
                             ARGV[at + 8] + 0.0)
end
return 'OK'

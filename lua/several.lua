-- Decides several limits as one: a request is counted in all of them or in none. A shadow limit
-- stands in nobody's way, and counts a request only if it would let it in itself.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), shadow (1, 0), and what single.lua has: now, quota,
--          window, param, cost
-- returns  for each limit what single.lua returns

local fields = 7
local states, times = {}, {}
local all_granted = true
local server_time

for i = 1, #KEYS do
    local at = (i - 1) * fields
    local now = ARGV[at + 3] + 0
    if now == 0 then
        server_time = server_time or time_of(0)
        now = server_time
    end
    times[i] = now
    local check = algorithms[ARGV[at + 1]].check
    local state = { check(KEYS[i], now, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0,
                          ARGV[at + 7] + 0) }
    states[i] = state
    if not state[1] and ARGV[at + 2] ~= '1' then
        all_granted = false
    end
end

local answer = {}
for i = 1, #KEYS do
    local at = (i - 1) * fields
    local state = states[i]
    local cost = ARGV[at + 7] + 0
    local granted = state[1]
    local remaining, reset, retry = algorithms[ARGV[at + 1]].settle(
        KEYS[i], times[i], ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0, cost, granted,
        all_granted and granted and cost > 0, unpack(state, 2, 8))
    local answers = #answer
    answer[answers + 1] = granted and 1 or 0
    answer[answers + 2] = remaining
    answer[answers + 3] = reset
    answer[answers + 4] = retry
end
return answer

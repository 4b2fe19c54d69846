-- Decides several limits as one: a request is counted in all of them or in none. A shadow limit
-- stands in nobody's way, and counts a request only if it would let it in itself.
--
-- KEYS     a key for each limit
-- ARGV     for each limit: algorithm (code), shadow (1, 0), and what single.lua has: now, quota,
--          window, param, cost
-- returns  for each limit what single.lua returns, one after the other; then this server's time (us
--          since the epoch, signed 64-bit big-endian; 0: no limit needed it)

local fields = 7
local states, times = {}, {}
local all_granted = true
local server_time

for i = 1, #KEYS do
    local at = (i - 1) * fields
    local now = ARGV[at + 3] + 0
    if now == 0 then
        if not server_time then
            local time = call('TIME')
            server_time = time[1] * 1000000 + time[2]
        end
        now = server_time
    end
    times[i] = now
    local state = { algorithms[ARGV[at + 1]].check(
        KEYS[i], now, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0, ARGV[at + 7] + 0) }
    states[i] = state
    if not state[1] and ARGV[at + 2] ~= '1' then
        all_granted = false
    end
end

local answer = {}
for i = 1, #KEYS do
    local at = (i - 1) * fields
    local granted, cost = states[i][1], ARGV[at + 7] + 0
    local remaining, reset, retry = algorithms[ARGV[at + 1]].settle(
        KEYS[i], times[i], ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0, cost, granted,
        all_granted and granted and cost > 0, unpack(states[i], 2, 8))
    answer[i] = pack('>i8i8i8i8', granted and 1 or 0, remaining, reset, retry)
end
answer[#KEYS + 1] = pack('>i8', server_time or 0)
return table.concat(answer)

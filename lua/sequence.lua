-- Decides requests that each have limits of the same algorithms in the same order. The limits of a
-- request are one decision: it is counted in all of them or in none. A shadow limit refuses no
-- request. It counts a request if all enforced limits and the shadow limit itself admit it.
--
-- A script is assembled from the pieces below and those of the algorithms, for three limits:
--     begin values request admitted  limit check  limit check  limit check
--            commit verdict before commit numbers answer  (the same twice)  end
-- The block of each limit contains the blocks of the limits after it. So all checks come before the
-- first write, and what a check keeps stays in local variables. Check and commit are inlined, as
-- functions would be created again by every script call. For a limit with block=, the pieces of
-- block.lua and those here are added.
--
-- KEYS     for each request one key for each limit, then one for the block of each limit that has
--          one. The requests are decided one after another, in this order, and may share keys
-- ARGV[1]  for each limit of each request five doubles, little-endian: now (us since the epoch; 0: this server's
--          time), quota (requests), window (us), param, cost (requests; 0: nothing is counted).
--          If all requests have the same numbers, those of one request
--          param: capacity in requests (token_bucket, leaky_bucket, gcra), or width of a bucket in
--          us (sliding_window_buckets), otherwise unused. concurrency.lua has other meanings of
--          window and param
-- ARGV[2]  for each limit of concurrency.lua of each request its holder
-- returns  a string of little-endian doubles: for each limit verdict, remaining (requests), reset
--          (us), retry (us; 0: granted, -1: never) and the reset before the request was counted
--          (us). Of a limit without a block whose file has the piece "short", the doubles of that
--          piece instead. At the end this server's time (us since the epoch; 0:
--          no limit needed it)
-- verdict  1: granted, 0: refused; 2 more if no refusal begins a block now; and four times what is
--          left of the key's block (us). The other numbers are those of the counts, without the block
-- errors   only those of Redis itself (OOM, READONLY, ...). A value that is not a state of the
--          algorithm counts as no state, and a request that passes overwrites it.
--
-- One MGET reads the states of all requests, but for those of algorithms whose states are long. It
-- reads a foreign value whole. A key of another type has no value for it, as for a check. A state is
-- read again, when it is its turn, if requests of the call share its key.
--
-- Numbers are sent to Redis as text, formatted by %d: Redis versions differ in how they format
-- large numbers, and Lua's tostring loses digits.

--- begin
-- keys: how many each request has; stride: bytes of its numbers; shared: its numbers. Lines before
-- this one define them
local redis, struct, string, math = redis, struct, string, math  -- locals are faster than globals
local server_now  -- this server's time, once read: a check compares `now` with it
local answers = {}
--- values
-- wanted: the keys whose states are read at once; reads: how many of them each request has. Lines
-- before this one define them
local values, again = redis.call('MGET', unpack(wanted)), nil
if #wanted > reads then
    local seen = {}
    for i = 1, #wanted do
        local key = wanted[i]
        if seen[key] then
            again = again or {}
            again[key] = true
        end
        seen[key] = true
    end
end
--- request
for first = 1, #KEYS, keys do
    local request = (first - 1) / keys
    if request > 0 and #ARGV[1] > stride then
--- admitted
-- A line before this one reads the numbers of this request
    end
    local admitted = true  -- by the enforced limits
--- limit
-- Lines before this one define key, now, quota, window, param, cost, and answer_at, after which the
-- answer of the limit begins
if now == 0 then
    if not server_now then
        local time = redis.call('TIME')
        server_now = time[1] * 1000000.0 + time[2]
    end
    now = server_now
end
--- enforce
admitted = admitted and granted
--- commit
local take = admitted and granted and cost > 0
--- verdict
local verdict = granted and 1 or 0
--- block
local blocked, spared, allowed = 0, 0
--- block_commit
verdict, granted = verdict + 2 * spared + 4 * blocked, allowed
--- answer
answers[answer_at + 1], answers[answer_at + 2], answers[answer_at + 3], answers[answer_at + 4],
    answers[answer_at + 5] = verdict, remaining, reset, retry, before
--- end
end
answers[#answers + 1] = server_now or 0
return struct.pack('<' .. string.rep('d', #answers), unpack(answers))

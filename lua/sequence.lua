-- Decides requests that each have limits of the same algorithms in the same order. The limits of a
-- request are one decision: it is counted in all of them or in none. A shadow limit refuses no
-- request. It counts a request if all enforced limits and the shadow limit itself admit it.
--
-- A script is assembled from the pieces below and those of the algorithms, for three limits:
--     begin  limit check  limit check  limit check
--            commit before answer  commit before answer  commit before answer  end
-- The block of each limit contains the blocks of the limits after it. So all checks come before the
-- first write, and what a check keeps stays in local variables. Check and commit are inlined, as
-- functions would be created again by every script call. For a limit with block=, the pieces of
-- block.lua and those here are added.
--
-- KEYS     for each request one key for each limit, then one for the block of each limit that has
--          one. The requests are decided one after another, in this order, and may share keys
-- ARGV[1]  for each limit of each request five doubles, little-endian: now (us since the epoch; 0: this server's
--          time), quota (requests), window (us), param, cost (requests; 0: nothing is counted)
--          param: capacity in requests (token_bucket, leaky_bucket, gcra), or width of a bucket in
--          us (sliding_window_buckets), otherwise unused. concurrency.lua has four doubles more,
--          and other meanings of window and param
-- returns  a string of six signed 64-bit big-endian integers for each limit: verdict, remaining
--          (requests), reset (us), retry (us; 0: granted, -1: never), the reset before the request
--          was counted (us; of concurrency the place of the holder), and this server's time (us
--          since the epoch; 0: no limit needed it)
-- verdict  1: granted, 0: refused; 2 more if no refusal begins a block now; and four times what is
--          left of the key's block (us). The other numbers are those of the counts, without the block
-- errors   only those of Redis itself (OOM, READONLY, ...). A value that is not a state of the
--          algorithm counts as no state, and a request that passes overwrites it.
--
-- Numbers are sent to Redis as text, formatted by %d: Redis versions differ in how they format
-- large numbers, and Lua's tostring loses digits.

--- begin
-- keys, limits: how many each request has; stride: bytes of its numbers. A line before this one
-- defines them
local redis, struct, string, math = redis, struct, string, math  -- locals are faster than globals
local server_now  -- this server's time, once read: a check compares `now` with it
local numbers, answers = ARGV[1], {}
for first = 1, #KEYS, keys do
    local request = (first - 1) / keys
    local admitted = true  -- by the enforced limits
--- limit
-- key; answer_index: the number of the limit among those of all requests; numbers_from: where its
-- numbers begin. A
-- line before this one defines them
local now, quota, window, param, cost = struct.unpack('<ddddd', numbers, numbers_from)
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
local take, verdict = admitted and granted and cost > 0, granted and 1 or 0
--- block
-- block_key: defined by a line before this one
local blocked, spared, allowed = 0, 0
--- block_commit
verdict, granted = verdict + 2 * spared + 4 * blocked, allowed
--- answer
answers[answer_index] = struct.pack('>i8i8i8i8i8i8', verdict, remaining, reset, retry, before,
                                 server_now or 0)
--- end
end
return table.concat(answers)

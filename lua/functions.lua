-- An algorithm's check and commit as functions, for scripts that call them more than once.
--
-- read    sets stored, the value of the key
-- check   sets granted, and the locals listed under "keeps"
-- before  sets `before`: the reset (us) before the request is counted
-- commit  counts the request if `take`, and sets remaining, reset, retry and detail (what
--         state_before in src/limit/run_reply.h needs of the algorithm), if not:
-- numbers sets these
--
-- sequence.lua runs check and commit in one scope, here they are two functions. So a commit must use
-- no local of the check but those under "keeps".

local function check(key, now, quota, window, param, cost, holder_at)
local stored
--- read
--- check
return granted,
--- keeps
end

local function commit(key, now, quota, window, param, cost, granted, take,
--- keeps
)
--- before
--- commit
--- numbers
return remaining, reset, retry, detail, before
end

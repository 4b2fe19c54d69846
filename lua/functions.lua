-- An algorithm's check and commit as functions, for scripts that need them more than once.
--
-- A check sets granted, and the locals that it keeps for the commit. The commit counts the request if
-- `take` says so, and sets remaining, reset, retry and detail (what state_before in batch.h needs of
-- the algorithm). Before that, `before` is set to the reset as it was. single.lua has check and commit
-- as straight code: a commit must not use locals that the check does not keep.

local function check(key, now, quota, window, param, cost)
--- check
return granted,
--- keeps
end

local function commit(key, now, quota, window, param, cost, granted, take,
--- keeps
)
--- before
--- commit
return remaining, reset, retry, detail, before
end

-- An algorithm's check and its settling as functions, for scripts that need them more than once.
--
-- A check sets granted, and what it keeps for the settling. That counts the request if `take` says so,
-- and sets remaining, reset, retry and detail (for several.lua). Before that, `before` is set to the
-- reset as it was. single.lua has check and settling as straight code: what they do not keep is not to
-- be used.

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

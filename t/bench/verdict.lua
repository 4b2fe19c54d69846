-- What a peer does with the reply of lua/sequence.lua to limits of gcra: headers, and 429 if a limit refuses.

local ffi = require "ffi"

local verdict = {}

local header, exit = ngx.header, ngx.exit
local ceil, floor, max = math.ceil, math.floor, math.max
local doubles = ffi.typeof("const double*")

-- Returns a function that takes the script's reply, which begins after `before` bytes of a text: a double
-- for each limit, and Redis's time. It computes the rest as src/check/script_reply.cpp does. The headers are
-- those of the first limit that refuses, or of the first limit.
function verdict.reader(limits, settings)
    local capacity, quota, window = settings.capacity, settings.quota, settings.window
    local text_of_capacity = tostring(capacity)
    return function(text, before)
        local answers = ffi.cast(doubles, ffi.cast("const char*", text) + before)
        local answer = answers[0]
        for i = 1, limits - 1 do
            answer = answer < 0 and answer or answers[i] < 0 and answers[i] or answer
        end
        local debt = answer < 0 and -1 - answer or answer
        header["X-RateLimit-Limit"] = text_of_capacity
        header["X-RateLimit-Remaining"] = floor(max(capacity * window - debt, 0) / window)
        header["X-RateLimit-Reset"] = ceil(ceil(debt / quota) / 1000000)
        if answer < 0 then
            header["Retry-After"] = ceil(ceil(max(debt + window - capacity * window, 0) / quota) / 1000000)
            return exit(429)
        end
    end
end

return verdict

-- What a peer does with the reply of lua/sequence.lua: headers, and 429 if a limit refuses.

local verdict = {}

local header, exit = ngx.header, ngx.exit
local byte, ceil = string.byte, math.ceil

-- A signed 64-bit big-endian number.
local function number(text, at)
    local a, b, c, d, e, f, g, h = byte(text, at, at + 7)
    local high = ((a * 256 + b) * 256 + c) * 256 + d
    if a >= 128 then
        high = high - 4294967296
    end
    return high * 4294967296 + ((e * 256 + f) * 256 + g) * 256 + h
end

-- Returns a function that takes the script's reply, which begins after `before` bytes of a text.
-- The headers are those of the first limit that refuses, or of the first limit.
function verdict.reader(limits, capacity)
    capacity = tostring(capacity)
    return function(text, before)
        local at = before + 1
        for i = 0, limits - 1 do
            if number(text, before + 1 + i * 32) ~= 1 then
                at = before + 1 + i * 32
                break
            end
        end
        header["X-RateLimit-Limit"] = capacity
        header["X-RateLimit-Remaining"] = number(text, at + 8)
        header["X-RateLimit-Reset"] = ceil(number(text, at + 16) / 1000000)
        if number(text, at) ~= 1 then
            local retry = number(text, at + 24)
            if retry >= 0 then
                header["Retry-After"] = ceil(retry / 1000000)
            end
            return exit(429)
        end
    end
end

return verdict

-- The peer: one limit by lua-nginx-module, over cosockets that are kept alive, with as much of Redis's
-- protocol as one call of a script takes.

local peer = {}

local tcp, header, exit = ngx.socket.tcp, ngx.header, ngx.exit
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

local function bulk(text)
    return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

local function failed(what, why)
    ngx.log(ngx.CRIT, "peer: ", what, ": ", why)
    return exit(503)
end

-- Makes the function that limits a request by a key.
-- address, port  of Redis
-- digest         of the script, which is loaded
-- prefix         of the keys
-- numbers        ARGV[1]
-- capacity       as the X-RateLimit-Limit header says it
-- answer         how many bytes the script returns
function peer.limit(settings)
    local address, port, prefix = settings.address, settings.port, settings.prefix
    local capacity = tostring(settings.capacity)
    local head = "*5\r\n" .. bulk("EVALSHA") .. bulk(settings.digest) .. bulk("1") .. "$"
    local tail = "}\r\n" .. bulk(settings.numbers)
    local around = #prefix + 2  -- and the braces
    local begin = "\r\n" .. prefix .. "{"
    local start = "$" .. settings.answer .. "\r\n"
    local size = #start + settings.answer + 2
    local at = #start + 1

    return function(key)
        local socket = tcp()
        local good, why = socket:connect(address, port)
        if not good then
            return failed("connect", why)
        end
        good, why = socket:send({ head, #key + around, begin, key, tail })
        if not good then
            return failed("send", why)
        end
        -- Whole at once: the answer's length is known. An error is no shorter, or comes late.
        local answer, problem, part = socket:receive(size)
        if not answer or byte(answer) ~= 36 then
            return failed("receive", answer or part or problem)
        end
        socket:setkeepalive()

        header["X-RateLimit-Limit"] = capacity
        header["X-RateLimit-Remaining"] = number(answer, at + 8)
        header["X-RateLimit-Reset"] = ceil(number(answer, at + 16) / 1000000)
        if number(answer, at) ~= 1 then
            local retry = number(answer, at + 24)
            if retry >= 0 then
                header["Retry-After"] = ceil(retry / 1000000)
            end
            return exit(429)
        end
    end
end

return peer

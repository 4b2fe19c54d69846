-- The peer: the limits of a request by lua-nginx-module, in one call of a script, over keepalive
-- cosockets, with only that part of Redis's protocol that such a call needs.

local verdict = require "verdict"

local peer = {}

local tcp, exit = ngx.socket.tcp, ngx.exit
local byte = string.byte

local function bulk(text)
    return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

local function failed(what, why)
    ngx.log(ngx.CRIT, "peer: ", what, ": ", why)
    return exit(503)
end

-- Returns a function that limits a request by a key.
-- address, port  of Redis
-- digest         of the script, which is loaded
-- prefixes       of the keys, one for each limit
-- numbers        ARGV[1]
-- capacity       of the bucket, in requests; quota, window (us): its rate
-- answer         number of bytes that the script returns
function peer.limit(settings)
    local address, port, prefixes = settings.address, settings.port, settings.prefixes
    local limits = #prefixes
    local decide = verdict.reader(limits, settings)
    local head = "*" .. limits + 4 .. "\r\n" .. bulk("EVALSHA") .. bulk(settings.digest)
        .. bulk(tostring(limits)) .. "$"
    local tail = "}\r\n" .. bulk(settings.numbers)
    local around, begin, pieces = {}, {}, 4 * limits
    for i = 1, limits do
        around[i] = #prefixes[i] + 2  -- plus the braces
        begin[i] = "\r\n" .. prefixes[i] .. "{"
    end
    local start = "$" .. settings.answer .. "\r\n"
    local size = #start + settings.answer + 2
    local command = {}  -- used again: it is sent before the request yields

    return function(key)
        local socket = tcp()
        local good, why = socket:connect(address, port)
        if not good then
            return failed("connect", why)
        end
        for i = 1, limits do
            local at = 4 * i
            command[at - 3] = i == 1 and head or "}\r\n$"
            command[at - 2] = #key + around[i]
            command[at - 1] = begin[i]
            command[at] = key
        end
        command[pieces + 1] = tail
        good, why = socket:send(command)
        if not good then
            return failed("send", why)
        end
        -- One read, since the reply's length is known. An error is shorter, and fails when the read
        -- times out.
        local answer, problem, part = socket:receive(size)
        if not answer or byte(answer) ~= 36 then
            return failed("receive", answer or part or problem)
        end
        socket:setkeepalive()
        return decide(answer, #start)
    end
end

return peer

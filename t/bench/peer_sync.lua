-- A peer that synchronises at intervals, as Kong's and APISIX's limiters do: each node counts in its own memory,
-- adds what it counted to Redis at each interval, and takes over the sum. One worker.

local peer = {}

local tcp, exit = ngx.socket.tcp, ngx.exit

local function bulk(text)
    return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

-- Adds a number to a key in Redis. Returns the sum, or nil and why.
local function add(settings, key, number)
    local socket = tcp()
    local good, why = socket:connect(settings.address, settings.port)
    if not good then
        return nil, why
    end
    socket:send("*3\r\n" .. bulk("INCRBY") .. bulk(key) .. bulk(tostring(number)))
    local answer, problem = socket:receive("*l")
    socket:setkeepalive()
    return answer and tonumber(answer:sub(2)), problem
end

-- Returns a function that limits a request by a key, by fixed windows.
-- address, port  of Redis
-- quota, window  of the limit; seconds
-- interval       between two synchronisations, in seconds
-- name           the start of the keys in Redis
function peer.limit(settings)
    local counts = {}  -- by key of a window: known (the sum in Redis), sent (on the way there), own (not sent yet)

    local function synchronise(premature)
        for key, count in pairs(counts) do
            if not premature and count.own > 0 then
                local number = count.own
                count.sent, count.own = count.sent + number, 0
                ngx.thread.spawn(function()
                    local sum, why = add(settings, key, number)
                    count.sent = count.sent - number
                    if sum then
                        count.known = math.max(count.known, sum)
                    else
                        count.own = count.own + number
                        ngx.log(ngx.CRIT, "peer: ", why)
                    end
                end)
            end
        end
    end

    local started = false
    return function(text)
        if not started then
            started = true
            ngx.timer.every(settings.interval, synchronise)
        end
        local key = settings.name .. text .. ":" .. math.floor(ngx.now() / settings.window)
        local count = counts[key]
        if not count then
            count = { known = 0, sent = 0, own = 0 }
            counts[key] = count
        end
        if count.known + count.sent + count.own >= settings.quota then
            return exit(429)
        end
        count.own = count.own + 1
    end
end

return peer

-- The peer that most would write: as peer.lua, with lua-resty-redis for the protocol.

local redis = require "resty.redis"
local verdict = require "verdict"

local peer = {}

local exit = ngx.exit

-- As in peer.lua.
function peer.limit(settings)
    local address, port, prefixes = settings.address, settings.port, settings.prefixes
    local digest, numbers, limits = settings.digest, settings.numbers, #prefixes
    local decide = verdict.reader(limits, settings)

    return function(key)
        local client = redis:new()
        local good, why = client:connect(address, port)
        local answer
        if good then
            local keys = {}
            for i = 1, limits do
                keys[i] = prefixes[i] .. "{" .. key .. "}"
            end
            keys[limits + 1] = numbers
            answer, why = client:evalsha(digest, limits, unpack(keys))
        end
        if not answer then
            ngx.log(ngx.CRIT, "peer: ", why)
            return exit(503)
        end
        client:set_keepalive(60000, 256)
        return decide(answer, 0)
    end
end

return peer

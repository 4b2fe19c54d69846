-- The requests that wrk sends, and the figures that it prints for Bench/Generators.pm.
--
-- Usage: wrk ... -s requests.lua URL -- path keys first
-- Requests of `path` cycle through `keys` keys, starting after the first `first`. Their texts are
-- made beforehand, so that each costs the generator the same, and little.

local requests, at, keys = {}, 0, 0

function init(arguments)
    local path = arguments[1]
    keys, at = tonumber(arguments[2]), tonumber(arguments[3])
    for i = 1, keys do
        requests[i] = string.format(
            "GET %s?one=hot&key=k%012d HTTP/1.1\r\nHost: localhost\r\n\r\n", path, i - 1)
    end
end

function request()
    at = at % keys + 1
    return requests[at]
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        "figures: requests=%d microseconds=%d refused=%d failed=%d\n", summary.requests,
        summary.duration, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout))
    for i = 1, #latency do
        local value, count = latency(i)
        io.write(string.format("latency: %d %d\n", value, count))
    end
end

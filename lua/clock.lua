-- What every script begins with: short names, the clock, and reading a key of any type.

local call, pcall = redis.call, redis.pcall
local floor, ceil = math.floor, math.ceil
local format, match = string.format, string.match

-- `now` as the caller gave it, or, for 0, this server's time. Microseconds since the epoch.
local function time_of(now)
    if now ~= 0 then
        return now
    end
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

-- The string at `key`; nil where there is none, or a value of another type.
local function read(key)
    local value = pcall('GET', key)
    if type(value) == 'string' then
        return value
    end
end

-- Numbers go to Redis as text: versions differ in how they write large ones themselves.
local function write(key, value, life_us)
    call('SET', key, value, 'PX', format('%.0f', ceil(life_us / 1000)))
end

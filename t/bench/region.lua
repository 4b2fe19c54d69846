-- The requests that wrk sends at a moderate rate: as requests.lua, but each connection pauses before each
-- request, so that the time of a response does not depend on how fast the others come.
--
-- Usage: wrk ... -s region.lua URL -- path keys first

local folder = debug.getinfo(1, "S").source:match("^@(.*)region%.lua$")
dofile(folder .. "requests.lua")

local pause = 100  -- milliseconds, on average

function delay()
    return math.random(0, 2 * pause)
end

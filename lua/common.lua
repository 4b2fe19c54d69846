-- What the scripts for several limits begin with. Numbers go to Redis as text, by %d: versions differ
-- in how they write large ones themselves, and Lua's own way loses digits. Numbers that come as text
-- become floats (+ 0.0): from Lua 5.3 on their products would else wrap at 2^63.

local call, pcall = redis.call, redis.pcall
local pack, unpack_from = struct.pack, struct.unpack
local format = string.format
local floor, ceil, max = math.floor, math.ceil, math.max
local server_now  -- this server's time, where a limit's algorithm is to know that `now` is that

-- Makes the script that follows read-only: it returns the same reply, but writes nothing. Checks
-- read with redis.pcall, which is unchanged. redis.call executes only the commands that read.

local server = redis
local redis = {
    pcall = server.pcall,
    call = function(command, ...)
        if command == 'GETRANGE' or command == 'STRLEN' or command == 'TIME' then
            return server.call(command, ...)
        end
    end,
}

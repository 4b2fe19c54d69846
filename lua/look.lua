-- What makes a script that follows it look only: what that would write goes nowhere.

local server = redis
local redis = {
    pcall = server.pcall,
    call = function(command, ...)
        if command == 'GET' or command == 'GETRANGE' or command == 'STRLEN'
            or command == 'TIME' then
            return server.call(command, ...)
        end
    end,
}

-- A stand-in for Redis, in a Lua with 64-bit integers: reads commands from standard input and
-- writes the replies to standard output, both as RESP. No time passes: a key lasts until it is
-- deleted, and PTTL returns the expiry that was set last. `struct` is Redis's, by Lua's
-- string.pack, which unlike Redis's rejects numbers that are not whole.

local values, lives, scripts = {}, {}, {}

struct = {}

struct.pack = string.pack

-- Redis's struct.unpack returns floats; this returns integers, which overflow if a script lets
-- them.
function struct.unpack(format, text, at)
    return string.unpack(format, text, at and math.tointeger(at))
end

local function wrong_type(key)
    return type(values[key]) == 'table' and { err = 'WRONGTYPE no string' } or nil
end

local commands = {}

function commands.TIME()
    return { '1800000000', '7' }
end

function commands.GET(key)
    return wrong_type(key) or values[key] or false
end

function commands.STRLEN(key)
    return wrong_type(key) or #(values[key] or '')
end

function commands.GETRANGE(key, from, to)
    local text = values[key] or ''
    from, to = math.tointeger(from), math.tointeger(to)
    if from < 0 then
        from = math.max(0, #text + from)
    end
    return wrong_type(key) or string.sub(text, from + 1, to < 0 and to or to + 1)
end

function commands.SET(key, value, option, milliseconds)
    values[key] = value
    if option ~= 'KEEPTTL' then
        lives[key] = option == 'PX' and math.tointeger(milliseconds) or -1
    end
    return { ok = 'OK' }
end

function commands.SETRANGE(key, from, value)
    local text = values[key] or ''
    from = math.tointeger(from)
    text = text .. string.rep('\0', from - #text)
    values[key] = string.sub(text, 1, from) .. value .. string.sub(text, from + #value + 1)
    return wrong_type(key) or #values[key]
end

function commands.PEXPIRE(key, milliseconds)
    lives[key] = math.tointeger(milliseconds)
    return values[key] and 1 or 0
end

function commands.PTTL(key)
    return values[key] and lives[key] or -2
end

function commands.DEL(key)
    values[key], lives[key] = nil, nil
    return 1
end

function commands.SCRIPT(_, text)
    local script = assert(load(text))
    local digest = string.format('%040d', #scripts + 1)
    scripts[#scripts + 1], scripts[digest] = script, script
    return digest
end

-- Command and arguments must be strings: Redis would hide or reject the mistake of another type.
local function pcall_command(command, ...)
    for _, argument in ipairs({ ... }) do
        assert(type(argument) == 'string', command .. ' with an argument that is not a string')
    end
    return commands[command](...)
end

redis = { pcall = pcall_command }

function redis.call(...)
    local reply = pcall_command(...)
    if type(reply) == 'table' and reply.err then
        error(reply.err)
    end
    return reply
end

function commands.EVALSHA(digest, count, ...)
    KEYS, ARGV = {}, {}
    for i, word in ipairs({ ... }) do
        table.insert(i <= math.tointeger(count) and KEYS or ARGV, word)
    end
    local good, reply = pcall(scripts[digest])
    return good and reply or { err = 'ERR ' .. tostring(reply) }
end

local function resp(reply)
    if type(reply) == 'string' then
        return '$' .. #reply .. '\r\n' .. reply .. '\r\n'
    elseif math.type(reply) == 'integer' then
        return ':' .. reply .. '\r\n'
    elseif not reply then
        return '$-1\r\n'
    elseif reply.err or reply.ok then
        local line = reply.err and '-' .. reply.err or '+' .. reply.ok
        return string.gsub(line, '[\r\n]', ' ') .. '\r\n'
    end
    local text = { '*' .. #reply .. '\r\n' }
    for _, part in ipairs(reply) do
        text[#text + 1] = resp(part)
    end
    return table.concat(text)
end

local function read_command()
    local head = io.read('L')
    local words = {}
    for i = 1, head and math.tointeger(string.match(head, '%d+')) or 0 do
        words[i] = io.read(math.tointeger(string.match(io.read('L'), '%d+')))
        io.read(2)
    end
    return head and words
end

io.stdout:setvbuf('full')
local queued
for words in read_command do
    local name = table.remove(words, 1)
    if name == 'MULTI' then
        queued = {}
        io.write('+OK\r\n')
    elseif name == 'EXEC' then
        io.write(resp(queued))
        io.flush()
        queued = nil
    else
        local reply = commands[name](table.unpack(words))
        if queued then
            queued[#queued + 1] = reply
            io.write('+QUEUED\r\n')
        else
            io.write(resp(reply))
            io.flush()
        end
    end
end

-- block=: a key that its limit refused is refused for a time. The block is a record beside the
-- counts: a request passes if the key is not blocked and the counts admit it. So a block never lets
-- more through than the limit alone. Checks only read the record.
--
-- Record, 24 bytes, three little-endian doubles, in microseconds since the epoch: when the request
-- was refused, when the block begins, and when it ends. In a record whose first and last time are
-- equal, there is no block: until it expires, no earlier refusal begins one. Any other value is
-- foreign, and counts as no record. One byte more is read than a record has: see fixed_window.lua.
--
-- Of a check, the frame defines before the first piece:
-- block_key  the key of the record
-- blocked    0; becomes what is left of the key's block (us)
-- allowed    becomes whether the counts admit the request
--- read
do
    local stored = redis.pcall('GETRANGE', block_key, '0', '24')
    if #stored == 24 then
        local refused, begins, ends = struct.unpack('<ddd', stored)
        -- Before the refusal: the clock ran backwards.
        if now < ends and refused < ends and ends < 2^53
            and (begins <= now or now < refused) then
            blocked = math.floor(ends - now)
        end
    elseif stored.err and not string.find(stored.err, 'WRONGTYPE') then
        error(stored.err)  -- for example: the user has no right to read
    end
end
--- apply
allowed, granted = granted, granted and (cost == 0 or blocked == 0)
--- state
-- The script that begins and lifts blocks. Each statement says what shall be, so that it may be
-- late or be executed twice.
--
-- KEYS     the record's key for each statement
-- ARGV[1]  for each four doubles, little-endian: now (us since the epoch; 0: this server's time);
--          then of a block: when the request was refused, when the block begins and ends (us since
--          the epoch). Nothing prolongs a block: one that ends earlier stays. Nor does an earlier
--          refusal replace one: what it was refused for may have been returned before. One that
--          begins later than the refusal waits for units that may be returned. Executed when it
--          should have begun, it begins none: the record that their return left may have expired.
--          Of units that are returned because no request used them: when they were counted (us since
--          the epoch), for how long a refusal before now begins no block (us), 0. A block that began
--          while they were counted is lifted
-- returns  a string with one byte for each key: + if a block began
local server_now
local answers = {}
for i = 1, #KEYS do
    local now, at, begins, ends = struct.unpack('<dddd', ARGV[1], i * 32 - 31)
    if now == 0 then
        if not server_now then
            local time = redis.call('TIME')
            server_now = time[1] * 1000000.0 + time[2]
        end
        now = server_now
    end
    local refused, stands = 0, 0
    local stored = redis.pcall('GETRANGE', KEYS[i], '0', '24')
    if #stored == 24 then
        local first, _, last = struct.unpack('<ddd', stored)
        if first <= last and last < 2^53 then
            refused, stands = first, last
        end
    end
    local blocked = now < stands and refused < stands
    answers[i] = '-'
    if ends == 0 then
        if not (blocked and refused < at) then
            redis.call('SET', KEYS[i], struct.pack('<ddd', now, now, now),
                       'PX', string.format('%d', math.ceil(begins / 1000)))
        end
    elseif now < ends and (begins <= at or now < begins) and not (blocked and stands <= ends)
        and not (at <= refused and (refused == stands or blocked and refused <= now)) then
        redis.call('SET', KEYS[i], struct.pack('<ddd', at, begins, ends),
                   'PX', string.format('%d', math.ceil((ends - now) / 1000)))
        answers[i] = blocked and '-' or '+'
    end
end
return table.concat(answers)

-- block=: a key that its limit refused is refused for a time. The block is a record of the key
-- beside its counts: a request passes if the key is not blocked and the counts admit it. So a block
-- never lets more through than the limit alone. Checks only read the record.
--
-- Record, 32 bytes, four little-endian doubles, in microseconds since the epoch: when the request
-- was refused, when the block begins, when it ends, and until when no refusal begins one (the key is
-- spared). Any other value is foreign, and counts as no record. One byte more is read than a record
-- has: see fixed_window.lua.
--
-- A key is spared while it may count what no request used: units that are returned, or whose return
-- was lost, or that were counted twice. The statement says when these units were counted and until
-- when they count. A block that began meanwhile is dropped. So the records of a key may be stated in
-- any order, late and repeatedly.
--
-- Of a check, the frame defines before the first piece:
-- block_key  the key of the record; record: its value, which the piece "fetch" reads
-- blocked    0; becomes what is left of the key's block (us)
-- spared     0; becomes 1 if no refusal begins a block now
-- allowed    becomes whether the counts admit the request
--- fetch
record = value_of(block_key, '32')  -- value.lua
--- read
do
    if #record == 32 then
        local refused, begins, ends, last = struct.unpack('<dddd', record)
        -- Before the refusal: the clock ran backwards.
        if now < ends and refused < ends and ends < 2^53
            and (begins <= now or now < refused) then
            blocked = math.floor(ends - now)
        end
        if now <= last and last < 2^53 then
            spared = 1
        end
    end
end
--- apply
allowed, granted = granted, granted and (cost == 0 or blocked == 0)
--- record
-- The record of a key: when a request was refused, when its block begins and ends, all 0 if none
-- stands; and until when it is spared.
local function record_of(key, now)
    local stored = redis.pcall('GETRANGE', key, '0', '32')
    if #stored == 32 then
        local refused, begins, ends, last = struct.unpack('<dddd', stored)
        last = last >= 0 and last < 2^53 and last or 0
        if now < ends and refused < ends and ends < 2^53 then
            return refused, begins, ends, last
        end
        return 0, 0, 0, last
    end
    return 0, 0, 0, 0
end

-- keep: us from now
local function set_record(key, keep, refused, begins, ends, last)
    redis.call('SET', key, struct.pack('<dddd', refused, begins, ends, last),
               'PX', string.format('%d', math.ceil(keep / 1000)))
end

-- Units that were counted at `at` may count until `now + lasts`. The record is kept for `keep`
-- longer: a refusal may be stated that much later.
local function spare(key, now, at, lasts, keep)
    local refused, begins, ends, last = record_of(key, now)
    if at <= refused then
        refused, begins, ends = 0, 0, 0
    end
    last = math.max(last, now + lasts)
    set_record(key, math.max(last, ends) - now + keep, refused, begins, ends, last)
end
--- state
-- The script that begins blocks and spares keys. Each statement says what shall be, so that it may
-- be late or be executed twice.
--
-- KEYS     the record's key for each statement
-- ARGV[1]  for each five doubles, little-endian: now (us since the epoch; 0: this server's time);
--          then for a block: when the request was refused, when the block begins and ends (us since
--          the epoch), 0;
--          or to spare a key: when the units were counted (us since the epoch; negative: from now),
--          for how much longer than they count the record is kept (us), 0, how long they count (us
--          from now; 0: they have been returned)
--
-- A block is begun, but for these cases:
-- a block stands that ends earlier        it stays: nothing prolongs a block
-- a block stands, of a later refusal      it stays: the units of the earlier one may be returned
-- it begins after its refusal (it waits   no block: the record that a return left may have expired
--   for a return of units), and is
--   executed when it should have begun
-- the key was spared at the refusal       no block
--
-- returns  a string with one byte for each key: + if a block began
local server_now
local answers = {}
for i = 1, #KEYS do
    local now, at, begins, ends, lasts = struct.unpack('<ddddd', ARGV[1], i * 40 - 39)
    if now == 0 then
        if not server_now then
            local time = redis.call('TIME')
            server_now = time[1] * 1000000.0 + time[2]
        end
        now = server_now
    end
    answers[i] = '-'
    if ends == 0 then
        spare(KEYS[i], now, at < 0 and now + at or at, lasts, begins)
    else
        local refused, _, stands, last = record_of(KEYS[i], now)
        local blocked = stands > 0
        if now < ends and (begins <= at or now < begins) and not (blocked and stands <= ends)
            and last < at and not (blocked and at <= refused and refused <= now) then
            set_record(KEYS[i], ends - now, at, begins, ends, last)
            answers[i] = blocked and '-' or '+'
        end
    end
end
return table.concat(answers)

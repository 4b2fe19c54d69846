-- concurrency: how many units the running requests of all workers hold. Each worker is a holder, and
-- the state has the units of each, by its latest statement. A check states what its holder holds and
-- asks for `cost` more, so that the next message puts right what a lost, late or repeated one left.
-- window: `hold` (us), for which a statement counts. param: how late a statement may be executed (us).
-- Besides, `holder` has four doubles, little-endian, from holder_at on:
--   id      of the holder; 0: the check has none, reads the state and writes nothing
--   number  of the statement: a time by this server's clock (us since the epoch) as the holder
--           estimates it, greater than those of its earlier statements. Messages of one number are
--           parts of one statement, in any order: the first sets the units to `base`, and each adds
--           what it takes
--   base    the units that the holder's requests hold
--   place   of the holder's entry, from 0; -1: not known
-- A statement that is older than another one of its holder is ignored, and its check refused with
-- retry -2. So is one that is older than `param`, unless it takes nothing and its holder is known. So
-- what is executed long after its connection was lost takes nothing.
--
-- State, little-endian: "HELD", the number of entries (u32), the sum of their units, the time before
-- which they are not swept, the time for which the key lasts (doubles, us since the epoch), then each
-- entry, 32 bytes: id, number, time of the statement (doubles), how long it counts (u32, ms), units
-- (u32). An entry without units counts for `param`, so that earlier statements are ignored, and at
-- most for `window` longer if its number is ahead of this server's clock, which has stepped back.
-- Entries that do not count any longer are swept when they would refuse a check, at most every
-- hold / 8, of the shortest `hold` among the check and the entries that count.
--
-- The expiry is set to an eighth of `window` more than the latest entry needs, and only again when
-- an entry would outlast it. A release does not shorten it, since that would be a SET with an expiry
-- for each request: a key of which nothing is held takes its memory for up to 9/8 of `window`.
--- check
-- others   units of the other holders; own: those of this one
-- entries  their number; swept, lasts: as in the state
-- fresh    the statement is newer than the stored one; nil: it is ignored
local id, number, base, place = struct.unpack('<dddd', holder, holder_at)
local others, own, entries, swept, lasts, fresh = 0, 0, 0, 0, 0, false
do
    local stored = redis.pcall('GETRANGE', key, '0', place > 0 and '31' or '63')
    local latest, found = 0, false
    if stored == '' then
        place = 0
    else
        local mark, sum, of, units, _
        if #stored == 64 then
            mark, entries, sum, swept, lasts, of, latest, _, _, units = struct.unpack(
                '<c4I4ddddddI4I4', stored)
            found, place = of == id, 0
        elseif #stored == 32 then
            mark, entries, sum, swept, lasts = struct.unpack('<c4I4ddd', stored)
            local entry = redis.call('GETRANGE', key, string.format('%d', 32 + place * 32),
                                     string.format('%d', 63 + place * 32))
            if #entry == 32 then
                of, latest, _, _, units = struct.unpack('<dddI4I4', entry)
                found = of == id and place < entries
            end
        elseif stored.err and not string.find(stored.err, 'WRONGTYPE') then
            error(stored.err)  -- for example: the user has no right to read
        end
        if mark ~= 'HELD' or not (entries > 0 and entries < 2^17
                                and sum >= 0 and sum < 2^53 and lasts < 2^53) then
            entries, swept, lasts, place, latest, found = 0, 0, 0, 0, 0, false
        else
            if found then
                own, others = units, sum > units and sum - units or 0
            else
                latest = 0
            end
            if not found or id == 0 or cost > 0
                and others + (number > latest and base or own) + cost > quota
                and not (now < swept and swept <= now + window) then
                -- Reads all entries, and sweeps them.
                local all, free = stored, nil
                if entries > 1 or place > 0 then
                    all = redis.call('GETRANGE', key, '0', string.format('%d', 31 + entries * 32))
                end
                local shortest = window
                place, others, own = -1, 0, 0
                entries = math.min(entries, math.floor(#all / 32) - 1)
                for i = 0, entries - 1 do
                    local at = 33 + i * 32
                    local each, stated, from, length, count = struct.unpack('<dddI4I4', all, at)
                    if each == id then
                        found, place, latest, own = true, i, stated, count
                    elseif from + length * 1000 > now then
                        others = others + count
                        shortest = count > 0 and math.min(shortest, length * 1000) or shortest
                        if from > now and id ~= 0 then
                            -- The clock ran backwards: the entry counts from now on.
                            redis.call('SETRANGE', key, string.format('%d', at + 15),
                                       struct.pack('<d', now))
                        end
                    else
                        free = free or i
                        if count ~= 0 and id ~= 0 then
                            redis.call('SETRANGE', key, string.format('%d', at + 27), '\0\0\0\0')
                        end
                    end
                end
                swept = now + shortest / 8
                if place < 0 then
                    place = free or entries
                end
            end
        end
    end
    if id ~= 0 then
        if number < latest or number < now - param and (cost > 0 or not found) then
            fresh = nil
        elseif number > latest then
            fresh, own = true, base
        end
    end
end
local granted = fresh ~= nil and (cost == 0 or others + own + cost <= quota)
--- keeps
others, own, entries, swept, lasts, fresh, id, number, place
--- before
local before = place
--- commit
if take then
    own = math.min(own + cost, 2^32 - 1)
end
if take or fresh then
    -- How long the entry counts (us). It is stored in whole milliseconds.
    local length = window
    if own == 0 then
        length = number <= now and param or param + (number - now < window and number - now or window)
    end
    local stored_length, eighth, life = math.ceil(length / 1000), window / 8
    if entries <= place then
        entries = place + 1
    end
    if swept > now + eighth then
        swept = now + eighth
    end
    if now + length + 1000 > lasts then
        lasts = now + length + 1000 + eighth
        life = string.format('%d', math.ceil((lasts - now) / 1000))
    end
    if place == 0 then
        local state = struct.pack('<c4I4ddddddI4I4', 'HELD', entries, others + own, swept, lasts,
                                  id, number, now, stored_length, own)
        if life and entries == 1 then
            redis.call('SET', key, state, 'PX', life)
            life = nil
        else
            redis.call('SETRANGE', key, '0', state)
        end
    else
        redis.call('SETRANGE', key, '0',
                   struct.pack('<c4I4ddd', 'HELD', entries, others + own, swept, lasts))
        redis.call('SETRANGE', key, string.format('%d', 32 + place * 32),
                   struct.pack('<dddI4I4', id, number, now, stored_length, own))
    end
    if life then
        redis.call('PEXPIRE', key, life)
    end
end
--- short
-- The units that are held, negative if the request is refused; and the place of the holder, -1 if
-- the statement is ignored: src/check/script_reply.h computes the rest of it.
answers[answer_at + 1], answers[answer_at + 2] =
    granted and others + own or -1 - others - own, fresh == nil and -1 or place
--- numbers
local retry, detail = 0, 0
if not granted then
    retry = fresh == nil and -2 or cost > quota and -1 or 1000000
end
local remaining = quota > others + own and quota - others - own or 0
local reset = others + own > 0 and 1000000 or 0

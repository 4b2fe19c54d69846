-- block=: after a refusal, a limit refuses its key for a time. These pieces are added to scripts of
-- limits that may have a block.
--
-- State, 9 bytes, big-endian: 0xB10C, which no text begins with (u16), and the end of the block in
-- microseconds since the epoch (u56). It takes the place of the algorithm's state and is foreign to every algorithm, so that nothing is
-- counted when the block ends. Charges and refunds leave it as it is. The key expires with the block.
--
-- The frame defines these variables before the first piece. No algorithm has variables of the names
-- here, since a script has the pieces of both in one scope.
-- block     its length (us)
-- blocked   what is left of the key's block (us); nil: the key is not blocked
-- overlong  more was left than a block lasts: the clock ran backwards, or a block was longer
--- block_read
do
    local stored = redis.pcall('GETRANGE', key, '0', '9')
    if #stored == 9 then
        local mark, ends = struct.unpack('>I2I7', stored)
        if mark == 0xB10C and ends > now and ends < 2^53 then
            blocked, overlong = math.min(ends - now, block), ends - now > block
        end
    end
end
--- block_check
granted = granted and (cost == 0 or not blocked)
--- block_commit
-- Begins a block if the limit refuses the request. In a read-only script (peek.lua), SET does nothing
-- and no block begins.
local begins = not blocked and not granted
if blocked then
    verdict, remaining, reset, retry = verdict + 2, 0, blocked, granted and 0 or blocked
end
if (begins or overlong and cost > 0) and redis.call(
    'SET', key, struct.pack('>I2I7', 0xB10C, now + block),
    'PX', string.format('%d', math.ceil(block / 1000))) and begins then
    verdict, retry = 4, block
end

-- Reads the value of a key, for the pieces "read" and "fetch". A key that is not a string has none.
-- value_of: a local of the frame.

function value_of(key, last)
    local value = redis.pcall('GETRANGE', key, '0', last)
    if not value.err then
        return value
    end
    if not string.find(value.err, 'WRONGTYPE') then
        error(value.err)  -- for example: the user has no right to read
    end
    return ''
end

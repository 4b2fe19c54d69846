-- For the scripts as they are put together: what one algorithm does not use of what all get is no
-- mistake. The block of a limit has the same names as the blocks around it (lua/sequence.lua).
std = "lua51"
max_line_length = 100
read_globals = { "redis", "struct", "KEYS", "ARGV" }
ignore = { "21./param", "212/now", "212/holder_at", "211/holder", "2../server_now", "211/stored", "[23]../detail", "4[23]." }

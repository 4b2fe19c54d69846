-- For the scripts as they are put together: what one algorithm does not use of what all get is no
-- mistake.
std = "lua51"
max_line_length = 100
read_globals = { "redis", "struct", "KEYS", "ARGV" }
ignore = { "211/call", "211/pcall", "211/pack", "211/unpack_from", "211/format", "211/floor",
           "211/ceil", "211/max", "21./param", "212/now", "2../server_now", "[23]../detail" }

-- The files of lua/ are parts of one script: what one defines, another uses.
std = "lua51"
max_line_length = 100
read_globals = { "redis", "struct", "KEYS", "ARGV" }

package Ratelimit::NextVersion;

# Builds the module as a next version of it could be, so that nodes of two versions can be in one fleet: the present
# sources with the changes below. Only the changed files are compiled, with the commands by which ./build.sh compiles
# them; everything else is linked as it was built.

use strict;
use warnings;

use Carp qw(croak);
use File::Basename qw(basename dirname);
use File::Path qw(make_path remove_tree);

use Ratelimit::Build qw(top build_folder built);
use Ratelimit::Process qw(read_file write_file);

use Exporter 'import';
our @EXPORT_OK = qw(build_next_version);

# Members of a later version, of every kind of JSON value. Those that have names which this version knows are at
# another depth than there.
my $later = '"later":{"name":"not this","passed":9,"refused":9,"rate":"1r/d","block":true,'
    . '"deep":[[[[[[[[{"zones":[{"name":"not this"}]}]]]]]]]]}';
my $first = '"0 array":[1,"2",null,[],{}],"0 flag":true,"0 null":null';
my $last  = '"~ number":-1.5e300,"~ text":"\u20ac \u0000"';

# The changes of each file: pairs of a text and what stands there in the next version. Each text must stand exactly
# once in the present file.
my %changes = (
    # The report of a node: another version, further members before and after the known ones, everywhere, and another
    # state of a server.
    'src/limit/json_text.h' => [
        'JsonText& null(std::string_view name);', 'JsonText& null(std::string_view name);
            void raw(std::string_view members) { begin_value({}); text_ += members; }',
    ],
    'src/fleet/node_report.cpp' => [
        "const Object& object)\n{\n    each_member(", qq[const Object& object)\n{\n    json.raw(R"($first,$later)"); each_member(],
        '{ write(json, name, value); });', qq[{ write(json, name, value); }); json.raw(R"($last)");],
        'std::string_view(text).substr(0, most_text)',
        'name == "version" ? "99." + text : name == "state" && text == "up" ? "draining" : text.substr(0, most_text)',
    ],

    # Overrides: further members, and a new kind, {"slow":true}, which allows one request a day.
    'src/fleet/override_text.cpp' => [
        'std::string text = "{";', qq[std::string text = R"({$first,)";],
        'text += ",\"by\":"', qq[text += R"(,$later,$last)"; text += ",\\"by\\":"],
        'text += "\"rate\":" + json_string(change.rate_text);',
        'text += change.rate_text == "slow" ? "\"slow\":true" : "\"rate\":" + json_string(change.rate_text);',
        'name == "rate" || name == "concurrency"', 'name == "slow" || name == "rate" || name == "concurrency"',
        '    if (name == "concurrency") {', '    if (name == "slow") {
                change.value.kind = Kind::rate;
                change.value.rate = *parse_rate("1r/d");
                change.rate_text = name;
                return "";
            }
            if (name == "concurrency") {',
        'if (const JsonTree* block', 'if (json.find("slow") != nullptr) {
                set_rate("1r/d", stored.value, stored.rate_text);
            } else if (const JsonTree* block',
    ],

    # The scripts of the fleet: a further number in the reply of a sync, a further field of the state, and beside each
    # override another change, whose id is of a kind that this version does not know.
    'src/fleet/sync_reply.cpp' => ['head = 8;', 'head = 9;'],
    'lua/fleet_sync.lua'       => [
        'sum, 0, cursor,', q[sum, 0, cursor, redis.call('ZCARD', KEYS[6]),],
        q['version', text(version), 'sum', text(sum))], q['version', text(version), 'sum', text(sum), 'later', '{}')],
    ],
    'lua/fleet_change.lua' => [
        q[    redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))], <<'END',
    local group = 'group of ' .. ARGV[2]
    local before = redis.call('ZSCORE', KEYS[3], group)
    if before then
        version = version + 1
        sum = (sum + limit - before) % limit
        redis.call('ZREM', KEYS[3], group)
        redis.call('HDEL', KEYS[4], group)
        redis.call('ZADD', KEYS[6], text(version), group)
    end
    redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))
END
        q[redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text((sum + version) % limit))], <<'END',
local group = 'group of ' .. ARGV[2]
sum = (sum + version) % limit
sum = (sum + limit - (redis.call('ZSCORE', KEYS[3], group) or 0)) % limit
version = version + 1
sum = (sum + version) % limit
redis.call('ZADD', KEYS[3], text(version), group)
redis.call('HSET', KEYS[4], group, '{"members":[{"block":true}]}')
redis.call('HSET', KEYS[7], 'version', text(version), 'sum', text(sum))
END
    ],

    # The scripts that decide: another text, so another digest.
    'lua/sequence.lua' => ['local answers = {}', 'local later, answers = 0, {}'],
    'lua/several.lua'  => ['local answer, server_time = {}, 0', 'local later, answer, server_time = 0, {}, 0'],
);

# Returns the path of the built module. It is built each time, within seconds.
sub build_next_version {
    built('ngx_http_ratelimit_module.so', './build.sh');
    my $folder = build_folder() . '/next_version';
    remove_tree($folder);
    make_path("$folder/ratelimit", "$folder/lua");
    write_file("$folder/lua/" . ($_ =~ s{.*/}{}r), read_file($_)) for glob top() . '/lua/*';
    for my $file (sort keys %changes) {
        make_path(dirname("$folder/$file"));
        write_file("$folder/$file", changed($file));
    }
    run("$folder/embed.log", "sh $folder/lua/embed.sh $folder/lua/*.lua >$folder/ratelimit/lua_scripts.h");
    my $module = "$folder/ngx_http_ratelimit_module.so";
    write_file("$folder/Makefile", makefile($folder, $module, sources()));
    run("$folder/make.log", "make -s -j\$(nproc) -f $folder/Makefile");
    return $module;
}

# The text of a file in the next version.
sub changed {
    my ($file) = @_;
    my $text  = read_file(top() . "/$file");
    my @pairs = @{ $changes{$file} };
    while (my ($present, $next) = splice @pairs, 0, 2) {
        my $count = () = $text =~ /\Q$present\E/g;
        croak "t/lib/Ratelimit/NextVersion.pm changes $file, where this text stands $count times instead of once:\n"
            . "$present\nChange it there as well" if $count != 1;
        $text =~ s/\Q$present\E/$next/;
    }
    return $text;
}

# The sources to compile: those that are changed, and those that use a changed script.
sub sources {
    my $scripts = join '|', map { m{^lua/(.*)\.lua$} ? $1 : () } keys %changes;
    my %sources = map { $_ => 1 } grep { /\.cpp$/ } keys %changes;
    for my $path (glob top() . '/src/*/*.{h,cpp}') {
        $sources{ $path =~ s{^\Q@{[ top() ]}\E/}{}r } = 1 if read_file($path) =~ /\blua::(?:$scripts)\b/;
    }
    return sort keys %sources;
}

# A makefile with the commands of ./build.sh for what includes these sources and for the module. What they make is put
# into the folder, where they also look first for what they include.
sub makefile {
    my ($folder, $module, @sources) = @_;
    my $nginx = $ENV{NGX_SRC} // '/usr/share/nginx/src';
    my $built = build_folder() . '/nginx';
    my $make  = "cd $nginx && make -f $built/Makefile modules";
    croak 'the module is older than its sources: run ./build.sh' if system("$make -q") != 0;
    my $as_new = join ' ', map { '-W ' . top() . "/$_" } @sources;
    my ($rules, $link, $parts, %objects) = ('', '', '');
    for my $command (split /\n/, `$make -n $as_new` =~ s/\\\n\s*/ /gr) {
        $command =~ s/\$/\$\$/g;
        $link = $command if $command =~ / -shared\b/;
        my ($object, $source) = $command =~ m{ -c .* -o (\Q$built\E/addon/\S+) +(\Q$built\E/ratelimit/\S+)$} or next;
        $parts .= read_file($source);
        my $own = $objects{$object} = "$folder/" . basename($source, '.cpp') . '.o';
        $command =~ s{ -c }{ -c -I $folder/src -I $folder/ratelimit };
        $command =~ s{ -o .*}{ -O0 -g0 -w -o $own $source};    # compiles in half of the time
        $rules .= "$own:\n\tcd $nginx && $command\n";
    }
    my @left = grep { my $include = s{^src/}{#include "}r; $parts !~ /^\Q$include\E"$/m } @sources;
    croak "./build.sh's makefile does not compile @left, or does not link" if @left || !$link;
    $link =~ s{(?<= )(\S+)(?= |$)}{ $1 =~ m{^\Q$built\E/ngx_\w+\.so$} ? $module : $objects{$1} // $1 }ge;
    return "$module: @{[ sort values %objects ]}\n\tcd $nginx && $link -O0 -g0\n$rules";
}

# Runs a shell command. Dies with the end of its output if it fails.
sub run {
    my ($log, $command) = @_;
    croak "the next version was not built by: $command\n" . substr read_file($log), -3000
        if system("{ $command; } >$log 2>&1") != 0;
    return;
}

1;

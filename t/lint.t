# Style and likely mistakes: clang-format, clang-tidy, cppcheck, luacheck over the scripts as they are put
# together, perl -c, bash -n.

use Ratelimit::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp ();

my $top = abs_path(dirname(__FILE__) . '/..');
chdir $top or die "$top: $!";
my $build = $ENV{RATELIMIT_BUILD} // "$top/build";

# A command's output, and whether it succeeded.
sub run {
    my ($command) = @_;
    my $output = qx($command 2>&1);
    return ($? == 0, $output);
}

sub passes {
    my ($command, $what) = @_;
    my ($good, $output) = run($command);
    ok $good, $what or diag $output;
    return;
}

sub files { return map { glob } @_ }

my @cpp = files(qw(src/*/*.cpp src/*/*.h src/*/*/*.cpp src/*/*/*.h t/unit/*.cpp t/unit/*.h
    t/fuzz/*.cpp t/fuzz/*.h t/bench/*.cpp));
cmp_ok scalar(@cpp), '>', 50, 'the C++ files are found';
passes("clang-format --dry-run -Werror @cpp", 'clang-format');

for my $file (files(qw(t/*.t t/bench/*.pl t/bench/Bench/*.pm t/lib/Ratelimit/*.pm))) {
    my (undef, $output) = run("perl -It/lib -It/bench -wc $file");
    is $output, "$file syntax OK\n", "perl -c $file, without a warning";
}
passes("bash -n $_", "bash -n $_")
    for files(qw(build.sh t/*.sh t/*/*.sh .ci/*.sh .ci/run packaging/*.sh packaging/*/*.sh
        lua/*.sh));

subtest 'luacheck on every script as Redis gets it' => sub {
    my $folder = File::Temp->newdir;
    my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log
        sliding_window_buckets token_bucket leaky_bucket gcra);
    passes("sh lua/embed.sh lua/*.lua > $folder/lua_scripts.h && g++ -std=c++20 -Isrc -I$folder"
            . " t/bench/print_script.cpp src/check/script_text.cpp src/limit/policy.cpp"
            . " -o $folder/print_script", 'the scripts can be printed');
    for my $set (@algorithms, "@algorithms", 'give_back') {
        my $name = $set =~ tr/ /-/r;
        passes("$folder/print_script $set > $folder/$name.lua", $name);
        passes("luacheck --no-color --config .luacheckrc $folder/$name.lua", "luacheck $name");
    }
};

passes("luacheck --no-color --no-config --std ngx_lua --globals init request done -- t/bench/*.lua",
    'luacheck on what the benchmark runs in nginx and wrk');

# clang-tidy is slow: one process for each processor.
subtest 'clang-tidy' => sub {
    my $nginx = $ENV{NGX_SRC} // '/usr/share/nginx/src';
    my $hiredis = -d "$top/build/hiredis" ? "-isystem $top/build/hiredis/include" : '';
    my $flags = "-std=c++20 -Isrc -I$build/nginx -I$build/nginx/ratelimit $hiredis "
        . join ' ', map { "-isystem $nginx/src/$_" }
        qw(core event event/modules os/unix http http/modules http/v2);
    my ($good, $output) = run("printf '%s\\n' src/*/*.cpp src/*/*/*.cpp | xargs -P 2 -n 4 nice -n 19 sh -c "
            . "'clang-tidy --quiet \"\$@\" -- $flags 2>/dev/null' tidy");
    ok $good, 'no warning' or diag $output;
    ($good) = run("echo 'int BadName() { int *p = 0; return *p; }' > $build/bad.cpp;"
            . "clang-tidy --quiet --config-file=.clang-tidy $build/bad.cpp -- -std=c++20");
    ok !$good, 'and it would notice one';
};

passes('cppcheck --quiet --enable=warning,performance,portability --std=c++20 --language=c++'
        . ' --suppressions-list=.cppcheck --error-exitcode=1 -I src src', 'cppcheck');

finish();

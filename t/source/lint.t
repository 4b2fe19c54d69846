# Style and likely mistakes: clang-format, clang-tidy, cppcheck, luacheck over the assembled scripts,
# perl -c, shellcheck.
# needs: clang-format clang-tidy cppcheck lua-check shellcheck zlib1g-dev libpcre2-dev libcli11-dev nlohmann-json3-dev

use Ratelimit::Test;
use File::Temp ();
use Ratelimit::Build qw(top build_folder);

my $top = top();
chdir $top or die "$top: $!";
my $build = build_folder();

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

# The files below these folders with these extensions.
sub files {
    my ($ending, @folders) = @_;
    my @found = split /\n/, qx(find @folders -name node_modules -prune -o -type f -print);
    return sort grep { /\.(?:$ending)$/ } @found;
}

my @cpp = files('cpp|h', qw(src t));
cmp_ok scalar(@cpp), '>', 50, 'the C++ files are found';
passes("clang-format --dry-run -Werror @cpp", 'clang-format; ./build.sh format applies it');

for my $file (files('t|pl|pm', 't')) {
    my (undef, $output) = run("perl -It/lib -It/bench -It/chaos -wc $file");
    is $output, "$file syntax OK\n", "perl -c $file, without a warning";
}

my @scripts = ('build.sh', '.ci/run', 'packaging/nginx.org/prebuild', files('sh', qw(.ci lua packaging src t)));
cmp_ok scalar(@scripts), '>', 10, 'the shell scripts are found';
passes("shellcheck @scripts", 'shellcheck');

subtest 'luacheck on every script as it is sent to Redis' => sub {
    my $folder = File::Temp->newdir;
    my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log
        sliding_window_buckets token_bucket leaky_bucket gcra);
    passes("sh lua/embed.sh lua/*.lua > $folder/lua_scripts.h && g++ -std=c++20 -Isrc -I$folder"
            . " t/bench/print_script.cpp src/check/script_text.cpp src/limit/policy.cpp"
            . " -o $folder/print_script", 'the scripts can be printed');
    for my $set (@algorithms, "@algorithms", qw(refund acquire), map { "$_+block" } @algorithms) {
        my $name = $set =~ tr/ /-/r;
        passes("$folder/print_script $set > $folder/$name.lua", $name);
        passes("luacheck --no-color --config .luacheckrc $folder/$name.lua", "luacheck $name");
    }
    passes('luacheck --no-color --config .luacheckrc lua/fleet_*.lua', 'the scripts of a fleet');
};

passes("luacheck --no-color --no-config --std ngx_lua --globals init request done delay -- t/bench/*.lua",
    'luacheck on the benchmark\'s scripts for nginx and wrk');
# clang-tidy is slow: one process for each processor.
subtest 'clang-tidy' => sub {
    my ($good, $output) = run("find src -name '*.cpp' | xargs -P 2 -n 4 nice -n 19"
            . " clang-tidy --quiet -p $build 2>/dev/null");
    ok $good, 'no warning' or diag $output;
    ($good) = run("echo 'int BadName() { int *p = 0; return *p; }' > $build/bad.cpp;"
            . "clang-tidy --quiet --config-file=.clang-tidy $build/bad.cpp -- -std=c++20");
    ok !$good, 'clang-tidy reports a bad file';
};

passes('cppcheck --quiet --enable=warning,performance,portability --std=c++20 --language=c++'
        . ' --suppressions-list=.cppcheck --error-exitcode=1 -I src src', 'cppcheck');

finish();

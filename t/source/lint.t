# Style and likely mistakes: clang-format, clang-tidy, cppcheck, luacheck over the assembled scripts,
# perl -c, shellcheck.
# needs: clang-format clang-tidy cppcheck lua-check shellcheck cmake zlib1g-dev libpcre2-dev libcli11-dev nlohmann-json3-dev

use Ratelimit::Test;
use File::Basename qw(dirname);
use File::Temp ();
use Ratelimit::Build qw(top build_folder built);

my $top = top();
chdir $top or die "$top: $!";
my $build = build_folder();
chomp(my $processors = qx(nproc));

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

# One process of luacheck for all of them: they are many, and it starts slowly.
subtest 'luacheck on every script as it is sent to Redis' => sub {
    my $printer = built('unit/print_script', './build.sh lint');
    my $folder = File::Temp->newdir;
    my @algorithms = qw(fixed_window sliding_window_counter sliding_window_log
        sliding_window_buckets token_bucket leaky_bucket gcra);
    my @sets = (@algorithms, 'concurrency', "@algorithms concurrency");
    for my $script (@sets, (map { "$_+block" } @algorithms), (map { ("several $_", "peek $_") } @sets),
        (map { "charge $_" } @algorithms), qw(refund statement block)) {
        my $file = "$folder/" . ($script =~ tr/ /-/r) . '.lua';
        passes("$printer $script > $file", "$script is printed");
    }
    passes("luacheck --no-color --config .luacheckrc $folder/[!cr]*.lua $folder/co*.lua $folder/refund.lua", 'luacheck');
    # A charge sets `granted` whatever was decided, and another `retry` than what the commit answers.
    passes("luacheck --no-color --config .luacheckrc --ignore 311/granted 311/retry"
            . " -- $folder/charge-*.lua", 'luacheck of what counts in any case');
    passes('luacheck --no-color --config .luacheckrc lua/fleet_*.lua', 'the scripts of a fleet');
};

passes("luacheck --no-color --no-config --std ngx_lua --globals init request done delay -- t/bench/*.lua",
    'luacheck on the benchmark\'s scripts for nginx and wrk');
# Beside clang-tidy, whose last folders leave a processor idle.
open my $cppcheck, '-|', "nice -n 19 cppcheck -j $processors"
    . ' --quiet --enable=warning,performance,portability --std=c++20 --language=c++'
    . ' --suppressions-list=.cppcheck --error-exitcode=1 -I src src 2>&1'
    or die "cppcheck: $!";
# clang-tidy reads the sources of some rooms as one file, since it takes longer for the headers than for a source: at
# most one process for each processor, beside other tests.
subtest 'clang-tidy' => sub {
    my ($flags) = read_file("$build/compile_commands.json") =~ /"command": "\S+ (.*?) -o /;
    my $folder = File::Temp->newdir;
    my (%sources, %starts);
    my %together = ((map { $_ => 'outer' } qw(src base nginx zone node conf)), map { $_ => 'inner' } qw(limit store check redis));
    for my $file (files('cpp', 'src')) {
        my $room = (split m{/}, dirname($file))[1] // 'src';
        push @{ $sources{ $together{$room} // $room } }, $file;
    }
    for my $name (keys %sources) {
        my $text = '';
        for my $file (@{ $sources{$name} }) {
            push @{ $starts{$name} }, [$text =~ tr/\n//, $file];
            $text .= read_file($file);
        }
        write_file("$folder/$name.cpp", $text);
    }
    # By default the analyzer looks through short calls only, and takes 10 000 steps for a function. Of 150 null pointers
    # that were put at the ends of functions (commit d514755f) it found 135 in this mode, the same as with 75 000 steps,
    # which take 1.7 times the time. With all calls it finds fewer. `.ci/run clang` follows all calls. It also has the
    # check of parameters that are copied for nothing, which takes half of the other time where nlohmann's or CLI11's
    # header is included; of such parameters, cppcheck finds texts and containers only.
    my ($depth, $checks)
        = $ENV{RATELIMIT_ALONE} ? ('max-nodes=225000', '')
        : ('mode=shallow,max-nodes=10000', '-performance-unnecessary-value-param');
    my $tidy = "clang-tidy --quiet --config-file=.clang-tidy --checks=$checks"
        . join('', map { " --extra-arg=-Xclang --extra-arg=$_" } '-analyzer-config', $depth);
    my @largest_first = sort { -s $b <=> -s $a } glob "$folder/*.cpp";
    my ($good, $output) = run("echo @largest_first | xargs -P $processors -n 1 sh -c"
            . " 'nice -n 19 $tidy \"\$0\" -- $flags 2>/dev/null'");
    my $place = sub {
        my ($name, $line) = @_;
        my ($start, $file) = @{ (grep { $_->[0] < $line } @{ $starts{$name} })[-1] };
        return "$file:" . ($line - $start);
    };
    ok $good, 'no warning' or diag $output =~ s{\Q$folder\E/([\w-]+)\.cpp:(\d+)}{$place->($1, $2)}ger;

    write_file("$folder/bad.cpp", "int BadName() { int *p = 0; return *p; }\n");
    ($good) = run("$tidy $folder/bad.cpp -- -std=c++20");
    ok !$good, 'clang-tidy reports a bad file';
};

my $found = do { local $/; <$cppcheck> };
ok close($cppcheck), 'cppcheck' or diag $found;

finish();

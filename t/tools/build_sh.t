# build.sh and prove, as a contributor uses them.

use Ratelimit::Test;
use JSON::PP qw(decode_json);
use Ratelimit::Build qw(top build_folder without_apt);
use Ratelimit::Process qw(temp_folder);

my $top = top();
my $folder = temp_folder();
delete @ENV{qw(RATELIMIT_MODULE RATELIMIT_HIREDIS HARNESS_ACTIVE HARNESS_VERSION)};

my $passing = write_file("$folder/passing.t", <<'END');
use Ratelimit::Test;
is nginx()->status('/'), 200, 'nginx serves';
finish();
END

# Runs a command at the top of the sources; its exit status and output.
sub run {
    my ($command, %environment) = @_;
    local @ENV{keys %environment} = values %environment;
    my $output = qx(cd '$top' && $command 2>&1);
    return ($?, $output);
}

sub stand_in { return Ratelimit::Build::stand_in("$folder/bin", @_) }

local $ENV{PATH} = without_apt("$folder/apt");    # unless a subtest says which packages it knows

subtest 'prove runs a test with the module that build.sh built' => sub {
    my ($status, $output) = run("prove $passing");
    is $status, 0, 'no option or variable is needed' or diag $output;

    mkdir "$folder/empty";
    ($status, $output) = run("prove $passing", BUILD_DIR => "$folder/empty");
    isnt $status, 0, 'with an empty BUILD_DIR it fails';
    like $output, qr{^\Q$folder\E/empty/ngx_http_ratelimit_module\.so is not built yet: run \./build\.sh$}m,
        'and names the command that builds the module';
    ($status, $output) = run('prove t/unit/unit.t', BUILD_DIR => "$folder/empty");
    like $output, qr{^\Q$folder\E/empty/unit is not built yet: run \./build\.sh test t/unit/unit\.t$}m,
        'also for the unit tests';
};

subtest 'a test that waits for midnight says so' => sub {
    my (undef, $output) = run("$^X -It/lib -e '"
            . 'BEGIN { *CORE::GLOBAL::time = sub () { 86_400 * 20_000 - $ENV{LEFT} };'
            . ' *CORE::GLOBAL::sleep = sub { print "slept $_[0]\n" } }'
            . "use Ratelimit::Test; done_testing(1) if ok 1'", LEFT => 239);
    like $output, qr/^# waiting 239 seconds for midnight UTC/m, 'it says so before it waits';
    like $output, qr/^slept 240$/m, 'it waits until midnight';
};

subtest 'a test installs its own packages, not those of all tests' => sub {
    my %packages = read_file("$top/packaging/packages") =~ /^([\w-]+): (.*)/mg;
    my %installed = map { $_ => 1 } 'libhiredis-dev', map { split } @packages{qw(module nginx test)};
    my $path = stand_in('dpkg-query', 'for name; do case " ' . join(' ', sort keys %installed)
            . ' " in *" $name "*) echo "$name install ok installed" ;; esac; done');
    my $failed = sub {
        my ($status, $output) = run("./build.sh --no-install $_[0]", PATH => $path);
        return $status ? $output : 'no failure';
    };
    is $failed->('test t/redis/dns.t'), "build.sh: not installed: dnsmasq-base\n", 'for one test';
    is $failed->('test t/redis/dns.t t/redis/headers.t'), "build.sh: not installed: curl dnsmasq-base\n", 'for two tests';
    unlike $failed->('test'), qr/clang-tidy/, 'all tests need no package of lint';
    like $failed->('test'), qr/cmake .*prometheus/, 'but the packages of each test';
    like $failed->('test'), qr/libcli11-dev/, 'and those of ratelimit-rehearse';
    like $failed->('lint'), qr/clang-tidy .*shellcheck/, 'lint installs its own';
    stand_in('dpkg-query', 'exit 1');
    for my $tests ('', ' t/rehearse/logs.t t/operators/monitoring.t') {
        my ($list) = $failed->("test$tests") =~ /\A(?:Building and running all tests: .*\n)?build\.sh: not installed: (.*)\n\z/;
        my %listed = map { $_ => 1 } split ' ', $list // '';
        is_deeply [grep { !$listed{$_} } qw(nginx nginx-dev pkg-config libssl-dev redis-server libcli11-dev prometheus)],
            [], "one list has all that is needed: test$tests";
    }
};

subtest 'a benchmark installs what its programs are built with' => sub {
    my $path = stand_in('dpkg-query', 'exit 1');
    for my $part (qw(scripts load growth fleet long_logs)) {
        my (undef, $output) = run("./build.sh --no-install bench $part", PATH => $path);
        like $output, qr/^build\.sh: not installed: .*\bcmake\b/m, $part;
    }
    for my $part (qw(steps ring pages region)) {
        my (undef, $output) = run("./build.sh --no-install bench $part", PATH => $path);
        unlike $output, qr/\bcmake\b/, "$part has none";
    }
    my (undef, $output) = run('./build.sh --no-install bench steps nope', PATH => $path);
    is $output, "build.sh: the benchmark has no part nope\n", 'a part that is not there is named at once';
    unlink glob "$folder/bin/*";
};

subtest 'build.sh test says at once that a test is not there' => sub {
    my $path = stand_in('dpkg-query', 'exit 1');
    for my $test (qw(t/nope.t t/nope t/redis/nope.t)) {
        my ($status, $output) = run("./build.sh --no-install test t/redis/cache.t $test", PATH => $path);
        isnt $status, 0;
        is $output, "build.sh: there is no test $test\n", "$test, before it looks for packages";
    }
    my ($status, $output) = run('./build.sh --no-install test t/lib', PATH => $path);
    isnt $status, 0;
    is $output, "build.sh: there is no test in t/lib\n", 'nor in a folder';
    unlink glob "$folder/bin/*";
};

subtest 'prove says how many files have ended' => sub {
    my @files = map { write_file("$folder/many_$_.t", "print qq(1..1\\nok 1\\n);\n") } 1 .. 12;
    my ($status, $output) = run("$^X -It/lib \$(command -v prove) -PRatelimit::Progress -j2 @files");
    is $status, 0 or diag $output;
    like $output, qr/^# 10 of 12 files$/m, 'after every tenth';
};

subtest 'every command uses the hiredis of the system where it is 1.1 or later' => sub {
    stand_in('pkg-config', 'exit 1');    # none is installed
    stand_in('dpkg-query', 'printf "%s install ok installed\n" "$@" | grep -v libhiredis-dev');
    my $offers = sub { return stand_in('apt-cache', "echo 'Version: $_[0]'") };
    for my $command ('build', 'install', 'demo', 'test t/redis/cache.t', 'sanitize', 'chaos', 'fuzz', 'deb') {
        my ($status, $output) = run("./build.sh --no-install $command", PATH => $offers->('1.2.0-6'), NGX_SRC => '');
        is $output, "build.sh: not installed: libhiredis-dev\n", "$command installs a newer one";
    }
    stand_in('sh', 'echo "fetches with $1"; exit 1');
    my (undef, $output) = run('./build.sh --no-install build', PATH => $offers->('0.14.1-3'), NGX_SRC => '');
    is $output, "fetches with $top/.ci/hiredis.sh\n", 'in place of an older one the pinned one is built';
    unlink "$folder/bin/sh";
};

subtest 'on a new system, whose apt knows no package before its first update, hiredis comes after it' => sub {
    stand_in('pkg-config', 'exit 1');    # no hiredis is installed
    stand_in('dpkg-query', "[ -e $folder/updated ] && printf '%s install ok installed\\n' \"\$@\" | grep -v libhiredis-dev");
    stand_in('apt-cache',  "[ -e $folder/updated ] && echo 'Version: 1.2.0-6'");
    stand_in('env',        "[ ! -e $folder/updated ] && touch $folder/updated");    # runs apt-get
    my ($status, $output) = run('./build.sh build </dev/null', PATH => stand_in('sh', 'exit 1'), NGX_SRC => '');
    isnt $status, 0, 'the second installation fails';
    is_deeply [$output =~ /^Installing .*? new machine: (\S+)/mg], ['gcc', 'libhiredis-dev'] or diag $output;
    unlink "$folder/updated", glob "$folder/bin/*";
};

subtest 'build.sh says how many packages it installs, and asks a person' => sub {
    stand_in('dpkg-query', 'exit 1');
    stand_in('apt-get', 'case " $* " in *" -s "*) seq -f "Inst p%g" 40 ;; *) exit 1 ;; esac');
    my %there = (PATH => stand_in('env', "echo >>$folder/installs; exit 1"));    # runs apt-get
    my $says = 'Installing 40 packages with apt-get, some minutes on a new machine: gcc g++';
    my ($status, $output) = run('./build.sh demo </dev/null', %there, NGX_SRC => '');
    isnt $status, 0;
    like $output, qr/^\Q$says\E .* nginx-dev .*redis-server curl$/m, 'how many, for the module and the demonstration at once';
    (undef, $output) = run('./build.sh build </dev/null', %there, NGX_SRC => '');
    like $output, qr/^\Q$says\E .* nginx-dev .*libcli11-dev$/m, 'and for the module and ratelimit-rehearse';
    my ($names) = $output =~ /machine: (.*)/;
    is_deeply [grep { $names =~ /\b\Q$_\E .*\b\Q$_\E\b/ } qw(make pkg-config libssl-dev)], [], 'each once';
    ok -e "$folder/installs", 'without a terminal it does not ask';
    unlink "$folder/installs";
    delete local $ENV{CI};
    ($status, $output) = run("echo n | script -qec './build.sh demo' /dev/null", %there, NGX_SRC => '');
    like $output, qr/\Q$says\E.*Continue\? \[Y\/n\].*nothing was installed/s, 'at a terminal it does';
    ok !-e "$folder/installs", 'and heeds the answer';
    unlink glob "$folder/bin/*";
};

subtest 'the two commands of README.md say first how long they take with the processors here' => sub {
    stand_in('dpkg-query', 'exit 1');
    stand_in('env', 'exit 1');    # runs apt-get
    for (
        [1, '3 minutes with 1 processor',  '18 minutes with 1 processor'],
        [2, '2 minutes with 2 processors', '10 minutes with 2 processors'],
        [8, '2 minutes with 8 processors', '4 minutes with 8 processors'],
    ) {
        my ($processors, $demo, $test) = @{$_};
        my %here = (PATH => stand_in('nproc', "echo $processors"), BUILD_DIR => "$folder/new");
        my (undef, $output) = run('./build.sh demo', %here);
        like $output, qr/\ABuilding and showing the demonstration: about $demo\nInstalling /, 'the demonstration';
        (undef, $output) = run('./build.sh test', %here);
        like $output, qr/\ABuilding and running all tests: about $test\nInstalling /, 'the tests';
    }
    unlink glob "$folder/bin/*";
};

subtest 'build.sh deb says what it builds before it does' => sub {
    stand_in('dpkg-query', 'printf "%s install ok installed\n" "$@"');
    stand_in('pkg-config', 'exit 0');
    stand_in('nproc', 'echo 2');
    my $path = stand_in('dpkg-buildpackage', 'echo the compiler stopped; exit 1');
    my ($status, $output) = run('./build.sh deb', PATH => $path, BUILD_DIR => "$folder/build", RATELIMIT_HIREDIS => '');
    isnt $status, 0;
    is $output, "Building the package, with the module and ratelimit-rehearse: about 3 minutes with 2 processors\n"
        . "the compiler stopped\nbuild.sh deb: the package could not be made, see $folder/build/deb/log\n",
        'and shows the end of the log if it fails';
    unlink glob "$folder/bin/*";
};

subtest 'build.sh test runs every test but lint and those that --except names' => sub {
    # Only the function: two builds in parallel, by this test and another one, would disturb each other.
    write_file("$folder/list.sh", <<'END');
eval "$(cat build.sh t/run.sh | sed -n '/^nginx_tests=/p; /^test_folders=/p; /^tests_in()/,/^}/p')"
tests_in "$@"
END
    my @there = map { s{^\Q$top\E/}{}r } glob "$top/t/*/*.t";
    my (undef, $all) = run("bash $folder/list.sh ''");
    is_deeply [sort split /\n/, $all], [grep { !m{^t/source/} } @there], 'each once';
    my (undef, $most) = run("bash $folder/list.sh 'unit|dns'");
    is_deeply [sort split /\n/, $most], [grep { !m{^t/source/|/(?:unit|dns)\.t$} } @there], 'without the excepted ones';
    my (undef, $some) = run("bash $folder/list.sh dns t/redis/ t/node");
    is_deeply [sort split /\n/, $some], [grep { m{^t/(?:redis|node)/} && !m{/dns\.t$} } @there], 'of two folders, without the excepted one';
};

subtest 't/README.md lists every test' => sub {
    my @there  = map { m{/t/(.*)$} } glob "$top/t/*/*.t";
    my @listed = read_file("$top/t/README.md") =~ m{^\| (\w+/\w+\.t) \|}mg;
    is_deeply [sort @listed], [sort @there];
};

subtest 'every C++ source is in compile_commands.json' => sub {
    my $commands = decode_json(read_file(build_folder() . '/compile_commands.json'));
    my %known = map { $_->{file} => $_->{command} } @{$commands};
    my @sources = split /\n/, qx(find '$top/src' '$top/t' -name node_modules -prune -o -name '*.cpp' -print);
    cmp_ok scalar(@sources), '>', 100, 'sources are found';
    is_deeply [grep { !$known{$_} } @sources], [], 'no source is missing';
    is scalar(@{$commands}), scalar(@sources), 'each is there once';
    unlike join(' ', map { $_->{command} } @{$commands}), qr/cmake_pch|unity/, 'and is compiled by itself';
    my @folders = $known{ $sources[0] } =~ m{ -(?:I|isystem )(/\S+)}g;
    cmp_ok scalar(@folders), '>', 5, 'the header folders are named';
    is_deeply [grep { !-e } @folders], [], 'and exist';
};

subtest 'build.sh help names every command' => sub {
    my (undef, $help) = run('./build.sh help');
    my ($cases) = read_file("$top/build.sh") =~ /^    case \$command in\n(.*?)^    esac/ms;
    my @commands = grep { !/^(?:build|help)$/ } $cases =~ /^    ([a-z0-9-]+)\)/mg;
    cmp_ok scalar(@commands), '>', 10, 'commands are found';
    is_deeply [grep { $help !~ /^  $_\b/m } @commands], [];
};

finish();

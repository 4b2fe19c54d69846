# The GoogleTest binary of t/unit, each of its tests as one test here; and the seeds of t/fuzz.
# needs: python3 tzdata cmake libevent-dev libgtest-dev libgmock-dev zlib1g-dev libpcre2-dev nlohmann-json3-dev

use Ratelimit::Test;
use Ratelimit::Build qw(top built);

my $folder = built('unit', './build.sh test t/unit/unit.t');

# A loop without an end is a failure of one test, not of the whole run.
open my $output, '-|', "timeout 1500 $folder/unit --gtest_color=no 2>&1" or die "unit: $!";
my (@since, $tests);
while (my $line = <$output>) {
    chomp $line;
    if ($line =~ /^\[\s+(OK|FAILED)\s+\] (\S+\.\S+?),? .*\(\d+ ms\)/) {
        my ($result, $name) = ($1, $2);
        ok($result eq 'OK', $name) or diag join "\n", @since;
        @since = ();
        $tests++;
        next;
    }
    push @since, $line unless $line =~ /^\[ RUN/;
}
close $output;
my $exit = $?;
is $exit, 0, 'the binary exits without an error' or diag join "\n", @since;
cmp_ok $tests // 0, '>', (exists $ENV{GTEST_FILTER} ? 0 : 40), 'the tests ran';
delete $ENV{GTEST_FILTER};

my $suppressions = top() . '/t/unit/threads/suppressions';
my $report = qx(TSAN_OPTIONS="suppressions=$suppressions" timeout 300 "$folder/threads" --gtest_color=no 2>&1);
is $?, 0, 'workers that share memory read and write it in order (ThreadSanitizer)' or diag $report;
like $report, qr/PASSED.* 4 tests/, 'all of these tests ran';

my $fuzz = top() . '/t/fuzz';
my @targets = map { m{(\w+)\.cpp$} } grep { !/replay/ } glob "$fuzz/*.cpp";
cmp_ok scalar(@targets), '>=', 5, 'targets of t/fuzz are found';
for my $target (@targets) {
    my $output = qx("$folder/fuzz_$target" "$fuzz/seeds/$target" 2>&1);
    is $?, 0, "the seeds of t/fuzz/$target.cpp are accepted" or diag $output;
}
my ($head) = read_file(top() . '/src/fleet/sync_reply.cpp') =~ /head = (\d+);/;
for my $seed (glob "$fuzz/seeds/overrides/reply*") {
    my ($numbers) = read_file($seed) =~ /\A\*\d+\r\n((?::\d+\r\n)*)/;
    cmp_ok scalar(() = $numbers =~ /:/g), '>=', $head, "$seed begins as a reply of lua/fleet_sync.lua does";
}

finish();

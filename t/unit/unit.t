# The GoogleTest binary of t/unit, each of its tests one of ours; and what t/fuzz begins with.
# needs: cmake libevent-dev libgtest-dev libgmock-dev lua5.4

use Ratelimit::Test;
use Ratelimit::Build qw(top built);

my $folder = built('unit', './build.sh test t/unit/unit.t');

open my $output, '-|', "$folder/unit --gtest_color=no 2>&1" or die "unit: $!";
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
is $?, 0, 'and pass as a whole' or diag join "\n", @since;
cmp_ok $tests // 0, '>', 40, 'all of them ran';

my $fuzz = top() . '/t/fuzz';
my @targets = map { m{(\w+)\.cpp$} } grep { !/replay/ } glob "$fuzz/*.cpp";
cmp_ok scalar(@targets), '>=', 5, 'the targets of t/fuzz are found';
for my $target (@targets) {
    my $said = qx("$folder/fuzz_$target" "$fuzz/seeds/$target" 2>&1);
    is $?, 0, "the seeds of t/fuzz/$target.cpp are read as they should" or diag $said;
}

finish();

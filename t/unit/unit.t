# The GoogleTest binary of t/unit, each of its tests as one test here; and the seeds of t/fuzz.
# needs: python3 tzdata cmake libevent-dev libgtest-dev libgmock-dev zlib1g-dev libpcre2-dev nlohmann-json3-dev

use Ratelimit::Test;
use IO::Select;
use List::Util qw(max min);
use Time::HiRes qw(time);
use Ratelimit::Build qw(top built);

my $folder = built('unit', './build.sh test t/unit/unit.t');

# The names of all tests, or of those of GTEST_FILTER. The random traces come first: they are the longest.
sub names {
    my ($suite, @names);
    for (split /\n/, qx("$folder/unit" --gtest_list_tests)) {
        if    (/^(\S+\.)/)                       { $suite = $1 }
        elsif (/^  (\S+)/ && defined $suite) { push @names, "$suite$1" }
    }
    return ((grep { /Trace|Large|Million/ } @names), (grep { !/Trace|Large|Million/ } @names));
}

my @waiting = names();
cmp_ok scalar(@waiting), '>', (exists $ENV{GTEST_FILTER} ? 0 : 40), 'there are tests';
delete @ENV{qw(GTEST_FILTER ASAN_OPTIONS)};    # the latter are those of nginx
my %todo = map { $_ => 1 } @waiting;


# Most tests wait for timers, so there are more processes than processors. Each takes some tests, and fewer towards the
# end. A test that ends its process, or does not end for so many seconds, fails, and others take the rest.
chomp(my $processors = qx(nproc));
my $slots   = 3 * $processors;
my $silence = 600;
my (%running, @odd_exits);
my $select = IO::Select->new;

sub start {
    my $count = max(1, min(12, int(@waiting / (3 * $slots))));
    my @names = splice @waiting, 0, $count;
    my $pid = open my $output, '-|', join ' ', "exec '$folder/unit' --gtest_color=no",
        "'--gtest_filter=" . join(':', @names) . "' 2>&1"
        or die "unit: $!";
    $select->add($output);
    $running{$output} = { output => $output, pid => $pid, names => \@names, text => '', since => [], heard => time };
    return;
}

# A line of a process: the end of a test, or part of what the next one prints.
sub read_line {
    my ($process, $line) = @_;
    my $known = $line =~ /^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+\.\S+?),? .*\(\d+ ms\)/ && delete $todo{$2};
    if (!$known) {
        push @{ $process->{since} }, $line;
        return;
    }
    my ($result, $name) = ($1, $2);
    ok($result ne 'FAILED', $result eq 'SKIPPED' ? "$name (skipped)" : $name) or diag join "\n", @{ $process->{since} };
    $process->{failed} = 1 if $result eq 'FAILED';
    $process->{since} = [];
    return;
}

sub end_of {
    my ($process, $why) = @_;
    $select->remove($process->{output});
    delete $running{ $process->{output} };
    close $process->{output};
    my $status = $?;
    my @left = grep { $todo{$_} } @{ $process->{names} };
    if (@left) {
        my $name = shift @left;
        delete $todo{$name};
        ok(0, $name) or diag join "\n", $why // "the process ended, status $status", @{ $process->{since} };
        unshift @waiting, @left;
    }
    elsif ($status != 0 && !$process->{failed}) {
        push @odd_exits, join "\n", "status $status after @{ $process->{names} }", @{ $process->{since} };
    }
    return;
}

while (@waiting || %running) {
    start() while @waiting && keys %running < $slots;
    for my $output ($select->can_read(5)) {
        my $process = $running{$output};
        $process->{heard} = time;
        my $read = sysread $output, $process->{text}, 65_536, length $process->{text};
        read_line($process, $1) while $process->{text} =~ s/\A(.*)\n//;
        end_of($process) unless $read;
    }
    for my $process (grep { time - $_->{heard} > $silence } values %running) {
        kill 'KILL', $process->{pid};
        end_of($process, "no end within $silence seconds");
    }
}
is join("\n", @odd_exits), '', 'the binary exits without an error';
is_deeply [sort keys %todo], [], 'all tests ran';

my $suppressions = top() . '/t/unit/threads/suppressions';
SKIP: {
    skip 'the build with sanitizers has no ThreadSanitizer', 2 if $ENV{RATELIMIT_SANITIZED};
    my $report = qx(TSAN_OPTIONS="suppressions=$suppressions" timeout 300 "$folder/threads" --gtest_color=no 2>&1);
    is $?, 0, 'workers that share memory read and write it in order (ThreadSanitizer)' or diag $report;
    like $report, qr/PASSED.* 4 tests/, 'all of these tests ran';
}

my $fuzz = top() . '/t/fuzz';
my @targets = map { m{(\w+)\.cpp$} } grep { !/replay/ } glob "$fuzz/*.cpp";
cmp_ok scalar(@targets), '>=', 5, 'targets of t/fuzz are found';
for my $target (@targets) {
    my $output = qx("$folder/fuzz_$target" "$fuzz/seeds/$target" 2>&1);
    is $?, 0, "the seeds of t/fuzz/$target.cpp are accepted" or diag $output;
}

finish();

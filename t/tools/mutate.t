# t/mutate/run.pl: its list fits the sources. And t/mutate/covers.

use Ratelimit::Test;
use Ratelimit::Build qw(top);

chdir top() or die top() . ": $!";
my $names = qx(t/mutate/run.pl --list);
is $?, 0;
cmp_ok scalar(split /\n/, $names), '>', 10, 'there are slips';
is qx(t/mutate/run.pl --check), '', 'the text of each stands in its file exactly once';
is $?, 0;

subtest 't/mutate/covers prints the tests and slips of a file and of a line' => sub {
    my $file  = 'src/store/held_units.cpp';
    my ($before) = read_file($file) =~ /\A(.*)kill\(slot\.process, 0\)/s;
    my $at    = 1 + ($before =~ tr/\n//);
    my $slip  = qr/^t\/mutate\/slips: units of a worker that was killed are shown as held, noticed by /m;
    my $test  = qr/^t\/unit\/held_units_test\.cpp /m;
    my $whole = qx(t/mutate/covers $file);
    like $whole, $test, 'a test that names it';
    like $whole, $slip, 'a slip';
    my $line = qx(t/mutate/covers $file:$at);
    like $line, $test;
    like $line, $slip, 'the slip of a line';
    unlike qx(t/mutate/covers $file:1), $slip, 'and of no other line';
    like qx(t/mutate/covers src/fleet/session.cpp), qr/^t\/unit\/fleet_session_test\.cpp includes fleet_fixture\.h/m,
        'a test that includes it by a header of t/unit';
    like qx(t/mutate/covers lua/several.lua), qr/^t\/unit\/runs_test\.cpp names several_script/m, 'a script';
};

finish();

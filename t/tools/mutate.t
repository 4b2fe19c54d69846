# t/mutate/run.pl: its list fits the sources.

use Ratelimit::Test;
use Ratelimit::Build qw(top);

chdir top() or die top() . ": $!";
my $names = qx(t/mutate/run.pl --list);
is $?, 0;
cmp_ok scalar(split /\n/, $names), '>', 10, 'there are slips';
is qx(t/mutate/run.pl --check), '', 'the text of each stands in its file exactly once';
is $?, 0;

finish();

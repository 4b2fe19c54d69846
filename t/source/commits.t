# The last hundred commits: a subject is one line that git and its pages show whole, and says nothing of a machine.

use Ratelimit::Test;
use Ratelimit::Build qw(top);

# What a subject must not be or hold.
sub faults {
    my ($subject) = @_;
    return grep { defined } (
        length $subject > 72 ? 'longer than 72 characters' : undef,
        $subject =~ m{(?<![\w.])/(?:work|home|tmp|root|mnt)\b} ? 'a path of a machine' : undef,
        $subject =~ /^Merge (?:branch|commit|remote)\b/ ? 'a merge that does not say what it brings' : undef,
    );
}

is_deeply [faults('x' x 73), faults('Merge /tmp/h/x'), faults("Merge branch 'main'"), faults('Say why t/x.t waits')],
    ['longer than 72 characters', 'a path of a machine', 'a merge that does not say what it brings'], 'faults are found';

my $top = top();
chomp(my @subjects = qx(git -C '$top' log -100 --format=%s 2>/dev/null));
# Sources without a history, as in a package, have no subjects.
is_deeply [grep { faults($_) } @subjects], [], scalar(@subjects) . ' subjects are short and name no machine';

finish();

# The checker of `./build.sh chaos` finds what passes beyond the bound of ahead=: right and wrong models of workers in
# two regions, whose links are cut and healed.

use FindBin ();
use lib "$FindBin::Bin/../chaos";

use Chaos::Fleet qw(all_workers);
use Chaos::Judge qw(judge_requests);
use Chaos::Limits qw(limits);
use List::Util qw(max);
use Ratelimit::Test;

my $way  = 0.03;     # seconds of a message, either way
my $step = 0.005;    # between two requests of a worker, at least
my $cut  = [2, 3.5]; # in this time no message of node 0 arrives

# When a message of a node arrives that is sent at this time.
sub arrives { my ($node, $at) = @_; return $node == 0 && $at > $cut->[0] - $way && $at < $cut->[1] ? $cut->[1] : $at + $way }

# Requests of the one key of zone early for six seconds. The workers of the model pass them ahead, or ask Redis, a
# bucket. wrong: frees (units without an answer count for this long only), unbounded (a worker lets in what the last
# answer left, and reports at intervals of this length).
sub play {
    my (%wrong) = @_;
    my %limit = %{ limits()->{early} };
    my @workers = map { { node => $_ % 2, left => $limit{burst}, of => 0, out => [] } } 1 .. all_workers();
    my (@events, @requests, $id) = ();
    my ($level, $then) = (0, 0);
    my $settle = sub { $level = max(0, $level - $limit{quota} / $limit{window} * ($_[0] - $then)); $then = $_[0] };
    my $later = sub { push @events, [@_]; return };
    for my $at (map { $_ * $step } 400 .. 1600) {
        for my $event (sort { $a->[0] <=> $b->[0] } grep { $_->[0] <= $at } @events) { $event->[1]->($event->[0]) }
        @events = grep { $_->[0] > $at } @events;
        for my $worker (grep { rand() < 0.3 } @workers) {
            my %request = (id => ++$id, node => $worker->{node}, zone => 'early', key => 'a', way => 'stay', http => 200,
                other => 'v1', sent => $at);
            push @requests, \%request;
            my $units = grep { !$wrong{frees} || $_ > $at - $wrong{frees} } @{ $worker->{out} };
            my $answered = sub {
                my ($counted) = @_;
                my $of = max(0, int($limit{burst} - $level));
                $later->(arrives($worker->{node}, $counted), sub {
                    @{$worker}{qw(left of)} = ($of, $counted) if $counted >= $worker->{of};
                });
                return;
            };
            if ($wrong{unbounded} ? $worker->{left} >= 1 : $units + 1 <= $limit{ahead} && $worker->{left} >= $limit{ahead}) {
                @request{qw(status source received)} = ('PASSED', 'ahead', $at + 0.001);
                push @{ $worker->{out} }, $at;
                $worker->{left}-- if $wrong{unbounded};
                my $sent = $wrong{unbounded} ? $wrong{unbounded} * int(1 + $at / $wrong{unbounded}) : $at;
                $later->(arrives($worker->{node}, $sent), sub {
                    my ($counted) = @_;
                    $settle->($counted);
                    $level++;
                    $answered->($counted);
                    $later->(arrives($worker->{node}, $counted), sub { shift @{ $worker->{out} } });
                });
                next;
            }
            $later->(arrives($worker->{node}, $at), sub {
                my ($decided) = @_;
                $settle->($decided);
                my $passes = $level + 1 <= $limit{burst};
                $level += $passes ? 1 : 0;
                @request{qw(status source received)} = ($passes ? 'PASSED' : 'REJECTED', 'redis', arrives($request{node}, $decided));
                $answered->($decided);
            });
        }
    }
    return [grep { defined $_->{status} } @requests];
}

# What the checker says of the bounds, but not how long requests waited.
sub found {
    my ($requests, @faults) = @_;
    return join '; ', grep { /admitted/ } @{ (judge_requests($requests, \@faults, sub { 0 }))[0] };
}

sub in_time { my ($requests) = @_; return scalar grep { $_->{source} eq 'ahead' } @{$requests} }

srand 3;
my $right = play();
is found($right), '', 'the right model keeps to the bound';
cmp_ok in_time($right), '>', 20, 'it lets requests in ahead';
cmp_ok scalar(grep { $_->{status} eq 'REJECTED' } @{$right}), '>', 100, 'and more requests come than the limit has';

for my $wrong (['units are freed without an answer', frees => 0.1], ['workers synchronise once a second', unbounded => 1]) {
    my ($what, %how) = @{$wrong};
    srand 3;
    like found(play(%how)), qr/^key a of zone early: token_bucket admitted/, "a wrong model: $what";
}

# All at once: the bucket, and what each worker may add.
my $most = limits()->{early}{burst} + all_workers() * limits()->{early}{ahead};
my $burst = sub {
    my ($count, %more) = @_;
    return [map { { id => $_, node => 0, zone => 'early', key => 'a', way => 'stay', http => 200, status => 'PASSED',
        source => 'ahead', sent => 5 + $_ / 1e5, received => 5.001 + $_ / 1e5, %more } } 1 .. $count];
};
is found($burst->($most)), '', 'as many as the bound says';
like found($burst->($most + 2)), qr/admitted/, 'two more';
my @link = { name => 'cut link', cuts => 1, from => 4.99, to => 5.01 };
like found($burst->($most + 2), @link), qr/admitted/, 'a link that is cut excuses nothing that passed ahead';
is found($burst->($most + 2, source => 'redis'), @link), '', 'but what waited for Redis, which may have been sent again';
my @kill = { name => 'worker kill', node => 0, from => 4.5, to => 4.5 };
is found([@{ $burst->($most, sent => 4, received => 4.1) }, @{ $burst->($most, sent => 6, received => 6.1) }], @kill), '',
    'before and after a worker is killed';

finish();

package Chaos::Blocks;

# A key that was refused stays refused for the time of block=.

use strict;
use warnings;

use Chaos::Failures qw(is_failure);

use Exporter 'import';
our @EXPORT_OK = qw(judge_blocks);

my $behind = 0.1;    # seconds

# Sentences about requests that passed within a block; at most one for each key. A block begins with the first
# refusal after a request that passed. Of a request only the times of sending and response are known: so a
# block that began after the request P passed, and before the request R was refused, lasts at least from R's
# response until `block` seconds after P was sent. It begins behind the decision, a little later.
# block: seconds. requests: of one zone. gaps: [from, to] in which the begin of a block may be lost or late, Redis lost
# data, or its clock stepped. spared: seconds after a request of a key that the fail mode decided in which the key's
# refusals begin no block: Redis may have counted what no request used.
sub judge_blocks {
    my ($block, $requests, $gaps, $spared) = @_;
    my (%keys, %failed);
    push @{ $failed{ $_->{key} } }, [$_->{sent}, $_->{received} + $spared] for grep { is_failure($_) } @{$requests};
    for my $request (grep { ($_->{source} // '') eq 'redis' } @{$requests}) {
        my $kind = { PASSED => 'passed', REJECTED => 'refused' }->{ $request->{status} } or next;
        push @{ $keys{ $request->{key} }{$kind} }, [@{$request}{qw(sent received)}];
    }
    my @sentences;
    for my $key (sort keys %keys) {
        my ($passed, $refused) = map { _by_answer($keys{$key}{$_} // []) } qw(passed refused);
        for my $pass (sort { $a->[0] <=> $b->[0] } @{ $keys{$key}{passed} // [] }) {
            my $refusal = _latest_before($refused, $pass->[0] - $behind) // next;
            my $before  = _latest_before($passed, $refusal) // next;
            next if $pass->[1] - $before >= $block - 0.002;
            next if grep { $_->[0] <= $pass->[1] && $_->[1] >= $before } @{$gaps}, @{ $failed{$key} // [] };
            push @sentences, sprintf 'key %s: refused at %.3f, and passed at %.3f, within a block of %s s', $key,
                $refusal, $pass->[1], $block;
            last;
        }
    }
    return @sentences;
}

# [time of the response, latest time of sending of all answered until then] of each request, sorted.
sub _by_answer {
    my ($requests) = @_;
    my ($latest, @sorted) = (0);
    for my $request (sort { $a->[1] <=> $b->[1] } @{$requests}) {
        $latest = $request->[0] if $request->[0] > $latest;
        push @sorted, [$request->[1], $latest];
    }
    return \@sorted;
}

# The latest time of sending of the requests that were answered before a time; undef: there is none.
sub _latest_before {
    my ($sorted, $time) = @_;
    my ($low, $high) = (0, scalar @{$sorted});
    while ($low < $high) {
        my $middle = int(($low + $high) / 2);
        if ($sorted->[$middle][0] < $time) { $low = $middle + 1 }
        else                               { $high = $middle }
    }
    return $low ? $sorted->[$low - 1][1] : undef;
}

1;

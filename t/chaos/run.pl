#!/usr/bin/env perl

# Random faults in every topology while nodes decide; every decision is checked.
#
#   run.pl [minutes] [--seed n] [--topology name[,name]] [--fault name[,name]] [--without name[,name]] [--file f]
#       [--keep f] [--verbose]
#   run.pl --sum f
#
# --without leaves out faults, and limits (Chaos::Limits). The minutes (8) are split between the topologies, which take
# turns of at most a minute. --file appends a summary of each run; --sum prints a table of all runs in a file. --keep
# keeps the evidence of each run in a folder.

use strict;
use warnings;

use FindBin ();
use lib $FindBin::Bin, "$FindBin::Bin/../lib";

use Chaos::Faults qw(faults);
use Chaos::Fleet qw(topologies);
use Chaos::Limits qw(leave_out limits);
use Chaos::Report qw(add_to_file summary sum_of_file table);
use Chaos::Run qw(run);
use Getopt::Long qw(GetOptions);
use POSIX qw(ceil);

my $shown   = 20;    # the most violations printed for one run
my $longest = 1;     # minutes of a run: the time of its checks grows with the square of its requests

GetOptions(\my %options, 'seed=i', 'topology=s', 'fault=s', 'without=s', 'file=s', 'sum=s', 'keep=s',
    'verbose')
    or die "see the head of $0\n";
STDOUT->autoflush(1);
if ($options{sum}) {
    print sum_of_file($options{sum});
    exit;
}
my $minutes = shift // 8;
die "minutes must be a number, not $minutes\n" unless $minutes =~ /^\d+(?:\.\d+)?$/ && $minutes > 0;
my $seed = $options{seed} // 1 + time % 1_000_000;
my @topologies = split /,/, $options{topology} // join ',', topologies();
my @only = split /,/, $options{fault} // '';
my %without = map { $_ => 1 } split /,/, $options{without} // '';
my ($unknown) = grep { !faults()->{$_} && !(limits()->{$_} && $without{$_}) } @only, sort keys %without;
die "no fault $unknown; there are " . join(', ', sort keys %{ faults() }) . "\n" if defined $unknown;
@only = grep { !$without{$_} } @only ? @only : sort keys %{ faults() };
leave_out(grep { limits()->{$_} } keys %without);
# A busy disk would stop Redis, which writes its counts to a file before it replies.
$ENV{TMPDIR} //= '/dev/shm' if -w '/dev/shm' && free_megabytes('/dev/shm') > 256;
print "seed $seed\n";

sub free_megabytes {
    my ($folder) = @_;
    my ($line) = grep { m{/} } reverse qx(df -Pm $folder);
    return (split ' ', $line)[3];
}

# A run that dies counts as a violation too.
sub run_or_say {
    my (%run) = @_;
    my @found = eval { run(%run) };
    return @found if @found;
    my $why = "the run ended: $@";
    return (summary(%run{qw(topology seed seconds)}, requests => 0, violations => 1, excused => 0, busy => 0,
        faults => []), $why, Ratelimit::Nginx::complaints());
}

my $turns = ceil($minutes / @topologies / $longest);
my $each  = $minutes / @topologies / $turns;
my @summaries;
for my $run (map { my $turn = $_; map { [$_, $seed + $turn] } @topologies } 0 .. $turns - 1) {
    my ($topology, $own_seed) = @{$run};
    my ($summary, @sentences) = run_or_say(topology => $topology, seed => $own_seed,
        seconds => 60 * $each, only => \@only, keep => $options{keep},
        say => sub { print "  $topology: $_[0]\n" if $options{verbose} });
    push @summaries, $summary;
    add_to_file($options{file}, $summary) if $options{file};
    printf "%s: %d requests in %.0f s, %d violations\n",
        @{$summary}{qw(topology requests seconds violations)};
    next unless @sentences;
    my @first = splice @sentences, 0, $shown;
    print map { "  VIOLATION $topology: $_\n" } @first;
    printf "  and %d more\n", scalar @sentences if @sentences;
    my $fault = join '', map { $options{$_} ? " --$_ '$options{$_}'" : '' } qw(fault without);
    printf "  repeat: ./build.sh chaos %.3g --seed %d --topology %s%s\n", $each, $own_seed, $topology,
        $fault;
}
print "\n", table(@summaries);
exit((grep { $_->{violations} } @summaries) ? 1 : 0);

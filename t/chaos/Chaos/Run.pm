package Chaos::Run;

# One run: a fleet, its clients, and faults selected by a seed.

use strict;
use warnings;

use Chaos::Changes;
use Chaos::Clients;
use Chaos::Evidence;
use Chaos::Faults qw(faults faults_for);
use Chaos::Fleet;
use Chaos::Held qw(holders judge_held judge_refused judge_released);
use Chaos::Judge qw(judge_requests with_logs);
use Chaos::Overrides qw(judge_agreement judge_changes);
use Chaos::Refusals qw(judge_refusals judge_unblocked);
use Chaos::Remains qw(measure judge_remains judge_totals judge_logs);
use Chaos::Report qw(summary);
use Chaos::Takeovers qw(exits);
use Chaos::Watchdog;
use List::Util qw(max);
use Ratelimit::Process qw(temp_folder);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(run);

my $clients = 40;

# Options: topology, seed, seconds, only (names of faults; default: all), say (code that gets a line), keep
# (a folder for the evidence).
# Returns the summary, and sentences about violations.
sub run {
    my (%options) = @_;
    my $folder = temp_folder();
    my $fleet  = Chaos::Fleet->new(topology => $options{topology});
    my @start  = (nodes => [map { { port => $_->port, http2_port => $_->{http2_port} } } $fleet->nginx],
        clients => $clients, seed => $options{seed});
    my $first = Chaos::Clients->new(@start, output => "$folder/first",
        first_id => 1_000_000_000);
    sleep 1.5;    # time for connections and one-time allocations
    my $earlier = with_logs($first->stop, $fleet->nginx);
    sleep 0.5;
    my $before   = measure($fleet);
    my $watchdog = Chaos::Watchdog->new;
    my $evidence = $options{keep} && Chaos::Evidence->new(fleet => $fleet,
        changes => "$folder/changes",
        folder => "$options{keep}/$options{topology}-$options{seed}");
    my $requests = Chaos::Clients->new(@start, output => "$folder/requests");
    my $changing = Chaos::Changes->new(ports => [map { $_->port } $fleet->nginx], seed => $options{seed},
        output => "$folder/changes");
    my $begun    = time;
    my $faults   = _play($fleet, \%options);
    my $seconds  = time - $begun;
    my $changes  = $changing->stop;
    my $seen     = with_logs($requests->stop, $fleet->nginx);
    my ($busy, $delays) = $watchdog->stop;
    $evidence->stop_sampling if $evidence;

    my @played = @{$faults};
    push @{$faults}, $fleet->unplanned_takeovers($faults);
    my ($sentences, $excused) = judge_requests($seen, $faults, $busy);
    my ($by_changes, $sharp) = judge_changes($seen, $changes, $faults, $busy);
    $options{say}->(sprintf '%d changes, %d decisions that one limit explains', scalar @{$changes}, $sharp);
    my ($after, @remains) = judge_remains($fleet, $before);
    my %killed = map { $_->{node} => 1 } grep { $_->{name} eq 'worker kill' || $_->{ends} } @{$faults};
    my @history = (@{$earlier}, @{$seen});
    my $holders = holders(\@history, $faults, $busy, exits($faults, map { $_->log } $fleet->nginx));
    my ($uncaused, $refusals, $blocked) = judge_refusals($seen, \@history, $faults, $busy);
    my ($unheld, $at_one_time) = judge_refused($seen, $holders, $faults);
    $options{say}->("$refusals refusals by a rate and $at_one_time by requests at one time were judged");
    my @held = (judge_held($faults, $busy, $fleet->nginx), judge_released($holders, $clients, $fleet->nginx));
    my @all = (@{$sentences}, @{$by_changes}, @{$uncaused}, @{$unheld}, @held,
        judge_unblocked(($fleet->nginx)[0], $blocked, $seen), @remains,
        judge_agreement($fleet, $changes, $faults), judge_totals($seen, $before, $after, \%killed),
        judge_logs($fleet, \@played));
    $evidence->keep($seen, $faults, @all) if $evidence;
    return (summary(topology => $options{topology}, seed => $options{seed}, seconds => $seconds,
        requests => scalar @{$seen}, refusals => $refusals + $at_one_time, violations => scalar @all, excused => $excused,
        busy => max(0, map { $_->[1] } @{$delays}), faults => $faults), @all);
}

# Plays faults one after another until the time is over; returns them, each with its parameters and its
# times.
sub _play {
    my ($fleet, $options) = @_;
    srand $options->{seed};
    my @names = faults_for($fleet);
    if (my $only = $options->{only}) {
        my %only = map { $_ => 1 } @{$only};
        @names = grep { $only{$_} } @names;
    }
    my ($end, @played) = (time + $options->{seconds});
    while (1) {
        # The same number of random values for every fault, so that a seed's faults do not depend on
        # their effects.
        my ($name, $gap, $length, $choice) = (_pick(\@names), 0.7 + rand 1.3, rand, rand);
        last if time + $gap > $end;
        sleep $gap;
        push @played, _play_one($fleet, $name, $length, $choice, $options->{say}) if defined $name;
    }
    sleep 0.7;
    return \@played;
}

sub _pick { my ($of) = @_; return $of->[rand @{$of}] }

sub _play_one {
    my ($fleet, $name, $length, $choice, $say) = @_;
    my $fault = faults()->{$name};
    my ($least, $most) = @{ $fault->{lasts} };
    my %run = (name => $name, (map { $_ => $fault->{$_} } qw(slack loses cuts silent)),
        lasts => $least + $length * ($most - $least), from => time);
    $fault->{start}->($fleet, \%run, $choice);
    sleep $run{lasts};
    $fault->{end}->($fleet, \%run, $choice) if $fault->{end};
    $run{to} = time;
    $fault->{after}->($fleet, \%run, $choice) if $fault->{after};
    $say->(sprintf '%.3f %s, %.3f s', @run{qw(from name)}, $run{to} - $run{from});
    return \%run;
}

1;

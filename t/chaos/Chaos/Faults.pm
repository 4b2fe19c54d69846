package Chaos::Faults;

# The faults that a fleet meets, and their allowed cost.

use strict;
use warnings;

use Chaos::Fleet qw(heal);
use Ratelimit::Process qw(wait_until);
use Time::HiRes qw(sleep time);

use Exporter 'import';
our @EXPORT_OK = qw(faults faults_for);

my $timed  = 0.15;    # how long requests may fail after a fault's end,
my $killed = 0.6;     # after one that killed a server or its connections,
my $forgot = 1.4;     # after one that left silent connections, each replaced after timeout + open

# name => where (code that selects fleets; default: all), lasts (least and most seconds), slack (seconds
# after its end in which the fail mode may decide requests; without it, it may decide none at any time),
# loses (1: Redis may lose counts), cuts (1: connections with commands in flight may be lost; what was sent may be
# counted twice, or stay counted), silent (1: connections stay open without a reply), weight (1), start and end (code;
# each gets the fleet, the running fault, and a number from 0 to 1 that selects a victim), after (code that restores the
# fleet for the next fault).
# A run of a fault gets `node` (a number) if it is one of a node, and ends => 1 if that node is stopped.
my %faults = (
    kill => {
        where => \&_alone, cuts => 1, lasts => [0, 2], slack => $killed, weight => 2,
        start => sub { _victim(@_)->stop('KILL') },
        end   => sub { $_[1]{victim}->start },
    },
    stop => {    # for less than timeout + open
        lasts => [0.3, 1.1], slack => $timed, weight => 2,
        start => sub { _victim(@_)->pause },
        end   => sub { $_[1]{victim}->resume },
    },
    'long stop' => {    # connections are replaced, and Redis executes what they sent when it goes on
        cuts => 1, lasts => [1.35, 1.75], slack => $timed, weight => 2,
        start => sub { _victim(@_)->pause },
        end   => sub { $_[1]{victim}->resume },
    },
    'short stop' => {
        lasts => [0.02, 0.1],
        start => sub { _victim(@_)->pause },
        end   => sub { $_[1]{victim}->resume },
    },
    'CLIENT KILL' => {
        cuts => 1, lasts => [0, 0], weight => 2,
        start => sub { _victim(@_)->cmd(qw(CLIENT KILL TYPE normal)) },
    },
    'CLIENT PAUSE' => {
        lasts => [0.3, 0.6], slack => $timed,
        start => sub { my ($fleet, $run) = @_; _victim(@_)->cmd(qw(CLIENT PAUSE), int(1000 * $run->{lasts})) },
        end   => sub { $_[1]{victim}->cmd('PING') },    # the PING waits until the pause ends
    },
    'SCRIPT FLUSH' => {
        lasts => [0, 0],
        start => sub { _victim(@_)->cmd(qw(SCRIPT FLUSH)) },
    },
    OOM => {
        lasts => [0.1, 1], slack => $timed,
        start => sub { _victim(@_)->cmd(qw(CONFIG SET maxmemory 1)) },
        end   => sub { $_[1]{victim}->cmd(qw(CONFIG SET maxmemory 0)) },
    },
    READONLY => {    # the module connects again, at once and then with pauses
        where => \&_alone, cuts => 1, lasts => [0.1, 1], slack => $killed,
        start => sub { _victim(@_)->cmd(qw(REPLICAOF 127.0.0.1 1)) },
        end   => sub { $_[1]{victim}->cmd(qw(REPLICAOF NO ONE)) },
    },
    NOREPLICAS => {
        lasts => [0.1, 1], slack => $timed,
        start => sub { _victim(@_)->cmd(qw(CONFIG SET min-replicas-to-write 9)) },
        end   => sub { $_[1]{victim}->cmd(qw(CONFIG SET min-replicas-to-write 0)) },
    },
    'busy script' => {
        lasts => [0.3, 0.6], slack => $timed,
        start => sub { _run_away(_victim(@_)) },
        end   => sub {
            my (undef, $run) = @_;
            $run->{victim}->cmd(qw(SCRIPT KILL));
            close delete $run->{victim}{busy_connection};
        },
    },
    'slow link' => {    # but not slower than the timeout
        where => \&_linked, lasts => [0.3, 1.5],
        start => sub { _link(@_)->delay(0.06) },
        end   => sub { heal($_[1]{link}); sleep 0.06 },
    },
    'stalled link' => {
        where => \&_linked, cuts => 1, lasts => [0.3, 1], slack => $timed,
        start => sub { _link(@_)->delay(0.5) },
        end   => sub { heal($_[1]{link}); sleep 0.5 },    # delayed replies arrive until then
    },
    'cut link' => {
        where => \&_linked, cuts => 1, lasts => [0, 0],
        start => sub { _link(@_)->cut },
    },
    'lost replies' => {    # each connection closes after some of them
        where => \&_linked, cuts => 1, lasts => [0.1, 0.3], slack => $killed,
        start => sub { _link(@_)->cut(3000) },
        end   => sub { heal($_[1]{link}) },
    },
    'dead link' => {
        where => \&_linked, cuts => 1, silent => 1, lasts => [0.3, 1.5], slack => $forgot,
        start => sub { _link(@_)->drop },
        end   => sub { heal($_[1]{link}) },
    },
    takeover => {
        where => sub { $_[0]->group }, cuts => 1, lasts => [0, 0], slack => $killed, loses => 1, weight => 3,
        start => sub { _victim(@_)->stop('KILL') },
        end   => sub { my ($fleet, $run) = @_; $fleet->wait_for_takeover($run->{victim}) },
        after => sub { my ($fleet, $run) = @_; $run->{victim}->start; $fleet->wait_for_replicas },
    },
    'SENTINEL FAILOVER' => {    # the master runs on, and what it counts meanwhile is lost
        where => sub { $_[0]->kind eq 'sentinel' }, cuts => 1, lasts => [0, 0], loses => 1,
        start => sub { $_[0]->group->failover; sleep 0.1 },    # time for every worker to get the message
        after => sub { $_[0]->wait_for_replicas },
    },
    'CLUSTER FAILOVER' => {     # the master runs on and pauses its clients, and nothing is lost
        where => sub { $_[0]->kind eq 'cluster' }, cuts => 1, lasts => [0, 0], slack => $timed,
        start => sub { my ($fleet) = @_; $fleet->group->hand_over(_victim(@_)) },
        after => sub { $_[0]->wait_for_replicas },
    },
    'slots move' => {
        where => sub { $_[0]->kind eq 'cluster' && !$_[0]->tls }, cuts => 1, lasts => [0.1, 0.5], weight => 2,
        start => \&_begin_to_move,
        end   => \&_move,
    },
    reload => {
        lasts => [0, 0], weight => 2,
        start => sub { _node(@_)->reload },
    },
    'hold changes' => {    # of one node; the other may have another one
        lasts => [0, 0], weight => 2,
        start => sub { my ($fleet, $run) = @_; $fleet->change_hold(_node(@_)) },
    },
    'reload in a stop' => {    # old workers exit while Redis does not answer
        cuts => 1, lasts => [0.3, 1.5], slack => $killed,
        start => sub { _victim(@_)->pause; _node(@_)->reload },
        end   => sub { $_[1]{victim}->resume },
    },
    'QUIT, TERM' => {    # as Debian stops nginx
        lasts => [0.1, 1.6],
        start => sub { kill QUIT => _node(@_)->pid },
        end   => \&_restart,
    },
    'reload, TERM' => {
        lasts => [0.1, 1.6],
        start => sub { _node(@_)->reload },
        end   => \&_restart,
    },
    'worker stop' => {
        lasts => [0.1, 0.8], weight => 2,
        start => sub { kill STOP => _worker(@_) },
        end   => sub { kill CONT => $_[1]{worker} },
    },
    'worker stop in flight' => {    # Redis replies while the worker is stopped
        lasts => [0.3, 0.6], weight => 2,
        start => sub {
            my (undef, $run) = @_;
            my ($victim, $worker) = (_victim(@_), _worker(@_));    # before the stop: ps takes its time
            my $begun = time;
            $victim->pause;
            sleep 0.04;
            kill STOP => $worker;
            $victim->resume;
            $run->{slack} = $timed if time - $begun > 0.07;    # of a busy machine: Redis, too, was stopped
        },
        end => sub { kill CONT => $_[1]{worker} },
    },
    'worker kill' => {
        lasts => [0, 0],
        start => sub { kill KILL => _worker(@_) },
        after => sub { $_[1]{nginx}->wait_for_workers($_[1]{nginx}->pid) },
    },
    'clock step' => {    # of Redis; a cluster or Sentinel would take it for a silent server
        where => \&_alone, lasts => [0, 0], weight => 2,
        start => sub { my ($fleet, $run, $choice) = @_; _step($run, $choice, _victim(@_)) },
    },
);

sub faults { return \%faults }

# Names of the faults that a fleet can have, each repeated by its weight.
sub faults_for {
    my ($fleet) = @_;
    return map { ($_) x ($faults{$_}{weight} // 1) }
        grep { !$faults{$_}{where} || $faults{$_}{where}->($fleet) } sort keys %faults;
}

sub _alone  { return !$_[0]->group }
sub _linked { return scalar $_[0]->proxies }

sub _chosen { my ($choice, @of) = @_; return $of[$choice * @of] }

sub _victim {
    my ($fleet, $run, $choice) = @_;
    return $run->{victim} = _chosen($choice, $fleet->masters);
}

sub _link {
    my ($fleet, $run, $choice) = @_;
    return $run->{link} = _chosen($choice, $fleet->proxies);
}

sub _node {
    my ($fleet, $run, $choice) = @_;
    my @all = $fleet->nginx;
    $run->{node} = int($choice * @all);
    return $run->{nginx} = $all[$run->{node}];
}

sub _worker {
    my ($fleet, $run, $choice) = @_;
    my $nginx = _node(@_);
    return $run->{worker} = _chosen($choice * $fleet->nginx - $run->{node}, $nginx->workers);
}

sub _restart {
    my (undef, $run) = @_;
    my $nginx = $run->{nginx};
    $run->{ends} = 1;
    $nginx->stop('TERM');
    $nginx->start;
    return $nginx->wait_for_workers($nginx->pid);
}

# Runs an endless script on a separate connection.
sub _run_away {
    my ($redis) = @_;
    my $other = bless { %{$redis}, connection => undef, pid => undef }, ref $redis;
    $redis->{busy_connection} = $other->connect_plain;
    syswrite $redis->{busy_connection}, "EVAL 'while true do end' 0\r\n";
    return;
}

# Starts to move the slot of the keys that most requests use.
sub _begin_to_move {
    my ($fleet, $run, $choice) = @_;
    my $group = $fleet->group;
    my $slot = $run->{slot} = $group->slot_of($choice < 0.7 ? '{a}' : '{b}');
    my $from = $run->{from_node} = $group->node_of_slot($slot);
    $group->migrate_begin($slot, _chosen($choice, grep { $_ != $from } $group->masters));
    return;
}

sub _move {
    my ($fleet, $run) = @_;
    my $group = $fleet->group;
    while (my @keys = @{ $run->{from_node}->cmd(qw(CLUSTER GETKEYSINSLOT), $run->{slot}, 3) }) {
        $group->migrate_key($_) for @keys;
        sleep 0.02;
    }
    return $group->migrate_end($run->{slot});
}

# Steps by a multiple of every window, so that the starts of windows do not change.
sub _step {
    my ($run, $choice, $redis) = @_;
    $run->{step} = 4 * int(1 + $choice * 10) * (int($choice * 1000) % 2 ? 1 : -1);
    return $redis->{clock}->step($run->{step});
}

1;

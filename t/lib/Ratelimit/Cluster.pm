package Ratelimit::Cluster;

# A private Redis Cluster: redis-servers on free ports of 127.0.0.1, joined by redis-cli.

use strict;
use warnings;

use Carp qw(croak);
use Ratelimit::Process qw(wait_until);
use Ratelimit::Redis;

my $slots = 16_384;

# Options: masters (3, no fewer), replicas (of each master, 1), password, conf (more lines of each
# redis.conf), tls (as in Ratelimit::Redis; the nodes use TLS among themselves too), environments (of the nodes, masters
# first: an array of hashes).
sub new {
    my ($class, %options) = @_;
    my $self = bless {masters => 3, replicas => 1, %options}, $class;
    my $count = $self->{masters} * (1 + $self->{replicas});
    $self->{nodes} = [map { $self->_new_node } 1 .. $count];
    my ($first, @others) = $self->nodes;
    $first->cluster_cli('create', (map { $_->public_addr } @others),
        '--cluster-replicas', $self->{replicas});
    $self->wait_ok;
    wait_until('replicas are attached', sub { $self->_all_attached }, 20);
    return $self;
}

# Whether the cluster is up and every master has its replicas.
sub is_complete { my ($self) = @_; return $self->is_ok && $self->_all_attached }

sub _new_node {
    my ($self) = @_;
    my $conf = "cluster-node-timeout 2000\ncluster-allow-replica-migration no\nrepl-diskless-sync-delay 0\n";
    $conf .= "masterauth \"$self->{password}\"\n" if defined $self->{password};
    $conf .= "tls-cluster yes\ntls-replication yes\n" if $self->{tls};
    return Ratelimit::Redis->new(cluster => 1, password => $self->{password}, tls => $self->{tls},
        environment => shift @{ $self->{environments} // [] }, conf => $conf . ($self->{conf} // ''));
}

# Adds a master without slots, so that masters() does not have it.
sub add_node {
    my ($self) = @_;
    my $node = $self->_new_node;
    $node->cluster_cli('add-node', $self->_alive->public_addr);
    push @{ $self->{nodes} }, $node;
    my $count = $self->nodes;
    my $knows_all = sub {
        my $info = $_[0]->cmd('CLUSTER', 'INFO');
        return $info =~ /^cluster_known_nodes:$count\r/m && $info =~ /^cluster_state:ok/m
            && $_[0]->cmd('CLUSTER', 'NODES') !~ /handshake/;
    };
    wait_until('all nodes know the new one', sub { !grep { $_->lives && !$knows_all->($_) } $self->nodes }, 20);
    return $node;
}

sub _all_attached {
    my ($self) = @_;
    for my $master ($self->masters) {
        my ($count) = $master->cmd('INFO', 'replication') =~ /^connected_slaves:(\d+)/m;
        return 0 if $count != $self->{replicas};
    }
    return 1;
}

# nodes: every node, running or not, as a Ratelimit::Redis. masters: the nodes that own slots.
sub nodes { return @{ $_[0]{nodes} } }

sub masters {
    my ($self) = @_;
    my %masters = map { $_->[2][1] => 1 } @{ $self->_alive->cmd('CLUSTER', 'SLOTS') };
    return grep { $masters{ $_->port } } $self->nodes;
}

# "ip:port" of each master, for nginx's configuration.
sub addrs { return map { $_->public_addr } $_[0]->masters }

sub slot_of { return $_[0]->_alive->cmd('CLUSTER', 'KEYSLOT', $_[1]) }

# The master of a slot, according to a running node.
sub node_of_slot {
    my ($self, $slot) = @_;
    my $port = $self->_owners($self->_alive)->[$slot] // croak "slot $slot has no owner";
    return $self->_node_at($port);
}

# Whether another node has the slot now. None has it for a moment during a failover.
sub has_left {
    my ($self, $slot, $node) = @_;
    my $port = $self->_owners($self->_alive)->[$slot];
    return defined $port && $port != $node->port;
}

sub kill_master_of {
    my ($self, $key) = @_;
    my $node = $self->node_of_slot($self->slot_of($key));
    $node->stop('KILL');
    return $node;
}

# Makes a replica take over from a running master, without loss.
sub hand_over {
    my ($self, $master) = @_;
    my ($replica) = grep { $_->lives && $_->cmd('ROLE')->[2] eq $master->public_port } $self->nodes;
    my $again = 0;
    wait_until('the replica is the master', sub {
        return 1 if grep { $_ == $replica } $self->masters;
        # A replica that does not get the votes gives up after five seconds.
        if (time >= $again) {
            eval { $replica->cmd('CLUSTER', 'FAILOVER') };    # it may be the master by now
            $again = time + 6;
        }
        return 0;
    }, 40);
    return $self->wait_ok;
}

# Waits until all running nodes agree on the owner of each slot, every owner runs, and the state is ok. An election that
# does not get a majority is repeated only after five seconds or more.
sub wait_ok {
    my ($self) = @_;
    wait_until('the cluster is ok', sub { $self->is_ok }, 40);
    return $self;
}

sub is_ok {
    my ($self) = @_;
    my %lives = map { $_->port => 1 } grep { $_->lives } $self->nodes;
    my %opinions;
    for my $node (grep { $_->lives } $self->nodes) {
        my $info = $node->cmd('CLUSTER', 'INFO');
        return 0 if $info !~ /^cluster_state:ok/m || $info !~ /^cluster_slots_assigned:$slots\r/m;
        my @ranges = sort map { "$_->[0] $_->[1] $_->[2][1]" } @{ $node->cmd('CLUSTER', 'SLOTS') };
        return 0 if grep { !$lives{ (split)[2] } } @ranges;
        $opinions{"@ranges"} = 1;
    }
    return keys %opinions == 1;
}

# Moves slots and their keys from one master to another.
sub reshard {
    my ($self, %options) = @_;
    $self->_alive->cluster_cli('reshard', '--cluster-slots', $options{slots}, '--cluster-from',
        _id($options{from}), '--cluster-to', _id($options{to}));
    return $self->wait_ok;
}

# Moves one slot step by step. Between begin and end the old master replies ASK for each key that has
# been moved (or is missing), and the new one accepts it after ASKING.
sub migrate_begin {
    my ($self, $slot, $to, $from) = @_;
    $from //= $self->node_of_slot($slot);
    $to->cmd('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', _id($from));
    $from->cmd('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', _id($to));
    $self->{migrating}{$slot} = [$from, $to];
    return;
}

sub migrate_key {
    my ($self, $key) = @_;
    my ($from, $to) = @{ $self->{migrating}{ $self->slot_of($key) } };
    return $from->cmd('MIGRATE', '127.0.0.1', $to->port, $key, 0, 5000,
        defined $self->{password} ? ('AUTH', $self->{password}) : ());
}

sub migrate_end {
    my ($self, $slot) = @_;
    my ($from, $to) = @{ delete $self->{migrating}{$slot} };
    # The new owner first, so that the slot always has an owner.
    for my $node ($to, $from, grep { $_ != $from && $_ != $to } $self->masters) {
        $node->cmd('CLUSTER', 'SETSLOT', $slot, 'NODE', _id($to)) if $node->lives;
    }
    return $self->wait_ok;
}

sub _id { return $_[0]->cmd('CLUSTER', 'MYID') }

sub _alive {
    my ($self) = @_;
    my ($node) = grep { $_->lives } $self->nodes;
    return $node // croak 'no node of the cluster runs';
}

sub _node_at {
    my ($self, $port) = @_;
    my ($node) = grep { $_->port == $port } $self->nodes;
    return $node;
}

# The port of the master of each slot, according to $node.
sub _owners {
    my ($self, $node) = @_;
    my @owners;
    for my $range (@{ $node->cmd('CLUSTER', 'SLOTS') }) {
        my ($first, $last, $master) = @{$range};
        @owners[$first .. $last] = ($master->[1]) x ($last - $first + 1);
    }
    return \@owners;
}

1;

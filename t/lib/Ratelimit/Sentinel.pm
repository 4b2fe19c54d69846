package Ratelimit::Sentinel;

# A master, its replicas, and Sentinels that watch them, on free ports of 127.0.0.1.

use strict;
use warnings;

use Carp qw(croak);
use Ratelimit::Process qw(wait_until);
use Ratelimit::Redis;

# Options: count (of sentinels, 3), master (the name, "main"), replicas (1), password (of master and
# replicas), sentinel_password, conf (more lines of each redis.conf), down_after (milliseconds until a
# silent master counts as down, 1000), tls (as in Ratelimit::Redis; all connections use it), environments (of master and
# replicas: an array of hashes).
sub new {
    my ($class, %options) = @_;
    my $self = bless {count => 3, master => 'main', replicas => 1, down_after => 1000, %options}, $class;
    my $master = $self->_new_node('');
    my @replicas = map { $self->_new_node("replicaof 127.0.0.1 @{[ $master->public_port ]}\n") }
        1 .. $self->{replicas};
    $self->{nodes} = [$master, @replicas];
    # A sentinel reads a master's replicas when it first connects, and then not for a while.
    wait_until('replicas are attached', sub { !grep { !_attached($_) } @replicas }, 20);
    $self->{sentinels} = [map { $self->_new_sentinel($master) } 1 .. $self->{count}];
    wait_until('sentinels know each other', sub { $self->_complete }, 20);
    return $self;
}

sub _new_node {
    my ($self, $more) = @_;
    my $conf = "repl-diskless-sync-delay 0\n$more" . ($self->{conf} // '');
    $conf .= "masterauth \"$self->{password}\"\n" if defined $self->{password};
    return $self->_redis(password => $self->{password}, conf => $conf, environment => shift @{ $self->{environments} // [] });
}

sub _redis {
    my ($self, %options) = @_;
    $options{conf} .= "tls-replication yes\n" if $self->{tls};
    return Ratelimit::Redis->new(%options, tls => $self->{tls});
}

sub _new_sentinel {
    my ($self, $master) = @_;
    my $name   = $self->{master};
    my $quorum = $self->{count} > 1 ? 2 : 1;
    my $conf   = "sentinel monitor $name 127.0.0.1 @{[ $master->public_port ]} $quorum\n"
        . "sentinel down-after-milliseconds $name $self->{down_after}\nsentinel failover-timeout $name 3000\n";
    $conf .= "sentinel auth-pass $name $self->{password}\n" if defined $self->{password};
    $conf .= "sentinel sentinel-pass $self->{sentinel_password}\n"
        if defined $self->{sentinel_password};
    return $self->_redis(sentinel => 1, password => $self->{sentinel_password}, conf => $conf);
}

sub _attached { return $_[0]->cmd('INFO', 'replication') =~ /^master_link_status:up/m }

# Whether every sentinel sees the others and all replicas, none is in a failover, and the replicas follow the master.
sub is_complete {
    my ($self) = @_;
    my $master = $self->master;
    return 0 if !$self->_complete || grep { $_ != $master && !_attached($_) } $self->nodes;
    return !grep { my %seen = @{ $_->cmd('SENTINEL', 'MASTER', $self->{master}) }; $seen{flags} ne 'master' || $self->master($_) != $master }
        $self->sentinels;
}

# Whether every sentinel sees all other sentinels and all replicas as up.
sub _complete {
    my ($self) = @_;
    for my $sentinel ($self->sentinels) {
        my %known = (SENTINELS => $self->{count} - 1, REPLICAS => $self->{replicas});
        for my $what (keys %known) {
            my @peers = map { +{ @{$_} } } @{ $sentinel->cmd('SENTINEL', $what, $self->{master}) };
            return 0 if $known{$what} != grep { $_->{flags} =~ /^(?:sentinel|slave)$/ } @peers;
        }
    }
    return 1;
}

# Master and replicas; the sentinels. Each is a Ratelimit::Redis.
sub nodes     { return @{ $_[0]{nodes} } }
sub sentinels { return @{ $_[0]{sentinels} } }

# "ip:port" of each sentinel, for nginx's configuration.
sub addrs { return map { $_->public_addr } $_[0]->sentinels }

# The number of subscriptions at each sentinel, those of other sentinels included.
sub listeners {
    my ($self) = @_;
    return map { scalar split /\n/, $_->cmd(qw(CLIENT LIST TYPE pubsub)) } $self->sentinels;
}

# The master according to $sentinel (by default the first that runs).
sub master {
    my ($self, $sentinel) = @_;
    ($sentinel) = grep { $_->lives } $self->sentinels unless $sentinel;
    croak 'no sentinel runs' unless $sentinel;
    my (undef, $port) = @{ $sentinel->cmd('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', $self->{master}) };
    my ($node) = grep { $_->public_port == $port } $self->nodes;
    return $node;
}

# The first running node that is not the master.
sub replica {
    my ($self) = @_;
    my $master = $self->master;
    my ($node) = grep { $_ != $master && $_->lives } $self->nodes;
    return $node;
}

# Makes a replica the master; returns the new master when every sentinel names it. The old one remains a
# master until a sentinel reconfigures it, which takes up to ten seconds more.
sub failover {
    my ($self) = @_;
    my $old = $self->master;
    my ($sentinel) = grep { $_->lives } $self->sentinels;
    wait_until('a sentinel begins the failover',
        sub { eval { $sentinel->cmd('SENTINEL', 'FAILOVER', $self->{master}) } }, 15);
    for (1 .. 5) {    # a sentinel may abandon a failover
        my $new = eval { $self->wait_for_new_master($old, 7) };
        return $new if $new;
        eval { $sentinel->cmd('SENTINEL', 'FAILOVER', $self->{master}) };
    }
    return $self->wait_for_new_master($old);
}

# Waits until every running sentinel names the same master, other than $old, and that server reports the
# role of a master; returns it.
sub wait_for_new_master {
    my ($self, $old, $seconds) = @_;
    return wait_until(
        'another master',
        sub {
            my %named = map { $_->port => $_ } map { $self->master($_) }
                grep { $_->lives } $self->sentinels;
            my ($new, @others) = values %named;
            return if @others || $new == $old || !$new->lives;
            return eval { $new->cmd('ROLE')->[0] eq 'master' } ? $new : undef;
        },
        $seconds // 60
    );
}

1;

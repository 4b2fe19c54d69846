package Ratelimit::Redis;

# A private redis-server on a free port of 127.0.0.1, or on a given port and address.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Ratelimit::Process qw(free_port free_cluster_port pause_processes wait_until start_process stop_process kill_process_of ended_with alive temp_folder
    write_file read_file add_server);

# Options: port, host, conf (lines for redis.conf), password (requirepass), socket (1: a unix socket too),
# tls (lines with its certificate: a port with TLS too), sentinel (1: a Sentinel, which stores no data),
# cluster (1: a node of a cluster), environment (a hash of environment variables).
sub new {
    my ($class, %options) = @_;
    my $free = $options{cluster} ? \&free_cluster_port : \&free_port;
    my $self = bless {port => $free->(), %options, folder => temp_folder()}, $class;
    $self->{tls_port} = $free->() if $options{tls};
    $self->{path} = $self->{folder} . '/redis.sock' if $options{socket};
    $self->configure;
    $self->start;
    return add_server($self);
}

sub configure {
    my ($self) = @_;
    my $folder = $self->{folder};
    my $conf = "bind @{[ $self->host ]}\nport $self->{port}\nsave \"\"\nappendonly no\ndir $folder\n";
    $conf .= "requirepass \"$self->{password}\"\n" if defined $self->{password};
    $conf .= "unixsocket $self->{path}\nunixsocketperm 777\n" if $self->{path};
    $conf .= "tls-port $self->{tls_port}\n$self->{tls}" if $self->{tls};
    $conf .= "cluster-enabled yes\n" if $self->{cluster};
    # With a clock of its own that was set back, jemalloc's thread would wait for times that have passed, without end.
    $conf .= "jemalloc-bg-thread no\n" if $self->{environment};
    $conf .= $self->{conf} // '';
    write_file("$folder/redis.conf", $conf);
    return;
}

# Starts the server, also after a stop: on the same port, with the configuration that it last wrote.
sub start {
    my ($self) = @_;
    my $folder = $self->{folder};
    delete $self->{paused};
    my %environment = %{ $self->{environment} // {} };
    local @ENV{ keys %environment } = values %environment;
    $self->{pid} = start_process(
        'redis', "$folder/redis.log", $ENV{REDIS_SERVER} // 'redis-server',
        "$folder/redis.conf", $self->{sentinel} ? '--sentinel' : ()
    );
    wait_until(
        'redis answers',
        sub {
            my $answer = eval { $self->cmd('PING') };
            return defined $answer && $answer eq 'PONG';
        },
        30
    );
    return $self;
}

sub pid  { return $_[0]{pid} }
sub port { return $_[0]{port} }
sub host { return $_[0]{host} // '127.0.0.1' }
sub addr { my ($self) = @_; return $self->host . ":$self->{port}" }

# The port that nginx and other servers use: the one with TLS if there is one.
sub public_port { return $_[0]{tls_port} // $_[0]{port} }
sub public_addr { my ($self) = @_; return $self->host . ':' . $self->public_port }

# Sends TERM unless another signal is given.
sub stop {
    my ($self, $signal) = @_;
    delete $self->{connection};
    stop_process($self->{pid}, $signal);
    return;
}
sub pause  { $_[0]{paused} = 1; return pause_processes($_[0]{pid}) }
sub resume { delete $_[0]{paused}; return kill CONT => $_[0]{pid} }

# Whether it runs and is not paused.
sub lives { return !$_[0]{paused} && alive($_[0]{pid}) }

# Runs redis-cli --cluster $what with this server's address and password; dies with its output if it
# fails.
sub cluster_cli {
    my ($self, $what, @words) = @_;
    my $output = "$self->{folder}/redis-cli.log";
    write_file($output, '');
    local $ENV{REDISCLI_AUTH} = $self->{password};
    delete local $ENV{REDISCLI_AUTH} unless defined $self->{password};
    # By TLS where there is TLS: Redis 6.2 then has its bus above that port.
    my %file = ($self->{tls} // '') =~ /^tls-(cert|key|ca-cert)-file (\S+)/mg;
    my @tls = %file ? ('--tls', '--cert', $file{cert}, '--key', $file{key}, '--cacert', $file{'ca-cert'}) : ();
    my $pid = start_process('redis-cli', $output, $ENV{REDIS_CLI} // 'redis-cli', @tls, '--cluster', $what,
        $self->public_addr, @words, '--cluster-yes');
    wait_until("redis-cli --cluster $what ends", sub { !alive($pid) }, 30);
    croak "redis-cli --cluster $what: " . read_file($output) if ended_with($pid);
    return;
}

# One command; returns a string, a number, undef, or an array reference. Dies with Redis's error.
sub cmd {
    my ($self, @words) = @_;
    # Readable without a pending command: closed, as Sentinel does to the clients of a new master.
    delete $self->{connection}
        if $self->{connection} && IO::Select->new($self->{connection})->can_read(0);
    $self->{connection} //= $self->connect_plain;
    my $answer = eval { $self->ask(@words) };
    if (my $error = $@) {
        delete $self->{connection};
        die $error;
    }
    if (ref $answer eq 'Ratelimit::Redis::Error') {
        croak ${$answer};
    }
    return $answer;
}

sub connect_plain {
    my ($self) = @_;
    $self->{connection} = IO::Socket::INET->new(PeerAddr => $self->addr, Timeout => 5)
        or die "redis: $!\n";
    $self->ask('AUTH', $self->{password}) if defined $self->{password};
    return $self->{connection};
}

sub ask {
    my ($self, @words) = @_;
    my $text = '*' . @words . "\r\n";
    $text .= '$' . length($_) . "\r\n$_\r\n" for @words;
    print { $self->{connection} } $text or die "redis: $!\n";
    return read_answer($self->{connection});
}

sub read_answer {
    my ($socket) = @_;
    my $line = do { local $/ = "\r\n"; <$socket> } // die "redis closed the connection\n";
    chomp $line;
    $line =~ s/\r$//;
    my $type = substr $line, 0, 1, '';
    return $line if $type eq '+';
    return $line + 0 if $type eq ':';
    return bless \$line, 'Ratelimit::Redis::Error' if $type eq '-';
    return undef if $line < 0;    ## no critic (ProhibitExplicitReturnUndef)
    if ($type eq '$') {
        my ($data, $length) = ('', $line + 2);
        while (length $data < $length) {
            read $socket, $data, $length - length $data, length $data
                or die "redis closed the connection\n";
        }
        return substr $data, 0, $line;
    }
    return [map { read_answer($socket) } 1 .. $line];
}

# The bytes that clients have sent to it and that it has not read, as while it is paused.
sub unread {
    my ($self) = @_;
    my $port = sprintf ':%04X', $self->{port};
    my $sum = 0;
    for my $line (split /\n/, read_file('/proc/net/tcp')) {
        my (undef, $local, undef, undef, $queues) = split ' ', $line;
        $sum += hex $1 if $local =~ /\Q$port\E$/ && $queues =~ /:(\w+)$/;
    }
    return $sum;
}

# The number of calls of a command, by INFO commandstats, also of those that had an error: EVALSHA has one for each call of
# a script, whether EVAL follows or not. Redis 6.2 counts the commands of a container together.
sub calls {
    my ($self, $command) = @_;
    my $info = $self->cmd('INFO', 'commandstats');
    my ($container) = $command =~ /^(\w+)\|/;
    for my $name (grep { defined } $command, $container) {
        return $1 if $info =~ /^cmdstat_\Q$name\E:calls=(\d+)/m;
    }
    return 0;
}

# Waits until a replica has what any client wrote. WAIT looks at what its own connection wrote only.
sub wait_for_a_replica {
    my ($self) = @_;
    my ($written) = $self->cmd('INFO', 'replication') =~ /^master_repl_offset:(\d+)/m;
    wait_until('a replica is up to date', sub {
        my @known = $self->cmd('INFO', 'replication') =~ /^slave\d+:.*,state=online,offset=(\d+)/mg;
        return grep { $_ >= $written } @known;
    });
    return;
}

# Whether this Redis has a setting: some came with Redis 7.
sub has_setting { my ($self, $name) = @_; return @{ $self->cmd('CONFIG', 'GET', $name) } > 0 }

sub keys_like {
    my ($self, $pattern) = @_;
    my @keys = sort @{ $self->cmd('KEYS', $pattern // '*') };
    return @keys;  # in scalar context their number; that of "sort" is not defined
}

sub log { return read_file("$_[0]{folder}/redis.log") }

sub DESTROY { return kill_process_of($_[0]) }

1;

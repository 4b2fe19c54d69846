package Ratelimit::Http;

# A small HTTP/1.1 client: one request, several on one connection, or many connections in parallel.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Ratelimit::Stopwatch qw(stopwatch);

use Exporter 'import';
our @EXPORT_OK = qw(request http_connect http_send http_read burst);

# request($port, $path, method =>, headers => [name, value, ...], body =>, address => of the server,
# from => the client's address): a response with status, headers ([name, value] in order) and body.
sub request {
    my ($port, $path, %options) = @_;
    my $socket = http_connect($port, $options{address}, $options{from});
    http_send($socket, $path, %options, close => 1);
    my $answer = http_read($socket, $options{method});
    close $socket;
    return $answer;
}

sub http_connect {
    my ($port, $address, $from) = @_;
    return IO::Socket::INET->new(PeerAddr => $address // '127.0.0.1', PeerPort => $port,
        LocalAddr => $from, Timeout => 10) // croak "connect to $port: $!";
}

sub http_send {
    my ($socket, $path, %options) = @_;
    my $text = ($options{method} // 'GET') . " $path HTTP/1.1\r\nHost: localhost\r\n";
    my @headers = @{ $options{headers} // [] };
    while (my ($name, $value) = splice @headers, 0, 2) {
        $text .= "$name: $value\r\n";
    }
    $text .= "Connection: close\r\n" if $options{close};
    if (defined $options{body}) {
        $text .= 'Content-Length: ' . length($options{body}) . "\r\n\r\n$options{body}";
    }
    else {
        $text .= "\r\n";
    }
    print {$socket} $text or croak "send: $!";
    return;
}

# The next response of a connection; undef if the connection was closed instead.
sub http_read {
    my ($socket, $method) = @_;
    my $watch;
    local $SIG{ALRM} = sub {
        $watch //= stopwatch();
        croak 'no answer within 20 s' if $watch->is_over(19);
        alarm 1;
    };
    alarm 1;
    my $head = '';
    while ($head !~ /\r\n\r\n/) {
        my $line = <$socket>;
        if (!defined $line) {
            alarm 0;
            return;
        }
        $head .= $line;
    }
    my $answer = Ratelimit::Http::Answer->parse($head);
    $answer->{body} = _body($socket, $answer, $method // 'GET');
    alarm 0;
    return $answer;
}

sub _body {
    my ($socket, $answer, $method) = @_;
    return '' if $method eq 'HEAD' || $answer->status =~ /^(?:1..|204|304)$/;
    my $body = '';
    if (defined(my $length = $answer->header('Content-Length'))) {
        read $socket, $body, $length if $length;
        return $body;
    }
    if (($answer->header('Transfer-Encoding') // '') eq 'chunked') {
        while (defined(my $size = <$socket>)) {
            my $length = hex $size =~ s/\s+$//r;
            read $socket, my $chunk, $length + 2;
            last unless $length;
            $body .= substr $chunk, 0, $length;
        }
        return $body;
    }
    local $/ = undef;
    return scalar(<$socket>) // '';
}

# Sends $count requests over $clients keepalive connections in parallel, spread over the ports;
# returns the statuses.
sub burst {
    my ($ports, $path, $count, $clients, %options) = @_;
    my @ports = ref $ports ? @{$ports} : $ports;
    my ($left, @statuses) = ($count);
    my $select = IO::Select->new;
    my %buffer;
    my $text = "GET $path HTTP/1.1\r\nHost: localhost\r\n";
    my @headers = @{ $options{headers} // [] };
    while (my ($name, $value) = splice @headers, 0, 2) {
        $text .= "$name: $value\r\n";
    }
    for my $client (1 .. $clients) {
        last unless $left-- > 0;
        my $socket = http_connect($ports[$client % @ports]);
        syswrite $socket, "$text\r\n";
        $buffer{$socket} = '';
        $select->add($socket);
    }
    my $watch = stopwatch();
    while ($select->count) {
        croak 'burst: no responses within 60 s' if $watch->is_over(60);
        for my $socket ($select->can_read(1)) {
            my $got = sysread $socket, $buffer{$socket}, 65536, length $buffer{$socket};
            my $over = !$got;
            while ($buffer{$socket} =~ /^(.*?)\r\n\r\n/s) {
                my ($head, $length) = ($1, 0);
                $length = $1 if $head =~ /^Content-Length: (\d+)/mi;
                last if length $buffer{$socket} < length($head) + 4 + $length;
                substr $buffer{$socket}, 0, length($head) + 4 + $length, '';
                push @statuses, $head =~ m{^HTTP/1.1 (\d+)} ? $1 : '?';
                $over = 1 if $head =~ /^Connection: close/mi;
                if ($left-- > 0) { syswrite $socket, "$text\r\n" }
                else             { $over = 1 }
            }
            if ($over) { $select->remove($socket); close $socket }
        }
    }
    return @statuses;
}

package Ratelimit::Http::Answer;    ## no critic (ProhibitMultiplePackages)

sub parse {
    my ($class, $head) = @_;
    my ($line, @lines) = split /\r\n/, $head;
    my ($status) = $line =~ m{^HTTP/\S+ (\d+)};
    my @headers = map { [split /:\s*/, $_, 2] } grep { /:/ } @lines;
    return bless { status => $status, headers => \@headers }, $class;
}

sub status { return $_[0]{status} }
sub body   { return $_[0]{body} }

# Every value of a header, in order; in scalar context all values joined with " | ".
sub header {
    my ($self, $name) = @_;
    my @values = map { $_->[1] } grep { lc $_->[0] eq lc $name } @{ $self->{headers} };
    return wantarray ? @values : @values ? join(' | ', @values) : undef;
}

1;

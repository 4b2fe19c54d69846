package Ratelimit::Http2;

# An HTTP/2 client without TLS (prior knowledge) that sends several streams on one connection. curl 7.88
# opens a connection for each.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use Ratelimit::Http qw(http_connect);
use Ratelimit::Stopwatch qw(stopwatch);

use Exporter 'import';
our @EXPORT_OK = qw(http2 http2_send http2_one http2_reset);

# http2($port, [path, ...], method =>, headers => [name, value, ...], body =>): sends one request for
# each path on one connection before it reads a response; the port's listen must have http2. Returns the
# responses in the order of the paths, undef for a stream that was reset.
sub http2 {
    my ($port, $paths, %options) = @_;
    my $socket = http_connect($port);
    my $left = @{$paths};
    my @answers = (undef) x $left;
    require Protocol::HTTP2::Client;    # loaded here: only tests that use HTTP/2 need its package
    my $client = Protocol::HTTP2::Client->new(on_error => sub { croak "HTTP/2: error @_" });
    my @headers = @{ $options{headers} // [] };
    $headers[$_] = lc $headers[$_] for grep { $_ % 2 == 0 } 0 .. $#headers;
    for my $i (0 .. $#{$paths}) {
        $client->request(
            ':scheme'    => 'http',
            ':authority' => 'localhost',
            ':path'      => $paths->[$i],
            ':method'    => $options{method} // 'GET',
            headers      => \@headers,
            (defined $options{body} ? (data => $options{body}) : ()),
            on_error => sub { $left-- },
            on_done  => sub { $left--; $answers[$i] = _answer(@_) },
        );
    }
    _exchange($socket, $client, sub { $left == 0 });
    close $socket;
    return @answers;
}

# http2_send($port, [path, ...], method =>): sends the requests on one connection and reads no response;
# returns the socket.
sub http2_send {
    my ($port, $paths, %options) = @_;
    my $socket = http_connect($port);
    require Protocol::HTTP2::Client;
    my $client = Protocol::HTTP2::Client->new;
    for my $path (@{$paths}) {
        $client->request(':scheme' => 'http', ':authority' => 'localhost', ':path' => $path,
            ':method' => $options{method} // 'GET');
    }
    while (my $frame = $client->next_frame) {
        print {$socket} $frame or croak "HTTP/2: $!";
    }
    return $socket;
}

# http2_one($port, $path, method =>, headers => [name, value, ...], body =>, length =>): sends one request and reads
# no response; returns the socket. `length` is its Content-Length; the body may be a part of that.
sub http2_one {
    my ($port, $path, %options) = @_;
    my $socket = http_connect($port);
    my ($data, $headers, $settings, $end_stream, $end_headers) = (0, 1, 4, 1, 4);
    my $frame = sub { my ($type, $flags, $load) = @_; pack('xnCCN', length $load, $type, $flags, $type == $settings ? 0 : 1) . $load };
    my $body = $options{body} // '';
    my $length = $options{length} // length $body;
    my @fields = (':method' => $options{method} // 'GET', ':scheme' => 'http', ':authority' => 'localhost',
        ':path' => $path, $length ? ('content-length' => $length) : (), @{ $options{headers} // [] });
    my $block = '';
    while (my ($name, $value) = splice @fields, 0, 2) {
        $block .= pack 'xC/aC/a', lc $name, $value;  # a literal that is not indexed
    }
    my $sent = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . $frame->($settings, 0, '')
        . $frame->($headers, $end_headers | ($length ? 0 : $end_stream), $block);
    $sent .= $frame->($data, length $body == $length ? $end_stream : 0, $body) if $length;
    print {$socket} $sent or croak "HTTP/2: $!";
    return $socket;
}

# Resets the first $count streams of a connection, as a client that cancels them does.
sub http2_reset {
    my ($socket, $count) = @_;
    my ($type, $cancel) = (3, 8);
    print {$socket} map { pack 'xnCCNN', 4, $type, 0, 2 * $_ - 1, $cancel } 1 .. $count or croak "HTTP/2: $!";
    return;
}

sub _exchange {
    my ($socket, $client, $over) = @_;
    my $select = IO::Select->new($socket);
    my $watch = stopwatch();
    while (1) {
        while (my $frame = $client->next_frame) {
            print {$socket} $frame or croak "HTTP/2: $!";
        }
        return if $over->();
        croak 'HTTP/2: no answer within 20 s' if $watch->is_over(20);
        next unless $select->can_read(1);
        sysread $socket, my $bytes, 65536 or croak 'HTTP/2: the connection was closed';
        $client->feed($bytes);
    }
}

sub _answer {
    my ($headers, $body) = @_;
    my @lines = ('HTTP/2 ?');
    for my $i (grep { $_ % 2 == 0 } 0 .. $#{$headers}) {
        my ($name, $value) = @{$headers}[$i, $i + 1];
        if ($name eq ':status') { $lines[0] = "HTTP/2 $value" }
        else                    { push @lines, "$name: $value" }
    }
    my $answer = Ratelimit::Http::Answer->parse(join "\r\n", @lines);
    $answer->{body} = $body;
    return $answer;
}

1;

package Ratelimit::Http3;

# An HTTP/3 client: several streams on one connection, by gtlsclient of ngtcp2. Debian's curl has no HTTP/3.

use strict;
use warnings;

use Ratelimit::Http;

use Exporter 'import';
our @EXPORT_OK = qw(http3 http3_command);

# http3($port, $path, $count, body => a file): sends $count requests for the path on one connection
# before it reads a response. Returns the responses in the order of the requests, undef for a stream
# that was closed without one.
sub http3 {
    my ($port, $path, $count, %options) = @_;
    open my $client, '-|', 'timeout', 20, http3_command($port, $path, $count, %options) or die "gtlsclient: $!";
    my %lines;
    while (<$client>) {
        /^http: stream (0x[0-9a-f]+) \[(:status|[a-z0-9-]+): (.*)\]$/ or next;
        push @{ $lines{hex $1} }, $2 eq ':status' ? "HTTP/3 $3" : "$2: $3";
    }
    close $client;
    # The client's streams are 0, 4, 8 and so on.
    return map { $lines{$_} && Ratelimit::Http::Answer->parse(join "\r\n", @{ $lines{$_} }) }
        map { 4 * $_ } 0 .. $count - 1;
}

sub http3_command {
    my ($port, $path, $count, %options) = @_;
    my @body = $options{body} ? ('-d', $options{body}) : ();
    # Debian's gtlsclient writes what it receives to stderr, line by line.
    return ('sh', '-c', 'exec "$@" 2>&1', 'sh', 'gtlsclient', '--exit-on-all-streams-close', '--no-quic-dump',
        '--no-http-dump', @body, '-n', $count, '127.0.0.1', $port, "https://127.0.0.1:$port$path");
}

1;

package Ratelimit::Test;

# What every t/*.t uses: Test::More, and nodes to test. A test ends with finish().

use strict;
use warnings;

use Test::More;

use Ratelimit::Cluster;
use Ratelimit::Http qw(request http_connect http_send http_read burst);
use Ratelimit::Http2 qw(http2);
use Ratelimit::Load;
use Ratelimit::Nginx;
use Ratelimit::Process qw(free_port pause_processes wait_until read_file write_file);
use Ratelimit::Proxy;
use Ratelimit::Redis;
use Ratelimit::Sentinel;
use Ratelimit::Stopwatch qw(stopwatch);

our @EXPORT = (
    qw(redis cluster sentinels nginx node proxy load conf_test survives_kills finish),
    qw(request http_connect http_send http_read burst http2),
    qw(free_port pause_processes wait_until stopwatch read_file write_file without_other_modules),
);

sub import {
    my ($class) = @_;
    my $caller = caller;
    strict->import;
    warnings->import;
    wait_for_another_day();
    no strict 'refs';
    *{"${caller}::$_"} = \&{$_} for @EXPORT, @Test::More::EXPORT;
    return;
}

# A configuration for an nginx without modules that Debian or the machine does not have. OpenTelemetry: the attributes of
# spans become response headers. geoip2: what it looks up is a request header, X-ASN for $asn.
sub without_other_modules {
    my ($text) = @_;
    $text =~ s/^ *otel_(?:exporter \{.*?\}|(?:trace|service_name) [^;]*;)\n//msg;
    $text =~ s/otel_span_attr (.*?);/add_header $1 always;/g;
    $text =~ s/^geoip2 \S+ \{\s*\$(\w+) [^;]*;\s*\}/map \$http_x_$1 \$$1 { default \$http_x_$1; }/msg;
    return $text;
}

# Windows of a day end at midnight UTC, and a test that runs then would see its limits start over, so
# none begins in the four minutes before.
sub wait_for_another_day {
    my $left = 86_400 - time % 86_400;
    return if $left >= 240;
    diag "waiting $left seconds for midnight UTC, when windows of a day end";
    sleep $left + 1;
    return;
}

sub redis { return Ratelimit::Redis->new(@_) }
sub nginx { return Ratelimit::Nginx->new(@_) }

# cluster(masters => 3, replicas => 1) and sentinels(count => 3, master => name): see their modules.
sub cluster   { return Ratelimit::Cluster->new(@_) }
sub sentinels { return Ratelimit::Sentinel->new(@_) }

# proxy(to => "address:port").
sub proxy { return Ratelimit::Proxy->new(@_) }

# load(port =>, path =>, clients => 8).
sub load { return Ratelimit::Load->new(@_) }

# Lines of http {} for one Redis and one zone "test", keyed by the argument k.
sub http_lines {
    my (%options) = @_;
    my $block = $options{block} // '';
    my $key   = $options{key} // 'k$arg_k';
    my $timeout = $options{timeout} // '5s';
    return <<"END" . ($options{http} // '');
    ratelimit_redis main { server @{[ $options{redis}->addr ]}; timeout $timeout; connect_timeout $timeout; $block }
    ratelimit_zone $key zone=test $options{zone};
END
}

# A Redis and an nginx with a limited location /. Options: zone (parameters of ratelimit_zone, rate=
# among them), limit (parameters of ratelimit), redis (one that runs already), key, block (more of
# ratelimit_redis), timeout (5s; longer for requests that wait while a test does something), http,
# location (more of /), server, and those of Ratelimit::Nginx. /peek reports the state of the key at no
# cost.
sub node {
    my (%options) = @_;
    $options{redis} //= redis();
    my ($limit, $location, $server) = map { $options{$_} // '' } qw(limit location server);
    my $node = nginx(
        %options,
        http   => http_lines(%options),
        server => <<"END",
        location / { ratelimit zone=test $limit; $location }
        location = /peek { ratelimit zone=test cost=0; try_files /index.html =404; }
        $server
END
    );
    $node->{redis} = $options{redis};
    return $node;
}

# Kills one of two workers $times times under the loads, of 16 clients each; then new keys are still
# limited exactly, by a location that takes the rate and the key from the arguments r and k.
sub survives_kills {
    my ($node, $times, @loads) = @_;
    $_->wait_for_more(1) for @loads;    # a worker that has just begun has no title
    for my $crash (1 .. $times) {
        my ($victim) = $node->workers;
        kill KILL => $victim;
        wait_until('another worker', sub {
            my @workers = $node->workers;
            return @workers == 2 && !grep { $_ == $victim } @workers;
        });
        $_->wait_for_more(30) for @loads;
    }
    my $failed = 0;
    $failed += $_->stop->{failed} for @loads;
    cmp_ok $failed, '<=', $times * 32, 'no request failed but those of a killed worker';
    is $node->count_log(qr/exited on signal (?!9)/), 0, 'no other worker died';
    for my $key (1 .. 3) {
        my @statuses = burst($node->port, "/?r=50r/d&k=new$key", 100, 20);
        is scalar(grep { $_ == 200 } @statuses), 50, 'a new key is limited exactly';
    }
    return;
}

# `nginx -t` with lines in http {} and server {}: (exit status, its complaints).
sub conf_test {
    my (%options) = @_;
    return Ratelimit::Nginx->test(%options);
}

# Ends a test: no nginx may have logged an alert, crashed or left a socket open.
sub finish {
    Ratelimit::Nginx::show_logs() if !Test::More->builder->is_passing;
    my @complaints = Ratelimit::Nginx::complaints();
    is "@complaints", '', 'no alert, crash or sanitizer report in the logs';
    done_testing();
    return;
}

END { Ratelimit::Nginx::show_logs() if $? }    # it died

1;

#!/usr/bin/env perl

# Tests the dashboard as a real node serves it, under traffic that is partly refused, and as a real fleet does.
# Usage: perl -It/lib t/dashboard/node.pl, after ./build.sh

use strict;
use warnings;

use File::Basename qw(dirname);
use Ratelimit::Nginx;
use Ratelimit::Redis;

my $redis = Ratelimit::Redis->new;
my $node = Ratelimit::Nginx->new(
    workers => 2,
    http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }"
        . 'ratelimit_zone $ratelimit_client zone=per_client rate=3r/s algorithm=gcra burst=5;'
        . 'ratelimit_zone $arg_k zone=other rate=100r/m;',
    server => 'location /ratelimit/ { ratelimit_api write=on; }'
        . 'location /api/ { ratelimit zone=per_client; ratelimit zone=other; empty_gif; }',
);
my $at = 'http://127.0.0.1:' . $node->port;
@ENV{qw(RATELIMIT_DASHBOARD RATELIMIT_TRAFFIC)} = ("$at/ratelimit/", "$at/api/?k=x");
sub browser { return system(dirname(__FILE__) . '/../../build.sh', 'test-dashboard', @_) }
exit 1 if browser('page.test.mjs');

# A fleet of three nodes.
my @members = map {
    Ratelimit::Nginx->new(
        http => "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; prefix f:; }"
            . "ratelimit_fleet node=edge-$_; ratelimit_zone \$arg_k zone=per_key rate=3r/d;"
            . 'ratelimit_zone $ratelimit_client zone=per_ip rate=30r/m; ratelimit_zone $arg_k zone=search rate=20r/d;'
            . 'set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;',
        server => 'location /ratelimit/ { ratelimit_api write=on user=$arg_user; }'
            . 'location /api/ { ratelimit zone=per_key; empty_gif; }'
            . 'location /site/ { ratelimit zone=per_ip; empty_gif; }'
            . 'location /search/ { ratelimit zone=search; empty_gif; }',
    )
} 1 .. 3;
$ENV{RATELIMIT_FLEET} = join ' ', map { 'http://127.0.0.1:' . $_->port } @members;
# What night.node.mjs stops and reloads.
$ENV{RATELIMIT_FLEET_PIDS} = join ' ', map { $_->pid } @members;
$ENV{RATELIMIT_FLEET_CONFS} = join ' ', map { "$_->{folder}/nginx.conf" } @members;
$ENV{RATELIMIT_FLEET_REDIS_PID} = $redis->pid;
exit(browser('fleet.node.mjs', 'tasks.node.mjs', 'night.node.mjs') ? 1 : 0);

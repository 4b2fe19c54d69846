package Bench::Servers;

# The servers under load: nginx with this module; the peer, nginx with lua-nginx-module; and nginx with
# weserv's module. Every location responds with the same small picture from memory.

use strict;
use warnings;

use File::Spec;

use Bench::Scripts qw($top load_script call_words);
use Ratelimit::Http qw(request);
use Ratelimit::Nginx;
use Ratelimit::Redis;

use Exporter 'import';
our @EXPORT_OK = qw(location ours redis_block peer peer_that_synchronises weserv versions all_stopped);

my $common = <<'END';
    keepalive_requests 1000000000;
    limit_req_status 429;
END

sub location {
    my ($path, $lines) = @_;
    return "location = $path { $lines empty_gif; }\n";
}

# Options: http and server (lines), workers. A request without a decision is refused with 503, so that it is
# noticed.
sub ours {
    my (%options) = @_;
    return Ratelimit::Nginx->new(
        level   => 'crit',
        workers => $options{workers} // 1,
        http    => "$common ratelimit_fail_mode closed;\n$options{http}",
        server  => $options{server},
    );
}

sub redis_block {
    my (@redis) = @_;
    return 'ratelimit_redis main { ' . join('', map { "server @{[ $_->addr ]}; " } @redis)
        . "timeout 5s; connect_timeout 5s; }\n";
}

# locations: name => { key => a variable of nginx, algorithm, quota, window (microseconds), param, and
# optionally zones (an array of names: as many limits, in one call), client (a module of this folder that
# calls Redis) }. Each location has its name, and the same keys in Redis as zones of those names, or the zone
# of its own name, in this module. The script is the one that this module sends.
sub peer {
    my ($redis, %locations) = @_;
    my ($init, $server) = ('', '');
    for my $name (sort keys %locations) {
        my %limit   = (zones => [$name], client => 'peer', %{ $locations{$name} });
        my @zones   = @{ $limit{zones} };
        my @numbers = (0, @limit{qw(quota window param)}, 1);
        my $digest  = load_script($redis, ($limit{algorithm}) x @zones);
        my @words   = call_words($digest, [map { "probe$_" } @zones], @numbers);
        my $size    = length $redis->cmd(@words);
        my $numbers = join '', map { "\\$_" } unpack 'C*', $words[-1];
        my $prefixes = join ', ', map { "'rl:$_:'" } @zones;
        $init .= "package.loaded.limit_$name = require('$limit{client}').limit{"
            . "address = '@{[ $redis->host ]}', port = @{[ $redis->port ]}, digest = '$digest', "
            . "prefixes = {$prefixes}, capacity = $limit{param}, quota = $limit{quota}, window = $limit{window}, answer = $size, numbers = '$numbers'}\n";
        $redis->cmd('DEL', map { "probe$_" } @zones);
        $server .= location("/$name", "access_by_lua_block { require('limit_$name')(ngx.var.$limit{key}) }");
    }
    return with_lua($init, $server);
}

# nginx with lua-nginx-module and a limit of $quota requests in $window seconds in location $path, which it synchronises
# with Redis at intervals (seconds).
sub peer_that_synchronises {
    my ($redis, $path, %limit) = @_;
    my ($address, $port) = split /:/, $redis->addr;
    my $settings = "address = '$address', port = $port, "
        . join ', ', map { "$_ = $limit{$_}" } qw(quota window interval);
    return with_lua("package.loaded.limit_sync = require('peer_sync').limit{$settings, name = 'sync:$limit{interval}:'}\n",
        location($path, q(access_by_lua_block { require('limit_sync')(ngx.var.arg_one) })));
}

# nginx with lua-nginx-module: its init code, and locations.
sub with_lua {
    my ($init, $server) = @_;
    my $folder = $ENV{LUA_MODULES} // '/usr/lib/nginx/modules';
    return Ratelimit::Nginx->new(
        module => 0,
        level  => 'crit',
        main   => "load_module $folder/ndk_http_module.so; load_module $folder/ngx_http_lua_module.so;",
        http   => <<"END",
$common
    lua_package_path "$top/t/bench/?.lua;@{[ $ENV{LUA_RESTY_REDIS} // '' ]}/?.lua;;";
    lua_socket_keepalive_timeout 60s;
    lua_socket_pool_size 256;
    init_by_lua_block { $init }
END
        server => $server . <<'END',
        location = /version {
            default_type text/plain;
            content_by_lua_block { ngx.print(ngx.config.ngx_lua_version, " ", jit.version) }
        }
END
    );
}

# nginx with weserv's rate-limit-nginx-module, and a Redis with the module that it calls, redis-rate-limiter.
# They are files that WESERV_NGINX and WESERV_REDIS name; without these variables, nothing is returned.
# locations: name => { key => a variable of nginx, burst }, each with gcra and one request a minute. A key's
# name in Redis begins with the location's and "_".
sub weserv {
    my (%locations) = @_;
    my @files = grep { length } map { $ENV{"WESERV_$_"} // '' } qw(NGINX REDIS) or return;
    die "WESERV_NGINX and WESERV_REDIS must both name a file\n" if @files != 2 || grep { !-f } @files;
    my ($module, $for_redis) = map { File::Spec->rel2abs($_) } @files;
    my $redis = Ratelimit::Redis->new(conf => "loadmodule $for_redis\n");
    my $nginx = Ratelimit::Nginx->new(
        module => 0,
        level  => 'crit',
        main   => "load_module $module;",
        http   => <<"END",
$common
    upstream counters { server @{[ $redis->addr ]}; keepalive 256; keepalive_requests 1000000000; }
    rate_limit_headers on;
END
        server => join '',
            map { location("/$_", "rate_limit \$$locations{$_}{key} requests=1 period=1m burst=$locations{$_}{burst}; "
                . "rate_limit_prefix $_; rate_limit_pass counters;") } sort keys %locations
    );
    return ($redis, $nginx);
}

# The versions of the measured programs, as lines; with the peer's if it is given.
sub versions {
    my ($redis, $peer) = @_;
    my ($nginx) = (qx(@{[ ($ENV{RATELIMIT_NGINX} // 'nginx') ]} -v 2>&1) // '') =~ m{nginx/(\S+)}
        or die "nginx does not print its version\n";
    my ($server) = $redis->cmd('INFO', 'server') =~ /redis_version:(\S+)/;
    my @versions = ("nginx $nginx", "Redis $server");
    if ($peer) {
        my ($number, $jit) = split / /, request($peer->port, '/version')->body, 2;
        push @versions, sprintf 'lua-nginx-module %d.%d.%d (%s)', int $number / 1e6,
            int($number / 1000) % 1000, $number % 1000, $jit;
    }
    my $commit = qx(git -C $top describe --always 2>/dev/null) // '';
    # The parts of one run write their tables one after another.
    my $dirty = qx(git -C $top status --porcelain -uno -- . ':!doc/benchmarks.md' 2>/dev/null);
    chomp $commit;
    push @versions, "this module at $commit" . ($dirty ? '-dirty' : '') if $commit;
    return @versions;
}

# Stops every nginx; dies if a log has complaints.
sub all_stopped {
    my @complaints = Ratelimit::Nginx::complaints();
    die "nginx logged: @complaints\n" if @complaints;
    return;
}

1;

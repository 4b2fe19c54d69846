# The house: what each room may include, how long files and functions may be.

use Ratelimit::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Find qw(find);

my $top = abs_path(dirname(__FILE__) . '/..');

# Rooms of src/ and what they may include besides themselves and the standard library: rooms, hiredis,
# openssl, nginx's headers ("ngx") or its HTTP part ("ngx_http").
my %may = (
    limit => [],
    loop  => ['hiredis'],
    redis => ['loop', 'hiredis', 'openssl', 'sockets'],
    check => ['redis', 'limit', 'hiredis', 'lua_scripts'],
    nginx => ['loop', 'hiredis', 'ngx'],
    store => ['nginx', 'limit'],
    zone  => [qw(check store redis limit)],
    http  => [qw(zone check store redis nginx loop limit ngx_http dashboard_page)],
);

# What a line includes, as a word of the table; nothing for the standard library. What the table has no
# word for (a system's header, a path that is not room/file.h) no room may include.
sub included {
    my ($line) = @_;
    my ($name) = $line =~ /^\s*#\s*include\b\s*(.*?)\s*(?:\/[\/*].*)?$/ or return;
    return $1 if $name =~ /^"(lua_scripts|dashboard_page)\.h"$/;
    return if $name =~ /^<[a-z0-9_]+>$/;
    return 'ngx_http' if $name =~ /^<ngx_http\w*\.h>$/;
    return 'ngx'      if $name =~ /^<(?:ngx_\w+|nginx)\.h>$/;
    return 'sockets' if $name eq '<arpa/inet.h>';
    return $1 if $name =~ m{^<(hiredis|openssl)/\w+\.h>$};
    return $1 if $name =~ m{^"(\w+)/(?:\w+/)?\w+\.h"$} && $may{$1};
    return $name;
}

# Complaints about the includes of a file's text.
sub wrong_arrows {
    my ($room, $text) = @_;
    my %allowed = map { $_ => 1 } $room, @{ $may{$room} };
    return grep { defined && !$allowed{$_} } map { included($_) } split /\n/, $text;
}

# [name, lines] of the functions of a C++, Lua, Perl or shell file, told by their indentation: each
# ends with the closing line that stands as far in as its head.
sub functions {
    my ($path, $text) = @_;
    my @lines = split /\n/, $text;
    my $head =
          $path =~ /\.lua$/         ? qr/^(\s*)(?:local )?function \w+/
        : $path =~ /\.(?:t|pm|pl)$/ ? qr/^(\s*)(?:sub \w+|subtest ).*\{$/
        :                             qr/^()\w+\(\) [\{\(]$/;
    my @functions;
    for my $i (0 .. $#lines) {
        if ($path =~ /\.(?:cpp|h)$/) {
            # A body begins with a brace alone on its line, below its head.
            next unless $lines[$i] =~ /^(\s*)(?:try )?\{$/;
            my $indent = $1;
            next if $i == 0 || $lines[$i - 1] =~ /[;{]$/;
            push @functions, [$lines[$i - 1], body_length(\@lines, $i, qr/^$indent\}/)];
            next;
        }
        next unless $lines[$i] =~ $head;
        my $indent = $1;
        push @functions, [$lines[$i], body_length(\@lines, $i, qr/^$indent(?:end|\}|\))/)];
    }
    return @functions;
}

sub body_length {
    my ($lines, $from, $end) = @_;
    for my $i ($from + 1 .. $#{$lines}) {
        return $i - $from + 1 if $lines->[$i] =~ $end;
    }
    return @{$lines} - $from;
}

my @files;
find({ no_chdir => 1, wanted => sub {
    push @files, $File::Find::name
        if -f && /\.(?:cpp|h|lua|t|pm|pl|sh)$/ && !m{/(?:build|\.git)/};
} }, $top);

subtest 'the checker notices what it is for' => sub {
    is_deeply [wrong_arrows('limit', qq{#include <vector>\n#include "redis/client.h"\n})], ['redis'];
    is_deeply [wrong_arrows('redis', qq{#include "nginx/ngx.h"\n  #include <ngx_core.h>\n})],
        ['nginx', 'ngx'];
    is_deeply [wrong_arrows('zone', qq{#include "http/conf.h"\n#include <hiredis/hiredis.h>\n})],
        ['http', 'hiredis'];
    is_deeply [wrong_arrows('http', qq{#include "zone/zone.h"\n#include <string>\n})], [];
    is_deeply [wrong_arrows('limit', qq{#include "../http/conf.h"\n#include "rate.h"\n})],
        ['"../http/conf.h"', '"rate.h"'], 'no way around the table';
    is_deeply [wrong_arrows('redis', qq{#include <sys/socket.h>\n#include <cstring>  // memcpy\n})],
        ['<sys/socket.h>'];
    is_deeply [wrong_arrows('check', qq{# include NGINX_HEADER\n})], ['NGINX_HEADER'];
    my $long = "    x();\n" x 70;
    for (
        ['a.cpp', "void f(int a)\n{\n$long}\n"],
        ['a.cpp', "void f() noexcept\ntry {\n$long} catch (...) {\n}\n"],
        ['a.lua', "local function f(a)\n${long}end\n"],
        ['a.pm',  "sub f {\n$long}\n"],
        ['a.sh',  "f() {\n$long}\n"],
    ) {
        my ($path, $text) = @{$_};
        is scalar(grep { $_->[1] > 60 } functions($path, $text)), 1, $path;
    }
};

cmp_ok scalar(@files), '>', 60, 'the files are found';

for my $path (@files) {
    my $text = read_file($path);
    my $name = $path =~ s{^\Q$top\E/}{}r;
    my $length = () = $text =~ /\n/g;
    cmp_ok $length, '<=', 400, "$name has $length lines";
    is join(', ', map { "$_->[0]: $_->[1]" } grep { $_->[1] > 60 } functions($path, $text)), '',
        "$name has no function above 60";
    next unless $name =~ m{^src/(\w+)/};
    ok $may{$1}, "src/$1 is a room that the table knows";
    is join(', ', wrong_arrows($1, $text)), '', "$name includes what its room may";
}

my $readme = read_file("$top/README.md");
for my $room (sort keys %may) {
    like $readme, qr{^\| `src/$room/` \|}m, "README's picture has src/$room";
}

finish();

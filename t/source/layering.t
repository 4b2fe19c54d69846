# The layers of the sources: which rooms a room may include, no circles of includes, each class in one source
# and of a bounded length, and the maximum lengths of files and functions.

use Ratelimit::Test;
use File::Find qw(find);
use Ratelimit::Build qw(top);

my $top = top();

# Rooms of src/ and what they may include besides themselves and the standard library: rooms, hiredis,
# openssl, nginx's headers ("ngx") or its HTTP part ("ngx_http").
my %may = (
    base  => ['random'],    # for all rooms
    limit => [],
    loop  => ['hiredis'],
    redis => ['loop', 'hiredis', 'openssl', 'sockets'],
    check => ['redis', 'limit', 'hiredis', 'lua_scripts'],
    nginx => ['loop', 'hiredis', 'openssl', 'ngx', 'ngx_http'],    # the latter for nginx/ngx_http.h
    store => ['nginx', 'limit'],
    zone  => [qw(check store redis limit)],
    fleet => [qw(zone check store redis nginx loop limit hiredis lua_scripts json poll)],
    node  => [qw(fleet zone check store redis nginx loop limit ngx_http)],
    conf  => [qw(node fleet zone check store redis nginx limit ngx_http)],
    http  => [qw(conf node fleet zone check store redis nginx loop limit ngx_http openssl)],
    'http/api' => [qw(http conf node fleet zone check store redis nginx loop limit ngx_http openssl dashboard_page)],
    module     => [qw(http/api http conf node nginx)],    # src/ngx_http_ratelimit_module.cpp
    # A program beside the module: ratelimit-rehearse.
    'rehearse/conf'   => [qw(limit glob sockets)],
    'rehearse/log'    => [qw(rehearse/conf limit json sockets zlib)],
    'rehearse/values' => [qw(rehearse/log rehearse/conf limit pcre2)],
    'rehearse/count'  => [qw(rehearse/values rehearse/log rehearse/conf limit openssl)],
    'rehearse/route'  => [qw(rehearse/count rehearse/values rehearse/log rehearse/conf limit)],
    'rehearse/report' => [qw(rehearse/route rehearse/count rehearse/values rehearse/log rehearse/conf limit json openssl)],
    rehearse => [qw(rehearse/report rehearse/route rehearse/count rehearse/values rehearse/log rehearse/conf limit json cli11 sockets)],
);

# The room or library that a line includes, as a word of the table; nothing for the standard library. An
# include without such a word (a system header, a path other than room/file.h) is allowed in no room.
sub included {
    my ($line) = @_;
    my ($name) = $line =~ /^\s*#\s*include\b\s*(.*?)\s*(?:\/[\/*].*)?$/ or return;
    return $1 if $name =~ /^"(lua_scripts|dashboard_page)\.h"$/;
    return if $name =~ /^<[a-z0-9_]+>$/;
    return 'ngx_http' if $name =~ /^<ngx_http\w*\.h>$/ || $name eq '"nginx/ngx_http.h"';
    return $1 if $name =~ m{^"((?:http|rehearse)/\w+)/\w+\.h"$} && $may{$1};
    return 'ngx'      if $name =~ /^<(?:ngx_\w+|nginx)\.h>$/;
    return 'sockets' if $name =~ m{^<(?:arpa/inet|sys/socket|unistd|fcntl|sys/stat)\.h>$};
    return { 'zlib.h' => 'zlib', 'pcre2.h' => 'pcre2', 'nlohmann/json.hpp' => 'json', 'CLI/CLI.hpp' => 'cli11',
        'glob.h' => 'glob', 'poll.h' => 'poll', 'sys/random.h' => 'random' }->{$1}
        if $name =~ m{^<(zlib\.h|pcre2\.h|nlohmann/json\.hpp|CLI/CLI\.hpp|glob\.h|poll\.h|sys/random\.h)>$};
    return $1 if $name =~ m{^<(hiredis|openssl)/\w+\.h>$};
    return $1 if $name =~ m{^"(\w+)/(?:\w+/)?\w+\.h"$} && $may{$1};
    return $name;
}

# The room of a path below the top folder.
sub room_of {
    my ($path) = @_;
    return $1 if $path =~ m{^src/(\w+/\w+)/} && $may{$1};
    return 'module' if $path =~ m{^src/[^/]+$};
    return ($path =~ m{^src/(\w+)/})[0];
}

# Complaints about the includes of a file's text.
sub wrong_arrows {
    my ($room, $text) = @_;
    my %allowed = map { $_ => 1 } 'base', $room, @{ $may{$room} };
    return grep { defined && !$allowed{$_} } map { included($_) } split /\n/, $text;
}

# The include graph of texts by their paths below src/: { file => { file => 1 } }. A header and its source
# are one file here, named without an extension.
sub includes {
    my (%texts) = @_;
    my %graph;
    for my $path (sort keys %texts) {
        my $name = $path =~ s/\.\w+$//r;
        for my $header ($texts{$path} =~ /^\s*#\s*include\s*"([\w\/]+)\.h"/mg) {
            $graph{$name}{$header} = 1 if $header ne $name && exists $texts{"$header.h"};
        }
    }
    return \%graph;
}

# The files on the shortest path from one file to another, both included; empty if there is none.
sub way {
    my ($graph, $from, $to) = @_;
    my %before = ($from => undef);
    my @reached = ($from);
    while (@reached) {
        my $file = shift @reached;
        if ($file eq $to) {
            my @way = ($file);
            unshift @way, $file while defined($file = $before{$file});
            return @way;
        }
        for my $next (grep { !exists $before{$_} } sort keys %{ $graph->{$file} // {} }) {
            $before{$next} = $file;
            push @reached, $next;
        }
    }
    return;
}

# Complaints about circles of includes.
sub wrong_circles {
    my ($graph) = @_;
    my (%seen, @wrong);
    for my $from (sort keys %{$graph}) {
        for my $to (sort keys %{ $graph->{$from} }) {
            my @circle = way($graph, $to, $from) or next;
            push @wrong, "circle: @circle" unless $seen{ join ' ', sort @circle }++;
        }
    }
    return @wrong;
}

# The classes of texts by room and name: { files => { path => 1 }, lines => of their declarations and functions }.
# A nested class counts as its outermost class.
sub classes {
    my ($texts) = @_;
    my %classes;
    my $add = sub {
        my ($class, $path, $lines, $from, $end) = @_;
        $class->{files}{$path} = 1;
        $class->{lines} += body_length($lines, $from, $end);
    };
    for my $path (sort keys %{$texts}) {
        my ($room) = $path =~ m{^(\w+)/} or next;
        my @lines = split /\n/, $texts->{$path};
        for my $i (grep { $lines[$_] =~ /^(?:class|struct) \w+[^;]*$/ } 0 .. $#lines) {
            my ($name) = $lines[$i] =~ /^\w+ (\w+)/;
            $add->($classes{"$room/$name"} //= {}, $path, \@lines, $i, qr/^\};/);
        }
    }
    for my $path (sort keys %{$texts}) {
        my ($room) = $path =~ m{^(\w+)/} or next;
        my @lines = split /\n/, $texts->{$path};
        for my $i (0 .. $#lines) {
            my ($head) = $lines[$i] =~ /^(?![\s#\/}])[^=(]*?((?:\w+::)+)(?:~?\w+|operator\S+)\((?!.*;$)/ or next;
            my ($name) = grep { $classes{"$room/$_"} } split /::/, $head or next;
            $add->($classes{"$room/$name"}, $path, \@lines, $i, qr/^\}/);
        }
    }
    return %classes;
}

# Complaints about classes whose functions are in more than one source, or that are longer than 500 lines.
sub wrong_classes {
    my ($texts) = @_;
    my %classes = classes($texts);
    my @wrong;
    for my $name (sort keys %classes) {
        my @sources = grep { /\.cpp$/ } sort keys %{ $classes{$name}{files} };
        push @wrong, "cut: $name: @sources" if @sources > 1;
        push @wrong, "long: $name: $classes{$name}{lines}" if $classes{$name}{lines} > 500;
    }
    return @wrong;
}

# [name, lines] of the functions of a C++, Lua, Perl or shell file, found by indentation: each ends with
# the closing line indented like its head.
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

subtest 'circles of includes are found' => sub {
    my %texts = (
        'redis/a.h' => qq{#include "redis/b.h"\n}, 'redis/b.h' => qq{#include <vector>\n},
        'redis/b.cpp' => qq{#include "redis/b.h"\n#include "redis/c.h"\n}, 'redis/c.h' => '',
    );
    is_deeply [wrong_circles(includes(%texts))], [], 'no circle';
    $texts{'redis/c.cpp'} = qq{#include "redis/a.h"\n};
    is_deeply [wrong_circles(includes(%texts))], ['circle: redis/b redis/c redis/a'], 'a circle through sources';
};

subtest 'classes in several sources, and long ones, are found' => sub {
    my %texts = (
        'redis/a.h'   => "class A {\n    struct B {\n        void h();\n    };\n};\nvoid A::f()\n{\n}\n",
        'redis/a.cpp' => "A::~A()\n{\n}\nconst int n = A::count(1);\n",
        'redis/c.cpp' => "int f()\n{\n    A::g();\n}\n",
    );
    is_deeply [wrong_classes(\%texts)], [], 'one source';
    $texts{'redis/b.cpp'} = "bool A::B::operator==(const B&)\n{\n}\n";
    is_deeply [wrong_classes(\%texts)], ['cut: redis/A: redis/a.cpp redis/b.cpp'], 'two sources';
    $texts{'redis/b.cpp'} = "class D {\n" . "    int f();\n" x 400 . "};\nint D::f()\n{\n" . "    x();\n" x 100 . "}\n";
    is_deeply [wrong_classes(\%texts)], ['long: redis/D: 505'], 'a long class, header and source together';
};

subtest 'wrong includes and long functions are found' => sub {
    is_deeply [wrong_arrows('limit', qq{#include <vector>\n#include "redis/client.h"\n})], ['redis'];
    is_deeply [wrong_arrows('redis', qq{#include "nginx/ngx.h"\n  #include <ngx_core.h>\n})],
        ['nginx', 'ngx'];
    is_deeply [wrong_arrows('zone', qq{#include "conf/conf.h"\n#include <hiredis/hiredis.h>\n})],
        ['conf', 'hiredis'];
    is_deeply [wrong_arrows('http', qq{#include "zone/zone.h"\n#include <string>\n})], [];
    is_deeply [wrong_arrows('http', qq{#include "http/api/views.h"\n})], ['http/api'];
    is_deeply [wrong_arrows('store', qq{#include "nginx/ngx_http.h"\n})], ['ngx_http'];
    is_deeply [wrong_arrows('limit', qq{#include "../http/conf.h"\n#include "rate.h"\n})],
        ['"../http/conf.h"', '"rate.h"'], 'a path outside the table';
    is_deeply [wrong_arrows('redis', qq{#include <sys/epoll.h>\n#include <cstring>  // memcpy\n})],
        ['<sys/epoll.h>'];
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

my %sources = map { s{^\Q$top\E/src/}{}r => read_file($_) } grep { m{^\Q$top\E/src/.*\.(?:cpp|h)$} } @files;
is join("\n", wrong_circles(includes(%sources))), '', 'no files include each other in a circle';
is join("\n", wrong_classes(\%sources)), '', 'each class has one source, and at most 500 lines in all';

for my $path (@files) {
    my $text = read_file($path);
    my $name = $path =~ s{^\Q$top\E/}{}r;
    my $length = () = $text =~ /\n/g;
    cmp_ok $length, '<=', 400, "$name has $length lines";
    is join(', ', map { "$_->[0]: $_->[1]" } grep { $_->[1] > 60 } functions($path, $text)), '',
        "$name has no function above 60";
    my $room = room_of($name) // next;
    ok $may{$room}, "$room is in the table of rooms";
    is join(', ', wrong_arrows($room, $text)), '', "$name includes what its room may";
}

my $architecture = read_file("$top/doc/architecture.md");
for my $room (grep { $_ ne 'module' } sort keys %may) {
    like $architecture, qr{^\| `src/$room/` \|}m, "doc/architecture.md has src/$room";
}

finish();

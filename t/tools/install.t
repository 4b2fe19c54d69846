# ./build.sh install and uninstall: what they put where, and that they do it whole or not at all.
# Each nginx here has folders of its own, which a program before it names as nginx -V does.

use Ratelimit::Test;
use Ratelimit::Build qw(top);
use Ratelimit::Process qw(temp_folder);

my $top  = top();
my $name = 'ngx_http_ratelimit_module.so';

# A node with Debian's folders: configured without the module, but for the lines in modules-enabled.
sub debian_node {
    my $root = temp_folder();
    mkdir "$root/modules-enabled" or die $!;
    my $node = nginx(module => 0, main => "include $root/modules-enabled/*.conf;",
        expected => qr{\[emerg\] .* unknown directive});    # what nginx -t logs
    $node->{root} = $root;
    program($node, "--modules-path=$root/lib/modules");
    return $node;
}

# A program that answers -V with these folders, and else is the node's nginx with its configuration.
sub program {
    my ($node, @options) = @_;
    my $root      = $node->{root};
    my @command   = $node->command;
    my $arguments = "--prefix=$root @options --conf-path=$node->{folder}/nginx.conf --with-compat";
    write_file("$root/nginx", <<"END");
#!/bin/sh
[ "\$1" != -V ] || exec echo 'configure arguments: $arguments'
exec @command "\$@"
END
    chmod 0755, "$root/nginx";
    return;
}

# build.sh with this node's nginx: its exit status, what it printed and what it said.
sub build_sh {
    my ($node, $command, $destdir) = @_;
    local $ENV{RATELIMIT_NGINX} = "$node->{root}/nginx";
    local $ENV{DESTDIR}         = $destdir // '';
    my $printed = qx('$top/build.sh' $command 2>'$node->{root}/said');
    return ($?, $printed, read_file("$node->{root}/said"));
}

# Every file and link below the node's folders, with its inode.
sub tree {
    my ($node) = @_;
    my @folders = grep { -d } map { "$node->{root}/$_" }
        qw(lib modules modules-available modules-enabled);
    return qx(find @folders ! -type d -printf "%p %i\\n");
}

my $limited = {
    http   => 'ratelimit_zone k zone=all rate=2r/d;',
    server => 'location / { ratelimit zone=all; try_files /index.html =404; }',
};

subtest 'a node with folders as Debian has them' => sub {
    my $node   = debian_node();
    my $root   = $node->{root};
    my $target = "$root/lib/modules/$name";
    my $line   = "$root/modules-available/mod-http-ratelimit.conf";
    my $link   = "$root/modules-enabled/50-mod-http-ratelimit.conf";

    my ($status, $printed, $said) = build_sh($node, 'install');
    is $status, 0, 'installs';
    is $printed, "$target\n$line\n$link\n", 'and prints what it put where';
    is $said, '', 'and nothing else';
    is read_file($link), "load_module $target;\n", 'the line loads it';
    is readlink $link, $line, 'the link is to where Debian has such lines';
    $node->configure(%{$limited})->reload(gone => 1);
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429], 'after a reload it limits';

    my $before = (stat $target)[1];
    ($status, undef, $said) = build_sh($node, 'install');
    is $status, 0, 'installs again';
    like $said, qr/^An nginx that runs goes on with the old module, .* restart it\.$/, 'saying so';
    isnt((stat $target)[1], $before, 'not over the old file');
    like read_file('/proc/' . $node->pid . '/maps'), qr{$name \(deleted\)},
        'which the nginx that runs still has';
    is $node->status('/'), 429, 'and works with';
    $before = tree($node);
    unlike $before, qr/\.(?:new|old)\b/, 'nothing else is left there';

    ($status, $printed, $said) = build_sh($node, 'uninstall');
    isnt $status, 0, 'a module that the configuration needs stays';
    like $said, qr{^build\.sh\ uninstall:\ nginx\ -t\ fails\ without\ the\ module,
        \ so\ all\ is\ as\ it\ was:\ unknown\ directive\ "ratelimit_zone"\ in\ \S+:\d+\n$}x,
        'with one line that says why';
    is $printed . tree($node), $before, 'and nothing has changed';

    $node->configure(http => '', server => '')->reload(gone => 1);
    ($status, $printed, $said) = build_sh($node, 'uninstall');
    is "$status$said", '0', 'else it goes';
    is $printed, "$link\n$line\n$target\n", 'with what was put there';
    is tree($node), '', 'and nothing is left';
    $node->reload(gone => 1);
    is $node->status('/'), 200, 'nginx goes on without it';
    ($status, undef, $said) = build_sh($node, 'uninstall');
    like $said, qr{^build\.sh uninstall: nothing is installed in $root/lib/modules\n$}, 'once';
};

subtest 'a configuration that nginx refuses' => sub {
    my $node = debian_node();
    $node->configure(http => 'no_such_directive on;');
    my ($status, $printed, $said) = build_sh($node, 'install');
    isnt $status, 0, 'it fails';
    like $said, qr{^build\.sh\ install:\ nginx\ -t\ fails\ with\ the\ module,
        \ so\ all\ is\ as\ it\ was:\ unknown\ directive\ "no_such_directive"\ in\ \S+:\d+\n$}x,
        'with one line that says why';
    is $printed . tree($node), '', 'and nothing is left';
};

subtest 'an nginx whose configuration includes no modules' => sub {
    my $node = debian_node();
    my $line = "load_module $node->{root}/modules/$name;";
    $node->configure(main => '');
    program($node);
    my ($status, $printed, $said) = build_sh($node, 'install');
    is $status, 0, 'installs';
    is $printed, "$node->{root}/modules/$name\n$line\n", 'and prints the line to write';
    like $said, qr{^\Q$node->{folder}\E/nginx\.conf includes no folder of modules}, 'and where';

    $node->configure(%{$limited}, main => $line)->reload(gone => 1);
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429], 'the line loads it';
    (undef, $printed) = build_sh($node, 'install');
    is $printed, "$node->{root}/modules/$name\n", 'once it is there it is not printed';
};

subtest 'a folder of lines that are not links' => sub {
    my $node = debian_node();
    mkdir "$node->{root}/modules.d" or die $!;
    $node->configure(main => "include $node->{root}/modules.d/*.conf;");
    my ($status, $printed) = build_sh($node, 'install');
    is "$status $printed", "0 $node->{root}/lib/modules/$name\n"
        . "$node->{root}/modules.d/mod-http-ratelimit.conf\n", 'gets a file';
};

subtest 'a module that is loaded by a line in nginx.conf itself' => sub {
    my $node = debian_node();
    my $main = "load_module $node->{root}/lib/modules/$name;\n$node->{main}";
    $node->configure(main => $main);
    my ($status, $printed) = build_sh($node, 'install');
    is "$status $printed", "0 $node->{root}/lib/modules/$name\n", 'gets no second line';
};

subtest 'an nginx that cannot load this build' => sub {
    my $node = debian_node();
    my $bad  = write_file("$node->{root}/bad.so", "no module\n");
    local $ENV{RATELIMIT_NGINX} = "$node->{root}/nginx";
    my $answer = qx('$top/packaging/install.sh' install $bad 2>&1);
    isnt $?, 0, 'it fails';
    like $answer, qr{^build\.sh\ install:\ \S+/nginx\ does\ not\ load\ this\ build:
        \ dlopen\(\)\ "\Q$bad\E"\ failed\ \(.*\)\n$}x, 'in one line';
    is tree($node), '', 'nothing is left';
};

subtest 'DESTDIR' => sub {
    my $node    = debian_node();
    my $root    = $node->{root};
    my $destdir = "$root/stage";
    my ($status, $printed, $said) = build_sh($node, 'install', $destdir);
    is "$status$said", '0', 'installs';
    is $printed, join('', map { "$destdir$root/$_\n" } "lib/modules/$name",
        'modules-available/mod-http-ratelimit.conf', 'modules-enabled/50-mod-http-ratelimit.conf'),
        'below it';
    is readlink "$destdir$root/modules-enabled/50-mod-http-ratelimit.conf",
        "$root/modules-available/mod-http-ratelimit.conf", 'a link that is right in place';
    is read_file("$destdir$root/modules-available/mod-http-ratelimit.conf"),
        "load_module $root/lib/modules/$name;\n", 'a line likewise';
    is tree($node), '', 'and nowhere else';

    ($status, undef, $said) = build_sh($node, 'install', '/proc/none');
    isnt $status, 0, 'a folder that cannot be written to';
    is $said, "build.sh install: no right to write to /proc/none$root/lib/modules: "
        . "try as root, or with DESTDIR\n", 'is one line';
};

subtest 'no nginx' => sub {
    my $node = debian_node();
    unlink "$node->{root}/nginx";
    my ($status, undef, $said) = build_sh($node, 'install');
    isnt $status, 0, 'it fails';
    like $said, qr{^build\.sh install: \S+/nginx does not run\n$}, 'in one line';
};

finish();

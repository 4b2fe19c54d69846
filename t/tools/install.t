# ./build.sh install and uninstall: which files they write where, and that they succeed whole or change
# nothing. Each nginx here has its own folders: a wrapper reports them as nginx -V does.

use Ratelimit::Test;
use Ratelimit::Build qw(top without_apt);
use Ratelimit::Process qw(temp_folder);

my $top  = top();
my $name = 'ngx_http_ratelimit_module.so';

local $ENV{PATH} = without_apt(temp_folder());

# A node with Debian's folders: it loads no module, and includes the files of modules-enabled.
sub debian_node {
    my $root = temp_folder();
    mkdir "$root/modules-enabled" or die $!;
    my $node = nginx(module => 0, main => "include $root/modules-enabled/*.conf;",
        expected => qr{\[emerg\] .* unknown directive});    # what nginx -t logs
    $node->{root} = $root;
    program($node, "--modules-path=$root/lib/modules");
    return $node;
}

# A wrapper of the node's nginx that answers -V with these folders.
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

# Runs build.sh with this node's nginx: its exit status, stdout, and stderr without the stages of the build.
sub build_sh {
    my ($node, $command, $destdir) = @_;
    local $ENV{RATELIMIT_NGINX} = "$node->{root}/nginx";
    local $ENV{DESTDIR}         = $destdir // '';
    local $ENV{RATELIMIT_PREFIX} = "$node->{root}/local";
    my $printed = qx('$top/build.sh' $command 2>'$node->{root}/stderr');
    return ($?, $printed, read_file("$node->{root}/stderr") =~ s/^Building .*\n//mgr);
}

# The paths of ratelimit-rehearse, as they are printed.
sub program_of { my ($root) = @_; return "$root/local/bin/ratelimit-rehearse\n$root/local/share/man/man1/ratelimit-rehearse.1\n" }

# What uninstall prints of these paths, one a line.
sub removed { my ($paths) = @_; return $paths =~ s/^/Removed /gmr }

# Every file and link below the node's folders, with its inode.
sub tree {
    my ($node) = @_;
    my @folders = grep { -d } map { "$node->{root}/$_" }
        qw(lib local modules modules-available modules-enabled);
    return qx(find @folders ! -type d -printf "%p %i\\n");
}

my $limited = {
    http   => 'ratelimit_zone k zone=all rate=2r/d;',
    server => 'location / { ratelimit zone=all; try_files /index.html =404; }',
};

subtest 'install and uninstall on an nginx with Debian\'s folders' => sub {
    my $node   = debian_node();
    my $root   = $node->{root};
    my $target = "$root/lib/modules/$name";
    my $line   = "$root/modules-available/mod-http-ratelimit.conf";
    my $link   = "$root/modules-enabled/50-mod-http-ratelimit.conf";

    my ($status, $printed, $stderr) = build_sh($node, 'install');
    is $status, 0, 'it installs';
    is $printed, "$target\n$line\n$link\n" . program_of($root), 'and prints the files that it wrote';
    like qx($root/local/bin/ratelimit-rehearse --help), qr/--suggest/, 'ratelimit-rehearse runs';
    is $stderr, '', 'and nothing on stderr';
    is read_file($link), "load_module $target;\n", 'the configuration loads the module';
    is readlink $link, $line, 'the link leads to modules-available';
    $node->configure(%{$limited})->reload(gone => 1);
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429], 'after a reload nginx limits';

    my $before = (stat $target)[1];
    ($status, undef, $stderr) = build_sh($node, 'install');
    is $status, 0, 'it installs again';
    like $stderr, qr/^A running nginx keeps the old module, .* restart it\.$/, 'and says that a running nginx keeps the old module';
    isnt((stat $target)[1], $before, 'the file is replaced, not overwritten');
    like read_file('/proc/' . $node->pid . '/maps'), qr{$name \(deleted\)},
        'the running nginx still maps the old file';
    is $node->status('/'), 429, 'and still limits';
    $before = tree($node);
    unlike $before, qr/\.(?:new|old)\b/, 'no temporary file is left';

    ($status, $printed, $stderr) = build_sh($node, 'uninstall');
    isnt $status, 0, 'a module that the configuration needs is not removed';
    like $stderr, qr{^build\.sh\ uninstall:\ nginx\ -t\ fails\ without\ the\ module,
        \ so\ the\ changes\ were\ undone:\ unknown\ directive\ "ratelimit_zone"\ in\ \S+:\d+\n$}x,
        'one line gives the reason';
    is $printed . tree($node), $before, 'nothing has changed';

    $node->configure(http => '', server => '')->reload(gone => 1);
    ($status, $printed, $stderr) = build_sh($node, 'uninstall');
    is $status, 0, 'without such a configuration it is removed';
    is $printed, removed("$link\n$line\n$target\n" . program_of($root)), 'and each file that was removed is named';
    is $stderr, "A running nginx limits until it is reloaded, and keeps the module in memory until it is restarted.\n",
        'and what remains to do';
    is tree($node), '', 'nothing is left';
    like read_file('/proc/' . $node->pid . '/maps'), qr{$name \(deleted\)}, 'the running nginx still maps it';
    $node->reload(gone => 1);
    is $node->status('/'), 200, 'nginx runs without it';
    ($status, $printed, $stderr) = build_sh($node, 'uninstall');
    isnt $status, 0, 'a second uninstall fails';
    is "$printed$stderr", "build.sh uninstall: nothing is installed in $root/lib/modules or $root/local, so nothing was removed\n",
        'and says that nothing is installed';
};

subtest 'uninstall removes what is left of an installation' => sub {
    my $node = debian_node();
    my $root = $node->{root};
    my $name_of_line = 'modules-available/mod-http-ratelimit.conf';
    build_sh($node, 'install');
    unlink "$root/lib/modules/$name", "$root/modules-enabled/50-mod-http-ratelimit.conf" or die $!;
    my ($status, $printed, $stderr) = build_sh($node, 'uninstall');
    is $status, 0, 'it succeeds';
    is $printed, removed("$root/$name_of_line\n" . program_of($root)), 'and names only the files that were there';
    like $stderr, qr/^A running nginx limits/, 'an nginx may still run with the module';

    build_sh($node, 'install');
    unlink "$root/lib/modules/$name", map { "$root/$_" } $name_of_line, 'modules-enabled/50-mod-http-ratelimit.conf';
    (undef, $printed, $stderr) = build_sh($node, 'uninstall');
    is "$printed$stderr", removed(program_of($root)), 'ratelimit-rehearse alone concerns no nginx';
};

subtest 'install changes nothing if nginx refuses the configuration' => sub {
    my $node = debian_node();
    $node->configure(http => 'no_such_directive on;');
    my ($status, $printed, $stderr) = build_sh($node, 'install');
    isnt $status, 0, 'it fails';
    like $stderr, qr{^build\.sh\ install:\ nginx\ -t\ fails\ with\ the\ module,
        \ so\ the\ changes\ were\ undone:\ unknown\ directive\ "no_such_directive"\ in\ \S+:\d+\n$}x,
        'one line gives the reason';
    is $printed . tree($node), '', 'nothing is left';
};

subtest 'install prints the load_module line for an nginx that includes no folder of modules' => sub {
    my $node = debian_node();
    my $line = "load_module $node->{root}/modules/$name;";
    $node->configure(main => '');
    program($node);
    my ($status, $printed, $stderr) = build_sh($node, 'install');
    is $status, 0, 'it installs';
    is $printed, "$node->{root}/modules/$name\n" . program_of($node->{root}) . "$line\n", 'and prints the line to add';
    like $stderr, qr{^\Q$node->{folder}\E/nginx\.conf includes no folder of modules}, 'and the file to add it to';

    $node->configure(%{$limited}, main => $line)->reload(gone => 1);
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429], 'the line loads the module';
    (undef, $printed) = build_sh($node, 'install');
    is $printed, "$node->{root}/modules/$name\n" . program_of($node->{root}), 'once the line is there it is not printed';
};

subtest 'install writes a file into a folder of modules without links' => sub {
    my $node = debian_node();
    mkdir "$node->{root}/modules.d" or die $!;
    $node->configure(main => "include $node->{root}/modules.d/*.conf;");
    my ($status, $printed) = build_sh($node, 'install');
    is "$status $printed", "0 $node->{root}/lib/modules/$name\n"
        . "$node->{root}/modules.d/mod-http-ratelimit.conf\n" . program_of($node->{root}), 'a file and no link';
};

subtest 'install adds no second load_module line' => sub {
    my $node = debian_node();
    my $main = "load_module $node->{root}/lib/modules/$name;\n$node->{main}";
    $node->configure(main => $main);
    my ($status, $printed) = build_sh($node, 'install');
    is "$status $printed", "0 $node->{root}/lib/modules/$name\n" . program_of($node->{root}), 'only the module is written';
};

subtest 'install fails if nginx cannot load the module' => sub {
    my $node = debian_node();
    my $bad  = write_file("$node->{root}/bad.so", "no module\n");
    local $ENV{RATELIMIT_NGINX} = "$node->{root}/nginx";
    my $answer = qx('$top/packaging/install.sh' install $bad 2>&1);
    isnt $?, 0, 'it fails';
    like $answer, qr{^build\.sh\ install:\ \S+/nginx\ does\ not\ load\ this\ build:
        \ dlopen\(\)\ "\Q$bad\E"\ failed\ \(.*\)\n$}x, 'one line gives the reason';
    is tree($node), '', 'nothing is left';
};

subtest 'install honours DESTDIR' => sub {
    my $node    = debian_node();
    my $root    = $node->{root};
    my $destdir = "$root/stage";
    my ($status, $printed, $stderr) = build_sh($node, 'install', $destdir);
    is "$status$stderr", '0', 'it installs';
    is $printed, join('', map { "$destdir$root/$_\n" } "lib/modules/$name",
        'modules-available/mod-http-ratelimit.conf', 'modules-enabled/50-mod-http-ratelimit.conf')
        . program_of("$destdir$root"), 'below DESTDIR';
    is readlink "$destdir$root/modules-enabled/50-mod-http-ratelimit.conf",
        "$root/modules-available/mod-http-ratelimit.conf", 'the link has its final target';
    is read_file("$destdir$root/modules-available/mod-http-ratelimit.conf"),
        "load_module $root/lib/modules/$name;\n", 'the line has the final path';
    is tree($node), '', 'nothing is written elsewhere';

    ($status, $printed, $stderr) = build_sh($node, 'uninstall', $destdir);
    is "$status$stderr", '0', 'uninstall removes it there, where no nginx runs';
    like $printed, qr{\A(?:Removed \Q$destdir\E\S+\n){5}\z}, 'and names each file';

    ($status, undef, $stderr) = build_sh($node, 'install', '/proc/none');
    isnt $status, 0, 'a folder without the right to write fails';
    is $stderr, "build.sh install: no permission to write to /proc/none$root/lib/modules: "
        . "try as root, or with DESTDIR\n", 'one line gives the reason';
};

subtest 'install fails without nginx' => sub {
    my $node = debian_node();
    unlink "$node->{root}/nginx";
    my ($status, undef, $stderr) = build_sh($node, 'install');
    isnt $status, 0, 'it fails';
    like $stderr, qr{^build\.sh install: \S+/nginx does not run\n$}, 'one line gives the reason';
};

finish();

# ./build.sh module: one file for any nginx. It is built here for the nginx of this machine, and loaded.

use Ratelimit::Test;
use File::Spec;
use Ratelimit::Build qw(top build_folder stand_in);
use Ratelimit::Http2 qw(http2_one);
use Ratelimit::Nginx;
use Ratelimit::Process qw(temp_folder);

my $top     = top();
my $folder  = temp_folder();
my $program = Ratelimit::Nginx::program();
delete @ENV{qw(NGX_SRC NGX_FLAGS RATELIMIT_HIREDIS)};
$ENV{CCACHE_PATH} = '/usr/bin';    # where ccache, if the PATH has it, finds the compiler

# Runs build.sh module: its exit status, stdout and stderr.
sub module_for {
    my ($options, %environment) = @_;
    local @ENV{keys %environment} = values %environment;
    my $printed = qx('$top/build.sh' --no-install module $options 2>'$folder/stderr');
    return ($?, $printed, read_file("$folder/stderr"));
}

# A script that answers -V with $said, and is nginx otherwise.
sub program_that_says {
    my ($said, $otherwise) = @_;
    my $path = write_file("$folder/said-" . length($said), <<"END");
#!/bin/sh
[ "\$1" != -V ] || { cat <<'SAID'; exit; }
$said
SAID
$otherwise
END
    chmod 0755, $path;
    return $path;
}

my ($version) = qx('$program' -v 2>&1) =~ m{^nginx version: nginx/(\S+)}m or die "$program has no version";
my $debug = qx('$program' -V 2>&1) =~ /--with-debug/ ? '--with-debug' : '';
my $file;

# First, so that it compiles the module, and the next finds it built: it has the same options as this machine's nginx.
subtest 'it says what is missing, works without apt, and leaves a source tree as it is' => sub {
    # A PATH with the programs of this machine but those of Debian's packages, and with a compiler without headers.
    my $path = "$folder/without-apt";
    mkdir $path or die $!;
    for my $program (map { glob "$_/*" } File::Spec->path, '/usr/bin', '/bin') {
        my ($name) = $program =~ m{([^/]+)$};
        symlink $program, "$path/$name" unless $name =~ /^(?:apt|dpkg|openssl$)/;
    }
    my (undef, undef, $stderr) = module_for("--like '$program'", PATH => $path);
    is $stderr, "build.sh: missing to build a module (packages of Debian, Fedora and RHEL, Alpine):\n  openssl\n", 'a program';
    symlink '/usr/bin/openssl', "$path/openssl" or die $!;
    unlink "$path/g++" or die $!;
    chmod 0755, write_file("$path/g++", <<'END');
#!/bin/sh
case "$*" in *fsyntax*) ! grep -Eq 'json|ssl' ;; *) exec /usr/bin/g++ "$@" ;; esac
END
    (undef, undef, $stderr) = module_for("--like '$program'", PATH => $path);
    is $stderr, "build.sh: missing to build a module (packages of Debian, Fedora and RHEL, Alpine):\n"
        . "  OpenSSL's headers (libssl-dev, openssl-devel, openssl-dev)\n"
        . "  JSON for Modern C++ (nlohmann-json3-dev, json-devel, nlohmann-json)\n", 'headers';
    unlink "$path/g++" or die $!;
    symlink '/usr/bin/g++', "$path/g++" or die $!;

    my $tree = "$folder/git clone";
    system('cp', '-a', '/usr/share/nginx/src', $tree) == 0 or die "no copy of nginx-dev's source";
    rename "$tree/configure", "$tree/auto/configure" or die $!;    # as in a git clone
    unlink "$tree/conf_flags";
    write_file("$tree/Makefile", "install:\n");
    my $state = sub { return qx(cd '$tree' && find . -type f | sort | xargs -d '\\n' cksum) };
    my $before = $state->();
    (my $status, my $printed, $stderr) = module_for("--source '$tree'", PATH => $path, NGX_FLAGS => $debug);
    is $status, 0, 'with all of them it builds' or diag $stderr;
    ($file) = $printed =~ m{^(/.*/ngx_http_ratelimit_module\.so)$}m;
    ok $file, 'the module';
    is $state->(), $before, 'no file of the tree has changed';
};

subtest "a module is built like $program" => sub {
    my ($status, $printed, $stderr) = module_for("--like '$program'");
    is $status, 0, 'it is built' or diag $stderr;
    like $printed, qr{^\Q$file\E$}m, 'the same file as from a tree of this version';
    like $file, qr{^\Q@{[ build_folder() ]}\E/module/nginx-\Q$version\E-\w[\w-]+/}, 'in a folder of its own';
    like $printed, qr{^fits nginx \Q$version\E with --with-compat}m, 'it says which nginx can load it';
    like $printed, qr{^on \w+ with glibc 2\.\d+ or later, libssl\.so\.\d+ and libcrypto\.so\.\d+$}m,
        'and on which system';

    my ($install, $line, $reload) = $printed =~ /^  (install .*)\n  sed .*(load_module \S+;).*\n  (.* -t && .* -s reload)$/m;
    ok $reload, 'three lines load it' or return;
    my ($path) = $line =~ /load_module (\S+);/;
    like $install, qr{^install -D -m 644 \Q$file\E \Q$path\E$}, 'the first puts it where the second loads it from';
};

subtest 'it needs libc and OpenSSL, and exports what nginx looks up' => sub {
    my @needed = sort map { /\(NEEDED\).*\[(.*)\]/ ? $1 : () } qx(readelf -d '$file');
    like "@needed", qr/^(?:ld-linux\S* )?libc\.so\.6 libcrypto\.so\.\d+ libm\.so\.6 libssl\.so\.\d+$/, 'libm is a part of libc';
    my @exported = sort map { /(\S+)$/ ? $1 : () } qx(nm -D --defined-only '$file');
    is "@exported", 'ngx_module_names ngx_module_order ngx_modules';
    unlike qx(nm -D '$file'), qr/arc4random/, 'and nothing of a newer glibc than that of Ubuntu 22.04, 2.35';
};

subtest 'nginx loads it and limits with it, alone and with Redis' => sub {
    my $redis = redis();
    my $node  = nginx(module => $file, http => <<"END", server => <<'END2');
    ratelimit_redis main { server 127.0.0.1:@{[ $redis->port ]}; timeout 5s; connect_timeout 5s; }
    ratelimit_zone \$uri zone=all rate=2r/d redis=main;
END
    location / { ratelimit zone=all; try_files /index.html =404; }
END2
    is_deeply [map { $node->status('/') } 1 .. 3], [200, 200, 429];
    cmp_ok $redis->calls('evalsha') + $redis->calls('eval'), '>', 0, 'Redis counted';
};

subtest 'it serves what came whole over HTTP/2 after its client has left, though built without HTTP/2' => sub {
    my $redis = redis();
    my ($http2, $backend) = map { free_port() } 1 .. 2;
    my $node  = nginx(module => $file, level => 'debug', http => <<"END", server => <<"END2");
    log_format ended '\$uri \$status';
    ratelimit_redis main { server 127.0.0.1:@{[ $redis->port ]}; timeout 9s; connect_timeout 9s; }
    ratelimit_zone all zone=all rate=1000r/d redis=main;
END
    listen 127.0.0.1:$http2 http2;
    listen 127.0.0.1:$backend;
    access_log ended.log ended;
    location = /left { ratelimit zone=all; proxy_ignore_client_abort on; proxy_pass http://127.0.0.1:$backend/backend; }
    location = /backend { access_log off; return 204; }
END2
    $redis->pause;
    my $client = http2_one($http2, '/left', method => 'POST', body => 'whole');
    wait_until('its check is sent', sub { $node->count_log(qr/ratelimit check sent/) });
    close $client;
    $node->get('/backend') for 1 .. 2;    # by then the worker has seen that the client left
    $redis->resume;
    wait_until('the request has ended', sub { $node->file('ended.log') ne '' });
    is $node->file('ended.log'), "/left 204\n", 'the backend got it';
};

subtest "nginx's configure takes the module by hand, with hiredis in a folder of it" => sub {
    my ($copy, $bin) = ("$folder/module", "$folder/no-hiredis");
    system("mkdir '$copy' '$bin' && cd '$top' && cp -r config config.make src lua '$copy/'") == 0 or die 'no copy';
    chmod 0755, write_file("$bin/pkg-config", "#!/bin/sh\nexit 1\n");
    my $configure = sub {
        return qx(cd '$folder/git clone' && PATH='$bin:$ENV{PATH}' sh auto/configure --with-compat --builddir='$folder/objs' --add-dynamic-module='$copy' 2>&1);
    };
    like $configure->(), qr{requires hiredis 1\.1 or later, .*\n.*\n\n    sh \.ci/hiredis\.sh hiredis\n}, 'without it, it says how to get it';
    system('cp', '-r', "$top/build/hiredis", "$copy/hiredis") == 0 or die 'no hiredis';
    like $configure->(), qr/adding module in .*Configuration summary/s, 'with it, it is configured';
    like read_file("$folder/objs/Makefile"), qr{\Q$copy\E/hiredis/lib/libhiredis\.a}, 'and linked in';
};

subtest 'one line says what is wrong' => sub {
    # With the options of the module that is built: a second one would take a minute.
    my $alien = program_that_says("nginx version: nginx/$version\nconfigure arguments: --with-compat $debug",
        'echo "nginx: [emerg] module is not binary compatible" >&2; exit 1');
    my $path = stand_in("$folder/bin", 'git', "echo 'no such branch' >&2\nexit 1");
    # That headers are there was tested above: to read them takes seconds, each time.
    stand_in("$folder/bin", 'g++', 'case "$*" in *fsyntax*) exec cat >/dev/null ;; *) exec /usr/bin/g++ "$@" ;; esac');
    mkdir "$folder/none" or die $!;
    for (
        ['', qr/module: name the nginx with --nginx VERSION, --source TREE or --like PROGRAM/],
        ['--like', qr/module: --like needs a value/],
        ['--unlike x', qr/module: unknown option --unlike/],
        ['--like /nowhere/nginx', qr{module: there is no program /nowhere/nginx}],
        ['--like /bin/true', qr{/bin/true is no nginx: it does not name its version}],
        ["--like $alien", qr/\Q$alien\E does not load the module: nginx: \[emerg\] module is not binary compatible/],
        ["--source $folder/none", qr{\Q$folder\E/none is not the source of an nginx}],
        ["--source $folder/nowhere", qr{module: there is no folder \Q$folder\E/nowhere}],
        ["--nginx 9.9 --like $program", qr{\Q$program\E is nginx-\Q$version\E, not nginx-9\.9}],
        ["--arm64 --like $program", qr/module: --arm64 goes with --nginx or --source, since --like runs the nginx/],
        ['--arm64', qr/module: name the nginx with/],
        ['--nginx 9.9.9', qr{could not fetch release-9\.9\.9 from https://github\.com/nginx/nginx, see \S+; or name a tree with --source}],
        ['--nginx angie-9.9.9', qr{could not fetch Angie-9\.9\.9 from https://github\.com/webserver-llc/angie}],
        ['--nginx openresty-1.31.3.1', qr{the source of openresty is in its bundle: --source openresty-1\.31\.3\.1/build/nginx-1\.31\.3}],
        ['--nginx foo-1.0', qr{no source is known for foo-1\.0: name one with --source}],
    ) {
        my ($options, $message) = @{$_};
        my ($status, $printed, $stderr) = module_for($options, PATH => $path);
        isnt $status, 0, "module $options fails";
        like $stderr, qr/^build\.sh: $message.*$/m, 'and says why';
        is $printed, '', 'and prints no file';
    }
};

finish();

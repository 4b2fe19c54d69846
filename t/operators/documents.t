# The documents: every link leads somewhere, every configuration passes nginx -t, and doc/reference.md lists
# exactly the names that the module has.

use Ratelimit::Test;
use File::Basename qw(dirname);
use File::Find qw(find);
use Ratelimit::Build qw(top);
use Ratelimit::Process qw(temp_folder);

my $top    = top();
my $folder = temp_folder();

# The files below a folder with one of these endings, without build results.
sub files_of {
    my ($where, $endings) = @_;
    my @files;
    find({
        no_chdir   => 1,
        preprocess => sub { grep { !/^(?:build|node_modules|\.git)$/ } @_ },
        wanted     => sub { push @files, $File::Find::name if /\.(?:$endings)$/ },
    }, $where);
    return sort @files;
}

my %text = map { s{^\Q$top\E/}{}r => read_file($_) } files_of($top, 'md');
my @documents = sort keys %text;

# A document without its code.
sub prose { return $_[0] =~ s/^```.*?^```\n//msgr =~ s/`[^`\n]*`//gr }

# GitHub's anchors for the headings of a document.
sub anchors_of {
    my ($document) = @_;
    my (%count, %anchors);
    for my $heading ($document =~ s/^```.*?^```\n//msgr =~ /^#+ (.+)$/mg) {
        my $anchor = lc($heading) =~ s/[^\w\- ]//gr =~ tr/ /-/r;
        $anchor .= "-$count{$anchor}" if $count{$anchor}++;
        $anchors{$anchor} = 1;
    }
    return \%anchors;
}

# The links of a document to missing files or missing headings.
sub dead_links {
    my ($path, $text) = @_;
    my @dead;
    for my $link (prose($text) =~ /\]\(\s*([^)\s]+)\s*\)/g, prose($text) =~ /^\[[^\]]+\]: (\S+)/mg) {
        next if $link =~ /^(?:https?|mailto):/;
        my ($file, $anchor) = split /#/, $link, 2;
        my $target = $file eq '' ? $path : dirname($path) . "/$file";
        $target =~ s{^\./}{};
        1 while $target =~ s{(?:^|/)(?!\.\.)[^/]+/\.\.(?=/)}{};
        $target =~ s{^/}{};
        my $there = -e "$top/$target";
        push @dead, $link unless $there && (!defined $anchor || anchors_of($text{$target} // '')->{$anchor});
    }
    return @dead;
}

# The directives of a configuration, each with its block; http {} is replaced by its contents.
sub statements {
    my ($text) = @_;
    $text =~ s/(?<=\s)#.*|^#.*//mg;
    my $quoted = qr/"[^"]*"|'[^']*'/;
    my $block  = qr/(\{(?:$quoted|[^{}"']|(?-1))*\})/;
    my @found;
    while ($text =~ /\G\s*((\w+)(?:$quoted|[^{};"'])*(?:;|$block))/gc) {
        my ($statement, $name, $body) = ($1, $2, $3);
        push @found, $name eq 'http' ? statements(substr $body, 1, -1) : [$name, $statement];
    }
    $text =~ /\G\s*(.*)/gcs;
    push @found, ['rest', $1] if $1 ne '';
    return @found;
}

# Directives that are valid in http {} only.
my %http_only = map { $_ => 1 } qw(ratelimit_redis ratelimit_zone ratelimit_fleet map geo log_format limit_req_zone
    server rest);

# The complaints of nginx -t about a configuration: a whole one, or a part of http {}, of server {} or of
# both. Zones that a part uses without defining them are added.
sub complaints_about {
    my $text = without_other_modules($_[0]);
    my %defined = map { $_ => 1 } $text =~ /ratelimit_zone[^;]*?\bzone=([\w.-]+)/g;
    my %part = (http => '', server => '');
    for my $zone ($text =~ /\bratelimit\s+zone=([\w.-]+)/g) {
        $part{http} .= "ratelimit_zone \$ratelimit_client zone=$zone rate=1000r/m;\n" unless $defined{$zone}++;
    }
    for (statements($text)) {
        my ($name, $statement) = @{$_};
        next if $name =~ /^(?:load_module|events)$/;
        $part{ $http_only{$name} ? 'http' : 'server' } .= "$statement\n";
    }
    # A part of http {} that needs a Redis gets one.
    $part{http} = "ratelimit_redis main { server 127.0.0.1; }\n$part{http}"
        if $text =~ /\b(?:redis|nodes|cache|lease|ahead)=/ && $text !~ /\bratelimit_redis\b/;
    write_file("$folder/password", "secret\n");
    write_file("$folder/ca.pem", read_file('/etc/ssl/certs/ca-certificates.crt'));
    for my $lines (values %part) {
        my $port = free_port();
        $lines =~ s{/etc/nginx/redis\.password}{$folder/password}g;
        $lines =~ s{/etc/nginx/redis-ca\.pem}{$folder/ca.pem}g;
        $lines =~ s{/var/log/nginx/}{$folder/}g;
        $lines =~ s{http://backend}{http://127.0.0.1:8080}g;
        $lines =~ s{listen 80;}{listen 127.0.0.1:$port;}g;
    }
    my ($exit, @lines) = conf_test(%part);
    return $exit == 0 ? '' : join "\n", @lines, $text;
}

my $sources = join "\n", map { read_file($_) } map { files_of("$top/src/$_", 'cpp') } qw(conf http node);
my $reference = $text{'doc/reference.md'};

# The text below a heading, up to the next heading of the same level or above.
sub chapter {
    my ($heading) = @_;
    my ($level) = $heading =~ /^(#+)/;
    my ($chapter) = $reference =~ /^\Q$heading\E\n(.*?)(?=^#{1,@{[ length $level ]}} |\z)/ms;
    return $chapter // '';
}

# The names before the colon of each item in a chapter's lists: "- `zone=`*name* | `off`: text".
sub terms {
    my ($heading) = @_;
    return map { /`([a-z_]+=?)/g } chapter($heading) =~ /^- (`.*?): /mg;
}

sub sorted {
    my %seen;
    return [sort grep { !$seen{$_}++ } @_];
}

# [kind of name, the names in the sources, the names in doc/reference.md].
my @names = (
    ['directives', [$sources =~ /ngx_string\("(ratelimit\w*)"\),\s*(?:NGX_HTTP|anywhere)/g],
        [chapter('## Directives') =~ /^### (\w+)$/mg]],
    ['directives of ratelimit_redis', [$sources =~ /^constexpr BlockDirective directives\[\] = \{(.*?)^\};/ms
            ? $1 =~ /\{ "(\w+)", /g : ()],
        [chapter('### ratelimit_redis') =~ /^\| \*\*([a-z_]+)\*\* /mg]],
    (map { my ($directive, $file) = @{$_};
            ["parameters of $directive", [read_file("$top/src/limit/$file") =~ /\{ "(\w+=?)", set_/g],
                [terms("### $directive")]] }
        ['ratelimit_zone', 'zone_grammar.cpp'], ['ratelimit', 'limit_grammar.cpp']),
    ['variables', [map { s/^ratelimit_net_$/ratelimit_net_A_B/r } $sources =~ /ngx_string\("(ratelimit_\w+)"\),\s*(?:get|&)/g],
        [chapter('## Variables') =~ /^\| `\$(\w+)` /mg]],
    ['metrics', [$sources =~ /\.family\(\s*"(\w+)"/g], [chapter('## Metrics') =~ /^\| `(\w+)[{`]/mg]],
    ['algorithms', [grep { $_ ne 'concurrency' } read_file("$top/src/limit/algorithm.h") =~ /\{ \.name = "(\w+)"/g],
        [chapter('### ratelimit_zone') =~ /^- `algorithm=`(.*\n(?:  .*\n)*)/m ? $1 =~ /`(\w+)`/g : ()]],
);

subtest 'README has at most 200 lines' => sub {
    cmp_ok scalar(() = $text{'README.md'} =~ /\n/g), '<=', 200;
};

# The chapters of a document, and the list of chapters before the first one, if there is one.
sub contents {
    my ($top, @chapters) = split /^## (.+)\n/m, $_[0] =~ s/^```.*?^```\n//msgr;
    my @listed = $top =~ /^- \[([^\]]+)\]\(#/mg or return;
    return ([map { $chapters[2 * $_] } 0 .. $#chapters / 2], \@listed);
}

subtest 'a list of contents names every chapter, in their order' => sub {
    my @with = grep { contents($text{$_}) } @documents;
    cmp_ok scalar(@with), '>', 4, 'lists are found';
    for my $path (@with) {
        my ($chapters, $listed) = contents($text{$path});
        is_deeply $listed, $chapters, $path;
    }
};

# A part of README's configuration without what this test cannot have, as http {} and server {}.
sub readme_node {
    my ($snippet, $redis, $backend) = @_;
    my %part = (http => '', server => '');
    for (statements($snippet)) {
        my ($name, $statement) = @{$_};
        next if $name =~ /^(?:load_module|events)$/;
        $part{ $http_only{$name} ? 'http' : 'server' } .= "$statement\n";
    }
    $part{server} .= $1 if $part{http} =~ s/^server \{(.*)\}\n//ms;
    for (values %part) {
        s/server 10[\d.:]+;/server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s;/;
        s/password_file [^;]*;|listen 80;|access_log [^;]*;//g;
        s{http://backend}{http://127.0.0.1:@{[ $backend->port ]}}g;
    }
    return nginx(%part);
}

subtest 'README shows the refusals that its configurations give' => sub {
    my $redis   = redis();
    my $backend = nginx(module => 0, server => 'location / { return 200 ok; }');
    my @snippets = $text{'README.md'} =~ /^```nginx\n(.*?)^```/msg;
    my @answers  = $text{'README.md'} =~ /^```\n(HTTP.*?)^```/msg;
    my @asked    = (['/', 10], ['/api/', 100, headers => ['X-API-Key' => 'gold-4711']]);
    is scalar(@answers), 2, 'there are two';
    for my $i (0, 1) {
        my ($path, $quota, @options) = @{ $asked[$i] };
        $redis->cmd('FLUSHALL');
        my $node = readme_node($snippets[$i], $redis, $backend);
        $node->get($path, @options) for 1 .. $quota + 1;
        # On a busy machine one more may pass, or be refused by Redis, before the memory of the node refuses.
        my $answer;
        wait_until('a refusal from memory', sub {
            $answer = $node->get($path, @options);
            $answer->status == 429 && $answer->header('RateLimit') !~ /,/;
        });
        for my $line (split /\n/, $answers[$i]) {
            my ($name, $value) = split /: /, $line, 2;
            next if !defined $value;
            my $time = $name =~ /Reset|Retry/ ? '\d+' : quotemeta($value) =~ s/t\\=\K\d+/\\d+/gr;
            like $answer->header($name) // '', qr/^$time$/, "$line";
        }
        is $answer->status, 429;
    }
};

subtest 'every link leads to a file, and to a heading of it' => sub {
    cmp_ok scalar(@documents), '>', 10, 'documents are found';
    is join(', ', dead_links($_, $text{$_})), '', $_ for @documents;
    is_deeply [dead_links('doc/x.md', '[a](y.md) [b](../README.md#no) [c](reference.md#ratelimit) [d](#e)')],
        ['y.md', '../README.md#no', '#e'], 'dead links are noticed';
};

subtest 'every configuration passes nginx -t' => sub {
    my $count = 0;
    for my $path (@documents) {
        my @snippets = $text{$path} =~ /^```nginx\n(.*?)^```/msg;
        is complaints_about($snippets[$_]), '', "$path, number " . ($_ + 1) for 0 .. $#snippets;
        $count += @snippets;
    }
    cmp_ok $count, '>', 15, 'configurations are found';
    isnt complaints_about($_), '', "rejected: $_"
        for 'ratelimit zone=a bursts=5;', 'http { ratelimit_zone k zone=a; }', 'location / { ratelimits on; }',
        'ratelimit zone=a';
};

# The configurations inside YAML: the texts of keys such as "default.conf: |", without their indentation.
sub in_yaml {
    my ($text) = @_;
    my @found;
    while ($text =~ /^( *)(?:\S*\.conf|\S+-snippets): \|\n((?:\1 .*\n|\n)+)/mg) {
        my $lines = $2;
        my ($indent) = $lines =~ /^( +)/;
        push @found, $lines =~ s/^$indent//mgr;
    }
    return @found;
}

subtest 'the configurations of Kubernetes and of docker compose pass nginx -t' => sub {
    my @found = map { in_yaml($_) } $text{'doc/kubernetes.md'} =~ /^```yaml\n(.*?)^```/msg;
    is scalar(@found), 4, 'those of Kubernetes are found';
    for (@found, read_file("$top/packaging/docker/limits.conf")) {
        # Names that exist in a cluster only.
        my $here = s/[\w.-]+\.svc\.cluster\.local/127.0.0.1/gr =~ s/server redis:/server 127.0.0.1:/r
            =~ s/listen \K80(?:81)?;/'127.0.0.1:' . free_port() . ';'/ger;
        is complaints_about($here), '', (split /\n/)[0];
    }
};

for (@names) {
    my ($what, $sources, $documented) = @{$_};
    subtest "doc/reference.md has the $what of the module, and no others" => sub {
        cmp_ok scalar(@{$sources}), '>', 3, 'names are found in the sources';
        is_deeply sorted(@{$documented}), sorted(@{$sources});
    };
}

subtest 'doc/reference.md has every field of the JSON that the API sends' => sub {
    my @views = map { read_file($_) } files_of("$top/src/http/api", 'cpp');
    my @fields = map { /\.(?:text|number|flag|seconds|null|begin_array|begin_object)\(\s*"(\w+)"/g } @views;
    cmp_ok scalar(@fields), '>', 30, 'fields are found in the sources';
    my $api = chapter('## API') . chapter('### ratelimit_check');
    is_deeply [grep { $api !~ /`$_`/ } @{ sorted(@fields) }], [], 'each is documented';
};

subtest 'doc/benchmarks.md has a place for each table that the benchmark writes' => sub {
    my @parts = map { s{.*/(\w+)\.pl$}{$1}r } grep { read_file($_) =~ /\bupdate_document\(|->publish;/ } glob "$top/t/bench/*.pl";
    is_deeply [sort $text{'doc/benchmarks.md'} =~ /^<!-- bench (\w+) -->\n(?s:.*?)^<!-- end -->$/mg], \@parts;
};

subtest 'no document names a directive, variable or metric that the module does not have' => sub {
    my %known = map { $_ => 1 } map { @{ $_->[1] } } grep { $_->[0] =~ /^(?:directives|variables|metrics)$/ } @names;
    for my $path (grep { $_ ne 'CHANGELOG.md' } @documents) {    # it also names removed ones
        my @unknown = grep { !$known{ s/_(?:bucket|sum|count)$//r =~ s/^ratelimit_net_\K\d+_\d+$/A_B/r } } $text{$path} =~ /\b(ratelimit_\w+)/g;
        is_deeply \@unknown, [], $path;
    }
};

subtest 'documents are in plain English' => sub {
    my $dialect = qr/\b(?:so many|told|asked|nobody|anew|in haste|as good as|for itself|what\s+is|silences?)\b/;
    is_deeply [prose($text{$_}) =~ /($dialect)/g], [], $_ for @documents;
};

finish();

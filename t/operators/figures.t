# The figures in the documents: which commit each was measured at, and whether that is long ago.

use Ratelimit::Test;
use Ratelimit::Build qw(top);

my $top = top();
my %text = map { $_ => read_file("$top/$_") } qw(README.md doc/benchmarks.md doc/operations.md);
my %part = $text{'doc/benchmarks.md'} =~ /^<!-- bench (\w+) -->\n(.*?)^<!-- end -->/msg;
my $many = 200;    # commits of src or lua, after which a table is worth measuring again

# The commits that a text names, after these words, in code or not.
sub commits_in {
    my ($text) = @_;
    return $text =~ /\b(?:at|commit|commits|between|and)\s+`?([0-9a-f]{7,40})\b/g;
}

# What git prints, or nothing if it fails.
sub git {
    my (@words) = @_;
    open my $out, '-|', 'sh', '-c', 'git -C "$0" "$@" 2>/dev/null', $top, @words or return;
    my @lines = <$out>;
    close $out or return;
    chomp @lines;
    return $lines[0] // '';
}

subtest 'each table of the benchmark names its commit, or says that it has none' => sub {
    cmp_ok scalar(keys %part), '>', 8, 'tables are found';
    for my $name (sort keys %part) {
        ok commits_in($part{$name}) || $part{$name} =~ /of the commit that has this table|commit is not known/, $name;
    }
    is_deeply [commits_in("this module at df9bbd4\nof commit\n`0123abc`, at 12 of 1234567; between 1234abc and 12abcde-dirty")],
        [qw(df9bbd4 0123abc 1234abc 12abcde)], 'commits are found';
};

subtest 'README and the chapter about sizing say at which commit their figures were measured' => sub {
    my ($table) = $text{'README.md'} =~ /^(Measured .*?)\n\n\[doc/ms;
    ok commits_in($table // ''), 'README';
    my ($sizing) = $text{'doc/operations.md'} =~ /^(### CPU of Redis.*?)^##/ms;
    ok commits_in($sizing // ''), 'doc/operations.md';
};

subtest 'the CPU of busy connections and the ratios to limit_req in README are those of the benchmark' => sub {
    my (%cpu, %ratio);
    for (split /\n/, $part{load}) {
        my (undef, $name, @cells) = map { s/^\s+|\s+$//gr } split /\|/;
        next unless @cells;
        $cpu{$name} //= $cells[4] if @cells == 11;    # Redis
        $ratio{$name} //= { of_limit_req => $cells[1], added => $cells[3] } if @cells == 6;
    }
    my @rows = ('this module, 100000 keys', 'lua cosocket, 100000 keys');
    my ($cpu) = $text{'README.md'} =~ /^(\| 64 busy connections.*)$/m;
    is_deeply [$cpu =~ /([\d.]+); ([\d.]+) \S+ \|/g], [map { sprintf '%.1f', $_ } map { ($ratio{$_}{added}, $cpu{$_}) } @rows], 'CPU';
    my @ratios = $text{'README.md'} =~ /nginx serves ([\d.]+) of .*?\bserves ([\d.]+) of `limit_req`'s.*?, and ([\d.]+) with/s;
    is_deeply \@ratios, [map { $ratio{"this module, $_"}{of_limit_req} } 'refused flood', 'one hot key, exact', 'one hot key, lease=1000'],
        'requests per second, of those with limit_req';
};

subtest 'each commit is in the history, and tables of long ago are named' => sub {
    plan skip_all => 'this is no git repository' if !length(git('rev-parse', 'HEAD') // '');
    plan skip_all => 'the history is not here' if git('rev-parse', '--is-shallow-repository') ne 'false';
    my %where;
    for my $name (sort keys %part) {
        $where{$_}{"doc/benchmarks.md, $name"} = 1 for commits_in($part{$name});
    }
    for my $path (sort keys %text) {
        my $others = $text{$path} =~ s/^<!-- bench \w+ -->\n.*?^<!-- end -->//msgr;
        $where{$_}{$path} = 1 for commits_in($others);
    }
    for my $commit (sort keys %where) {
        my $places = join ', ', sort keys %{ $where{$commit} };
        my $known = defined git('merge-base', '--is-ancestor', $commit, 'HEAD');
        ok $known, "$commit ($places)";
        my $since = $known ? git('rev-list', '--count', "$commit..HEAD", '--', 'src', 'lua') : 0;
        diag "$places: measured at $commit, and $since commits have changed src or lua since" if $since > $many;
    }
};

finish();

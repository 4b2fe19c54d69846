# The instruction counts that CI compares: what is red, and what is not compared.

use Ratelimit::Test;
use File::Basename qw(dirname);
use Ratelimit::Build qw(top);
use Ratelimit::Process qw(temp_folder);
use lib dirname(__FILE__) . '/../bench';
use Bench::Callgrind;
use Bench::Counts qw(@columns read_counts write_counts with_column print_comparison);

my $file = top() . '/t/bench/counts.tsv';
my $folder = temp_folder();

# The file's counts with some changed: "row, whose" => by how much; undef: without this count.
sub counts_with {
    my (%factors) = @_;
    my $counts = read_counts($file);
    my @rows;
    for (@{ $counts->{rows} }) {
        my ($row, $whose, $of) = @{$_};
        my $name = "$row, $whose";
        my $factor = exists $factors{$name} ? $factors{$name} // next : 1;
        push @rows, [$row, $whose, { %{$of}, now => int $factor * $of->{now} }];
    }
    return { %{$counts}, rows => \@rows };
}

# Whether the comparison of a copy of the file with a measurement is green, and what it says.
sub compared {
    my ($measured, $kept) = @_;
    my $path = write_counts("$folder/counts.tsv", $kept // read_counts($file));
    my $said = '';
    open my $out, '>', \$said or die $!;
    my $usual = select $out;
    my $green = print_comparison(read_counts($path), $measured);
    select $usual;
    return ($green ? 1 : 0, $said);
}

my @names = ('100000 keys, module', '100000 keys, nginx', '100000 keys, Redis');

subtest 'a count that rises by 3 % is red, one that rises by 1 % is not' => sub {
    for my $name (@names) {
        my ($green, $said) = compared(counts_with($name => 1.03));
        is $green, 0, "$name: red";
        like $said, qr/^Rises: \Q$name\E: \d+ -> \d+ \(\+3\.0 %\)$/m, 'with what rises';
        is((compared(counts_with($name => 1.01)))[0], 1, "$name: 1 % is not");
    }
    is_deeply [compared(counts_with())], [1, "No count is more than 2 % above t/bench/counts.tsv.\n"], 'the same is not';
};

subtest 'a count that falls is said, since as large a rise would not be seen' => sub {
    my ($green, $said) = compared(counts_with($names[0] => 0.9));
    is $green, 1, 'not red';
    like $said, qr/^Falls: \Q$names[0]\E: /m, 'but said';
    like $said, qr/bench steps/, 'with the command that writes the file';
};

subtest 'a row that only the file or only the measurement has is red' => sub {
    my $fewer = counts_with($names[1] => undef);
    my ($green, $said) = compared($fewer);
    is $green, 0, 'not measured: red';
    like $said, qr/^\Q$names[1]\E: not measured$/m, 'and named';
    ($green, $said) = compared(read_counts($file), $fewer);
    is $green, 0, 'not in the file: red';
    like $said, qr/^\Q$names[1]\E: not in the file$/m, 'and named';
};

subtest 'counts of other compilers, libraries or servers are not compared, and that is said' => sub {
    my $measured = counts_with($names[0] => 2);
    $measured->{versions} =~ s/gcc \S+/gcc 99.1.0,/;
    my ($green, $said) = compared($measured);
    is $green, 1, 'not red';
    like $said, qr/^Not compared: .*gcc 99\.1\.0/, 'said';
};

subtest 'a measurement changes its own column only' => sub {
    my $kept = read_counts($file);
    my $now = { versions => 'others', rows => [['new row', 'nginx', { now => 1 }], ['100000 keys', 'nginx', { now => 2 }]] };
    my $merged = with_column($kept, 'now', $now);
    is $merged->{versions}, 'others', 'the versions are those of the measurement';
    is_deeply [map { $_->[0] } @{ $merged->{rows} }], ['new row', '100000 keys'], 'and the rows';
    my ($old) = grep { "$_->[0], $_->[1]" eq $names[1] } @{ $kept->{rows} };
    is_deeply $merged->{rows}[1][2], { %{ $old->[2] }, now => 2 }, 'earlier columns stay';
    $merged = with_column($kept, $columns[0], { versions => 'others',
        rows => [['100000 keys', 'nginx', { $columns[0] => 3 }]] });
    is $merged->{versions}, $kept->{versions}, 'an earlier column changes no versions';
    is @{ $merged->{rows} }, @{ $kept->{rows} }, 'and no rows';
};

subtest 'the table in doc/benchmarks.md has the counts of the file' => sub {
    my ($table) = read_file(top() . '/doc/benchmarks.md') =~ /^<!-- bench steps -->\n(.*?)^<!-- end -->/ms;
    my %lines = map { $_ => 1 } split /\n/, $table // '';
    my @missing = grep { !$lines{$_} }
        map { my ($row, undef, $of) = @{$_}; '| ' . join(' | ', $row, @{$of}{@columns}) . ' |' } @{ read_counts($file)->{rows} };
    is_deeply \@missing, [], 'each line is there';
};

subtest 'counts are read from what callgrind writes' => sub {
    my $counts = Bench::Callgrind::parse(<<'TEXT');
events: Ir

ob=(1) /usr/sbin/nginx
fn=(1) main
0 100
cob=(2) /m/ratelimit.so
cfn=(2) decide
calls=3 0 
0 70
fn=(3) other
+3 5
cob=(2)
cfn=(2)
calls=1 0 
* 10

ob=(2)
fn=(2)
0 80
totals: 185
TEXT
    is_deeply $counts, { all => 185, object => { '/usr/sbin/nginx' => 105, '/m/ratelimit.so' => 80 },
        function => { decide => 80 } }, 'own instructions by object, and all of a function';
};

finish();

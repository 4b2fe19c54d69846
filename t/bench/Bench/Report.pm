package Bench::Report;

# The output of a part of the benchmark: plain text on the terminal, the same as Markdown in a file and, if
# published, in doc/benchmarks.md.

use strict;
use warnings;

use File::Path qw(make_path);
use POSIX qw(uname strftime);
use Ratelimit::Process qw(read_file write_file);

use Bench::Scripts qw($top $output);

use Exporter 'import';
our @EXPORT_OK = qw(update_document);

# Starts with the title, the versions, the machine and the time.
sub new {
    my ($class, $name, $title, @versions) = @_;
    my $self = bless {name => $name, markdown => "## $title\n\n"}, $class;
    print "$title\n\n";
    my (undef, undef, $release) = uname();
    my ($processor) = read_file('/proc/cpuinfo') =~ /^model name\s*:\s*(.+)$/m;
    my $count = () = read_file('/proc/cpuinfo') =~ /^processor\s*:/mg;
    $self->lines(join(', ', $processor // 'processor unknown', "$count cores", "Linux $release"),
        join(', ', @versions), strftime('%e %B %Y, %H:%M UTC', gmtime) =~ s/^ //r);
    return $self;
}

sub lines {
    my ($self, @lines) = @_;
    print "$_\n" for @lines;
    print "\n";
    $self->{markdown} .= join("  \n", @lines) . "\n\n";
    return;
}

# Rows, the first of which is the head; the first column is text, the others are figures.
sub table {
    my ($self, @rows) = @_;
    my @widths;
    for my $row (@rows) {
        for my $i (0 .. $#{$row}) {
            my $width = length $row->[$i];
            $widths[$i] = $width if $width > ($widths[$i] // 0);
        }
    }
    for my $row (@rows) {
        my @cells = map { sprintf '%*s', ($_ ? 1 : -1) * $widths[$_], $row->[$_] } 0 .. $#{$row};
        print join('  ', @cells) =~ s/\s+$//r, "\n";
    }
    print "\n";
    my ($head, @body) = map { '| ' . join(' | ', @{$_}) . " |\n" } @rows;
    my $rule = '| --- |' . ' ---: |' x $#{ $rows[0] } . "\n";
    $self->{markdown} .= join('', $head, $rule, @body) . "\n";
    return;
}

# Reports the largest spread of the rows, in percent.
sub warn_of_noise {
    my ($self, @spreads) = @_;
    my ($most) = sort { $b <=> $a } @spreads;
    $self->lines(sprintf 'Noise: the rounds of one row differed by up to %.0f %%.', $most);
    warn "Something else ran on this machine; measure again.\n" if $most > 20;
    return;
}

# Writes the Markdown to its own file; prints the path.
sub save {
    my ($self) = @_;
    make_path($output);
    print 'As Markdown: ', write_file("$output/$self->{name}.md", $self->{markdown}), "\n\n";
    return;
}

# Writes the Markdown into the document as well.
sub publish {
    my ($self) = @_;
    $self->save;
    update_document($self->{name}, $self->{markdown} =~ s/\n+\z/\n/r);
    return;
}

# Replaces the text between a part's marks in doc/benchmarks.md.
sub update_document {
    my ($part, $text) = @_;
    my $path     = "$top/doc/benchmarks.md";
    my $document = read_file($path);
    $document =~ s/^<!-- bench \Q$part\E -->\n\K.*?(?=^<!-- end -->)/$text/ms
        or die "$path has no marks for $part\n";
    write_file($path, $document);
    return;
}

1;

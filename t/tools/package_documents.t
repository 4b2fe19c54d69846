# The documents of the Debian package: no link leads to a file that the package does not have.

use Ratelimit::Build qw(top);
use Ratelimit::Process qw(temp_folder);
use Ratelimit::Test;
use File::Basename qw(dirname);

# The links of a document to files: [text, file].
sub links { my ($text) = @_; return $text =~ /\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)/g }

my $folder = temp_folder();
chomp(my @parts = split /\n/, read_file(top() . '/packaging/debian/docs'));
is system('cp', '-r', map({ top() . "/$_" } @parts), $folder), 0, 'the files of packaging/debian/docs';
my %before = map { $_ => read_file($_) } glob("$folder/*.md"), glob("$folder/doc/*.md");
cmp_ok scalar(keys %before), '>', 10, 'documents are found';

sub dead {
    my @dead;
    for my $document (sort keys %before) {
        my @links = links(read_file($document));
        while (my ($text, $file) = splice @links, 0, 2) {
            push @dead, "$document: $file" if !-e dirname($document) . "/$file";
        }
    }
    return \@dead;
}

cmp_ok scalar(@{ dead() }), '>', 5, 'links to what is in the repository only';
is system(top() . '/packaging/debian/own-links', $folder), 0, 'the packaging\'s program';
is_deeply dead(), [], 'no link is dead';
for my $document (sort keys %before) {
    my $after = read_file($document);
    is plain($after), plain($before{$document}), "$document has the same words";
    is scalar(() = $after =~ /\]\(https:/g), scalar(() = $before{$document} =~ /\]\(https:/g), 'and the links to elsewhere';
}

# The text without links to files.
sub plain { my ($text) = @_; return $text =~ s/(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\([^)\s#:]+(?:#[^)\s]*)?\)/$1/gr }

like read_file(top() . '/packaging/debian/rules'), qr/^\tdh_compress -X\.md -X\.json -X\.yml$/m, 'Prometheus can read the alerts';

finish();

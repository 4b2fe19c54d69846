package Chaos::Report;

# The findings of a run as a Markdown table, and as lines in a file of many runs.

use strict;
use warnings;

use Chaos::Faults qw(faults);
use JSON::PP ();
use List::Util qw(max);
use Ratelimit::Process qw(read_file);

use Exporter 'import';
our @EXPORT_OK = qw(summary add_to_file sum_of_file table);

my $json = JSON::PP->new->canonical;

# The findings of one run: seed, topology, seconds, requests, refusals (that were judged), violations (number), excused, busy (the
# longest delay of a process), faults: name => times, failed, longest, bad, excused.
sub summary {
    my (%run) = @_;
    my %faults;
    for my $fault (@{ delete $run{faults} }) {
        my $row = $faults{ $fault->{name} } //= { times => 0, failed => 0, longest => 0, bad => 0,
            excused => 0 };
        $row->{times} += $fault->{times} // 1;
        $row->{$_} += $fault->{$_} // 0 for qw(failed bad excused);
        $row->{longest} = max($row->{longest}, $fault->{longest} // 0);
    }
    return { %run, faults => \%faults };
}

sub add_to_file {
    my ($path, $summary) = @_;
    open my $file, '>>', $path or die "$path: $!\n";
    print {$file} $json->encode($summary), "\n";
    close $file or die "$path: $!\n";
    return;
}

sub sum_of_file {
    my ($path) = @_;
    return table(map { $json->decode($_) } split /\n/, read_file($path));
}

# One table of several runs, with their fleets.
sub table {
    my (@runs) = @_;
    my (%rows, %fleets);
    my %sum = (seconds => 0, requests => 0, refusals => 0, excused => 0, violations => 0, busy => 0);
    for my $run (@runs) {
        $sum{$_} += $run->{$_} // 0 for qw(seconds requests refusals excused violations);
        $sum{busy} = max($sum{busy}, $run->{busy});
        $fleets{ $run->{topology} } += $run->{seconds};
        for my $name (keys %{ $run->{faults} }) {
            my ($row, $more) = ($rows{$name} //= {}, $run->{faults}{$name});
            $row->{$_} += $more->{$_} for qw(times failed bad excused);
            $row->{longest} = max($row->{longest} // 0, $more->{longest});
        }
    }
    my $text = "| fault | times | requests failed | longest after its end | allowed | excused: busy machine | |\n"
        . "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for my $name (sort keys %rows) {
        my ($row, $slack) = ($rows{$name}, (faults()->{$name} // {})->{slack});
        $text .= sprintf "| %s | %d | %d | %s | %s | %s | %s |\n", $name, @{$row}{qw(times failed)},
            $row->{failed} ? sprintf('%.2f s', $row->{longest}) : '', defined $slack ? "$slack s" : 'none',
            $row->{excused} || '', $row->{bad} ? "**$row->{bad} too many**" : 'pass';
    }
    my $where = join ', ', map { sprintf '%s %d s', $_, $fleets{$_} } sort keys %fleets;
    return $text . sprintf("\n%d requests in %.0f s (%s); the cause of %d refusals was looked for; %d violations. A busy machine delayed a process by"
            . " up to %.0f ms at once; such delays are added to what is allowed, and excused %d failures.\n",
        $sum{requests}, $sum{seconds}, $where, $sum{refusals}, $sum{violations}, 1000 * $sum{busy}, $sum{excused});
}

1;

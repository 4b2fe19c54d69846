package Ratelimit::Prometheus;

# A private Prometheus that scrapes nodes and evaluates rules once a second.

use strict;
use warnings;

use Carp qw(croak);
use JSON::PP qw(decode_json);
use Ratelimit::Http qw(request);
use Ratelimit::Process qw(free_port wait_until start_process kill_process_of temp_folder write_file);

# Options: target (port) or targets (ports), path (of the metrics), rules (a file of alerts).
sub new {
    my ($class, %options) = @_;
    my $self = bless {%options, port => free_port(), folder => temp_folder()}, $class;
    my $folder = $self->{folder};
    my $targets = join ', ', map { "'127.0.0.1:$_'" } @{ $self->{targets} // [$self->{target}] };
    write_file("$folder/prometheus.yml", <<"END");
global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: ['$self->{rules}']
scrape_configs:
  - job_name: ratelimit
    metrics_path: $self->{path}
    static_configs: [{ targets: [$targets] }]
END
    $self->{pid} = start_process('prometheus', "$folder/prometheus.log", 'prometheus',
        "--config.file=$folder/prometheus.yml", "--storage.tsdb.path=$folder/data",
        "--web.listen-address=127.0.0.1:$self->{port}");
    wait_until('Prometheus is ready', sub {
        my $answer = eval { request($self->{port}, '/-/ready') };
        return $answer && $answer->status == 200;
    }, 60);
    return $self;
}

# The data of an API call below /api/v1/; dies with the error if there is one.
sub ask {
    my ($self, $path) = @_;
    my $answer = decode_json(request($self->{port}, "/api/v1/$path")->body);
    croak "Prometheus: $path: $answer->{error}" if $answer->{status} ne 'success';
    return $answer->{data};
}

# The series of an expression: hashes with `metric`, its labels, and `value`.
sub query {
    my ($self, $expression) = @_;
    my $escaped = $expression =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ger;
    return map { { metric => $_->{metric}, value => $_->{value}[1] } } @{ $self->ask("query?query=$escaped")->{result} };
}

# The alerting rules: name, query, health, alerts and so on.
sub rules {
    my ($self) = @_;
    return map { @{ $_->{rules} } } @{ $self->ask('rules')->{groups} };
}

# The firing alerts; with a name, those of that name.
sub firing {
    my ($self, $name) = @_;
    return grep { $_->{labels}{alertname} eq ($name // $_->{labels}{alertname}) && $_->{state} eq 'firing' } @{ $self->ask('alerts')->{alerts} };
}

sub DESTROY { return kill_process_of($_[0]) }

1;

# What nginx -t cannot see, since it is in a map: costs, keys and rates of the response, and malformed rates.

use Ratelimit::Test;
use Ratelimit::Rehearse qw(folder log_file line rehearse report limit_of);

my $log = log_file(map { line() } 1 .. 3);

for (
    ['map $status $cost { 200 1; default 5; }', 'cost=$cost', 'charge=, since the value is known only with the response'],
    ['map $arg_a $cost { default $bytes_sent; }', 'cost=${cost}', 'charge=, since'],
    ['map $upstream_cache_status $hit { HIT 0; default 1; } map $hit $cost { default $hit; }', 'cost=$cost', 'charge=, since'],
    ['map $sent_http_x $class { default 5; }', 'reserve=$class', 'variables that are known when the limit is decided'],
) {
    my ($maps, $parameter, $expected) = @{$_};
    my ($exit, undef, $err) = rehearse(logs => [$log], conf => "$maps ratelimit_zone \$remote_addr zone=z rate=9r/d;\nratelimit zone=z $parameter;");
    is $exit, 1, "refused: $maps $parameter";
    like $err, qr/^ratelimit-rehearse: "ratelimit zone=z": invalid "\Q$parameter\E", expected $expected.* in \S+limits.conf:2$/, 'with one line';
}
for (['$who', '1r/d'], ['$remote_addr', '$who']) {
    my ($key, $rate) = @{$_};
    my ($exit, undef, $err) = rehearse(logs => [$log],
        conf => "map \$upstream_http_x \$who { default 1r/d; }\nratelimit_zone $key zone=z rate=$rate; ratelimit zone=z;");
    is $exit, 1, "refused: $key $rate";
    my $word = $rate eq '$who' ? 'rate=$who' : $key;
    like $err, qr/^ratelimit-rehearse: "ratelimit_zone": invalid "\Q$word\E", expected variables that are known when the limit is decided.* in \S+limits.conf:2$/;
}

my $report = report(logs => [$log], conf => <<'END');
map $status $charge { 200 2; default 0; }
map $remote_addr $rate {
    default 10/m; a 10r/m; b 0r/s; c ""; d 5r/month; e $request_method; hostnames;
    g 1r/d;
}
ratelimit_zone $remote_addr zone=z rate=$rate;
ratelimit zone=z cost=1 charge=$charge;
location /a/ { ratelimit zone=z; }
END
is $report->{warnings} =~ s/\S*limits\.conf/FILE/gr,
    qq{ratelimit-rehearse: the rate "10/m" of "ratelimit_zone" "z" in FILE:3 is malformed: the fail mode decides\n},
    'a malformed rate is named once, and charge= may be of the response';

finish();

# ratelimit_api: keys that a client chose, as a script of an operator writes them into addresses.

use Ratelimit::Fleet;
use Ratelimit::Test;
use Digest::SHA qw(sha256_hex);
use JSON::PP qw(decode_json);

# As Python's urllib.parse.quote(key, safe=''): dots stay.
sub encoded { my ($key) = @_; return $key =~ s/([^A-Za-z0-9_.~-])/sprintf '%%%02X', ord $1/ger }

# The key that is counted.
sub counted { my ($key) = @_; return length $key > 128 || $key =~ /^[0-9a-f]{32}$/ ? substr sha256_hex($key), 0, 32 : $key }

sub id_of { my ($answer) = @_; return decode_json($answer->body)->{id} =~ s/%(..)/chr hex $1/ger }

# 500 different keys: those known to be difficult, and made of pieces that mean something in a path.
sub hostile_keys {
    my @pieces = ('..', '.', '/', '//', '%2F', '%2e', '%', '?', '#', '&', '=', '+', ' ', ';', ':', '\\', '"', '<b>', '$', '{', '}',
        "\n", "\r\n", "\t", "\x01", "\x7f", "\xff", "\xc3\xa4", 'override', 'overrides', 'history', 'keys', 'zones', 'test', 'ops',
        'key=', 'id=', 'a', '198.51.100.7', '...', '~');
    my %keys = map { $_ => 1 } @pieces, "\0", "a\0b", 'x' x 500, 'f' x 32, '../../test', '../../other', '../override', './override',
        '../../../metrics', 'a/override', '/override', 'override/', 'a/../b', 'a/./b', '%2e%2e%2f', '..;/', '/..', '/.', '../', './',
        '..\\..\\test', '../overrides', '../history', 'a/..', 'keys/..', '?key=..', '#/override', 'a#/../override';
    srand 7;
    $keys{ join '', map { $pieces[rand @pieces] } 1 .. 2 + rand 5 } = 1 while keys %keys < 500;
    return sort keys %keys;
}

# nginx resolves these, or refuses them (%00).
sub has_no_path { my ($key) = @_; return $key =~ m{(?:^|/)\.\.?(?:/|\z)|\0} }

subtest 'whatever key a client chose, its address is of this key or of nothing' => sub {
    my $node = member(zone => 'rate=1000r/d', key => '$http_x_key', server => 'location /other/ { ratelimit zone=other; }',
        http => 'ratelimit_zone $http_x_key zone=other rate=1000r/d;');
    my (%wrong, %paths);
    my $zone = '/ops/zones/test';
    my $ask = sub {
        my ($key, $method, $path, $wanted, %options) = @_;
        my $answer = $node->get("$zone/$path", method => $method, %options);
        my $right = $answer->status == $wanted
            && ($wanted != 200 || $path =~ /override/ && $method eq 'GET' || id_of($answer) eq counted($key));
        $wrong{"$method $path"} = $answer->status . ' ' . $answer->body if !$right;
    };
    for my $key (hostile_keys()) {
        my ($text, $unusable) = (encoded($key), has_no_path($key));
        $paths{ $unusable ? 'refused' : 'taken' }++;
        for my $form ("keys/$text", "keys?key=$text") {
            my $override = $form =~ s/^keys(\/.*)?/"keys" . ($1 \/\/ '') . "\/override"/er;
            my $refused = $unusable && $form !~ /\?/;
            $ask->($key, $_->[0], $_->[1], $refused ? 400 : $_->[2], @{$_}[3 .. $#{$_}])
                for ['GET', $form, 200], ['PUT', $override, 200, body => '{"block":true}'], ['GET', $override, 200],
                ['DELETE', $override, 204], ['DELETE', $form, 200];
            $ask->($key, 'PUT', $override, $refused ? 400 : 200, body => '{"block":true}');
        }
    }
    is_deeply \%wrong, {}, 'each view of each key';
    cmp_ok $paths{$_}, '>', 20, "$paths{$_} keys in a path are $_" for qw(refused taken);
    my %listed;
    for (my $after = 0; defined $after;) {
        my $page = decode_json($node->get("/ops/overrides?after=$after")->body);
        $listed{ $_->{zone} . ' ' . ($_->{id} // 'whole') =~ s/%(..)/chr hex $1/ger }++ for @{ $page->{overrides} };
        $after = $page->{next};
    }
    is_deeply \%listed, { map { 'test ' . counted($_) => 1 } hostile_keys() }, 'each key is blocked, and nothing else';
    for my $path ('/', '/other/') {
        is $node->status($path, headers => ['X-Key' => 'alice']), $path eq '/' ? 200 : 404, "alice passes at $path";
    }
};

subtest 'no view has a raw path with dots' => sub {
    my $node = member(zone => 'rate=1r/d', http => 'ratelimit_zone $arg_k zone=other rate=1r/d;');
    for my $end ('override', 'overrides', 'history', '', 'keys?key=a', 'keys/a', 'keys/a/override') {
        for my $dots ('keys/%2e%2e/', 'keys/..%2F..%2Fother/', '.%2F', 'x/../') {
            is $node->status("/ops/zones/test/$dots$end"), 400, "GET $dots$end";
        }
    }
    is $node->status("/ops/x/../$_"), 400, "GET x/../$_" for qw(metrics zones redis fleet overrides history);
    for my $method (qw(PUT DELETE)) {
        is $node->get("/ops/zones/test/keys/$_/override", method => $method, body => '{"block":true}')->status, 400, "$method $_"
            for '..%2F..%2Ftest', '..', '../../other', '%2E%2E%2F%2E%2E%2Fother';
    }
    is $node->status('/?k=alice'), 200, 'no zone is blocked';
};

finish();

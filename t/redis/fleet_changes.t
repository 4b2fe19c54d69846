# Changes by the API: who made them, the error log, reasons, conditions, and bodies that are refused.

use Ratelimit::Fleet;
use Ratelimit::Process qw(read_file);
use Ratelimit::Test;
use JSON::PP qw(decode_json encode_json);

my $key = '/ops/zones/test/keys/ka/override';

sub put {
    my ($node, $path, $change, @headers) = @_;
    return $node->get($path, method => 'PUT', body => ref $change ? encode_json($change) : $change,
        @headers ? (headers => \@headers) : ());
}

# The lines of the error log that a change left.
sub lines { my ($node) = @_; return grep { /ratelimit: (?:override|key freed)/ } split /\n/, $node->log }

subtest 'only a user of user= is named: one that nothing checked is not' => sub {
    my @basic = (Authorization => 'Basic Ym9zczp4');    # boss:x
    my $node = member(zone => 'rate=9r/d', fleet => 'node=edge',
        server => 'location /named/ { ratelimit_api write=on user=$remote_user; }');
    is decode_json(put($node, $key, { block => \1 }, @basic)->body)->{override}{by}, 'edge 127.0.0.1';
    is decode_json(put($node, '/named/zones/test/keys/ka/override', { block => \1 }, @basic)->body)->{override}{by},
        'edge 127.0.0.1 boss';
    is decode_json(put($node, '/named/zones/test/keys/ka/override', { block => \1 })->body)->{override}{by}, 'edge 127.0.0.1';
};

subtest 'each change leaves one line in the error log: who, what, for how long and why' => sub {
    my $node = member(zone => 'rate=9r/d', fleet => 'node=edge');
    $node->status('/?k=c');
    my $set = put($node, $key, { rate => '10r/m', for => '1h', reason => "ticket 7\n\"x\"" });
    is decode_json($set->body)->{override}{reason}, "ticket 7\n\"x\"", 'the answer has the reason';
    is decode_json($node->get($key)->body)->{override}{reason}, "ticket 7\n\"x\"", 'so has the override';
    is overrides($node)->{overrides}[0]{reason}, "ticket 7\n\"x\"", 'and the list';
    is put($node, '/ops/zones/test/override', { block => \1 })->status, 200;
    is take_back($node, 'ka'), 204;
    is take_back($node, 'ka'), 404;
    is $node->status('/ops/zones/test/keys/k%22%0a', method => 'DELETE'), 200, 'nothing was counted under it';
    is $node->status('/ops/zones/test/keys/kc', method => 'DELETE'), 204;
    my @lines = lines($node);
    is @lines, 5, 'one line each';
    like $_, qr/\[notice\]/ for @lines;
    like $lines[0], qr/override set, zone "test", key "ka", by "edge 127\.0\.0\.1": rate 10r\/m for 3600 s, reason: "ticket 7\\x0A\\x22x\\x22"/i;
    like $lines[1], qr/override set, zone "test", by "edge 127\.0\.0\.1": block until it is taken back/;
    like $lines[2], qr/override taken back, zone "test", key "ka", by "edge/;
    like $lines[3], qr/key freed, under which nothing was counted, zone "test", key "k\\x22\\x0A", by "edge/i;
    like $lines[4], qr/key freed, zone "test", key "kc", by "edge/;
};

subtest 'with If-Match and If-None-Match no change overwrites one that was made meanwhile' => sub {
    my $node = member(zone => 'rate=9r/d');
    my $first = put($node, $key, { rate => '1r/d' }, 'If-None-Match' => '*');
    is $first->status, 200, 'there was none';
    my $tag = $first->header('ETag');
    like $tag, qr/^"[0-9a-f]{40}"$/;
    is $node->get($key)->header('ETag'), $tag, 'GET has the same';
    is put($node, $key, { rate => '2r/d' }, 'If-None-Match' => '*')->status, 412, 'there is one';
    is put($node, $key, { rate => '2r/d' }, 'If-Match' => $tag)->status, 200, 'it is still that one';
    my $late = put($node, $key, { rate => '3r/d' }, 'If-Match' => $tag);
    is $late->status, 412, 'it is another one';
    like $late->body, qr/read it again/;
    my $delete = sub { $node->status($key, method => 'DELETE', headers => ['If-Match' => $_[0]]) };
    is $delete->($tag), 412;
    is decode_json($node->get($key)->body)->{override}{rate}, '2r/d', 'nothing was changed';
    is $delete->('*'), 204;
    is $delete->('*'), 412, 'there is none';
    is $node->get($key)->header('ETag'), undef;
    is put($node, $key, { rate => '3r/d' }, 'If-Match' => 'x')->status, 400, 'no ETag';
    is put($node, $key, { rate => '3r/d' })->status, 200, 'without a condition';
};

subtest 'a body is refused if a part of it would be ignored' => sub {
    my $node = member(zone => 'rate=9r/d');
    for (["{\"block\":true}\0more", qr/zero byte/], ['{"rate":"1r/s","rate":"9r/s"}', qr/rate\\" stands twice/]) {
        my $answer = put($node, $key, $_->[0]);
        is $answer->status, 400;
        like $answer->body, $_->[1];
    }
    is decode_json($node->get($key)->body)->{override}, undef, 'nothing was changed';
};

subtest 'a node has one name on all pages' => sub {
    my $node = member(zone => 'rate=9r/d', fleet => 'node=edge-7');
    is decode_json($node->get("/ops/$_")->body)->{node}, 'edge-7', $_ for qw(zones redis);
};

finish();

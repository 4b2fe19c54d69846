# ratelimit_usage: what a language model's answer says it cost is what the request is charged.
# needs: curl

use Ratelimit::Test;
use IO::Socket::INET;

my $json = '{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":5,"total_tokens":120}}';
my $events = join '', map { "data: $_\n\n" } '{"choices":[{"delta":{"content":"hel"}}],"usage":null}',
    '{"choices":[],"usage":{"total_tokens":70}}', '[DONE]';

sub gateway {
    my (%options) = @_;
    my $backend = free_port();
    return node(
        %options,
        zone     => 'rate=100000r/d algorithm=fixed_window',
        limit    => 'cost=50 charge=$tokens',
        location => "ratelimit_usage \$tokens json=usage.total_tokens; access_log usage.log u; proxy_pass http://127.0.0.1:$backend; "
            . ($options{location} // ''),
        http => "log_format u '\$tokens';" . ($options{http} // '') . "server { listen 127.0.0.1:$backend;
            default_type application/json;
            location /json { return 200 '$json'; }
            location /typed { default_type 'application/json; charset=utf-8'; return 200 '$json'; }
            location /events { default_type text/event-stream; return 200 '$events'; }
            location /text { default_type text/plain; return 200 '$json'; }
            location /lies { return 200 '{\"usage\":{\"total_tokens\":-5}}'; }
            location /nothing { return 200 '{}'; }
            location /error { return 500 '$json'; }
            location /part { add_header Content-Range 'bytes 1-92/200'; return 206 '$json'; }
            location /identity { add_header Content-Encoding Identity; return 200 '$json'; }
            location /gzip { add_header Content-Encoding gzip; return 200 '$json'; }
            location /big.bin { root html; }
            location ~ \\.json\$ { root html; } }",
    );
}

# What requests of a key were counted as, once it is that.
sub counts {
    my ($node, $key, $expected, $what) = @_;
    my $left;
    wait_until("$what: $expected", sub { $left = $node->get("/peek?k=$key")->header('X-RateLimit-Remaining'); $left == 100_000 - $expected });
    return is 100_000 - $left, $expected, $what;
}

sub spends {
    my ($node, $path, $expected, $what, %options) = @_;
    my ($key) = $path =~ /(\w+)/;
    my $answer = $node->get("$path?k=$key", %options);
    counts($node, $key, $expected, $what);
    return $answer;
}

subtest 'an answer is charged what it names, and does not change' => sub {
    my $node = gateway();
    is spends($node, '/json', 120, 'JSON')->body, $json;
    is spends($node, '/typed', 120, 'with a charset')->body, $json;
    is spends($node, '/events', 70, 'server-sent events')->body, $events;
    spends($node, '/error', 120, 'whatever the status');
    spends($node, '/identity', 120, 'a Content-Encoding that changes nothing');
    wait_until('the log', sub { $node->file('usage.log') =~ /^120\n120\n70\n120\n120\n/ });
    is $node->count_log(qr/ratelimit_usage cannot read/), 0, 'no line about that';
    ok 1, 'the variable is in the access log';
};

subtest 'without a number that can be taken the cost stays' => sub {
    my $node = gateway();
    spends($node, '/text', 50, 'another type');
    spends($node, '/lies', 50, 'not a whole number');
    spends($node, '/nothing', 50, 'no such member');
    spends($node, '/missing', 50, 'no answer of the backend');
    spends($node, '/json', 50, 'no body', method => 'HEAD');
    spends($node, '/part', 50, 'a part that the backend cut');
    spends($node, '/gzip', 50, 'a compressed one');
    $node->status('/gzip?k=gzip') for 1 .. 3;
    counts($node, 'gzip', 200, 'again');
    is $node->count_log(qr/ratelimit_usage cannot read responses in Content-Encoding "gzip"/), 1, 'one line says so';
};

subtest 'what nginx compresses or sends over HTTP/2 is read before, a range is not' => sub {
    my $port = free_port();
    my $node = gateway(server => "listen 127.0.0.1:$port http2;", location => 'gzip on; gzip_types application/json; gzip_min_length 1; gzip_proxied any; proxy_force_ranges on;');
    for (['--compressed', 'gzip', 120], ['--range 0-5', 'range', 50], ['', 'plain', 120], [q(-H 'Range: junk'), 'junk', 120],
        [q(-H 'Range: bytes=0-5' -H 'If-Range: "other"'), 'whole', 120]) {
        my ($options, $key, $cost) = @{$_};
        my $body = qx(curl -s --http2-prior-knowledge $options 'http://127.0.0.1:$port/json?k=$key');
        is $body, $key eq 'range' ? substr($json, 0, 6) : $json;
        counts($node, $key, $cost, $key);
    }
};

subtest 'of what slice puts together the first slice is read' => sub {
    my $node = gateway(location => 'slice 1k; proxy_set_header Range $slice_range; proxy_http_version 1.1;');
    my $usage = '"usage":{"total_tokens":120}';
    my $text = '"text":"' . 'x' x 5000 . '"';
    my %answers = (whole => "{$usage}", first => "{$usage,$text}", later => "{$text,$usage}");
    for my $name (sort keys %answers) {
        write_file("$node->{folder}/html/$name.json", $answers{$name});
        is spends($node, "/$name.json", $name eq 'later' ? 50 : 120, $name)->body, $answers{$name};
    }
};

subtest 'a large answer passes at its own pace, and is read to its end' => sub {
    my $node = gateway();
    my $size = 30_000_000;
    write_file("$node->{folder}/html/large.json", '{"text":"' . ('x' x $size) . '","usage":{"total_tokens":777}}');
    is length(spends($node, '/large.json', 777, 'thirty megabytes')->body), $size + 40;
    my ($pid) = $node->workers;
    my ($peak) = read_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+)/m;
    cmp_ok $peak, '<', 60_000, 'in bounded memory (kB)';
};

subtest 'a client that leaves before the end keeps the cost' => sub {
    my $slow = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
    my $node = gateway(server => "location /slow { ratelimit zone=test cost=50 charge=\$tokens; ratelimit_usage \$tokens json=usage.total_tokens;
        proxy_buffering off; proxy_pass http://127.0.0.1:@{[ $slow->sockport ]}; }");
    my $client = http_connect($node->port);
    http_send($client, '/slow?k=left');
    my $upstream = $slow->accept or die $!;
    sysread $upstream, my $request, 4000;
    print {$upstream} "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"usage\":{\"total_tokens\":9}}\n\n";
    my $got = '';
    wait_until('the first event has come at once', sub { sysread $client, $got, 4000, length $got; $got =~ /total_tokens/ });
    close $client;
    wait_until('nginx has closed the connection', sub { print {$upstream} "data: {}\n\n"; !defined sysread $upstream, my $end, 1 or 1 });
    close $upstream;
    counts($node, 'left', 50, 'it left');
};

finish();

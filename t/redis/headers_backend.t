# The headers of limits beside those of a backend, in error pages and in a dry run.

use Ratelimit::Test;

# The values of these headers of a response, by name.
sub of {
    my ($answer, @names) = @_;
    return { map { $_ => scalar $answer->header($_) } @names };
}

my @three = qw(X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset);

subtest 'a refusal has one of each header, also from a backend that makes its page' => sub {
    my $backend = nginx(module => 0, server => <<'END');
        add_header X-RateLimit-Limit 999 always; add_header x-ratelimit-remaining 998 always;
        add_header RateLimit-Policy "\"theirs\";q=1" always; add_header Retry-After 55 always;
END
    my $url  = "http://127.0.0.1:@{[ $backend->port ]}";
    my $node = node(
        zone   => 'rate=2r/d algorithm=fixed_window',
        server => <<"END",
        location /proxied { ratelimit zone=test; proxy_pass $url/; }
        location /page { ratelimit zone=test; error_page 429 /index.html; try_files /index.html =404; }
        location /named { ratelimit zone=test; error_page 429 = \@named; try_files /index.html =404; }
        location /far { ratelimit zone=test; error_page 429 /far.html; try_files /index.html =404; }
        location /plain { ratelimit zone=test; try_files /index.html =404; }
        location \@named { try_files /index.html =404; }
        location = /far.html { proxy_pass $url/index.html; }
END
    );
    for my $path (qw(/proxied /page /named /far /plain /)) {
        my @statuses;
        for (1 .. 3) {
            my $answer = $node->get("$path?k=" . substr $path, 1);
            push @statuses, $answer->status;
            next if $path eq '/proxied' && $answer->status == 200;
            is scalar(my @limit = $answer->header('X-RateLimit-Limit')), 1, "$path: one limit";
            is $limit[0], 2, 'the value of this node';
            is scalar(my @left = $answer->header('X-RateLimit-Remaining')), 1;
            is scalar(my @retry = $answer->header('Retry-After')), 1, 'one Retry-After'
                if $answer->status == 429;
        }
        my $last = $path eq '/named' ? 200 : 429;
        is_deeply \@statuses, [200, 200, $last], $path;
    }
    my $missing = $node->get('/absent?k=missing');
    is $missing->status, 404;
    is $missing->header('X-RateLimit-Remaining'), 1, 'on a 404 too';
    is $node->get('/?k=head', method => 'HEAD')->header('X-RateLimit-Remaining'), 1, 'and on HEAD';
};

subtest 'a backend that tells a limit of its own is left alone, whichever is tighter' => sub {
    my $backend = nginx(module => 0, server => <<'END');
        location /limit  { add_header X-RateLimit-Limit 999 always; }
        location /left   { add_header x-ratelimit-remaining 998 always; }
        location /policy { add_header RateLimit-Policy "\"theirs\";q=1" always; }
        location /other  { add_header X-Rate-Limit-Reset 5 always; }
        location /retry  { add_header Retry-After 55 always; }
        location /429    { return 429; }
        location /       { add_header X-Other 1 always; }
END
    my $node = node(
        zone   => 'rate=2r/d algorithm=fixed_window',
        server => "location ~ ^/p(/.*) { ratelimit zone=test; ratelimit_headers x-ratelimit draft legacy;"
            . "proxy_pass http://127.0.0.1:@{[ $backend->port ]}\$1; }",
    );
    my @ours = (@three, qw(RateLimit-Limit RateLimit-Remaining RateLimit-Reset RateLimit RateLimit-Policy Retry-After));
    for (['limit', 'X-RateLimit-Limit', 999], ['left', 'X-RateLimit-Remaining', 998], ['policy', 'RateLimit-Policy', '"theirs";q=1'],
        ['other'], ['retry', 'Retry-After', 55], ['429']) {
        my ($path, $name, $value) = @{$_};
        my $answer = $node->get("/p/$path?k=$path");
        is $answer->status, $path eq '429' ? 429 : 404, "/$path passes";
        is_deeply of($answer, @ours), { map { $_ => $_ eq ($name // '') ? $value : undef } @ours }, 'with the headers of the backend alone';
        $node->status("/p/$path?k=$path");
        my $refused = $node->get("/p/$path?k=$path");
        is $refused->status, 429, 'a refusal';
        is $refused->header('X-RateLimit-Limit'), 2, 'is of this node';
        cmp_ok $refused->header('Retry-After'), '>', 55;
    }
    is $node->get('/p/none?k=none')->header('X-RateLimit-Remaining'), 1, 'other headers of a backend change nothing';
};

subtest 'a dry run is invisible to clients' => sub {
    my $node = node(
        zone     => 'rate=1r/d algorithm=fixed_window',
        location => 'ratelimit_dry_run on; ratelimit_headers x-ratelimit draft legacy; add_header X-Status $ratelimit_status always;',
    );
    my @names = (@three, qw(RateLimit-Limit RateLimit-Remaining RateLimit-Reset RateLimit RateLimit-Policy Retry-After));
    for my $status (qw(PASSED REJECTED_DRY_RUN REJECTED_DRY_RUN)) {
        my $answer = $node->get('/');
        is $answer->status, 200;
        is $answer->header('X-Status'), $status;
        is_deeply of($answer, @names), { map { $_ => undef } @names }, 'no header of a limit';
    }
    $node->{redis}->stop;
    my $answer = $node->get('/');
    is_deeply of($answer, @names), { map { $_ => undef } @names }, 'nor without Redis';
};

finish();

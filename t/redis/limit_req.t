# A limit_req configuration, translated directive by directive, behaves the same: both modules in one
# nginx, the same requests to both.

use Ratelimit::Test;
use Time::HiRes qw(time);

my $redis = redis();

# Locations of both modules at this rate: name => [parameters, more lines].
sub pair {
    my ($rate, %locations) = @_;
    my $server = '';
    my $http   = <<"END";
    ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; }
    limit_req_status 429;
END
    for my $name (sort keys %locations) {
        my ($parameters, $more) = @{ $locations{$name} };
        $http .= "limit_req_zone \$arg_k zone=theirs_$name:1m rate=$rate;"
            . "ratelimit_zone \$arg_k zone=ours_$name rate=$rate algorithm=leaky_bucket;\n";
        my $theirs = ($more // '') =~ s/BOTH_/limit_req_/gr;
        my $ours   = ($more // '') =~ s/BOTH_/ratelimit_/gr;
        $server .= "location /theirs_$name/ { limit_req zone=theirs_$name $parameters; $theirs"
            . "add_header X-Result \$limit_req_status always; try_files /index.html =404; }"
            . "location /ours_$name/ { ratelimit zone=ours_$name $parameters; $ours"
            . "add_header X-Result \$ratelimit_status always; try_files /index.html =404; }\n";
    }
    return nginx(http => $http, server => $server);
}

# Statuses and results of the same requests to both modules, as text.
sub both {
    my ($node, $name, @arguments) = @_;
    $redis->cmd('FLUSHALL');
    my %seen;
    for my $who (qw(theirs ours)) {
        for my $argument (@arguments) {
            my $answer = $node->get("/${who}_$name/?$argument");
            push @{ $seen{$who} }, $answer->status . ' ' . ($answer->header('X-Result') // '-');
        }
    }
    return map { join ', ', @{ $seen{$_} } } qw(theirs ours);
}

my $node = pair(
    '1r/m',
    plain   => [''],
    burst   => ['burst=3 nodelay'],
    delay   => ['burst=3 delay=3'],
    dry     => ['',                'BOTH_dry_run on;'],
    drywait => ['burst=2',         'BOTH_dry_run on;'],
    status  => ['burst=1 nodelay', 'BOTH_status 598;'],
);

my $sequence = 'a';
for (
    ['plain',   ('k=a') x 3],
    ['plain',   qw(k=a k=b k=a k=b)],
    ['plain',   ('k=') x 4],
    ['plain',   'k=' . 'x' x 900, 'k=' . 'x' x 900, 'k=' . 'x' x 899 . 'y'],
    ['burst',   ('k=a') x 6],
    ['delay',   ('k=a') x 6],
    ['dry',     ('k=a') x 4],
    ['drywait', ('k=a') x 5],
    ['status',  ('k=a') x 4],
) {
    my ($name, @arguments) = @{$_};
    # limit_req's zones cannot be emptied, so each sequence has its own keys.
    my $own = $arguments[0] eq 'k=' ? '' : $sequence++;
    my ($theirs, $ours) = both($node, $name, map { "$_$own" } @arguments);
    is $ours, $theirs, "$name: " . substr "@arguments", 0, 40;
}

subtest 'excess requests are delayed as by limit_req' => sub {
    my $slow = pair('4r/s', all => ['burst=5'], some => ['burst=5 delay=3']);
    for my $name (qw(all some)) {
        my $delayed = $name eq 'all' ? 5 : 2;
        my (%took, %count);
        for my $try (1 .. 8) {    # retried: a busy machine may delay requests and responses
            for my $who (qw(theirs ours)) {
                my $began = time;
                my @sockets = map { http_connect($slow->port) } 1 .. 6;
                http_send($_, "/${who}_$name/?k=w$try", close => 1) for @sockets;
                $count{$who} = { DELAYED => 0, PASSED => 0 };
                $count{$who}{ http_read($_)->header('X-Result') }++ for @sockets;
                $took{$who} = time - $began;
            }
            last if abs($took{ours} - $took{theirs}) < 0.5 && !grep { $_->{DELAYED} != $delayed } values %count;
        }
        is_deeply $count{$_}, { DELAYED => $delayed, PASSED => 6 - $delayed }, "$_, $name: $delayed requests are delayed"
            for sort keys %count;
        cmp_ok abs($took{ours} - $took{theirs}), '<', 0.5, 'the delays are the same';
        cmp_ok $took{ours}, '>', $name eq 'all' ? 1.1 : 0.35;
    }
};

subtest 'a client that leaves while its request is delayed does not affect others' => sub {
    my $slow = pair('2r/s', all => ['burst=5']);
    $redis->cmd('FLUSHALL');
    my @sockets = map { http_connect($slow->port) } 1 .. 4;
    http_send($_, '/ours_all/?k=gone') for @sockets;
    close $_ for @sockets;
    is $slow->status('/ours_all/?k=other'), 200;
};

subtest 'limits are inherited by levels without their own, as with limit_req' => sub {
    my $lines = sub {
        my ($directive, $x) = @_;
        return (<<"HTTP", <<"SERVER");
            $directive zone=${x}1;
HTTP
            location /${x}_inherits/ { try_files /index.html =404; }
            location /${x}_own/ { $directive zone=${x}2; try_files /index.html =404; }
            location /${x}_two/ { $directive zone=${x}1; $directive zone=${x}3;
                try_files /index.html =404; }
SERVER
    };
    my ($their_http, $their_server) = $lines->('limit_req', 't');
    my ($our_http, $our_server)     = $lines->('ratelimit', 'o');
    my $http = "ratelimit_redis main { server @{[ $redis->addr ]}; timeout 5s; connect_timeout 5s; } limit_req_status 429;";
    for my $i (1 .. 3) {
        $http .= "limit_req_zone \$arg_k zone=t$i:1m rate=1r/m;"
            . "ratelimit_zone \$arg_k zone=o$i rate=1r/m algorithm=leaky_bucket;";
    }
    # One server for each module, since the limits in http {} would limit the locations of both.
    my %node = (
        t => nginx(http => "$http $their_http", server => $their_server),
        o => nginx(http => "$http $our_http",   server => $our_server),
    );
    $redis->cmd('FLUSHALL');
    my %seen;
    for my $x (qw(t o)) {
        for my $path (qw(inherits?k=1 inherits?k=1 own?k=1 own?k=1 two?k=1 two?k=2 two?k=2 inherits?k=2)) {
            push @{ $seen{$x} }, $node{$x}->status("/${x}_" . $path =~ s{\?}{/?}r);
        }
    }
    is "@{ $seen{o} }", "@{ $seen{t} }";
    is "@{ $seen{o} }", '200 429 200 429 429 200 429 429', 'a request that one limit refuses is counted in none';
};

finish();

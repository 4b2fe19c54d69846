# doc/recipes.md, the rest of the recipes: who is counted together, what is counted, and what else one does with it.
# needs: fail2ban tzdata

use IO::Select;
use Ratelimit::Process qw(temp_folder);
use Ratelimit::Recipes qw(run_recipes leave slow_backend);
use Ratelimit::Test;
use Time::HiRes qw(time);

# How many of $count requests pass.
sub passing {
    my ($node, $path, $count, %options) = @_;
    return scalar grep { $node->status($path, %options) == 200 } 1 .. $count;
}

my @ann = (headers => ['X-Account' => 'ann']);

my %try = (
    'Logged in or not' => sub {
        my ($node) = @_;
        is passing($node, '/', 61), 60, 'a visitor';
        is passing($node, '/', 601, @ann), 600, 'a user from the same address';
        is passing($node, '/', 1, headers => [Cookie => "session=$_"]), 0, 'an invented session is a visitor' for 1 .. 3;
        is passing($node, '/', 60, from => '127.0.2.1'), 60, 'another visitor';
    },
    'A claim of a JWT' => sub {
        my ($node) = @_;
        is passing($node, '/api/', 101, @ann), 100, 'a subject';
        is passing($node, '/api/', 101, from => '127.0.2.2', headers => ['X-Account' => 'bob', 'X-Plan' => 'gold']), 101, 'one with another plan';
        is passing($node, '/api/', 101, from => '127.0.2.3'), 100, 'a token without a subject is counted by its address';
        is passing($node, '/api/', 1, @ann, from => '127.0.2.1'), 0, 'another address does not help';
    },
    'Tenants' => sub {
        my ($node) = @_;
        my $alpha = 'http://www.alpha.example/';
        is passing($node, $alpha, 101, from => "127.0.2.$_"), 100, 'a client of a tenant' for 1 .. 3;
        is passing($node, $alpha, 1, from => '127.0.2.4'), 0, 'the tenant has no more for another one';
        is passing($node, 'http://alpha.example/', 1, from => '127.0.2.4'), 0, 'another name of the tenant';
        is passing($node, 'http://www.beta.example/', 101, from => '127.0.2.4'), 100, 'another tenant';
        is passing($node, "http://invented$_.example/", 50), $_ > 2 ? 0 : 50, 'invented names share a quota' for 1 .. 3;
    },
    'By method and path' => sub {
        my ($node) = @_;
        is passing($node, '/api/', 31, method => 'POST'), 30, 'writing';
        is passing($node, '/api/', 1, method => 'PUT'), 0, 'with any method';
        is passing($node, '/api/search?q=a', 5), 5, 'searching';
        is passing($node, $_, 1), 1, $_ for '/api/%73earch', '/api//search', '/api/Search', '/api/search/more', '/api/./search';
        is passing($node, $_, 1), 0, $_ for '/api/search', '/api/%73earch';
        is $node->get('/api/search/..%2Fusers', from => '127.0.2.1')->header('X-Path'), '/api/users', 'the backend gets what was limited';
        is passing($node, '/api/', 261, method => 'HEAD'), 260, 'HEAD counts as the rest';
        is passing($node, '/api/', 1), 0;
    },
    'Networks, countries, AS numbers' => sub {
        my ($node) = @_;
        my $from = sub { return (headers => ['X-ASN' => $_[0]], from => "127.0.2.$_[1]") };
        is passing($node, '/', 101, $from->(64496, $_)), 100, 'a client in the network' for 1, 2;
        is passing($node, '/', 1, $from->(64496, 3)), 0, 'the network has no more for another one';
        is passing($node, '/', 101, $from->(64500, 4)), 100, 'another network';
        is passing($node, '/', 101, $from->(64511, $_)), 100, 'a network that is not named' for 5 .. 11;
        is passing($node, '/', 1, $from->(64511, 12)), 0, 'its addresses share the limit of their /24';
        is passing($node, '/', 101), 100, 'an unknown network';
    },
    'User agents' => sub {
        my ($node) = @_;
        my @bot = (headers => ['User-Agent' => 'Mozilla/5.0 (compatible; GPTBot/1.2)']);
        is passing($node, '/', 15, @bot, from => "127.0.2.$_"), 15, 'from several addresses' for 1, 2;
        is passing($node, '/', 1, @bot, from => '127.0.2.3'), 0, 'they share the limit';
        is passing($node, '/', 1, headers => ['User-Agent' => 'gptbot'], from => '127.0.2.3'), 0, 'in any spelling';
        is passing($node, '/', 101), 100, 'without the name: the limit of the address';
    },
    'Good bots and health checks' => sub {
        my ($node) = @_;
        is passing($node, '/', 101, from => '127.0.0.9'), 101, 'a known address';
        is passing($node, '/', 101, from => '127.0.2.1', headers => ['User-Agent' => 'Googlebot/2.1']), 100, 'a name is none';
        is passing($node, '/healthz', 10, from => '127.0.2.1'), 10, 'health checks';
        is $node->get('/page/..%2Fhealthz', from => '127.0.0.9')->header('X-Path'), '/healthz', 'the backend gets what was limited';
    },
    'Two windows of one key' => sub {
        my ($node) = @_;
        is passing($node, '/api/', 59), 59;
        my @last = map { $node->get('/api/') } 1 .. 2;
        is_deeply [map { $_->status } @last], [200, 429];
        like $_->header('RateLimit'), qr/"per_minute";r=0;.*"per_day";r=4940;/, 'a refusal is not counted in the day' for @last;
    },
    'Billing periods' => sub {
        my ($node) = @_;
        is passing($node, '/api/', 101, headers => ['X-API-Key' => 'free-1']), 100, 'the quota of a plan';
        my %answers = map { $_ => $node->get('/api/', headers => ['X-API-Key' => "pro-$_"]) } 4711, 4712, 4713;
        is $_->header('X-RateLimit-Remaining'), 9999 for values %answers;
        my %ends = map { $_->header('X-RateLimit-Reset') => 1 } values %answers;
        is scalar(keys %ends), 3, 'each has a billing day of its own';
        ok !(grep { $_ > 31 * 86_400 + 3600 } keys %ends), 'within a month';
    },
    'One limit for the whole backend' => sub {
        my ($node) = @_;
        is passing($node, '/', 101, from => "127.0.2.$_"), 100, 'a client' for 1 .. 3;
        is passing($node, '/', 1, from => '127.0.2.4'), 0, 'no more for another client';
    },
    'A queue' => sub {
        my ($node) = @_;
        my $begin = time;
        my @sockets = map { my $socket = http_connect($node->port); http_send($socket, '/', close => 1); $socket } 1 .. 60;
        my @statuses = map { http_read($_)->status } @sockets;
        my $passed = grep { $_ == 200 } @statuses;
        cmp_ok $passed, '>=', 21, 'one at once and twenty that wait pass';
        cmp_ok scalar(grep { $_ == 429 } @statuses), '>=', 1, 'the queue has an end';
        cmp_ok time - $begin, '>=', ($passed - 1) / 2 - 0.05, 'at the rate';
    },
    'Websockets' => sub {
        my ($node) = @_;
        my @sockets = map { my $socket = http_connect($node->port);
            http_send($socket, '/ws', headers => ['X-Slow' => 1]); $socket } 1 .. 5;
        wait_until('five are connected', sub { slow_backend()->now == 5 });
        is passing($node, '/ws', 1), 0, 'a sixth';
        is passing($node, '/ws', 1, from => '127.0.2.1'), 1, 'another client';
        slow_backend()->finish;
    },
    'Uploads' => sub {
        my ($node) = @_;
        is $node->get('/upload', method => 'POST', body => 'x' x 100_000)->header('X-RateLimit-Remaining'), 29;
        my $left = sub { return $node->get('/upload', method => 'POST', body => '')->header('RateLimit') =~ /"uploaded";r=(\d+)/ ? $1 : 0 };
        wait_until('it is charged', sub { $left->() < 99_900_000 });
        cmp_ok $left->(), '>', 99_800_000, 'what was sent';
    },
    'Bans for pages that are not there' => sub {
        my ($node) = @_;
        is passing($node, '/', 150), 150, 'good requests are not counted';
        my @missing = (headers => ['X-Missing' => 1]);
        is scalar(grep { $node->status('/', @missing) == 404 } 1 .. 100), 100, 'a hundred errors';
        is $node->status('/', @missing), 429, 'and no more';
        my $answer = $node->get('/');
        is $answer->status, 429, 'no good page either';
        cmp_ok $answer->header('Retry-After'), '>', 3500, 'for an hour';
        is passing($node, '/', 1, from => '127.0.2.1'), 1, 'another client';
    },
    'fail2ban' => sub {
        my ($node, undef, $text) = @_;
        my ($filter) = $text =~ /(^\[Definition\]\n.+?\n)\n?```/ms;
        passing($node, '/', 102, from => '127.0.2.1', headers => [Referer => 'x", client: 198.51.100.9, ']);
        passing($node, '/', 102, from => '127.0.2.2');
        my $folder = temp_folder();
        write_file("$folder/ratelimit.conf", $filter);
        write_file("$folder/error.log", $node->log);
        my $found = qx(fail2ban-regex --print-all-matched $folder/error.log $folder/ratelimit.conf 2>&1);
        is $?, 0 or diag $found;
        my ($matched) = $found =~ /^\|- Matched line\(s\):\n(.*?)^`-/ms;
        my @banned = ($matched // '') =~ /limiting requests, by zone "per_client", key "(\S+)", client: \1,/g;
        is_deeply [sort @banned], ['127.0.2.1', '127.0.2.2'], 'one line for each client, whatever its request has';
    },
);

# See recipes.t.
my %leaving = (
    'Logged in or not' => { path => '/', count => 60 },
    'A claim of a JWT' => { path => '/api/', count => 100, @ann },
    'Tenants'          => { path => '/', count => 100 },
    'By method and path' => { path => '/api/search', count => 10 },
    'Networks, countries, AS numbers' => { path => '/', count => 100, headers => ['X-ASN' => 64496] },
    'User agents' => { path => '/', count => 30, headers => ['User-Agent' => 'GPTBot'] },
    'Two windows of one key' => { path => '/api/', count => 60 },
    'Billing periods' => { path => '/api/', count => 100, headers => ['X-API-Key' => 'free-1'] },
    'One limit for the whole backend' => { path => '/', count => 100 },
    'Good bots and health checks' => { path => '/', count => 100, from => '127.0.2.1' },
    'Bans for pages that are not there' => { path => '/', count => 100 },
    'fail2ban' => { path => '/', count => 100 },
    'A queue' => sub {
        my ($node) = @_;
        my $began = time;
        my @sockets = map { my $socket = http_connect($node->port); http_send($socket, '/'); $socket } 1 .. 40;
        wait_until('the queue is full', sub { $node->status('/') == 429 });
        close $_ for @sockets;
        # Those of two a second are free again. What is refused is answered at once; the others wait.
        my $select = IO::Select->new;
        for my $method (('GET', 'HEAD') x 10) {
            $select->add(my $socket = http_connect($node->port));
            http_send($socket, '/', method => $method, close => 1);
        }
        my ($refused, $last) = (0, time);
        ok eval {
            wait_until('refusals', sub {
                for my $socket ($select->can_read(0)) {
                    $select->remove($socket);
                    next if http_read($socket, 'HEAD')->status != 429;
                    $refused++;
                    $last = time;
                }
                return $refused >= 20 - 2 * ($last - $began) - 1;
            });
            1;
        }, 'its places are still taken' or diag "$refused of twenty are refused";
    },
    'Websockets' => sub {
        my ($node) = @_;
        for (1 .. 6) {
            leave($node, '/ws', 5, headers => []);
            wait_until('their places are free', sub { slow_backend()->now == 0 });
        }
        is $node->status('/ws', method => $_), 429, "connecting again and again is limited: $_" for qw(GET HEAD);
    },
    'Uploads' => sub {
        my ($node) = @_;
        my $upload = sub {
            my $socket = http_connect($node->port);
            print {$socket} "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n" . 'x' x 1000;
            return $socket;
        };
        my $began   = time;
        my @sockets = map { $upload->() } 1 .. 3;
        my $select  = IO::Select->new(@sockets);
        my ($refused) = $select->can_read(20) or die "no upload was refused\n";
        is http_read($refused)->status, 429, 'two reserve all';
        close $_ for @sockets;
        my @one = (method => 'POST', body => 'x');
        wait_until('they pay for what they sent', sub { $node->status('/upload', @one) == 200 });
        my $passing = passing($node, '/upload', 30, @one);
        cmp_ok $passing, '>=', 27, 'and for having begun';
        cmp_ok $passing, '<=', 27 + (time - $began) / 2, 'of thirty a minute';
        is $node->status('/upload', method => $_), 429, $_ for qw(GET HEAD);
    },
);

run_recipes(\%try, \%leaving);
finish();

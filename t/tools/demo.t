# t/demo.sh: what a new user sees first.
# needs: curl

use IPC::Open3 qw(open3);
use Ratelimit::Build qw(top);
use Ratelimit::Test;

my $top = top();
my @demo = ('bash', "$top/t/demo.sh", Ratelimit::Nginx::module());
$ENV{PATH} = join ':', grep { !/sbin/ } split /:/, $ENV{PATH};    # as that of a user who is not root

subtest 'with --once it shows a limited location and ends' => sub {
    open my $pipe, '-|', @demo, '--once' or die "bash: $!\n";
    my $output = do { local $/; <$pipe> };
    ok close $pipe, 'with status 0' or diag $output;
    is_deeply [$output =~ /^   \d  (\d+)  X-RateLimit-Limit: 5/mg], [(200) x 5, (429) x 2], 'five of seven requests pass';
    my $refused = 0;
    $refused += $_ for $output =~ /^   ratelimit_requests_total\{zone="per_client",.*result="rejected".*\} (\d+)$/mg;
    is $refused, 2, 'the metrics have the others';
    unlike $output, qr/Enter/;
};

subtest 'without it, the servers run until Enter is pressed' => sub {
    my $pid = open3(my $keys, my $screen, undef, @demo);
    my ($seen, $page, $redis) = ('');
    while (<$screen>) {
        $seen .= $_;
        $page  = $1 if m{^   (http://\S+/ratelimit/)$};
        $redis = $1 if /^   redis-cli -p (\d+) /;
        last if /^   kill \d+$/;
    }
    ok $page && $redis, 'it names the dashboard and commands to try' or diag $seen;
    my ($port) = $page =~ /:(\d+)/;
    is request($port, '/ratelimit/')->status, 200, 'the dashboard answers';
    my ($change) = $seen =~ /^   (sed -i .*)$/m;
    is system('sh', '-c', $change), 0, 'the limit can be changed as it says';
    wait_until('two of ten seconds', sub { (request($port, '/')->header('X-RateLimit-Limit') // '') eq '2' });
    print {$keys} "\n";
    close $keys;
    waitpid $pid, 0;
    is $?, 0, 'Enter ends it with status 0';
    ok !IO::Socket::INET->new(PeerAddr => "127.0.0.1:$_"), "nothing listens on port $_" for $port, $redis;
};

finish();

# A worker leaves while Redis stands still and has checks to execute: it waits for their replies, so that what the fail
# mode refused is not counted, and begins no block.

use Ratelimit::Process qw(alive wait_until);
use Ratelimit::Test;
use Time::HiRes qw(sleep);

my $redis = redis();
my $node  = nginx(
    http => <<"END", server => 'location / { ratelimit zone=z; ratelimit_fail_mode closed; try_files /index.html =404; }');
        ratelimit_redis main { server @{[ $redis->addr ]}; }
        ratelimit_zone \$arg_k zone=z rate=5r/h block=1h algorithm=sliding_window_log;
END

# Of each key, one request is refused by the fail mode in the stall; then exactly its five must pass.
sub passes_its_five {
    my ($name, @keys) = @_;
    my %passed = map {
        my $key = $_;
        $key => scalar grep { $node->status("/?k=$key") == 200 } 1 .. 5
    } @keys;
    is_deeply \%passed, { map { $_ => 5 } @keys }, "five of each key pass $name";
    is $node->status("/?k=$keys[0]"), 429, 'and no more';
    return;
}

sub refused_in_a_stall {
    my (@keys) = @_;
    $node->status('/?k=other');    # loads the script
    $redis->pause;
    is $node->status("/?k=$_"), 503, "$_ is refused by the fail mode" for @keys;
    return;
}

subtest 'reload' => sub {
    my @keys = map { "reload$_" } 1 .. 3;
    refused_in_a_stall(@keys);
    $node->reload;
    sleep 1;    # longer than connect_timeout + timeout, for which each worker tries at its end
    is scalar $node->workers(1), 1, 'the old worker waits';
    $redis->resume;
    wait_until('it exits', sub { !$node->workers(1) });
    passes_its_five('after the reload', @keys);
};

subtest 'QUIT' => sub {
    my @keys = map { "quit$_" } 1 .. 3;
    refused_in_a_stall(@keys);
    my $master = $node->pid;
    kill QUIT => $master;
    sleep 1;
    ok alive($master), 'nginx waits';
    $redis->resume;
    wait_until('it exits', sub { !alive($master) });
    $node->start;
    passes_its_five('after the start', @keys);
};

subtest 'nothing was refused: nothing waits' => sub {
    $redis->pause;
    kill QUIT => $node->pid;
    wait_until('nginx exits', sub { !alive($node->pid) }, 5);
    $redis->resume;
    pass 'nginx has exited';
};

finish();

# Overrides in a zone with calendar= and block=: they change the quota of the period, whose count stays, and have a block
# of their own. What fits no calendar is refused, or passed over where another node had it set.
# needs: tzdata

use FindBin;
use lib "$FindBin::Bin/../chaos";

use Chaos::Clock;
use Ratelimit::Fleet;
use Ratelimit::Test;
use JSON::PP qw(decode_json);

# Longer than the period, so that a block shows in Retry-After.
my $year     = 366 * 86_400;
my $calendar = 'algorithm=fixed_window calendar=Europe/Berlin block=366d';

sub passed {
    my ($node, $path, $times) = @_;
    return scalar grep { $_ == 200 } map { $node->status($path) } 1 .. $times;
}

sub has_override {
    my ($node, $kind, $arguments) = @_;
    return wait_until('override: ' . ($kind // 'none'), sub {
        my $answer = $node->get('/ops/zones/test/keys/k' . ($arguments // ''));
        return (decode_json($answer->body)->{override} // '') eq ($kind // '');
    });
}

sub is_blocked {
    my ($node, $path, $what) = @_;
    my $rest = 0;
    ok eval { wait_until('a block', sub { ($rest = $node->get($path)->header('Retry-After') // 0) > 200 * 86_400 }); 1 }, $what
        or diag "Retry-After: $rest";
    return;
}

sub blocks { my ($node) = @_; my @keys = $node->{redis}->keys_like('rl:test:{k}:block*'); return \@keys }

subtest 'a block under a tightened quota ends with the override' => sub {
    my $node = member(zone => "rate=10r/year $calendar");
    override($node, 'k', { rate => '2r/year' });
    has_override($node, 'rate');
    is passed($node, '/', 2), 2, 'the tightened quota';
    is_blocked($node, '/', 'and then the key is blocked');
    is take_back($node, 'k'), 204;
    has_override($node, undef);
    is passed($node, '/', 9), 8, 'what was used counts, and no refusal is left behind';
    is_blocked($node, '/', 'beyond the own quota the key is blocked');
};

subtest 'a block of the own quota does not hold under a raised one, and holds again after it' => sub {
    my $node = member(zone => "rate=2r/year $calendar");
    is passed($node, '/', 3), 2;
    is_blocked($node, '/', 'the own quota');
    override($node, 'k', { rate => '5r/year' });
    has_override($node, 'rate');
    is passed($node, '/', 4), 3, 'of five, two were used';
    is_blocked($node, '/', 'the raised quota blocks, too');
    ok eval { wait_until('it', sub { @{ blocks($node) } == 2 }); 1 }, 'beside the first block';
    is take_back($node, 'k'), 204;
    has_override($node, undef);
    is_blocked($node, '/', 'the first block holds again');
    is $node->status('/ops/zones/test/keys/k?rate=5r/year', method => 'DELETE'), 204;
    is_deeply blocks($node), [], 'freeing the key with the rate lifts both';
    is passed($node, '/', 3), 2, 'and frees the count of the period';
};

subtest 'an override of the zone, one of the key, and one that is set again' => sub {
    my $node = member(zone => "rate=10r/year $calendar");
    override($node, 'override', { rate => '1r/year' });
    has_override($node, 'rate');
    is passed($node, '/', 1), 1;
    is_blocked($node, '/', 'the quota of the zone');
    override($node, 'k', { rate => '3r/year' });
    in_force($node, 'k', 3);
    is passed($node, '/', 1), 1, 'that of the key goes before it';
    is take_back($node, 'k'), 204;
    in_force($node, 'k', 1);
    is_blocked($node, '/', 'the block of the zone holds as before');
    is take_back($node, 'override'), 204;
    has_override($node, undef);
    is passed($node, '/', 1), 1, 'not beyond it';
};

subtest 'with a variable rate an override of another period counts that period apart' => sub {
    my $node = member(zone => "rate=\$arg_r $calendar", location => 'ratelimit_headers x-ratelimit;');
    is passed($node, '/?r=5r/year', 2), 2;
    override($node, 'k', { rate => '2r/week' });
    has_override($node, 'rate', '?rate=5r/year');
    is passed($node, '/?r=5r/year', 2), 2, 'a week of its own';
    is_blocked($node, '/?r=5r/year', 'which blocks');
    is take_back($node, 'k'), 204;
    has_override($node, undef, '?rate=5r/year');
    is passed($node, '/?r=5r/year', 2), 2, 'the year goes on where it was, without a block';
    is $node->get('/?r=5r/year')->header('X-RateLimit-Remaining'), 0, 'nothing was forgiven';
    is $node->status('/?r=5r/year'), 429;
};

subtest 'in fail mode local' => sub {
    my $clock = Chaos::Clock->new(passes => 1);
    my $node = member(zone => "rate=10r/year $calendar", server => 'ratelimit_fail_mode local;', environment => $clock->environment,
        location => 'ratelimit_headers x-ratelimit;',
        block => 'breaker failures=1 open=1h;');
    override($node, 'k', { rate => '2r/year', for => '60s' });
    has_override($node, 'rate');
    $node->{redis}->stop('KILL');
    wait_until('the fail mode', sub { $node->get('/?k=x'); $node->count_log(qr/is away/) });
    is passed($node, '/', 2), 2;
    my $rest = $node->get('/')->header('Retry-After');
    ok 0 < $rest && $rest <= 60, 'the tightened quota blocks in memory, as long as it is in force' or diag $rest;
    $clock->step(60);
    wait_until('the override has ended', sub { ($node->get('/')->header('X-RateLimit-Limit') // 0) == 10 }, 40);
    is $node->status('/'), 200, 'the block ends with it';
};

subtest 'an override whose form is not that of the zone' => sub {
    my $redis    = redis();
    my $plain    = member(zone => 'rate=10r/d algorithm=fixed_window block=366d', redis => $redis);
    my $calendar = member(zone => "rate=3r/year $calendar", redis => $redis);
    override($plain, 'k', { rate => '1r/m' });
    in_force($plain, 'k', 1);
    override($calendar, 'ksame', { rate => '4r/year' });
    in_force($calendar, 'ksame', 4);    # so it knows the one before, too
    is passed($calendar, '/', 3), 3, 'a plain window is passed over in a zone with calendar=';
    is_blocked($calendar, '/', 'whose own quota refuses and blocks');
    is passed($plain, '/?k=same', 5), 5, 'and a period in one without';
};

finish();

# The peers of `./build.sh bench load` decide by the script that this module sends, and answer as it does.
# needs: libnginx-mod-http-lua

use File::Basename qw(dirname);
use lib dirname(__FILE__) . '/../bench';

use Ratelimit::Test;
use Bench::Servers qw(location ours peer redis_block);

my $redis = redis();
my @zones = qw(first second third);
my $rate = 'algorithm=gcra rate=1r/m burst=2 cache=off';
my $ours = ours(
    http   => redis_block($redis) . join('', map { "ratelimit_zone \$arg_key zone=$_ $rate;\n" } 'one', @zones) . 'ratelimit_headers x-ratelimit;',
    server => location('/one', 'ratelimit zone=one;') . location('/three', join '', map { "ratelimit zone=$_;" } @zones),
);
my %limit = (algorithm => 'gcra', quota => 1, window => 60_000_000, param => 3, key => 'arg_key');
my $peer = peer($redis, one => {%limit}, three => { %limit, zones => \@zones });

# Four requests of a new key.
my $keys = 0;
sub answers {
    my ($nginx, $path) = @_;
    my $key = 'k' . ++$keys;
    return map { $nginx->get("$path?key=$key") } 1 .. 4;
}

for my $path (qw(/one /three)) {
    my @own = answers($ours, $path);
    my @other = answers($peer, $path);
    is_deeply [map { $_->status } @own], [200, 200, 200, 429], "this module limits $path";
    for my $i (0 .. 3) {
        my $request = 'request ' . ($i + 1);
        is $other[$i]->status, $own[$i]->status, "$request: and so does the peer";
        is $other[$i]->header($_), $own[$i]->header($_), "$request: $_" for qw(X-RateLimit-Limit X-RateLimit-Remaining);
        cmp_ok abs(($other[$i]->header($_) // 0) - ($own[$i]->header($_) // 0)), '<', 30, "$request: $_, of minutes"
            for qw(X-RateLimit-Reset Retry-After);
    }
}

finish();

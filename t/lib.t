# The tests' own library: what it starts works, and what it promises to notice is noticed.

use strict;
use warnings;
use Ratelimit::Test;

my $redis = redis();
is $redis->cmd('SET', 'key', "a b\r\n"), 'OK', 'redis answers';
is $redis->cmd('GET', 'key'), "a b\r\n", 'binary values come back';
is $redis->calls('get'), 1, 'commands are counted';
ok !eval { $redis->cmd('NONSENSE'); 1 }, 'an error is an exception';
like $@, qr/unknown command/, 'with its text';
is_deeply $redis->cmd('EVAL', 'return {1, "a", false, {2}}', 0), [1, 'a', undef, [2]],
    'nested replies are read';

$redis->stop('KILL');
ok !eval { $redis->cmd('PING'); 1 }, 'a killed redis does not answer';
$redis->start;
is $redis->cmd('PING'), 'PONG', 'it can be started again';

my $nginx = nginx(workers => 2, server => 'location = /gone { return 410 "gone"; }');
is $nginx->status('/'), 200, 'nginx serves';
is $nginx->get('/')->body, "ok\n", 'the body is read';
is $nginx->get('/gone')->body, 'gone', 'of errors too';
is length $nginx->get('/big.bin')->body, 200_000, 'of large files too';
is_deeply [burst($nginx->port, '/', 100, 10)], [(200) x 100], 'many requests at once';

my @before = sort $nginx->workers;
is scalar @before, 2, 'it has its workers';
$nginx->reload;
my @after = sort $nginx->workers;
isnt "@after", "@before", 'and others after a reload';

my ($exit, @lines) = conf_test(server => 'nonsense;');
is $exit, 1, 'a bad configuration is refused';
like "@lines", qr/unknown directive "nonsense"/, 'with its line';
is((conf_test())[0], 0, 'a good one is not');

my $bad = nginx(module => 0);
write_file("$bad->{folder}/error.log", $bad->log . "2026/01/01 [alert] 1#1: made up\n");
like join(' ', Ratelimit::Nginx::complaints()), qr/made up/, 'an alert is noticed';

finish();

// The parts of the page that need no browser: numbers, histories, scales, addresses.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { names, scenario } from './scenarios.mjs';

const FOLDER = new URL('../../src/http/dashboard/', import.meta.url);
const NAMES = ['short', 'counted', 'percent', 'latency', 'duration', 'bytes', 'visible', 'middleCut', 'History', 'overview', 'scaleOf',
    'keyUrl', 'idArgument', 'refusals', 'tickLabel', 'FreedKeys', 'Nodes', 'RESULTS', 'Past', 'RANGES', 'peaksOf', 'timeTicks',
    'typedArgument', 'wholeZonesText', 'addressText', 'when', 'overrideUrl', 'overrideText', 'age', 'FleetRates', 'mostText',
    'tenTimes', 'placeOf', 'compare', 'differenceText', 'joined', 'clock', 'weekday', 'moment', 'isSame', 'inAllZones', 'targetsText', 'consequence', 'nearest', 'editDistance'];

const text = ['format.js', 'history.js', 'chart.js', 'past.js', 'keys.js', 'nodes.js', 'tables.js', 'zone.js', 'fleet_rates.js',
    'fleet.js', 'finder.js', 'changes.js', 'changing.js', 'conditional.js', 'limits.js', 'links.js']
    .map(name => readFileSync(new URL(name, FOLDER), 'utf8')).join('\n');
const parts = new Function(`'use strict';${text}\nreturn { ${NAMES.join(', ')} };`)();

const table = (name, rows) => test(name, () => {
    for (const [input, expected] of rows) {
        assert.equal(parts[name](...[input].flat()), expected, `${name}(${input})`);
    }
});

table('short', [[0, '0'], [0.001, '<0.01'], [0.034, '0.03'], [0.996, '1.0'], [3.44, '3.4'], [9.96, '10'],
    [340.4, '340'], [999.4, '999'], [999.6, '1.0k'], [1234, '1.2k'], [12345, '12k'], [999600, '1.0M'],
    [3.2e9, '3.2G'], [null, '–'], [NaN, '–'], [Infinity, '–']]);
table('counted', [[0, '0'], [7, '7'], [999, '999'], [1234, '1.2k']]);
table('percent', [[[0, 5], '0%'], [[5, 5], '100%'], [[1, 1000], '<1%'], [[999, 1000], '>99%'], [[1, 3], '33%'],
    [[0, 0], '–'], [[1, null], '–']]);
table('latency', [[0.0002, '0.20 ms'], [0.0011, '1.10 ms'], [0.0123, '12.3 ms'], [0.25, '250 ms'],
    [1.25, '1.3 s'], [null, '–'], [[], '–']]);
table('duration', [[0.2, '1 s'], [45, '45 s'], [60, '1 min'], [90, '90 s'], [119.5, '120 s'], [412, '7 min'], [600, '10 min'],
    [3600, '1 h'], [5400, '90 min'], [7201, '3 h'], [86400, '1 d'], [200000, '3 d']]);
table('bytes', [[512, '512 bytes'], [1048576, '1 MiB'], [1536, '1.5 KiB'], [2 ** 31, '2 GiB']]);
table('visible', [['plain', 'plain'], ['日本', '日本'], ['a\u202Eb', 'a\\u{202E}b'], ['a\nb\0', 'a\\u{A}b\\u{0}'],
    ['\uD800x', '\\u{D800}x'], [5, '5']]);
table('middleCut', [[['short', 36], 'short'], [['abcdefghijkl', 9], 'abcde…jkl'], [['😀😀😀😀😀', 4], '😀😀…😀']]);
table('tickLabel', [[0, '0'], [0.5, '0.5/s'], [0.05, '0.05/s'], [1, '1/s'], [1500, '1.5k/s'], [2000, '2k/s'], [0.2, '0.2/s']]);
table('mostText', [[{ limits: ['1000r/m'], ahead: 60 }, 'at most 1,060 of 1,000'], [{ limits: ['5r/10s'], ahead: 4 }, 'at most 9 of 5'],
    [{ limits: ['1000r/m burst=50'], ahead: 60 }, 'at most 60 more'], [{ limits: ['1000r/m', '7r/s'], ahead: 60 }, 'at most 60 more'],
    [{ limits: ['$plan'], ahead: 8 }, 'at most 8 more'], [{ ahead: 8 }, 'at most 8 more']]);
table('keyUrl', [
    [[{ name: 'per_ip' }, 'id=k'], 'zones/per_ip/keys?id=k'],
    [[{ name: 'a/b?c' }, 'key=k'], 'zones/a%2Fb%3Fc/keys?key=k'],
]);
table('idArgument', [['192.0.2.1', 'id=192.0.2.1'], ['%C0%00%02%01', 'id=%C0%00%02%01'], ['..', 'id=..'], ['%2E', 'id=%2E'],
    ['../../redis?x#y', 'id=..%2F..%2Fredis%3Fx%23y'], ['%00&b=+', 'id=%00%26b%3D%2B'], ['日\uD800', 'id=%E6%97%A5%EF%BF%BD']]);

table('typedArgument', [
    [['key', ' gold-4711 '], 'key=gold-4711'],
    [['key', 'a b&c=%'], 'key=a%20b%26c%3D%25'],
    [['key', '%C0%00日'], 'key=%25C0%2500%E6%97%A5'],
    [['key', '\uD800'], 'key=%EF%BF%BD'],
    [['key', '2001:db8::/64'], 'key=2001%3Adb8%3A%3A%2F64'],
    [['hash', '9f86d081884c7d659a2feaa0c55ad015'], 'hash=9f86d081884c7d659a2feaa0c55ad015'],
    [['id', ' %C0%00%02%01 '], 'id=%C0%00%02%01'],
]);
test('zones that are changed as a whole are named, with their limit and its end', () => {
    const zones = [{ name: 'a', override: { block: true, until: null } }, { name: 'b', override: null },
        { name: '<c>\u202E', override: { rate: '5r/s', until: 1000 } }];
    assert.match(parts.wholeZonesText(zones, 900),
        /^a is blocked until it is taken back; <c>\\u\{202E\} is 5r\/s until \d\d:\d\d:\d\d$/);
    assert.equal(parts.wholeZonesText([{ name: 'b', override: null }, { name: 'of an older node' }], 900), '');
    assert.match(parts.when(1000 + 13 * 3600, 1000), /^1 Jan 1970, \d\d:\d\d$/, 'with its date if it is not near');
});
table('addressText', [[{ ipv4: 32, ipv6: 128 }, 'addresses'], [{ ipv4: 32, ipv6: 64 }, 'IPv4 addresses and IPv6 /64'],
    [{ ipv4: 24, ipv6: 48 }, 'IPv4 /24 and IPv6 /48']]);

table('overrideUrl', [
    [[{ name: 'api' }, null], 'zones/api/override'],
    [[{ name: 'api' }, 'id=a%2Fb'], 'zones/api/keys/override?id=a%2Fb'],
    [[{ name: 'api' }, 'key=plain'], 'zones/api/keys/override?key=plain'],
]);
table('overrideText', [[{ rate: '5r/s' }, '5r/s'], [{ rate: '5r/s', burst: 0 }, '5r/s, burst 0'], [{ block: true }, 'blocked'],
    [{ unlimited: true }, 'no limit'], [{ concurrency: 1200 }, '1,200 at one time'], [{ unknown: true }, 'not known to this version']]);
table('age', [[0, '0 s'], [-3, '0 s'], [119, '119 s'], [120, '2 min'], [7300, '2 h'], [200000, '2 d']]);

test('rates of a fleet are those of nodes that were there before', () => {
    const rates = new parts.FleetRates();
    const zone = (passed, refused = 0, name = 'api', would_refuse = undefined) => ({ name, passed, refused, would_refuse });
    const node = (id, passed, ...zones) => ({ id, passed, refused: 0, zones });
    assert.equal(rates.requests(), null);
    rates.add(100, [node('a', 10, zone(10)), node('b', 1000, zone(1000), zone(5, 5, 'login'))]);
    assert.equal(rates.zone('api'), null);
    rates.add(102, [node('a', 30, zone(30, 4, 'api', 6)), node('c', 1e6, zone(1e6))]);
    assert.deepEqual(rates.zone('api'), { passed: 10, refused: 2, undecided: 0, would_refuse: 3 }, 'one node left and one came');
    assert.deepEqual(rates.requests(), { passed: 10, refused: 0, undecided: 0, would_refuse: 0 });
    assert.deepEqual(rates.requests('c'), { passed: 0, refused: 0, undecided: 0, would_refuse: 0 });
    assert.deepEqual(rates.zone('login'), { passed: 0, refused: 0, undecided: 0, would_refuse: 0 });
    rates.add(102, [node('a', 9000, zone(9000))]);
    assert.equal(rates.requests().passed, 10, 'as last known');
    rates.add(104, [node('a', 0, zone(0))]);
    assert.equal(rates.requests().passed, 0, 'counters that start again are no rate');
    assert.deepEqual(rates.intervals.map(({ from, to }) => [from, to]), [[100, 102], [102, 104]]);
    rates.add(130, [node('a', 7, zone(7))]);
    assert.deepEqual(rates.intervals.at(-1), { from: 104, to: 130, rates: null }, 'a time without an answer');
    rates.add(50, [node('a', 7, zone(7))]);
    assert.equal(rates.requests(), null, 'another Redis');
    assert.deepEqual(rates.intervals, []);
});

test('requests without a decision are apart, and two answers shortly one after the other are no peak', () => {
    const rates = new parts.FleetRates();
    const node = (passed, undecided) => ({ id: 'a', passed, refused: 0, undecided, zones: [] });
    rates.add(100, [node(0, 0)]);
    rates.add(102, [node(60, 20)]);
    assert.deepEqual(rates.requests(), { passed: 30, refused: 0, undecided: 10, would_refuse: 0 });
    assert.deepEqual(rates.intervals.at(-1).rates, { passed: 20, rejected: 0, failed_open: 10 });
    rates.add(102.1, [node(90, 20)]);
    assert.equal(rates.intervals.length, 1);
    const history = new parts.History();
    for (const [time, passed] of [[10, 0], [12, 40], [12.1, 60], [14, 80]]) {
        history.add(time, { passed: { redis: passed } });
    }
    assert.deepEqual(history.intervals.map(({ rates: { passed } }) => passed), [20, 20]);
});

test('ten times as much is that of what is in force, with its burst', () => {
    const zone = { rate: '100r/m', limit: 100, burst: 5, concurrency: null };
    assert.deepEqual(parts.tenTimes(zone, null), { rate: '1000r/m', burst: 50 });
    assert.deepEqual(parts.tenTimes(zone, { rate: '7r/15m', burst: null }), { rate: '70r/15m' });
    assert.deepEqual(parts.tenTimes(zone, { block: true }), { rate: '1000r/m', burst: 50 });
    assert.deepEqual(parts.tenTimes({ rate: null, limit: 3, concurrency: 3 }, null), { concurrency: 30 });
    assert.deepEqual(parts.tenTimes({ rate: '$rate', limit: null, burst: null }, null, '50r/s'), { rate: '500r/s' });
    assert.equal(parts.tenTimes({ rate: '$rate', limit: null }, null, undefined), null);
});

test('what an operator saw is what is in force if people would see no difference', () => {
    assert.ok(parts.isSame(null, null) && parts.isSame({ block: true, until: 7, at: 1 }, { block: true, until: 7.001 }));
    assert.ok(!parts.isSame(null, { block: true }) && !parts.isSame({ block: true, until: 7 }, { block: true, until: null }));
    assert.ok(!parts.isSame({ rate: '5r/s' }, { rate: '5r/s', burst: 3 }));
});

test('a key is blocked in the zones that count it under the same bytes', () => {
    const zone = (name, key, bits = null, more = {}) => ({ name, key, address_bits: bits, hash_key: false, ...more });
    const whole = { ipv4: 32, ipv6: 128 };
    const net = { ipv4: 24, ipv6: 48 };
    const zones = [zone('a', '$binary_remote_addr', whole), zone('b', '$remote_addr', whole), zone('net', '$ratelimit_net_24_48', net),
        zone('k', '$http_x_key'), zone('l', '$http_x_key'), zone('h', '$http_x_key', null, { hash_key: true }), zone('m', '$arg_k')];
    const of = (name, named, key) => parts.inAllZones({ zone: zones.find(each => each.name === name), named, key }, zones)
        .map(({ zone: { name: its }, named: as }) => `${its} ${as}`);
    assert.deepEqual(of('a', 'id=%C0%00%02%01', '192.0.2.1'), ['a id=%C0%00%02%01', 'b key=192.0.2.1'], 'not the whole network');
    assert.deepEqual(of('l', 'id=gold', 'gold'), ['l id=gold', 'k id=gold']);
    assert.deepEqual(of('m', 'id=x', 'x'), ['m id=x']);
    assert.deepEqual(of('a', null, null), ['a null']);
});

test('what several changed limits fall back to is said, also where a whole zone is changed', () => {
    const target = (name, named, ofZone = null) => ({ zone: { name, rate: '9r/s' }, named, ofZone });
    const said = (change, targets) => parts.consequence({ change, lasts: 'After 1 hour', targets, nodes: 3 });
    const zone = { rate: '5r/s', until: null };
    const keys = [target('per_ip', 'id=a'), target('search', 'id=b', zone), target('search', 'id=c', zone)];
    const rest = '; in search the limit of the whole zone, 5r/s, that was changed at run time.';
    assert.equal(said(null, keys), `For these 3 limits, those of the configuration are in force again on all 3 nodes, within two seconds${rest}`
        + ' What was counted stays counted.');
    assert.ok(said({ block: true }, keys).endsWith(` After 1 hour each limit of the configuration is in force again${rest}`));
    assert.ok(!said(null, [...keys, target('search', null)]).includes('whole zone'), 'the change of the zone is taken back, too');
    assert.ok(!said(null, keys.slice(0, 1)).includes('whole zone'));
});

test('keys that are much like the one that was typed are offered', () => {
    assert.equal(parts.editDistance('gold-4711', 'gold-4711'), 0);
    assert.equal(parts.editDistance('gold-471', 'gold-4711'), 1);
    assert.equal(parts.editDistance('', 'abc'), 3);
    const keys = ['gold-4711', 'gold-4712', 'silver-9', '198.51.100.7', '198.51.100.70', 'gold-4711'];
    assert.deepEqual(parts.nearest('gold-4717', keys), ['gold-4711', 'gold-4712']);
    assert.deepEqual(parts.nearest('198.51', keys), ['198.51.100.7', '198.51.100.70'], 'half a key');
    assert.deepEqual(parts.nearest('GOLD', keys), ['gold-4711', 'gold-4712']);
    assert.deepEqual(parts.nearest('nothing-like-it', keys), []);
    assert.deepEqual(parts.nearest('gold-4711', keys), ['gold-4712'], 'not itself');
    assert.deepEqual(parts.nearest('x'.repeat(201), ['x'.repeat(202)]), [], 'a long text is not compared');
    let read = 0;
    const other = new Proxy('y'.repeat(190).split(''), { get: (letters, at) => { read += 1; return letters[at]; } });
    assert.equal(parts.editDistance('x'.repeat(190), other, 38), Infinity);
    assert.ok(read < 190 * 90, 'a comparison ends when the texts differ too much');
});

test('an address leads to a part of the page, a zone or a key', () => {
    assert.deepEqual(parts.placeOf(''), { part: '' });
    assert.deepEqual(parts.placeOf('#nodes'), { part: 'nodes' });
    assert.deepEqual(parts.placeOf('#zone=a%26b'), { zone: 'a&b', key: null, id: null });
    assert.deepEqual(parts.placeOf('#key=2001:db8::7'), { zone: null, key: '2001:db8::7', id: null });
    assert.deepEqual(parts.placeOf('#zone=per_ip&id=%25C6%2533'), { zone: 'per_ip', key: null, id: '%C6%33' });
});

test('what is not known is sorted last', () => {
    assert.deepEqual([3, null, 10, undefined, 2].sort(parts.compare), [2, 3, 10, null, undefined]);
    assert.deepEqual(['b', 'a'].sort(parts.compare), ['a', 'b']);
});

test('a number that is no time is a question mark', () => {
    for (const shown of [parts.clock, parts.weekday, time => parts.when(time, 1.8e9), time => parts.moment(time, 1.8e9)]) {
        assert.match(shown(2 ** 53), /^\?/);
        assert.match(shown(NaN), /^\?/);
    }
    assert.match(parts.clock(1.8e9), /^\d\d:\d\d:\d\d$/);
});

test('settings that differ are named with their nodes', () => {
    const zone = { nodes: 3, differ: 1, settings_differ: ['b'], differences: [{ setting: 'hash_key', differ: 1, nodes: ['b'] },
        { setting: 'burst', differ: 3, nodes: ['a', 'b', 'c'] }] };
    assert.equal(parts.differenceText(zone), 'hash key on b, burst on all nodes');
    assert.equal(parts.differenceText({ nodes: 3, differ: 2, settings_differ: ['b', 'c'] }), 'on b and c', 'of an older version');
    assert.equal(parts.differenceText({ nodes: 100, differ: 41, settings_differ: ['a', 'b'],
        differences: [{ setting: 'rate', differ: 41, nodes: ['a', 'b'] }] }), 'rate on a and b and 39 more');
});

test('refusals are shown as a range when the node estimates', () => {
    assert.equal(parts.refusals({ refused: 5127, error: 0 }), '5,127');
    assert.equal(parts.refusals({ refused: 5127, error: 12 }), '5,115 to 5,127');
    assert.equal(parts.refusals({ refused: 10, error: 12 }), '0 to 10');
});

test('a scale has a few round lines, and room for the highest rate', () => {
    for (const most of [0, 0.02, 0.7, 1, 3, 99, 100, 101, 1519, 2e6]) {
        const { top, ticks } = parts.scaleOf(most);
        assert.ok(top >= most && ticks.length >= 2 && ticks.length <= 6, `${most}: ${ticks}`);
        assert.equal(ticks[0], 0);
    }
    assert.deepEqual(parts.scaleOf(1519).ticks, [0, 500, 1000, 1500, 2000]);
});

// A history with these numbers of passed requests at these times.
function historyOf(samples) {
    const history = new parts.History();
    for (const [time, passed, more = {}] of samples) {
        history.add(time, { passed: { redis: passed }, ...more });
    }
    return history;
}

test('rates are differences divided by time', () => {
    const history = historyOf([[100, 50], [102, 70], [104, 80]]);
    assert.deepEqual(history.intervals.map(({ rates }) => rates.passed), [10, 5]);
    assert.equal(history.now().passed, 7.5);
    assert.equal(parts.peaksOf(history.intervals).passed, 10);
    assert.equal(historyOf([[100, 50]]).now(), null, 'one response gives no rate');
});

test('the rates of now are those of the last ten seconds', () => {
    const history = historyOf([[80, 0], [90, 1000], [92, 1002], [96, 1006], [100, 1010]]);
    assert.equal(history.now().passed, 1);
});

test('a counter that falls or disappears starts a new history', () => {
    assert.deepEqual(historyOf([[100, 50], [102, 70], [104, 3]]).intervals, []);
    const history = historyOf([[100, 50], [102, 70]]);
    history.add(104, {});
    assert.equal(history.samples.length, 1);
    assert.deepEqual(history.last.results, {});
});

test('a long pause is a gap without a rate', () => {
    const history = historyOf([[100, 0], [102, 2], [150, 200], [152, 204]]);
    assert.deepEqual(history.intervals.map(({ rates }) => rates?.passed ?? null), [1, null, 2]);
    assert.equal(history.now().passed, 2);
});

test('samples older than five minutes are dropped', () => {
    const history = historyOf(Array.from({ length: 400 }, (_, i) => [1000 + 2 * i, i]));
    assert.ok(history.samples.length <= 152, `${history.samples.length} samples`);
    assert.ok(history.intervals.length <= 151);
});

test('a clock that stops or steps back gives no rate', () => {
    const history = historyOf([[100, 50], [102, 70], [102, 80]]);
    assert.equal(history.intervals.length, 1);
    history.add(40, { passed: { redis: 90 } });
    assert.equal(history.now(), null);
    history.add(42, { passed: { redis: 94 } });
    assert.equal(history.now().passed, 2);
});

test('the recent intervals are those after the last gap', () => {
    const rates = history => history.recent().map(interval => interval.rates.passed);
    assert.deepEqual(rates(historyOf([[100, 0], [102, 2], [150, 200], [152, 204], [154, 210]])), [2, 3]);
    assert.deepEqual(rates(historyOf([[100, 0], [102, 2]])), [1]);
    assert.deepEqual(rates(historyOf([[100, 0], [150, 2]])), []);
});

// What the node remembers: steps of 10 s from 1000 on with these numbers, and one of 300 s.
function pastOf(now, passed, more = {}) {
    const past = new parts.Past('z');
    past.take({ now, steps: [{ step: 10, start: 1000, passed, refused: passed.map(() => 0), ...more },
        { step: 300, start: 900, passed: [600], refused: [0] }] });
    return past;
}
const [quarter, hour, , days] = parts.RANGES;
const spans = intervals => intervals.map(({ from, to, rates }) => [from, to, rates && (rates.passed ?? 0)]);

test('steps of the node come before the samples of the page', () => {
    const past = pastOf(1033, [10, 20, null, 9]);
    assert.deepEqual(spans(past.intervals(quarter, [], 1033, {})),
        [[1000, 1010, 1], [1010, 1020, 2], [1020, 1030, null], [1030, 1033, 3]], 'the newest step is not over');
    const live = [{ from: 1014, to: 1016, rates: { passed: 7 } }, { from: 1016, to: 1034, rates: { passed: 8 } }];
    assert.deepEqual(spans(past.intervals(quarter, live, 1034, {})),
        [[1000, 1010, 1], [1010, 1014, 2], [1014, 1016, 7], [1016, 1034, 8]]);
    assert.deepEqual(spans(past.intervals(hour, live, 1034, {})).at(-1), [1030, 1033, 3], 'a long range has none');
    assert.deepEqual(spans(past.intervals(days, live, 1034, {})), [[900, 1033, 600 / 133]]);
    assert.deepEqual(spans(past.intervals({ ...quarter, seconds: 20 }, live, 1034, {})).length, 2, 'too old');
    assert.deepEqual(spans(new parts.Past('z').intervals(hour, live, 1034, {})).length, 2, 'a node without a history');
});

test('a step that has just begun has no rate', () => {
    assert.deepEqual(spans(pastOf(1011, [10, 5]).intervals(hour, [], 1011, {})), [[1000, 1010, 1]]);
});

test('trials and undecided requests of a step are shown apart', () => {
    const past = pastOf(1010, [100], { refused: [10], would_refuse: [30], undecided: [20] });
    const [{ rates }] = past.intervals(quarter, [], 1010, { rejected_dry_run: 5 });
    assert.deepEqual(rates, { passed: 5, rejected: 1, rejected_dry_run: 3, failed_open: 2 });
    assert.equal(past.intervals(quarter, [], 1010, {})[0].rates.rejected_shadow, 3);
});

test('the history is read at once, when more is shown, and when it is old', () => {
    const past = pastOf(1010, [100]);
    assert.ok(past.isDue(700, 1000, Infinity));
    Object.assign(past, { since: 700, asked: 1000 });
    assert.ok(!past.isDue(702, 1002, 60));
    assert.ok(past.isDue(102, 1002, 60), 'a longer range');
    assert.ok(!past.isDue(5000, 9000, Infinity), 'a small chart needs no more');
    assert.ok(past.isDue(760, 1060, 60));
    assert.ok(past.isDue(-300, 0, 60), 'the clock was set back');
    assert.ok(!Object.assign(past, { has: false }).isDue(760, 5000, 60), 'a node of an older version');
});

test('the times below a chart are round', () => {
    assert.deepEqual(parts.timeTicks(1000000, 900, 150, 0), [999300, 999600, 999900]);
    assert.deepEqual(parts.timeTicks(1000000, 3600, 601, 0), [997200, 998400, 999600]);
    assert.deepEqual(parts.timeTicks(1000000, 172800, 40000, 7200), [856800, 900000, 943200, 986400]);
});

test('sources are those of the kept minutes', () => {
    const history = historyOf([[100, 50], [102, 70, { rejected: { cache: 5 } }]]);
    assert.deepEqual(history.sources(), { redis: 20, cache: 5 });
});

test('shadow limits and dry runs are counted separately from refused and failed requests', () => {
    assert.deepEqual(parts.overview({ passed: 5, delayed: 1, passed_shadow: 2, delayed_dry_run: 1, rejected: 3,
        rejected_shadow: 4, rejected_dry_run: 5, failed_open: 6, failed_closed: 7 }),
    { passed: 9, would: 9, refused: 3, failed: 13 });
});

// Whether a key freed at time 10 with 50 refusals is shown, after each response of [requested at,
// refused].
function seenOf(answers) {
    const freed = new parts.FreedKeys();
    freed.add({ id: 'a', refused: 50 }, 10);
    return answers.map(([requested, refused]) =>
        freed.seen(refused === null ? [] : [{ id: 'a', refused }], requested).length);
}

test('a freed key is hidden while a response may be older', () => {
    assert.deepEqual(seenOf([[8, 50], [9, 51], [9, 51]]), [0, 0, 0]);
    assert.deepEqual(seenOf([[9, 51], [10, 51]]), [0, 1], 'requested later');
    assert.deepEqual(seenOf([[9, 1], [9, 60]]), [1, 1], 'a smaller number of refusals');
    assert.deepEqual(seenOf([[9, null], [9, 60]]), [0, 1], 'the key was absent');
});

test('several nodes are reported after the second change within a minute, for a minute', () => {
    const states = answers => {
        const nodes = new parts.Nodes();
        return answers.map(([now, zones, redis = zones]) => [nodes.take(zones, redis, now), nodes.several]);
    };
    assert.deepEqual(states([[0, 'a'], [2, 'b'], [4, 'b']]), [[false, false], [true, false], [false, false]],
        'one takeover');
    assert.deepEqual(states([[0, 'a'], [2, 'b'], [4, 'a'], [6, 'a'], [61, 'a'], [62, 'a']]).map(([, several]) => several),
        [false, false, true, true, true, false]);
    assert.deepEqual(states([[0, 'a'], [2, 'b'], [62, 'a']]).at(-1), [true, false], 'two takeovers');
    assert.deepEqual(states([[0, 'a', 'b'], [2, 'a', 'b']]), [[false, false], [false, true]], 'two nodes in one response');
});

test('the page\'s results are those of the metrics', () => {
    const reference = readFileSync(new URL('../../doc/reference.md', import.meta.url), 'utf8');
    const [, list] = reference.match(/`ratelimit_requests_total\{.*?`result`: (.*?)\. `source`/);
    const named = [...list.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    assert.ok(named.length > 5);
    assert.deepEqual(parts.RESULTS.map(({ name }) => name).sort(), named.sort());
});

test('the mock reports Redis servers as the module does: the masters, where servers have roles', () => {
    for (const name of names.filter(known => known !== 'hostile')) {
        for (const { topology, servers } of scenario(name).redis().redis) {
            const role = ['cluster', 'sentinel'].includes(topology) ? 'master' : null;
            servers.forEach(server => assert.equal(server.role, role, `${name}: ${topology}`));
            assert.ok(['cluster', 'ring'].includes(topology) || servers.length <= 1, `${name}: ${topology}`);
        }
    }
});

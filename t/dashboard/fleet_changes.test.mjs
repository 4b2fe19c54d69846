// Limits that are changed at run time on the page of a fleet.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axe, seen, text, texts, until } from './browser.mjs';
import { cells, change, lookUp, onFleet, outcome, pause, state } from './fleet_page.mjs';

test('a key gets another limit for a while, which is taken back', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-rate').fill('1000r/m');
    await page.locator('#limit-burst').fill('50');
    const question = await change(page);
    assert.match(question, /^The limit of this key is 1000r\/m, burst 50 instead of .*, on all 10 nodes, within two seconds\. After 1 hour the limit of the configuration, .*, is in force again\.$/);
    await until('the outcome', async () => await outcome(page) === 'Changed: gold-4711 in per_key: 1000r/m, burst 50 for 1 hour.');
    assert.deepEqual(mock.world.fleet.changes,
        [['PUT', 'per_key', 'gold-4711', { rate: '1000r/m', burst: 50, for: '1h' }]]);
    await until('the change', async () => /Changed to1000r\/m, burst 50, for another 1 h, set by edge-fra-03 192\.0\.2\.9/
        .test(await state(page)));
    assert.equal(await text(page, '#fleet-changed-now'), '1');
    await until('the list', async () => /^gold-4711per_key1000r\/m, burst 50\d\d:\d\d:\d\dedge-fra-03 192\.0\.2\.9/
        .test((await texts(page, '#changes-list tbody tr')).join()));

    await page.locator('#limit-back').click();
    assert.match(await text(page, '#change-text'), /^For this key, the limit of the configuration, .*, is in force again on all 10 nodes, within two seconds/);
    await page.locator('#change-yes').click();
    await until('not changed', async () => /Changed tonot changed/.test(await state(page)));
    assert.deepEqual(mock.world.fleet.changes[1], ['DELETE', 'per_key', 'gold-4711', '']);
    assert.ok(!await seen(page, '#limit-back'));
}));

test('a key is blocked, and one loses its limit', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_ip', '192.0.2.77');
    await page.locator('[value=block]').check();
    assert.ok(!await seen(page, '#limit-rate'));
    const forever = { lasts: 'Until it is taken back' };
    assert.match(await change(page, '#change-yes', forever), /^Every request of this key that per_ip limits is refused, on all 10 nodes, within two seconds\. What other zones limit still passes\..*until it is taken back, also when nodes are restarted\.$/);
    await until('blocked', async () => /Changed toblocked, until it is taken back/.test(await state(page)));
    assert.deepEqual(mock.world.fleet.changes[0], ['PUT', 'per_ip', '%C0%00%02%4D', { block: true }], 'four bytes');
    await lookUp(page, 'per_ip', '192.0.2.78');
    assert.ok(await page.locator('[value=limit]').isChecked(), 'no block is left over for the next key');
    await lookUp(page, 'per_ip', '192.0.2.77');
    await page.locator('[value=unlimited]').check();
    assert.match(await change(page, '#change-yes', forever), /^per_ip no longer limits this key/);
    await until('no limit', async () => /Changed tono limit/.test(await state(page)));
}));

test('a zone is changed as a whole', () => onFleet(async (page, mock) => {
    await lookUp(page, 'search', '');
    assert.equal(await text(page, '#limit-title'), 'All keys of search');
    assert.ok(!await seen(page, '#limit-free'));
    await page.locator('#limit-rate').fill('5r/s');
    assert.match(await change(page, '#change-yes', { reason: 'ticket 7' }), /^The limit of every key of search that has no limit of its own is 5r\/s instead of 20r\/s/);
    await until('the change', async () => /Changed to5r\/s.*Whyticket 7/.test(await state(page)));
    assert.deepEqual(mock.world.fleet.changes[0], ['PUT', 'search', null, { rate: '5r/s', for: '1h', reason: 'ticket 7' }]);
}));

test('the limit in force is shown on both pages, and a line says that a whole zone is changed', () => onFleet(async (page, mock) => {
    assert.ok(!await seen(page, '#changed'));
    mock.world.fleet.overrides.set('["search",null]', { block: true, until: null, for_seconds_left: null, by: 'x', at: 1 });
    await until('the line', async () =>
        await text(page, '#changed-text') === 'Changed at run time: search is blocked until it is taken back.');
    await until('the zone', async () =>
        (await cells(page, 'zones', 'search'))[1] === 'blocked until it is taken back, configured 20r/s');
    await page.locator('#view-node').click();
    assert.match((await texts(page, '.about')).join('\n'), /^blocked until it is taken back, configured 20r\/s per /m);
    assert.deepEqual(await axe(page), []);
    await page.locator('#changed-show').click();
    await until('the list', () => seen(page, '#changes-list tbody tr'));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'changes');
    mock.world.fleet.overrides.clear();
    await until('no line', async () => !await seen(page, '#changed'));
}));

test('who goes to the changes while an answer of the node is on its way stays there', () => onFleet(async (page, mock) => {
    mock.world.fleet.overrides.set('["search",null]', { block: true, until: null, for_seconds_left: null, by: 'x', at: 1 });
    await until('the line', () => seen(page, '#changed'));
    await page.locator('#view-node').click();
    let go;
    const held = new Promise(resolve => { go = resolve; });
    await page.route('**/zones', async route => {
        await held;
        await route.continue();
    });
    await page.waitForRequest('**/zones');  // of an answer without the fleet
    await page.locator('#changed-show').click();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'changes');
    const before = mock.requests.length;
    go();
    await until('an answer with the fleet', () => mock.requests.slice(before).filter(path => path === 'GET fleet').length > 1);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'changes');
}));

const changed = page => page.locator('#changes-list tbody th').allTextContents();

test('all changes are listed, the newest first, in pages, searched, and taken back from there', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    for (let i = 1; i <= 120; i += 1) {
        fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), { key: `k${i}`, id: `k${i}`, rate: `${i}r/m`, until: null,
            for_seconds_left: null, by: i === 7 ? 'edge-vie-01 192.0.2.8 ann' : 'edge-fra-03 192.0.2.9', at: 1,
            reason: i === 3 ? 'Ticket 99' : null });
    }
    await until('the newest', async () => (await changed(page))[0] === 'k120');
    assert.equal((await changed(page)).length, 50);
    await page.locator('#changes-more').click();
    await page.locator('#changes-more').click();
    await until('all', async () => (await changed(page)).length === 120);
    assert.ok(!await seen(page, '#changes-more'));
    fleet.overrides.set('["per_key","k9"]', { ...fleet.overrides.get('["per_key","k9"]'), rate: null, block: true });
    for (const [words, found] of [['ticket 99', 'k3'], ['ANN', 'k7'], ['Blocked', 'k9']]) {
        await page.locator('#changes-search').fill(words);
        await until(words, async () => (await changed(page)).join() === found);
    }
    await page.locator('#changes-search').fill('nobody');
    await until('nothing', async () => /^No change has “nobody” in its zone, key, limit, author or reason\.$/.test(await text(page, '#changes-none')));
    await page.locator('#changes-search').fill('k111');
    await until('one', async () => (await changed(page)).join() === 'k111');
    await page.getByRole('button', { name: 'Take back k111 in per_key' }).click();
    assert.equal(await text(page, '#change-key'), 'k111 in per_key');
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Taken back: k111 in per_key.');
    assert.deepEqual(fleet.changes, [['DELETE', 'per_key', 'k111', '']]);
    await until('it to go', async () => (await changed(page)).length === 0);
}));

test('a key is taken as the user says, and never guessed', () => onFleet(async (page, mock) => {
    const hash = '9f86d081884c7d659a2feaa0c55ad015';
    const asked = argument => mock.requests.includes(`GET zones/per_key/keys?${argument}`);
    mock.world.zone('per_key').settings.hash_key = true;
    await until('the choice', async () => {
        await page.locator('#limit-zone').selectOption('search');
        await page.locator('#limit-zone').selectOption('per_key');
        return (await texts(page, '#limit-as option'))[0] === 'choose…';
    });
    await page.locator('#limit-known-rate').fill('7r/m');
    await page.locator('#limit-key').fill(hash);
    await page.locator('#limit-find button').click();
    assert.ok(!await page.evaluate(() => document.getElementById('limit-as').validity.valid));
    for (const as of ['key', 'hash', 'id']) {
        await page.locator('#limit-as').selectOption(as);
        await page.locator('#limit-find button').click();
        await until(as, () => asked(`${as}=${hash}&rate=7r%2Fm`));
    }
    await page.locator('#limit-zone').selectOption('per_ip');
    assert.equal((await texts(page, '#limit-as option'))[0], 'an address or network');
    await page.locator('#limit-key').fill('not an address');
    await page.locator('#limit-find button').click();
    await until('the reason', async () => /Countinvalid key, expected an address/.test(await state(page)));
    assert.ok(!await seen(page, '#limit-set'), 'nothing is changed for a key that is none');
}, { expected: /400/ }));

test('a key whose rate is a variable is looked up by the rate of its last refusal, or by a given one', () => onFleet(async page => {
    await lookUp(page, 'per_key', 'gold-4711');
    assert.match(await state(page), /Rate of the key50r\/s, when it was refused last/);
    await page.locator('#limit-key').fill('silver');
    await page.locator('#limit-find button').click();
    await until('the reason', async () => /Countnot known: the rate of this zone is a variable, \$plan_rate\. Say above which rate this key has\./.test(await state(page)));
    await page.locator('#limit-known-rate').fill('9r/s');
    await page.locator('#limit-find button').click();
    await until('the state', async () => /Rate of the key9r\/s; Remaining3 of 100/.test(await state(page)));
}, { expected: /400/ }));

test('a key of a zone that was changed falls back to the limit of the zone', () => onFleet(async page => {
    await lookUp(page, 'search', '');
    await page.locator('#limit-rate').fill('5r/s');
    await change(page);
    await until('the change', async () => /Changed to5r\/s/.test(await state(page)));
    await lookUp(page, 'search', '198.51.100.9');
    await until('the state', async () => /Configured20r\/s; Changed tonot changed; The zone5r\/s, for another 1 h/.test(await state(page)));
    await page.locator('#limit-rate').fill('9r/s');
    assert.match(await change(page), /is 9r\/s instead of 5r\/s, .* After 1 hour the limit of the zone that was changed at run time, 5r\/s, is in force again\.$/);
    await until('the change', async () => /Changed to9r\/s/.test(await state(page)));
    await page.locator('#limit-back').click();
    assert.match(await text(page, '#change-text'), /^For this key, the limit of the zone that was changed at run time, 5r\/s, is in force again/);
    await page.locator('#change-no').click();
}));

test('a key is freed on every node', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-free').click();
    assert.match(await text(page, '#change-text'), /all nodes forget its refusals within two seconds/);
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Freed gold-4711 in per_key.');
    assert.ok(mock.requests.includes('DELETE zones/per_key/keys?key=gold-4711&rate=50r%2Fs'));
}));

test('a change that is cancelled or refused changes nothing', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-rate').fill('1000r/m');
    await change(page, '#change-no');
    assert.deepEqual(mock.world.fleet.changes, []);
    await page.locator('#limit-rate').fill('a lot');
    await change(page);
    await until('the reason', async () => /^Not changed: invalid "rate", expected/.test(await outcome(page)));
    mock.world.fleet.wrong = [503, { error: 'Redis does not answer' }];
    await page.locator('#limit-rate').fill('1r/m');
    await change(page);
    await until('the reason', async () => await outcome(page) === 'Not changed: Redis does not answer.');
    assert.match(await state(page), /Changed tonot changed/);
    await page.locator('#limit-rate').fill('');
    await page.locator('#limit-set button').click();
    assert.ok(!await seen(page, '#change[open]'), 'a rate is required');
}, { expected: /400|503/ }));

test('without write=on keys are looked up, and nothing can be changed', () => onFleet(async page => {
    await lookUp(page, 'per_key', 'gold-4711');
    assert.ok(await seen(page, '#limit-read-only'));
    for (const part of ['#limit-set', '#limit-back', '#limit-free']) {
        assert.ok(!await seen(page, part), part);
    }
}, { scenario: 'ten_readonly' }));

// Another operator's change of gold-4711.
const other = (mock, change) => mock.world.fleet.overrides.set('["per_key","gold-4711"]', { key: 'gold-4711', id: 'gold-4711', until: null,
    for_seconds_left: null, by: 'edge-vie-01 192.0.2.8 bob', at: mock.world.time, reason: 'ticket 8', ...change });

test('a change that another operator makes meanwhile is shown beside the own one, and neither is lost', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-rate').fill('1000r/m');
    fleet.before = number => number === 1 && other(mock, { block: true });
    await change(page, '#change-yes', { lasts: '1 day', reason: 'more' });
    await until('the conflict', () => seen(page, '#change-conflict'));
    await until('what is in force', async () => /^gold-4711 in per_key: blocked until it is taken back, by edge-vie-01 192\.0\.2\.8 bob at \d\d:\d\d:\d\d: ticket 8$/
        .test(await text(page, '#change-now li')));
    assert.equal(await text(page, '#change-conflict'), 'This was changed meanwhile, and the change was not made:');
    assert.match(await text(page, '#change-text'), /^The limit of this key is 1000r\/m instead of .* After 1 day /, 'the own one');
    assert.equal(await page.locator('#change-reason').inputValue(), 'more');
    assert.equal(await text(page, '#change-yes'), 'Change the limit nevertheless');
    assert.deepEqual(await axe(page), []);
    await page.locator('#change-no').click();
    assert.ok(fleet.overrides.get('["per_key","gold-4711"]').block, 'theirs stays');
    await until('the panel has it', async () => /Changed toblocked, until it is taken back, set by edge-vie-01/.test(await state(page)));

    fleet.before = number => number === 2 && other(mock, { rate: '5r/m' });
    await page.locator('#limit-rate').fill('900r/m');
    await change(page);
    await until('the conflict', async () => /^gold-4711 in per_key: 5r\/m/.test(await text(page, '#change-now li')));
    await page.locator('#change-yes').click();
    await until('the own one', async () => await outcome(page) === 'Changed: gold-4711 in per_key: 900r/m for 1 hour.');
    assert.equal(fleet.overrides.get('["per_key","gold-4711"]').rate, '900r/m');
}, { expected: /412/ }));

test('undo brings back what was before, but not over what another operator has set since', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('[value=block]').check();
    await change(page);
    await until('the outcome', async () => await outcome(page) === 'Changed: gold-4711 in per_key: blocked for 1 hour.');
    other(mock, { rate: '9000r/m' });
    await page.locator('#outcome-undo').click();
    await until('the reason', async () => /^Not undone: changed since, gold-4711 in per_key: 9000r\/m until it is taken back, by edge-vie-01 192\.0\.2\.8 bob at /
        .test(await outcome(page)));
    assert.equal(fleet.overrides.get('["per_key","gold-4711"]').rate, '9000r/m');
    await page.locator('#limit-back').click();
    await page.locator('#change-yes').click();
    await until('taken back', () => fleet.overrides.size === 0);
    other(mock, { rate: '7r/m' });
    await page.locator('#outcome-undo').click();
    await until('the reason', async () => /^Not undone: changed since, .*: 7r\/m/.test(await outcome(page)));
    assert.equal(fleet.overrides.get('["per_key","gold-4711"]').rate, '7r/m');
}, { expected: /412/ }));

test('what is looked up follows the state, and a form that was opened before says what is in force', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-rate').fill('9r/s');
    other(mock, { block: true });
    await until('the block', async () => /Changed toblocked, until it is taken back.*Whyticket 8/.test(await state(page)));
    assert.equal(await page.locator('#limit-rate').inputValue(), '9r/s', 'what was typed stays');
    fleet.silent.add('per_key');
    await until('what is not known', async () => /Changed toblocked.*As of\d\d:\d\d:\d\d, not known since: Redis does not answer/.test(await state(page)));
    fleet.silent.clear();
    fleet.overrides.clear();
    await until('no block', async () => /Changed tonot changed.*As of\d\d:\d\d:\d\d$/.test(await state(page)));
}, { expected: /503/ }));

test('an older page says that another limit is in force than it showed', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    await pause(page);
    other(mock, { block: true });
    await page.locator('#limit-rate').fill('9r/s');
    await page.locator('#limit-set button').click();
    await until('the notice', async () => await text(page, '#change-conflict') === 'This is not what the page showed: it was changed meanwhile.');
    assert.match(await text(page, '#change-now li'), /^gold-4711 in per_key: blocked until it is taken back, by edge-vie-01/);
    await page.locator('#change-no').click();
    assert.deepEqual(mock.world.fleet.changes, []);
}));

test('a change is not made while it is not known what is in force', () => onFleet(async (page, mock) => {
    const row = page.locator('#fleet-keys tbody tr', { hasText: '192.0.2.77' }).first();
    mock.world.fleet.silent.add(await row.locator('td').first().textContent());
    await row.getByRole('button', { name: 'Block' }).click();
    await until('the reason', async () => /: not known: Redis does not answer$/.test(await text(page, '#change-now li')));
    assert.ok(await page.locator('#change-yes').isDisabled());
}, { expected: /503/ }));

test('a key is blocked at once in all zones that count it, and unblocked at once', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    const row = page.locator('#fleet-keys tbody tr', { hasText: '198.51.100.23' }).first();
    await row.getByRole('button', { name: 'Block' }).click();
    await page.locator('#change-scopes label', { hasText: /^ all 7 zones that count this key: / }).click();
    assert.match(await text(page, '#change-text'), /^Every request of this key that one of these zones limits: per_ip, login, .* is refused/);
    assert.deepEqual(await axe(page), []);
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Changed: 198.51.100.23 in 7 zones: blocked for 1 hour.');
    assert.deepEqual([...fleet.overrides.keys()].map(id => JSON.parse(id)[0]).sort(),
        ['login', 'next_limit', 'per_ip', 'search', 'static', 'uploads', 'webhooks']);
    assert.ok([...fleet.overrides.keys()].every(id => unescape(JSON.parse(id)[1]) === '\xC63d\x17'), 'no zone of API keys');
    await page.locator('#outcome-undo').click();
    await until('undone', () => fleet.overrides.size === 0);
    await until('the outcome', async () => await outcome(page) === 'Undone.');
}));

// The page of a fleet: ten nodes, zones summed, who is busy, and what is known while Redis is away.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axe, overflowing, seen, text, texts, until } from './browser.mjs';
import { cells, change, lookUp, onFleet, onNode, outcome, state } from './fleet_page.mjs';
import { VERSION } from './version.mjs';

test('without ratelimit_fleet there is no such page', () => onNode('fleet', async (page, mock) => {
    assert.ok(!await seen(page, '#views'));
    await until('answers', () => mock.requests.filter(line => line === 'GET zones').length > 5);
    assert.ok(!mock.requests.includes('GET fleet'));
}));

test('the page reads the fleet only while it shows it', () => onFleet(async (page, mock) => {
    assert.ok(await seen(page, '#fleet-nodes') && !await seen(page, '#zone-list'));
    await page.locator('#view-node').click();
    assert.ok(!await seen(page, '#fleet-nodes') && await seen(page, '#zone-list'));
    await page.waitForTimeout(200);  // a silent wait: a request may be in flight
    const asked = () => mock.requests.filter(line => line === 'GET fleet').length;
    const before = asked();
    const zones = mock.requests.length;
    await until('answers', () => mock.requests.length > zones + 8);
    assert.equal(asked(), before);
}));

test('the address leads to the page of the fleet', () => onNode('ten', async page => {
    await page.goto(`${page.url().replace(/#.*/, '')}#fleet`);
    await page.reload();
    await page.locator('#fleet-nodes tbody tr').first().waitFor();
    assert.equal(await page.locator('#view-fleet').getAttribute('aria-pressed'), 'true');
}));

test('the page is the same on every node: behind a load balancer it has no notice', () => onFleet(async (page, mock) => {
    mock.world.nodes = ['edge-fra-03', 'edge-fra-04'];
    const zones = () => mock.requests.filter(line => line === 'GET zones').length;
    const before = zones();
    await until('answers of both', () => zones() > before + 6);
    assert.ok(!await seen(page, '#notice.shown'));
    await page.locator('#view-node').click();
    await page.locator('#notice.shown').waitFor();
    assert.match(await text(page, '#notice-text'), /^Several nodes answer at this address/);
    await page.locator('#view-fleet').click();
    await until('no notice', async () => !await seen(page, '#notice.shown'));
}));

test('rows of nodes do not move when Redis lists them in another order', () => onFleet(async (page, mock) => {
    const names = () => texts(page, '#fleet-nodes tbody th .code');
    const before = await names();
    assert.deepEqual(before, [...before].sort());
    mock.world.fleet.nodes.reverse();
    const asked = mock.requests.length;
    await until('answers', () => mock.requests.length > asked + 6);
    assert.deepEqual(await names(), before);
}));

test('a zone says what its limits on trial would refuse, on all nodes', () => onFleet(async page => {
    await until('the rate', async () => /^0\/s, \d+\/s on trial$/.test((await cells(page, 'zones', 'next_limit'))[4]));
    assert.match((await cells(page, 'zones', 'next_limit'))[5], /^0, \d[\d.]*[kM]? on trial$/);
    assert.ok(!(await cells(page, 'zones', 'per_ip')).join().includes('trial'));
    assert.match((await cells(page, 'zones', 'webhooks'))[5], /^0$/);
    assert.deepEqual(await overflowing(page), []);
}));

test('every node is shown, with what it says of itself', () => onFleet(async (page, mock) => {
    assert.equal(await page.locator('#fleet-nodes tbody tr').count(), 10);
    assert.equal(await text(page, '#fleet-count-now'), '10');
    const [name, live, version, nginx, up, passed, refused, redis, settings] = await cells(page, 'nodes', 'edge-fra-03');
    assert.equal(name, 'edge-fra-03 this node');
    assert.deepEqual([live, version, nginx, up, redis, settings], ['Live', VERSION, '1.26.3', '8 h', 'Up', 'As the others']);
    assert.match(passed, /^[\d.]+k?\/s$/);
    assert.match(refused, /^[\d.]+k?\/s$/);

    mock.world.fleet.node('edge-lon-01').heard = mock.world.time - 200;
    mock.world.fleet.node('edge-mad-01').redis = 'away';
    await until('a node that is away', async () => (await cells(page, 'nodes', 'edge-lon-01'))[1] === 'Away for 3 min');
    assert.equal((await cells(page, 'nodes', 'edge-mad-01'))[7], '10.0.0.5:6379 away');
    assert.equal(await text(page, '#fleet-count-now'), '9');
    assert.match(await text(page, '#fleet-count-more'), /^1 not heard of/);
    assert.equal((await cells(page, 'zones', 'per_ip'))[2], '9 of 9');
    assert.deepEqual(await axe(page), []);
}));

test('zones are summed, and nodes whose settings differ are named', () => onFleet(async (page, mock) => {
    const one = async () => Number((await text(page, '#fleet-passed-now')).replace(/\/s$/, '').replace('k', 'e3'));
    const all = await one();
    assert.ok(all > 10000, `${all} requests a second on ten nodes`);
    assert.ok(!await seen(page, '#fleet-differ'));
    mock.world.fleet.node('edge-vie-01').differs = ['per_ip'];
    await until('the notice', () => seen(page, '#fleet-differ'));
    assert.match(await text(page, '#fleet-differ'), /Settings differ between nodes.*: per_ip \(rate on edge-vie-01\)\.$/);
    const [, limit, nodes, , , , , settings] = await cells(page, 'zones', 'per_ip');
    assert.deepEqual([limit, nodes, settings], ['100r/m or 7r/s', '10 of 10', 'Differ: rate on edge-vie-01']);
    assert.equal((await cells(page, 'nodes', 'edge-vie-01'))[8], 'Differ: per_ip (rate, 7r/s)');

    assert.equal((await cells(page, 'nodes', 'edge-waw-01'))[8], 'As the others');
}));

test('of many nodes that differ some are named, and all are marked', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    ['vie', 'waw', 'sto'].forEach(city => { fleet.node(`edge-${city}-01`).differs = ['per_ip']; });
    fleet.named = 1;
    await until('the notice', () => seen(page, '#fleet-differ'));
    assert.match(await text(page, '#fleet-differ'), /: per_ip \(rate on edge-sto-01 and 2 more\)\.$/);
    assert.equal((await cells(page, 'nodes', 'edge-sto-01'))[8], 'Differ: per_ip (rate, 7r/s)');
    assert.equal((await cells(page, 'nodes', 'edge-waw-01'))[8], 'Differ: per_ip');
    assert.equal((await cells(page, 'nodes', 'edge-fra-03'))[8], 'As the others');
}));

test('nodes that the figures are without are counted', () => onFleet(async (page, mock) => {
    assert.ok(!await seen(page, '#fleet-left-out'));
    mock.world.fleet.left_out = 49;
    await until('the notice', () => seen(page, '#fleet-left-out'));
    assert.match(await text(page, '#fleet-left-out'), /^These figures are without 49 of 59 nodes: /);
    assert.deepEqual(await axe(page), []);
}));

test('a key that no request has is not shown as one that passes', () => onFleet(async (page, mock) => {
    mock.world.unused.add('%C6%33%64%63');
    await page.locator('#find-key').fill('198.51.100.99');
    await page.locator('#find-key').press('Enter');
    await until('the zones', async () => await text(page, '#find-text')
        === 'Nothing is counted under 198.51.100.99 in 7 of 8 zones now, not known in 1 zone: no request has it, or it is typed in another form.');
    const row = page.locator('#find-list tbody tr', { hasText: 'search' });
    assert.deepEqual((await row.locator('td').allTextContents()).slice(1, 3), ['Nothing counted', '–']);
    await lookUp(page, 'search', '198.51.100.99');
    const state = await text(page, '#limit-state');
    assert.match(state, /nothing is counted under this key now/);
    assert.doesNotMatch(state, /Remaining|Passes again|Blocked/);
    await page.locator('#limit-free').click();
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Nothing was counted under 198.51.100.99 in search.');
    await row.getByRole('button', { name: 'Block' }).click();
    await page.locator('#change-yes').click();
    await until('the block', async () => await outcome(page) === 'Changed: 198.51.100.99 in search: blocked for 1 hour. Nothing is counted under this key now.');
}, { expected: /400/ }));

test('the page names limits that Redis has lost for a day', () => onFleet(async (page, mock) => {
    assert.ok(!await seen(page, '#fleet-lost'));
    mock.world.fleet.lost = 3;
    await until('the notice', () => seen(page, '#fleet-lost'));
    assert.match(await text(page, '#fleet-lost'),
        /^Redis main has lost its data at \d\d:\d\d:\d\d: 3 limits that were changed are as configured again\.$/);
}));

test('no list of changes says that there is none before it was read', () => onFleet(async (page, mock) => {
    await until('the list', async () => await text(page, '#changes-none') === 'No limit is changed.');
    mock.world.fleet.overrides.set(JSON.stringify(['per_key', 'gold-4711']), { zone: 'per_key', key: 'gold-4711', id: 'gold-4711',
        block: true, until: 2 ** 53, for_seconds_left: 2 ** 53, by: 'n', reason: null, at: 2 ** 53 });
    await until('the change', async () => await page.locator('#changes-list tbody tr').count() === 1);
    assert.equal(await text(page, '#changes-none'), '');
    assert.match(await page.locator('#changes-list tbody tr').textContent(), /gold-4711.*\?/);
}));

test('when Redis is away, what is not known is grey, and nothing can be changed', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    assert.ok(await seen(page, '#limit-set'));
    mock.world.fleet.connected = false;
    mock.world.blocks[0].servers[0].state = 'away';
    await until('the notice', () => seen(page, '#fleet-old'));
    await until('the head', async () => await text(page, '#live-text') === 'Live, Redis not up');
    assert.equal(await text(page, '#fleet-passed-now'), '–');
    assert.match(await text(page, '#fleet-passed-more'), /^not known since \d\d:\d\d:\d\d$/);
    const [, live, , , up, passed, , redis] = await cells(page, 'nodes', 'edge-lon-01');
    assert.match(live, /^Not known since \d\d:\d\d:\d\d$/);
    assert.deepEqual([up, passed, redis], ['–', '–', '–']);
    assert.ok(!await seen(page, '#limit-set'));
    assert.equal(await text(page, '#limit-read-only'), 'Nothing can be changed while Redis does not answer.');
    assert.match(await text(page, '#changes-none'), /^What was changed is not known: Redis does not answer\.$/);
    assert.match(await text(page, '#fleet-old'),
        /^Redis main does not answer\. This page shows what was last known, from \d\d:\d\d:\d\d\.$/);
    assert.equal(await page.locator('#fleet-nodes tbody tr').count(), 10);
    assert.deepEqual(await axe(page), []);
    mock.world.fleet.connected = true;
    await until('no notice', async () => !await seen(page, '#fleet-old'));
    await until('rates', async () => /\/s$/.test(await text(page, '#fleet-passed-now')));
    assert.ok(await seen(page, '#limit-set'));
}, { expected: /503/ }));

test('a busy key is blocked from its row with one question, and that is undone', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    const rates = (await texts(page, '#fleet-keys td:nth-child(3)')).slice(0, 3).map(parseFloat);
    assert.ok(rates[0] > 0 && rates[0] >= rates[1] && rates[1] >= rates[2], `who is refused most now comes first: ${rates}`);
    const row = page.locator('#fleet-keys tbody tr', { hasText: '192.0.2.1' }).first();
    const [key, zone, , , since] = await row.locator('th .code, td').allTextContents();
    assert.match(since, /^\d\d:\d\d:\d\d$/);
    await row.getByRole('button', { name: 'Block' }).click();
    assert.equal(await text(page, '#change-title'), 'Block this key?');
    assert.equal(await text(page, '#change-key'), `${key} in ${zone}`);
    assert.match(await text(page, '#change-text'), /^Every request of this key that \w+ limits is refused, on all 10 nodes.* After 1 hour /);
    await page.locator('#change-lasts').selectOption('1 day');
    assert.match(await text(page, '#change-text'), / After 1 day /);
    await page.locator('#change-reason').fill('an attack');
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === `Changed: ${key} in ${zone}: blocked for 1 day.`);
    await until('the row', async () => /^192\.0\.2\.1 blocked until .*, by edge-fra-03 192\.0\.2\.9 at \d\d:\d\d:\d\d: an attack$/.test(await row.locator('th').textContent()));
    assert.ok(!await row.getByRole('button', { name: 'Block' }).isVisible(), 'what is blocked is not blocked once more');
    assert.ok(await row.getByRole('button', { name: 'Take back' }).isVisible());
    assert.deepEqual(fleet.changes, [['PUT', zone, '%C0%00%02%01', { block: true, for: '1d', reason: 'an attack' }]]);
    await page.locator('#outcome-undo').click();
    await until('the outcome', async () => await outcome(page) === 'Undone.');
    assert.deepEqual(fleet.changes[1], ['DELETE', zone, '%C0%00%02%01', '']);
    assert.ok(!await seen(page, '#outcome-undo'));

    await until('no block', () => row.getByRole('button', { name: 'Block' }).isVisible());
    const before = mock.world.time + 600;
    fleet.overrides.set(JSON.stringify([zone, '%C0%00%02%01']), { key, id: '%C0%00%02%01', rate: '7r/m', burst: 3,
        until: before, for_seconds_left: 599.2, by: 'x', reason: 'before', at: 1 });
    await row.getByRole('button', { name: 'Block' }).click();
    await page.locator('#change-yes').click();
    await until('the block', () => fleet.changes.length === 3);
    await page.locator('#outcome-undo').click();
    await until('what was before', () => fleet.changes.length === 4);
    assert.deepEqual(fleet.changes[3], ['PUT', zone, '%C0%00%02%01', { rate: '7r/m', burst: 3, until: before, reason: 'before' }]);
}));

test('on the page of a node a key is blocked from its row, or looked up to be changed', () => onFleet(async (page, mock) => {
    await page.locator('#view-node').click();
    const row = page.locator('.busiest tbody tr', { hasText: '192.0.2.1' }).first();
    await row.getByRole('button', { name: 'Block' }).click();
    assert.equal(await text(page, '#change-key'), '192.0.2.1 in per_ip');
    await page.locator('#change-yes').click();
    await until('the block', () => mock.world.fleet.changes.length === 1);
    assert.deepEqual(mock.world.fleet.changes[0], ['PUT', 'per_ip', '%C0%00%02%01', { block: true, for: '1h' }]);
    await row.getByRole('button', { name: 'Change' }).click();
    await until('the key', async () => await text(page, '#limit-title') === '192.0.2.1');
    assert.match(await state(page), /Changed toblocked/);
}));

test('a busy key is looked up from its row', () => onFleet(async page => {
    // By its key: rows are sorted by what is refused now, so that the first row is another one a moment later.
    const key = '192.0.2.77';
    const row = page.locator('#fleet-keys tbody tr', { hasText: key }).first();
    await row.getByRole('button', { name: 'Look up' }).click();
    await page.locator('#limit-found').waitFor();
    assert.equal(await text(page, '#limit-title'), key);
    assert.equal(await page.locator('#limit-key').inputValue(), key, 'as a user would type it');
    assert.match(await state(page), /Changed tonot changed; Remaining3 of 100; Passes againnow; Blockedno/);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'limit-title');
}));

test('everything works with the keyboard', () => onFleet(async (page, mock) => {
    const to = async id => {
        for (let i = 0; i < 60; i += 1) {
            await page.keyboard.press('Tab');
            if (await page.evaluate(() => document.activeElement.id) === id) {
                return;
            }
        }
        throw new Error(`the keyboard does not get to ${id}`);
    };
    await page.locator('#parts-of-fleet a[href="#limits"]').focus();
    await page.keyboard.press('Enter');
    await to('limit-zone');
    await page.keyboard.type('per_key');
    await to('limit-key');
    await page.keyboard.type('gold-4711');
    await page.keyboard.press('Enter');
    await page.locator('#limit-found').waitFor();
    await until('the focus', () => page.evaluate(() => document.activeElement.id === 'limit-title'));
    await page.keyboard.press('Tab');
    await to('limit-rate');
    await page.keyboard.type('7r/s');
    await page.keyboard.press('Enter');
    await until('the question', () => seen(page, '#change[open]'));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'change-no', 'cancel has the focus');
    await to('change-yes');
    await page.keyboard.press('Enter');
    await until('the change', () => mock.world.fleet.changes.length === 1);
    assert.equal(await page.locator('#outcome-text').getAttribute('aria-live'), 'polite');
}));

for (const [name, options] of [
    ['light', { colorScheme: 'light' }],
    ['dark', { colorScheme: 'dark' }],
    ['narrow', { viewport: { width: 360, height: 780 } }],
]) {
    test(`axe finds nothing, and nothing is wider than the window: ${name}`, () => onFleet(async (page, mock) => {
        Object.assign(mock.world.fleet.node('edge-vie-01'), { differs: ['per_ip', 'login'], redis: 'away' });
        mock.world.fleet.node('edge-mad-01').heard = mock.world.time - 5000;
        await lookUp(page, 'per_key', 'gold-4711');
        await page.locator('#limit-rate').fill('1000r/m');
        await change(page);
        await until('the change', () => seen(page, '#limit-back'));
        assert.deepEqual(await axe(page), []);
        await page.locator('#limit-back').click();
        assert.deepEqual(await axe(page), [], 'with the question open');
        await page.locator('#change-no').click();
        for (const width of name === 'narrow' ? [360, 320, 540] : [721, 861, 981, 1280, 1900]) {
            await page.setViewportSize({ width, height: 780 });
            assert.deepEqual(await overflowing(page), [], `${width} pixels`);
        }
    }, options));
}

test('markup in names of nodes, zones and keys is shown as text', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    Object.assign(fleet.nodes[3], { name: '<img src=x onerror=alert(1)>', version: '<b>1</b>', nginx: '\u202Eevil', redis: '<i>' });
    fleet.nodes[3].differs = ['per_ip'];
    await until('the name', async () => (await texts(page, '#fleet-nodes th')).some(name => name.startsWith('<img')));
    assert.equal(await page.locator('#of-fleet :is(img, i, script)').count(), 0);
    assert.equal((await cells(page, 'nodes', '<img'))[3], '\\u{202E}evil');
    assert.match(await text(page, '#fleet-differ'), /per_ip/);
}));

// The end of a night on the page of a fleet: many changes are found, read, taken back at once, or last until the morning.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axe, overflowing, seen, text, until } from './browser.mjs';
import { change, lookUp, onFleet, outcome } from './fleet_page.mjs';

const changed = page => page.locator('#changes-list tbody th').allTextContents();

test('several changes are chosen and taken back at once', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    for (let i = 1; i <= 13; i += 1) {
        fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), { key: `k${i}`, id: `k${i}`, rate: `${i}r/m`, until: null,
            for_seconds_left: null, by: i === 4 ? 'edge-vie-01 192.0.2.8 bob' : 'edge-fra-03 192.0.2.9 ann', at: 1, reason: null });
    }
    await until('the list', async () => (await changed(page)).length === 13);
    assert.ok(!await seen(page, '#changes-back'));
    await page.getByRole('checkbox', { name: 'Choose k4 in per_key' }).check();
    await page.getByRole('checkbox', { name: 'Choose k5 in per_key' }).check();
    assert.equal(await text(page, '#changes-back'), 'Take back 2…');
    fleet.overrides.delete('["per_key","k5"]');
    await until('k5 to go', async () => await text(page, '#changes-back') === 'Take back 1…');
    await page.locator('#changes-search').fill('ann');
    await until('those of ann', async () => (await changed(page)).length === 11);
    assert.equal(await text(page, '#changes-back'), 'Take back the 11 found…', 'what is not shown is not chosen');
    await page.locator('#changes-choose').click();
    assert.equal(await text(page, '#changes-choose'), 'Choose none');
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(await overflowing(page), []);
    await page.locator('#changes-back').click();
    assert.equal(await text(page, '#change-title'), 'Take 11 changes back?');
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Taken back: 11 limits.');
    assert.deepEqual([...fleet.overrides.keys()], ['["per_key","k4"]']);
    await page.locator('#outcome-undo').click();
    await until('the outcome', async () => await outcome(page) === 'Undone.');
    assert.equal(fleet.overrides.size, 12);
}));

// So many changes of keys of per_key.
function setChanges(fleet, from, to) {
    for (let i = from; i <= to; i += 1) {
        fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), { key: `k${i}`, id: `k${i}`, rate: `${i}r/m`, until: null,
            for_seconds_left: null, by: 'edge-fra-03 192.0.2.9 ann', at: 1, reason: null });
    }
}

test('the changes of one author are taken back with three clicks', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    ['ann', 'ben', 'ann', 'ann'].forEach((user, i) => fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), { key: `k${i}`, id: `k${i}`, block: true,
        until: null, for_seconds_left: null, by: `edge-vie-01 192.0.2.8 ${user}`, at: mock.world.time - 100 + i, reason: null }));
    await until('the list', async () => (await changed(page)).length === 4);
    assert.ok(!await seen(page, '#changes-back'), 'without a search all is too much');
    await page.locator('#changes-search').click();
    await page.keyboard.type('ann');
    await until('what is found', async () => await text(page, '#changes-back') === 'Take back the 3 found…' && seen(page, '#changes-back'));
    await page.locator('#changes-back').click();
    await page.locator('#change-yes').click();
    await until('three less', () => fleet.overrides.size === 1);
    assert.match([...fleet.overrides.values()][0].by, /ben$/);
    await until('none of them', async () => (await changed(page)).length === 0);
    assert.ok(!await seen(page, '#changes-back'));
}));

test('what was chosen stays chosen when the list is read again: older pages, new changes, and Redis that is away', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    setChanges(fleet, 1, 80);
    await until('the list', async () => (await changed(page)).length === 50);
    await page.locator('#changes-more').click();
    await until('all', async () => (await changed(page)).length === 80);
    await page.getByRole('checkbox', { name: 'Choose k3 in per_key' }).check();
    await page.getByRole('checkbox', { name: 'Choose k70 in per_key' }).check();
    fleet.overrides.delete('["per_key","k9"]');
    await until('the list without k9', async () => (await changed(page)).length === 79);
    assert.equal(await text(page, '#changes-back'), 'Take back 2…');
    setChanges(fleet, 81, 110);
    await until('the new ones', async () => (await changed(page)).includes('k110'));
    assert.equal(await text(page, '#changes-back'), 'Take back 2…');
    fleet.connected = false;
    await until('the reason', async () => /^What was changed is not known: Redis does not answer\. The list is of \d\d:\d\d:\d\d\.$/
        .test(await text(page, '#changes-none')));
    assert.equal((await changed(page)).length, 109);
    fleet.connected = true;
    await until('the list', async () => await text(page, '#changes-none') === '' && await page.locator('#changes-back').isEnabled());
    await page.locator('#changes-back').click();
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page) === 'Taken back: 2 limits.');
    assert.deepEqual(fleet.changes.map(([method, , key]) => `${method} ${key}`).sort(), ['DELETE k3', 'DELETE k70']);
}, { expected: /503/ }));

test('a limit that this node cannot read is left out of several, and the page says which', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    setChanges(fleet, 1, 3);
    fleet.overrides.set('["elsewhere","k"]', { key: 'k', id: 'k', block: true, until: null, for_seconds_left: null, by: 'x', at: 1, reason: null });
    await until('the list', async () => (await changed(page)).length === 4);
    await page.locator('#changes-choose').click();
    await page.locator('#changes-back').click();
    await until('the reason', async () => (await page.locator('#change-now li').allTextContents())
        .some(line => line.startsWith('k in elsewhere: not known: ') && line.endsWith(': it is left out')));
    assert.equal(await text(page, '#change-title'), 'Take 3 changes back?');
    assert.match(await text(page, '#change-text'), /^For these 3 limits, /);
    await page.locator('#change-yes').click();
    await until('the outcome', async () => await outcome(page)
        === 'Taken back: 3 limits. Not taken back: k in elsewhere: no such zone.');
    assert.deepEqual([...fleet.overrides.keys()], ['["elsewhere","k"]']);
}, { expected: /404/ }));

test('the state of a key keeps what is selected in it while it is read again', () => onFleet(async (page, mock) => {
    await lookUp(page, 'per_key', 'gold-4711');
    await page.evaluate(() => getSelection().selectAllChildren(document.querySelector('#limit-state dd')));
    const selected = await page.evaluate(() => String(getSelection()));
    assert.ok(selected.length > 0);
    const as_of = await page.locator('#limit-state dd').last().textContent();
    await until('a later state', async () => await page.locator('#limit-state dd').last().textContent() !== as_of);
    assert.equal(await page.evaluate(() => String(getSelection())), selected);
}));

test('who changed the limits of more keys than one page can ask for is read for some of them, a few at a time', () => onFleet(async (page, mock) => {
    const { fleet, world } = { fleet: mock.world.fleet, world: mock.world };
    const zone = world.zone('per_key');
    const change = i => ({ key: `k${i}`, id: `k${i}`, rate: `${i}r/m`, until: null, for_seconds_left: null, by: 'ann', at: 1, reason: null });
    zone.json = (json => () => ({ ...json.call(zone), busiest: Array.from({ length: 600 }, (_, i) =>
        ({ key: `k${i}`, id: `k${i}`, refused: 9, error: 0, per_second: 1, since: 1, would_refuse: 0, blocked: null })) }))(zone.json);
    for (let i = 0; i < 600; i += 1) {
        fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), change(i));
    }
    await page.locator('#view-node').click();
    const reads = () => mock.requests.filter(line => /^GET zones\/per_key\/keys\/override/.test(line));
    await page.getByRole('button', { name: 'per_key' }).click();
    await until('500 of them', () => reads().length >= 500, 30);
    const before = mock.requests.filter(line => line === 'GET zones').length;
    await until('more answers', () => mock.requests.filter(line => line === 'GET zones').length > before + 10);
    assert.equal(reads().length, 500);
    assert.equal(new Set(reads()).size, 500, 'each once');
}));

test('a change lasts until tomorrow 08:00, or until any time', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    const morning = new Date(1000 * mock.world.time);
    morning.setDate(morning.getDate() + 1);
    morning.setHours(8, 0, 0, 0);
    await lookUp(page, 'per_key', 'gold-4711');
    await page.locator('#limit-rate').fill('1000r/m');
    assert.match(await change(page, '#change-yes', { lasts: 'Until tomorrow 08:00' }), / At .*08:00.* the limit of the configuration, .*, is in force again\.$/);
    await until('the outcome', async () => /^Changed: gold-4711 in per_key: 1000r\/m until .*08:00.*\.$/.test(await outcome(page)));
    assert.equal(fleet.changes[0][3].until, morning.getTime() / 1000);
    await page.locator('#limit-rate').fill('2000r/m');
    await page.locator('#limit-set button').click();
    await page.locator('#change-lasts').selectOption('Until another time');
    await page.locator('#change-time').fill('2001-01-01T00:00');
    await page.locator('#change-yes').click();
    assert.ok(await seen(page, '#change'), 'no change until a time that is over');
    await page.locator('#change-time').fill('2027-02-03T16:30');
    assert.match(await text(page, '#change-text'), / At 3 Feb 2027, 16:30 the limit/);
    assert.deepEqual(await axe(page), []);
    await page.locator('#change-yes').click();
    await until('the second change', () => fleet.changes.length === 2);
    assert.equal(fleet.changes[1][3].until, new Date('2027-02-03T16:30').getTime() / 1000);
    assert.ok(!('for' in fleet.changes[1][3]));
}));

test('an address leads to a part of the page, also below tables that get their rows later', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    for (let i = 1; i <= 60; i += 1) {
        fleet.overrides.set(JSON.stringify(['per_key', `k${i}`]), { key: `k${i}`, id: `k${i}`, rate: `${i}r/m`, until: null,
            for_seconds_left: null, by: 'x', at: 1, reason: null });
    }
    for (const part of ['busiest', 'all-zones', 'nodes', 'changes', 'limits']) {
        await page.goto('about:blank');
        await page.goto(`${mock.url}#${part}`);
        await until('the list', async () => (await changed(page)).length === 50);
        await until(`#${part}`, () => page.evaluate(id => {
            const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
            const { top } = document.getElementById(id).getBoundingClientRect();
            return Math.abs(top) < 100 || (top > 0 && scrollTop + clientHeight >= scrollHeight - 2);
        }, part));
    }
}));

test('changed limits at 1400 pixels break no word', () => onFleet(async (page, mock) => {
    const end = mock.world.time + 86400 * 3;
    for (const key of ['198.51.100.234', 'gold-4711', 'a-key-of-more-than-thirty-six-characters-in-all']) {
        mock.world.fleet.overrides.set(JSON.stringify(['next_limit', key]), { key, id: key, rate: '6000r/m', burst: 100, until: end,
            for_seconds_left: 86400 * 3, by: 'edge-vie-01 192.0.2.8 ann', at: mock.world.time - 90000, reason: 'ticket 4711, asked for by sales' });
    }
    await until('the list', async () => (await changed(page)).length === 3);
    const broken = await page.evaluate(() => [...document.querySelectorAll('#changes-list tbody td:not(.action)')].flatMap(cell => {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        const words = [];
        while (texts.nextNode()) {
            for (const { 0: word, index } of texts.currentNode.data.matchAll(/[^\s-]+/g)) {
                const range = document.createRange();
                range.setStart(texts.currentNode, index);
                range.setEnd(texts.currentNode, index + word.length);
                words.push(...range.getClientRects().length > 1 ? [word] : []);
            }
        }
        return words;
    }));
    assert.deepEqual(broken, []);
    assert.deepEqual(await overflowing(page), []);
    if (process.env.SHOTS) {
        await page.locator('#changes').screenshot({ path: `${process.env.SHOTS}/changes-1400.png` });
    }
}, { viewport: { width: 1400, height: 900 } }));

test('the header is one line at 1400 pixels, also while a Redis is not up and the node has a long name', () => onFleet(async (page, mock) => {
    mock.world.blocks[0].servers[0].state = 'away';
    mock.world.blocks[0].servers[0].workers_up = 0;
    mock.world.nodes[0] = 'edge-frankfurt-03.fleet.example.com';
    await until('it', async () => await text(page, '#live-text') === 'Live, Redis not up' && /frankfurt/.test(await text(page, '#node')));
    const middles = await page.evaluate(() => [...document.querySelectorAll('.top > *')].map(part => part.getBoundingClientRect())
        .filter(({ width }) => width > 0).map(({ top, bottom }) => Math.round((top + bottom) / 2)));
    assert.ok(Math.max(...middles) - Math.min(...middles) < 4, middles.join(' '));
    assert.deepEqual(await overflowing(page), []);
}, { viewport: { width: 1400, height: 900 } }));

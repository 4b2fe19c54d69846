// The page of a fleet: what happened in two days.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axe, overflowing, seen, text, texts, until } from './browser.mjs';
import { onFleet, onNode } from './fleet_page.mjs';

const WINDOWS = { '1400 px': {}, '390 px': { viewport: { width: 390, height: 844 } } };
const HOSTILE = '<img src=x onerror=alert(1)>\u202eevil';
const rows = async page => (await page.locator('#happened-list tbody tr').all().then(all =>
    Promise.all(all.map(row => row.locator('th, td').allTextContents()))));
const TIME = '(?:\\w{3} )?\\d\\d:\\d\\d:\\d\\d';

for (const [size, options] of Object.entries(WINDOWS)) {
    test(`outages, reloads, changes, and nodes that came and went, with what was refused before and after: ${size}`, () => onFleet(async (page, mock) => {
        const { fleet, time } = mock.world;
        fleet.events = [
            { what: 'redis_away', at: time - 1500, until: time - 1400, nodes: 300, names: ['edge-1', 'edge-2'], times: 12 },
            { what: 'ended', at: time - 2000, until: time - 2000, nodes: 1, names: ['edge-rom-01'] },
            { what: 'away', at: time - 2100, until: time - 2100, nodes: 2, names: ['edge-ham-01', 'edge-ham-02'] },
            { what: 'freed', at: time - 2200, zone: 'per_ip', key: '198.51.100.7', id: '%C63d%07', by: 'edge-fra-03 192.0.2.9 ann', override: null },
            { what: 'taken_back', at: time - 2300, zone: 'search', key: null, id: null, by: 'edge-fra-03 192.0.2.9', override: null },
            { what: 'of_later', at: time - 2400, until: time - 2400, nodes: 1, names: ['edge-1'] },
        ];
        fleet.overrides.set(JSON.stringify(['search', 'k']), { key: 'k', id: 'k', block: true, reason: 'ticket 7', for_seconds_left: null,
            until: null, by: 'edge-fra-03 192.0.2.9', at: time - 900 });
        fleet.node('edge-lon-01').loaded = time - 660;
        fleet.lost = 3;
        await until('the list', async () => (await rows(page)).length === 5 && /lost/.test((await rows(page))[0][1]));
        await page.locator('#happened-list .more').click();
        await until('all', async () => (await rows(page)).length === 14);
        const all = (await rows(page)).slice(0, 10);
        assert.deepEqual(all.map(([, what]) => what), ['Redis main lost its data: 3 limits that were changed are as configured again',
            'Configuration loaded: changed search (rate)', 'k in search: blocked until it is taken back (ticket 7)', 'Redis main did not answer, 12 times',
            'nginx ended', '2 nodes were not heard of any more', '198.51.100.7 in per_ip: its count reset', 'search: taken back', 'of later', 'nginx started']);
        assert.deepEqual(all.map(([, , where]) => where), ['', 'edge-lon-01', 'edge-fra-03 192.0.2.9', 'edge-1, edge-2 and 298 more', 'edge-rom-01',
            'edge-ham-01, edge-ham-02', 'edge-fra-03 192.0.2.9 ann', 'edge-fra-03 192.0.2.9', 'edge-1', 'edge-fra-03']);
        assert.match(all[3][0], new RegExp(`^${TIME} to ${TIME}$`));
        assert.match(all[1][0], new RegExp(`^${TIME}$`));
        assert.equal(all[1][3], '15/s');
        assert.match(all[1][4], /^\d\.\dk\/s$/);
        assert.deepEqual(all[3].slice(3), ['15/s', '15/s']);
        assert.ok(await page.locator('#happened-list tbody tr').nth(1).locator('td').nth(3).evaluate(cell => cell.classList.contains('some')));
        assert.match((await rows(page))[13][0], new RegExp(`^${TIME}$`));
        assert.match(await text(page, '#happened-since'), /^Nothing older than two days is here\. A node that was started again/);
        fleet.changes_since = time - 7200;
        await until('since when', async () => new RegExp(`Changes are here since ${TIME}\\. `).test(await text(page, '#happened-since')));
        assert.deepEqual(await axe(page), []);
        assert.deepEqual(await overflowing(page), []);
    }, options));
}

test('changes that one operator makes in one go are one row', () => onFleet(async (page, mock) => {
    const { fleet, time } = mock.world;
    const made = (what, i, by, ago, override = null) => ({ what, at: time - ago - i, zone: 'per_key', key: `k${i}`, id: `k${i}`, by, override });
    const block = { block: true, until: null, reason: null };
    fleet.events = [...Array.from({ length: 13 }, (_, i) => made('taken_back', i, 'edge-1 192.0.2.9 ann', 100)), made('taken_back', 20, 'edge-1 192.0.2.9 ben', 100),
        ...Array.from({ length: 13 }, (_, i) => made('set', i, 'edge-1 192.0.2.9 ann', 1500, block)),
        made('set', 14, 'edge-1 192.0.2.9 ann', 1500, { ...block, block: undefined, rate: '5r/s' }), made('freed', 15, 'edge-1 192.0.2.9 ann', 1500)];
    await until('five rows', async () => (await rows(page)).length === 5);
    const all = await rows(page);
    assert.deepEqual(all.map(([, what]) => what), ['k0 in per_key and 12 more: taken back', 'k20 in per_key: taken back',
        'k0 in per_key and 12 more: blocked until it is taken back', 'k14 in per_key: 5r/s until it is taken back', 'k15 in per_key: its count reset']);
    assert.match(all[0][0], new RegExp(`^${TIME} to ${TIME}$`));
    assert.match(all[1][0], new RegExp(`^${TIME}$`));
    fleet.connected = false;
    await until('Redis away', async () => await text(page, '#fleet-count-now') === '–');
    assert.deepEqual((await rows(page)).map(([, what]) => what), all.map(([, what]) => what));
}, { expected: /503/ }));

test('text of nodes and operators is text', () => onFleet(async (page, mock) => {
    const { fleet, time } = mock.world;
    fleet.events = [{ what: 'loaded', at: time - 60, until: time - 50, nodes: 1, names: [HOSTILE], settings: HOSTILE },
        { what: 'freed', at: time - 70, zone: HOSTILE, key: HOSTILE, id: 'x', by: HOSTILE, override: null },
        { what: HOSTILE, at: time - 80, until: time - 80, nodes: 1, names: [] }];
    const shown = '<img src=x onerror=alert(1)>\\u{202E}evil';
    await until('all three', async () => (await rows(page)).filter(([, what]) => what.includes(shown)).length === 3);
    const [loaded, freed] = await rows(page);
    assert.equal(loaded[2], shown);
    assert.equal(freed[2], shown);
    assert.equal(await page.locator('#happened img').count(), 0);
    assert.deepEqual(await overflowing(page), []);
}));

test('while Redis is away the list says so, above what was known before', () => onFleet(async (page, mock) => {
    const { fleet, time } = mock.world;
    fleet.events = [{ what: 'ended', at: time - 100, until: time - 100, nodes: 1, names: ['edge-rom-01'] }];
    await until('the list', async () => (await rows(page))[0]?.[1] === 'nginx ended');
    fleet.connected = false;
    fleet.events = [{ what: 'redis_away', at: time, until: null, nodes: 1, names: ['edge-fra-03'], times: 1 }];
    await until('the outage', async () => (await rows(page))[0][1] === 'Redis main does not answer');
    const [away, before] = await rows(page);
    assert.match(away[0], new RegExp(`^since ${TIME}$`));
    assert.equal(away[4], '–', 'nothing is known of after it');
    assert.equal(before[1], 'nginx ended');
    assert.ok(await page.locator('#happened-list tbody td.bad').count() > 0);
    fleet.connected = true;
    fleet.events = [{ ...fleet.events[0], until: time + 4, nodes: 10 }];
    await until('its end', async () => (await rows(page))[0][1] === 'Redis main did not answer');
    assert.equal((await rows(page)).filter(([, what]) => /Redis/.test(what)).length, 1);
}, { expected: /503/ }));

test('a row stays what it is, and keeps what is selected in it, when another one is added above it', () => onFleet(async (page, mock) => {
    const { fleet, time } = mock.world;
    fleet.events = [{ what: 'ended', at: time - 100, until: time - 100, nodes: 1, names: ['edge-rom-01'] }];
    const first = page.locator('#happened-list tbody tr').first();
    await until('the list', async () => /edge-rom-01/.test(await first.textContent()));
    await first.evaluate(row => { row.dataset.seen = 'yes'; });
    fleet.events = [{ what: 'ended', at: time - 50, until: time - 50, nodes: 1, names: ['edge-ber-01'] }, ...fleet.events];
    await until('another end', async () => /edge-ber-01/.test(await first.textContent()));
    assert.match(await page.locator('#happened-list tbody tr[data-seen]').textContent(), /edge-rom-01/);
}));

test('an address leads to it', () => onNode('ten', async page => {
    await page.goto(`${page.url().replace(/#.*/, '')}#happened`);
    await page.reload();
    await until('the section', async () => await page.evaluate(() => document.activeElement.id) === 'happened' && seen(page, '#happened-list tbody tr'));
    assert.ok((await texts(page, '#happened-list tbody th')).length > 0);
}));

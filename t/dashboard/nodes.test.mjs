// The page at an address that belongs to several nodes, or to one node after another.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axe, onScenario, seen, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const on = (...scenario) => onScenario(browser, ...scenario);

const NOTICE = 'Several nodes answer at this address, each with numbers of its own: open one node’s own address.';

// Waits for this many more responses.
const answers = (mock, more) => {
    const before = mock.requests.length;
    return until(`${more} answers`, () => mock.requests.length >= before + 2 * more);
};

const openZones = page => texts(page, '.zone:has(.zone-body:not([hidden])) .zone-name');

test('nodes that respond in turn are reported, and zones stay open', () => on('balanced', async (page, mock) => {
    await page.locator('.zone-name', { hasText: 'uploads' }).click();
    await page.locator('#notice.shown').waitFor();
    assert.equal(await text(page, '#notice-text'), NOTICE);
    assert.ok(!await seen(page, '#again'));
    assert.deepEqual(await axe(page), []);
    await answers(mock, 4);
    assert.deepEqual(await openZones(page), ['uploads']);
    mock.world.nodes = ['edge-fra-03'];
    await until('rates', async () => /^[\d.]+k\/s$/.test(await text(page, '#passed-now')));
    assert.ok((await openZones(page)).includes('uploads'));
}));

test('zones of one node beside Redis servers of another are reported', () => on('fleet', async (page, mock) => {
    const { redis } = mock.world;
    mock.world.redis = () => ({ ...redis.call(mock.world), node: 'edge-fra-04' });
    await page.locator('#notice.shown').waitFor();
    assert.equal(await text(page, '#notice-text'), NOTICE);
}));

test('a node that takes over starts new charts in the open zones, and shows no notice', () =>
    on('fleet', async (page, mock) => {
        await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
        const open = await openZones(page);
        const path = () => page.locator('.zone-body:not([hidden]) .chart .top-line').first().getAttribute('d');
        const points = async () => (await path()).split(' ').length;
        await until('some points', async () => await points() > 20);
        Object.assign(mock.world, { nodes: ['edge-fra-04'], remembers: 15 });
        await until('the other name', async () => await text(page, '#node') === 'edge-fra-04');
        await until('few points', async () => await points() < 12, 3);
        await answers(mock, 4);
        assert.deepEqual(await openZones(page), open);
        assert.equal(await text(page, '#notice-text'), '');
        assert.ok(!await seen(page, '#notice.shown'));
    }));

test('no Redis rate is computed from the numbers of two nodes', () => on('fleet', async (page, mock) => {
    const calls = () => text(page, '.redis-block tbody td:nth-child(6)');
    await until('a rate', async () => /^\d+\/s$/.test(await calls()));
    await page.evaluate(() => {
        window.highest = 0;
        new MutationObserver(() => {
            const cell = document.querySelector('.redis-block tbody td:nth-child(6)').textContent;
            window.highest = cell.includes('M') || cell.includes('G') ? Infinity : window.highest;
        }).observe(document.getElementById('redis-list'), { childList: true, subtree: true, characterData: true });
    });
    mock.world.nodes = ['edge-fra-04'];
    mock.world.blocks[0].servers[0].calls += 1e9;
    await until('the other name', async () => await text(page, '#node') === 'edge-fra-04');
    await answers(mock, 4);
    assert.equal(await page.evaluate(() => window.highest), 0);
}));

test('when the open zone is removed, another one is opened', () => on('fleet', async (page, mock) => {
    await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
    const [gone] = await openZones(page);
    mock.world.list = mock.world.list.filter(({ settings }) => settings.name !== gone);
    await until('another zone', async () => (await openZones(page)).some(name => name !== gone), 4);
    // But not after the user has closed them all.
    const [next] = await openZones(page);
    await page.locator('.zone-name', { hasText: next }).click();
    mock.world.list = mock.world.list.filter(({ settings }) => settings.name !== next);
    await until('it to go', async () => !(await texts(page, '.zone-name')).includes(next));
    await answers(mock, 2);
    assert.deepEqual(await openZones(page), []);
}));

// Freeing a key, with any result.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { onScenario, seen, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const on = (...scenario) => onScenario(browser, ...scenario);

// The key that the tests free: its number does not change unless it is refused.
const ZONE = 'per_ip';
const KEY = '192.0.2.77';
const ID = '%C0%00%02%4D';

const rowOf = page => page.locator('.busiest tbody tr', { hasText: KEY });
const hasRow = async page => await rowOf(page).count() > 0;

const free = async page => {
    await rowOf(page).locator('.small').first().click();
    await page.locator('#free-yes').click();
};

// Holds the page's next response to zones: `come` resolves when the node has sent it, `release`
// lets it through to the page, and `after` resolves to the result of `look` once the page has shown
// it.
async function holdNextAnswer(page, look) {
    const held = {};
    held.come = new Promise(resolve => { held.hasCome = resolve; });
    const released = new Promise(resolve => { held.release = resolve; });
    held.after = new Promise(resolve => { held.finish = resolve; });
    let answers = 0;
    await page.route('**/zones', async route => {
        answers += 1;
        if (answers === 2) {
            held.finish(await look());
        }
        const response = await route.fetch();
        if (answers === 1) {
            held.hasCome();
            await released;
        }
        await route.fulfill({ response });
    });
    return held;
}

test('a freed key is shown again when it is refused again', () => on('fleet', async (page, mock) => {
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    for (let i = 0; i < 3; i += 1) {
        mock.world.zone(ZONE).refuse(ID);
    }
    await until('the row to come', () => hasRow(page), 4);
    assert.equal(await rowOf(page).locator('td:nth-child(3)').textContent(), '3');
}));

test('a response from before a key was freed does not show the key again', () => on('fleet', async page => {
    await rowOf(page).waitFor();
    const held = await holdNextAnswer(page, () => hasRow(page));
    await held.come;
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    // Drawing the page again without a new response shows nothing newer.
    await page.locator('#filter').fill(ZONE);
    assert.ok(!await hasRow(page));
    held.release();
    assert.equal(await held.after, false);
}));

test('a response without the key that is being freed keeps the other rows', () => on('fleet', async (page, mock) => {
    let release;
    const released = new Promise(resolve => { release = resolve; });
    await page.route('**/keys?*', async route => {
        mock.world.zone(ZONE).free(ID);
        await released;
        await route.continue();
    });
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    await page.locator('#pause').click();
    release();
    await until('the message', async () => /^Freed /.test(await text(page, '#outcome-text')));
    assert.ok(await seen(page, '.busiest tbody tr'));
}));

test('a key is freed by its bytes, or by its hash in a zone with hash_key', () => on('fleet', async (page, mock) => {
    const sent = [];
    await page.route('**/keys?*', async route => {
        sent.push(new URL(route.request().url()).search);
        await route.continue();
    });
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    const zone = mock.world.zone(ZONE);
    zone.settings.hash_key = true;
    zone.busiest.forEach((row, i) => { row.key = row.id = i.toString(16).padStart(32, '0'); });
    await until('the setting', async () => (await texts(page, '.settings')).join().includes('known bytheir hash'));
    await page.locator('.busiest .small').first().click();
    await page.locator('#free-yes').click();
    await until('the message', async () => sent.length === 2);
    assert.equal(sent[0], `?id=${ID}`);
    assert.match(sent[1], /^\?id=[0-9a-f]{32}$/);
}));

const ANSWERS = [
    [404, { error: 'no such zone' }, / in per_ip: no such zone\.$/],
    [405, { error: 'method not allowed' }, /: the API is read-only \(write=on is not set\): method not allowed\.$/],
    [403, '<html>403 Forbidden</html>', /: this address or user may not\.$/],
    [503, { error: 'Redis does not answer' }, /: Redis does not answer\.$/],
    [503, { error: 'Redis answered with an error' }, /: Redis answered with an error\.$/],
    [503, '<html>', /: the node answered 503\.$/],
    [500, undefined, /: the node answered 500\.$/],
    [500, { error: { not: 'a text' } }, /: the node answered 500\.$/],
    [502, { error: '<img src=x onerror=alert(1)>\u202E' }, /: <img src=x onerror=alert\(1\)>\\u\{202E\}\.$/],
];

test('the API\'s reason for not freeing a key is shown, as text', () => on('fleet', async (page, mock) => {
    for (const [status, body, expected] of ANSWERS) {
        mock.world.free = () => [status, body];
        await page.locator('.busiest .small').first().click();
        await page.locator('#free-yes').click();
        await until(`the message for ${status}`, async () => expected.test(await text(page, '#outcome-text')), 3);
        assert.match(await text(page, '#outcome-text'), /^Not freed: /);
        assert.ok(await seen(page, '#outcome.bad'));
        assert.equal(await page.locator('#outcome img').count(), 0);
        await page.locator('#outcome-close').click();
    }
}, { expected: /Failed to load resource/ }));

// The text of the question, as it is shown.
async function question(page) {
    await page.locator('.busiest .small').first().click();
    const shown = await page.locator('#free-text').innerText();
    await page.locator('#free-no').click();
    return shown.replace(/\s+/g, ' ').trim();
}

test('the question mentions other nodes only if they cache refusals', async () => {
    await on('fleet', async (page, mock) => {
        assert.equal(await question(page),
            'Its count in per_ip starts from zero. Other nodes may refuse it from memory for up to a minute.');
        mock.world.zone(ZONE).settings.cache = false;
        await until('the setting', async () => (await texts(page, '.settings')).join().includes('Denial cacheoff'));
        assert.equal(await question(page), 'Its count in per_ip starts from zero.');
    });
    await on('memory', async page => {
        assert.equal(await question(page), 'Its count in per_client starts from zero.');
    });
});

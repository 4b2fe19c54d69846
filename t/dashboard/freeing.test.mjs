// Freeing a key, whatever becomes of it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { onScenario, seen, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const on = (...scenario) => onScenario(browser, ...scenario);

// The key that the tests free: its number stands still unless it is refused.
const ZONE = 'per_ip';
const KEY = '192.0.2.77';

const rowOf = page => page.locator('.busiest tbody tr', { hasText: KEY });
const hasRow = async page => await rowOf(page).count() > 0;

const free = async page => {
    await rowOf(page).locator('.small').click();
    await page.locator('#free-yes').click();
};

// Of the page's next answer to zones: `come` resolves when the node has given it, `release` lets it through
// to the page, and `after` tells what `look` saw when the page had shown it.
async function holdNextAnswer(page, look) {
    const held = {};
    held.come = new Promise(resolve => { held.hasCome = resolve; });
    const released = new Promise(resolve => { held.release = resolve; });
    held.after = new Promise(resolve => { held.tell = resolve; });
    let answers = 0;
    await page.route('**/zones', async route => {
        answers += 1;
        if (answers === 2) {
            held.tell(await look());
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

test('a key that was freed is seen again when it is refused again', () => on('fleet', async (page, mock) => {
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    for (let i = 0; i < 3; i += 1) {
        mock.world.zone(ZONE).refuse(KEY);
    }
    await until('the row to come', () => hasRow(page), 4);
    assert.equal(await rowOf(page).locator('td:nth-child(3)').textContent(), '3');
}));

test('an answer from before a key was freed does not bring it back', () => on('fleet', async page => {
    await rowOf(page).waitFor();
    const held = await holdNextAnswer(page, () => hasRow(page));
    await held.come;
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    // What is drawn again without a new answer is as old.
    await page.locator('#filter').fill(ZONE);
    assert.ok(!await hasRow(page));
    held.release();
    assert.equal(await held.after, false);
}));

test('an answer without the key that is being freed leaves the other rows', () => on('fleet', async (page, mock) => {
    let release;
    const released = new Promise(resolve => { release = resolve; });
    await page.route('**/keys?*', async route => {
        mock.world.zone(ZONE).free(KEY);
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

test('a key of a zone with hash_key is freed by its hash', () => on('fleet', async (page, mock) => {
    const asked = [];
    await page.route('**/keys?*', async route => {
        asked.push(new URL(route.request().url()).search);
        await route.continue();
    });
    await free(page);
    await until('the row to go', async () => !await hasRow(page));
    const { settings } = mock.world.zone(ZONE);
    settings.hash_key = true;
    await until('the setting', async () => (await texts(page, '.settings')).join().includes('known bytheir hash'));
    await page.locator('.busiest .small').first().click();
    await page.locator('#free-yes').click();
    await until('the message', async () => asked.length === 2);
    assert.equal(asked[0], `?key=${KEY}`);
    assert.match(asked[1], /^\?hash=./);
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

test('what the API says of a key that was not freed is told, as text', () => on('fleet', async (page, mock) => {
    for (const [status, said, told] of ANSWERS) {
        mock.world.free = () => [status, said];
        await page.locator('.busiest .small').first().click();
        await page.locator('#free-yes').click();
        await until(`the message for ${status}`, async () => told.test(await text(page, '#outcome-text')), 3);
        assert.match(await text(page, '#outcome-text'), /^Not freed: /);
        assert.ok(await seen(page, '#outcome.bad'));
        assert.equal(await page.locator('#outcome img').count(), 0);
        await page.locator('#outcome-close').click();
    }
}, { expected: /Failed to load resource/ }));

// What the question says, as it is seen.
async function question(page) {
    await page.locator('.busiest .small').first().click();
    const said = await page.locator('#free-text').innerText();
    await page.locator('#free-no').click();
    return said.replace(/\s+/g, ' ').trim();
}

test('the question tells of other nodes only where they remember a refusal', async () => {
    await on('fleet', async (page, mock) => {
        assert.equal(await question(page),
            'Its count in per_ip begins anew. Other nodes that remember a refusal notice within a minute.');
        mock.world.zone(ZONE).settings.cache = false;
        await until('the setting', async () => (await texts(page, '.settings')).join().includes('Denial cacheoff'));
        assert.equal(await question(page), 'Its count in per_ip begins anew.');
    });
    await on('memory', async page => {
        assert.equal(await question(page), 'Its count in per_client begins anew.');
    });
});

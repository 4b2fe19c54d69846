// The page as an operator uses it. Runs against the mock, or against a real node:
//
//   RATELIMIT_DASHBOARD=http://127.0.0.1:8080/ratelimit/   the API, with write=on
//   RATELIMIT_TRAFFIC=http://127.0.0.1:8080/api/           a limited location; the test sends requests there
//                                                          all the time, so that some are refused

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axe, open, overflowing, start, text, until } from './browser.mjs';
import { serve } from './mock.mjs';

let browser;
let mock;
let traffic;
let url = process.env.RATELIMIT_DASHBOARD;

before(async () => {
    browser = await start();
    if (!url) {
        mock = await serve('fleet');
        url = mock.url;
    }
    if (process.env.RATELIMIT_TRAFFIC) {
        traffic = setInterval(() => fetch(process.env.RATELIMIT_TRAFFIC).catch(() => {}), 50);
    }
});

after(async () => {
    clearInterval(traffic);
    await browser.close();
    await mock?.close();
});

// The page once it shows rates, and a zone with a refused key is open.
async function opened(options) {
    const page = await open(browser, url, options);
    await page.locator('#live.fine').waitFor();
    await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
    await page.locator('.busiest .small').first().waitFor();
    return page;
}

test('numbers change, and the chart grows', async () => {
    const page = await opened();
    const rate = /^(?:\d|<)[\d.]*[kMG]?\/s$/;
    await until('a rate', async () => rate.test(await text(page, '#passed-now')));
    assert.match(await text(page, '.results td:nth-child(2)'), rate);
    const points = async () => (await page.locator('.chart .top-line').first().getAttribute('d')).split(' ').length;
    const first = await points();
    const total = await page.locator('.results td:nth-child(4)').first().getAttribute('title');
    await until('the chart to grow', async () => await points() > first);
    await until('the total to grow', async () =>
        await page.locator('.results td:nth-child(4)').first().getAttribute('title') !== total);
    assert.match((await page.locator('.chart text').allTextContents()).join(' '), /\b0\b.*\d\d:\d\d/,
        'both axes have labels');
    assert.match(await text(page, '.rates .unseen'), /^Now: .*passed [\d.]+k? per second/, 'the chart as text');
    await page.finish();
});

test('a key is freed after a confirmation', async () => {
    const page = await opened();
    const rows = page.locator('.zone-body:not([hidden]) .busiest tbody tr');
    const key = await rows.first().locator('.code').textContent();
    const hasRow = async () => (await rows.locator('.code').allTextContents()).includes(key);
    await rows.first().locator('.small').first().click();
    assert.equal(await text(page, '#free-key'), key);
    await page.locator('#free-no').click();
    assert.ok(await hasRow(), 'cancelling frees nothing');
    await rows.filter({ hasText: key }).first().locator('.small').first().click();
    const [request] = await Promise.all([
        page.waitForRequest(made => made.method() === 'DELETE'),
        page.locator('#free-yes').click(),
    ]);
    assert.match(request.url(), /\/zones\/[^/]+\/keys[/?]/);
    await until('the message', async () => /^Freed /.test(await text(page, '#outcome-text')));
    assert.ok((await text(page, '#outcome-text')).includes(key), 'the message names the key');
    assert.equal(await page.locator('#outcome-text').getAttribute('aria-live'), 'polite');
    if (mock) {
        await until('the row to go', async () => !await hasRow());
    }
    await page.locator('#outcome-close').click();
    assert.equal(await text(page, '#outcome-text'), '');
    await page.finish();
});

const focused = page => page.evaluate(() => {
    const { id, className, tagName, textContent } = document.activeElement;
    return { id, classes: String(className), tag: tagName, text: textContent.trim() };
});

// Presses Tab until the wanted element has the focus; every element on the way must show its focus.
async function tabTo(page, wanted, most = 60) {
    for (let i = 0; i < most; i += 1) {
        await page.keyboard.press('Tab');
        const seen = await page.evaluate(() => {
            const element = document.activeElement;
            const ring = node => node && getComputedStyle(node).outlineStyle !== 'none'
                && parseFloat(getComputedStyle(node).outlineWidth) >= 2;
            return ring(element) || ring(element.closest('.zone-head'));
        });
        const here = await focused(page);
        assert.ok(seen || here.tag === 'BODY', `the focus is visible on ${JSON.stringify(here)}`);
        if (wanted(here)) {
            return here;
        }
    }
    throw new Error('the keyboard does not get there');
}

test('everything works with the keyboard, and the focus is always visible', async () => {
    const page = await opened();
    await page.keyboard.press('Tab');
    assert.equal((await focused(page)).text, 'Skip to the content');
    await page.keyboard.press('Enter');
    await tabTo(page, ({ id }) => id === 'filter');
    const zone = await tabTo(page, ({ classes }) => classes.includes('zone-name'));
    const isOpen = () => page.evaluate(() => document.activeElement.getAttribute('aria-expanded'));
    assert.equal(await isOpen(), 'true');
    await page.keyboard.press('Enter');
    assert.equal(await isOpen(), 'false');
    await page.keyboard.press('Space');
    assert.equal(await isOpen(), 'true');
    assert.equal((await focused(page)).text, zone.text, 'the list does not move under the focus');

    await tabTo(page, ({ classes }) => classes === 'chart');
    await page.keyboard.press('ArrowLeft');
    assert.match(await text(page, '.results thead th:nth-child(2)'), /^At \d\d:\d\d:\d\d$/);
    assert.match(await page.locator('.chart').first().getAttribute('aria-valuetext'), /\d: .*passed .* per second/);
    await page.keyboard.press('Escape');
    assert.equal(await text(page, '.results thead th:nth-child(2)'), 'Now');

    const first = await tabTo(page, ({ classes }) => classes === 'small');
    await page.keyboard.press('Enter');
    assert.equal((await focused(page)).id, 'free-no', 'the cancel button has the focus');
    await page.keyboard.press('Escape');
    assert.deepEqual(await focused(page), first, 'the focus is back');
    await page.keyboard.press('Enter');
    await tabTo(page, ({ id }) => id === 'free-yes', 4);
    await page.keyboard.press('Enter');
    await until('the message', async () => /^Freed /.test(await text(page, '#outcome-text')));
    const next = await focused(page);
    assert.ok(next.classes === 'small' || next.classes === 'quiet', JSON.stringify(next));
    assert.notEqual(next.text, first.text, 'the focus moves to the next key');
    await page.finish();
});

test('the filter shows the matching zones', async () => {
    const page = await opened();
    const names = () => page.locator('.zone-name').allTextContents();
    const all = await names();
    await page.locator('#filter').fill(all[0].toUpperCase());
    assert.ok((await names()).includes(all[0]));
    assert.match(await text(page, '#found'), new RegExp(`^\\d+ of ${all.length} zone`));
    await page.locator('#filter').fill('no zone is called this');
    assert.deepEqual(await names(), []);
    assert.match(await text(page, '#no-match-text'), /No zone has “no zone is called this”/);
    await page.locator('#clear').click();
    assert.equal((await names()).length, all.length);
    assert.equal((await focused(page)).id, 'filter');
    await page.finish();
});

const ground = page => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

test('light or dark follows the system, or the choice, which is remembered', async () => {
    const page = await opened({ colorScheme: 'light' });
    const light = await ground(page);
    await page.emulateMedia({ colorScheme: 'dark' });
    const dark = await ground(page);
    assert.notEqual(dark, light);
    await page.locator('#theme[aria-pressed="true"]').waitFor();
    await page.locator('#theme').click();
    assert.equal(await ground(page), light);
    await page.reload();
    assert.equal(await ground(page), light, 'remembered');
    await page.locator('#theme').click();
    assert.equal(await page.evaluate(() => localStorage.getItem('ratelimit-theme')), null, 'as the system again');
    await page.emulateMedia({ colorScheme: 'light' });
    await page.locator('#theme[aria-pressed="false"]').waitFor();
    assert.equal(await ground(page), light);
    await page.finish();
});

test('the page is as wide as the window, down to 320 pixels', async () => {
    const page = await opened({ viewport: { width: 360, height: 780 } });
    const closed = page.locator('.zone-name[aria-expanded="false"]');
    while (await closed.count() > 0) {
        await closed.first().click();
    }
    for (const width of [360, 320, 540, 721, 860, 981, 1280, 1900]) {
        await page.setViewportSize({ width, height: 780 });
        assert.deepEqual(await overflowing(page), [], `${width} pixels`);
    }
    await page.finish();
});

for (const [name, options] of [
    ['light', { colorScheme: 'light' }],
    ['dark', { colorScheme: 'dark' }],
    ['narrow', { viewport: { width: 360, height: 780 } }],
]) {
    test(`axe finds nothing: ${name}`, async () => {
        const page = await opened(options);
        assert.deepEqual(await axe(page), []);
        await page.locator('.busiest .small').first().click();
        assert.deepEqual(await axe(page), [], 'with the confirmation open');
        await page.locator('#free-no').click();
        await page.finish();
    });
}

test('the page works without localStorage', async () => {
    const page = await opened({ prepare: () => Object.defineProperty(window, 'localStorage',
        { get() { throw new DOMException('no', 'SecurityError'); } }) });
    const before = await ground(page);
    await page.locator('#theme').click();
    assert.notEqual(await ground(page), before);
    await page.finish();
});

test('the page can be paused, and sends no requests while it is hidden', async () => {
    const page = await opened();
    let requests = 0;
    page.on('request', () => { requests += 1; });
    await page.locator('#pause').click();
    assert.equal(await text(page, '#live-text'), 'Paused');
    await new Promise(resolve => setTimeout(resolve, 2600));  // longer than between two requests
    assert.equal(requests, 0);
    await page.evaluate(() => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
    });
    await page.locator('#pause').click();
    await new Promise(resolve => setTimeout(resolve, 2600));  // longer than between two requests
    assert.equal(requests, 0, 'hidden');
    await page.evaluate(() => {
        delete document.hidden;
        document.dispatchEvent(new Event('visibilitychange'));
    });
    await until('numbers', () => requests >= 2, 2);
    await page.finish();
});

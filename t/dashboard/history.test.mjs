// What the node remembers from before the page was opened, in the charts.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axe, onScenario, overflowing, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const on = (...scenario) => onScenario(browser, ...scenario);

// The number of points on the line of the first open chart, or of the small chart of a zone.
const pointsOf = async (page, chart) => {
    const line = page.locator(`${chart} .top-line`).first();
    return await line.count() > 0 ? (await line.getAttribute('d')).split(' ').length : 0;
};
const labels = page => texts(page, '.chart text[text-anchor=middle]');
const choice = (page, name) => page.locator('.zone-body:not([hidden]) .choice', { hasText: name }).first();

test('a chart begins with what the node remembers, for the last 15 minutes', () => on('fleet', async page => {
    await until('steps', async () => await pointsOf(page, '.chart') > 80);
    assert.equal(await choice(page, '15 min').getAttribute('aria-pressed'), 'true');
    const chart = page.locator('.chart').first();
    assert.match(await chart.getAttribute('aria-label'), /rates of the last 15 minutes$/);
    await chart.focus();
    await page.keyboard.press('Home');
    const [, hours, minutes, seconds] = (await text(page, '.results thead th:nth-child(2)')).match(/(\d\d):(\d\d):(\d\d)$/);
    const [, h, m, s] = (await text(page, '#updated')).match(/(\d\d):(\d\d):(\d\d)$/);
    const ago = (86400 + 3600 * (h - hours) + 60 * (m - minutes) + (s - seconds)) % 86400;
    assert.ok(ago > 880 && ago < 915, `${ago} s`);
    assert.deepEqual(await overflowing(page), []);
    assert.deepEqual(await axe(page), []);
}));

test('a chart shows the last hour, six hours or two days, with units', () => on('fleet', async page => {
    await until('steps', async () => await pointsOf(page, '.chart') > 80);
    await choice(page, '1 hour').click();
    await until('an hour', async () => await pointsOf(page, '.chart') > 350);
    assert.match(await text(page, '.rates .unseen'), /Highest of the last hour: passed/);
    await choice(page, '6 hours').click();
    await until('six hours', async () => { const points = await pointsOf(page, '.chart'); return points > 70 && points < 80; });
    assert.match(await page.locator('.chart').first().getAttribute('aria-label'), /rates of the last 6 hours$/);
    const axis = await texts(page, '.chart text[text-anchor=end]');
    assert.ok(axis.includes('0') && axis.filter(label => label !== '0').every(label => /\d\S*\/s$/.test(label)), axis.join());
    await choice(page, '2 days').focus();
    await page.keyboard.press('Enter');
    await until('two days', async () => await pointsOf(page, '.chart') > 570);
    assert.equal(await choice(page, '2 days').getAttribute('aria-pressed'), 'true');
    assert.ok((await labels(page)).some(label => /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)$/.test(label)), 'days have names');
    await page.locator('.chart').first().focus();
    await page.keyboard.press('Home');
    assert.match(await text(page, '.results thead th:nth-child(2)'), /^At (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d:\d\d:\d\d$/);
    assert.deepEqual(await axe(page), []);
}));

test('small charts of closed zones begin with it, too', () => on('fleet', async page => {
    await until('every small chart', async () => {
        const rows = await page.locator('.zone').count();
        const lines = await page.locator('.spark .top-line').evaluateAll(all =>
            all.filter(line => line.getAttribute('d').split(' ').length > 25).length);
        return rows > 5 && lines === rows;
    });
}));

test('the page reads the history of a closed zone once', () => on('many', async (page, mock) => {
    const asked = () => mock.requests.filter(line => line.includes('/history'))
        .map(line => line.replace(/\?.*/, ''));
    await until('all shown zones', () => asked().length >= 50);
    await until('some answers', () => mock.requests.filter(line => line === 'GET zones').length > 20);
    const twice = asked().filter((line, i, all) => all.indexOf(line) !== i);
    assert.ok(twice.length <= 3, `twice: ${twice}`);  // the open one
}));

test('a gap in the page\'s samples is filled with the node\'s steps', () => on('fleet', async (page, mock) => {
    await until('steps', async () => await pointsOf(page, '.chart') > 80);
    mock.world.move(120);
    await until('the time', () => mock.requests.filter(line => line.includes('history')).length > 10);
    await until('no gap', async () => await page.locator('.chart .gap').count() === 0);
    await until('points', async () => await pointsOf(page, '.chart') > 80);
}));

test('the cursor stays at its time while steps become finer or coarser', () => on('fleet', async (page, mock) => {
    await until('steps', async () => await pointsOf(page, '.chart') > 80);
    await page.locator('.chart').first().focus();
    await page.keyboard.press('Home');
    for (let i = 0; i < 3; i += 1) {
        await page.keyboard.press('PageUp');
    }
    const head = () => text(page, '.results thead th:nth-child(2)');
    const at = await head();
    mock.world.move(70);
    await until('a newer history', () => mock.requests.filter(line => line.includes('history')).length > 9);
    await page.waitForTimeout(200);  // a silent wait: the page draws the answer
    assert.equal(await head(), at);
}));

test('a node without a history shows what the page has seen', () => onScenario(browser, 'fleet', async (page, mock) => {
    mock.world.remembers = null;
    await page.reload();
    await until('samples', async () => await pointsOf(page, '.chart') > 5);
    assert.ok(await pointsOf(page, '.chart') < 80);
    await choice(page, '15 min').waitFor({ state: 'hidden' });
}, { expected: /404/ }));

test('a node that has just started shows the little that it knows', () => on('fleet', async (page, mock) => {
    mock.world.remembers = 25;
    await page.reload();
    await until('steps', async () => await pointsOf(page, '.chart') > 4);
    assert.ok(await pointsOf(page, '.chart') < 80);
}));

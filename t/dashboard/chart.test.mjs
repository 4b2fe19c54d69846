// Reading a chart at a point in time: with the keyboard, a screen reader, a finger.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { onScenario, start, text, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

// A zone's chart with points two seconds apart, and no new ones until the page is resumed.
const onChart = (run, options) => onScenario(browser, 'fleet', async (page, mock) => {
    await page.route('**/zones', route => {
        mock.world.move(2);
        return route.continue();
    });
    const chart = page.locator('.chart').first();
    await until('points', async () => {
        const line = chart.locator('.top-line');
        return await line.count() > 0 && (await line.getAttribute('d')).split(' ').length > 30;
    });
    await page.locator('#pause').click();
    await until('the pause', () => page.evaluate(() => document.querySelector('#live.paused')));
    await page.waitForTimeout(300);  // a silent wait: a response may still be in flight
    await run({ page, mock, chart });
}, options);

const head = page => text(page, '.results thead th:nth-child(2)');

// What a screen reader announces: [the text, whether it is at the end of the scale].
const announced = async chart => {
    const of = name => chart.getAttribute(`aria-value${name}`);
    return [await of('text'), await of('now') === await of('max')];
};

test('the arrow keys step between now and the newest point', () =>
    onChart(async ({ page, chart }) => {
        const newest = (await text(page, '#updated')).replace('at ', 'At ');
        await chart.focus();
        await page.keyboard.press('ArrowLeft');
        assert.equal(await head(page), newest);
        await page.keyboard.press('ArrowLeft');
        assert.notEqual(await head(page), newest);
        await page.keyboard.press('ArrowRight');
        assert.equal(await head(page), newest);
        await page.keyboard.press('ArrowRight');
        assert.equal(await head(page), 'Now');
        await page.keyboard.press('Home');
        assert.match(await head(page), /^At /);
        assert.equal(await chart.getAttribute('aria-valuenow'), '0');
        await page.keyboard.press('End');
        assert.equal(await head(page), 'Now');
    }));

test('a screen reader announces now once the chart loses the focus', () => onChart(async ({ page, chart }) => {
    await chart.focus();
    await page.keyboard.press('ArrowLeft');
    const [announcement, atTheEnd] = await announced(chart);
    assert.match(announcement, /^\d\d:\d\d:\d\d: .*passed .* per second/);
    assert.ok(!atTheEnd);
    await page.keyboard.press('Tab');
    assert.equal(await head(page), 'Now');
    assert.deepEqual(await announced(chart), ['now', true]);
}));

test('a screen reader announces now once the point is too old for the chart', () =>
    onChart(async ({ page, mock, chart }) => {
        await chart.focus();
        await page.keyboard.press('Home');
        const [announcement, atTheEnd] = await announced(chart);
        assert.match(announcement, /^\d\d:\d\d:\d\d: /);
        assert.ok(!atTheEnd);
        mock.world.move(400);
        await page.evaluate(() => document.getElementById('pause').click());
        await until('the point to go', async () => await head(page) === 'Now');
        assert.ok(await chart.evaluate(element => element === document.activeElement));
        assert.deepEqual(await announced(chart), ['now', true]);
    }));

// A place on the chart near its right end, where it has points.
async function spot(chart) {
    const { x, y, width, height } = await chart.boundingBox();
    return [x + width - 30, y + height / 2];
}

test('a point selected by a finger stays until the finger taps elsewhere', () =>
    onChart(async ({ page, chart }) => {
        await chart.scrollIntoViewIfNeeded();
        await page.touchscreen.tap(...await spot(chart));
        await page.waitForTimeout(100);  // a silent wait: the point must stay
        assert.match(await head(page), /^At \d\d:\d\d:\d\d$/);
        await page.touchscreen.tap(5, 5);
        await until('now', async () => await head(page) === 'Now', 2);
    }, { hasTouch: true }));

test('a finger that drags over the chart selects its last point, one that scrolls the page selects none', () =>
    onChart(async ({ page, chart }) => {
        const [clientX, clientY] = await spot(chart);
        const finger = (...types) => chart.evaluate((element, [names, at]) => names.forEach(name =>
            element.dispatchEvent(new PointerEvent(name, { ...at, pointerType: 'touch', bubbles: true }))),
        [types, { clientX, clientY }]);
        await finger('pointerdown', 'pointermove', 'pointerleave');
        assert.match(await head(page), /^At \d\d:\d\d:\d\d$/);
        await page.locator('h1').click();
        assert.equal(await head(page), 'Now', 'until a click elsewhere');
        await finger('pointerdown', 'pointercancel', 'pointerleave');
        assert.equal(await head(page), 'Now');
    }));

test('a mouse that leaves the chart selects no point', () => onChart(async ({ page, chart }) => {
    await page.mouse.move(...await spot(chart));
    assert.match(await head(page), /^At /);
    await page.mouse.move(5, 5);
    assert.equal(await head(page), 'Now');
}));

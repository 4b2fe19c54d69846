// The page in every state of a node, played by the mock: no zones, many zones, Redis unavailable, a
// node that does not respond or was restarted, texts that contain markup.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axe, onScenario, overflowing, seen, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const on = (...scenario) => onScenario(browser, ...scenario);

test('without zones and Redis the page shows how to add a zone', () => on('empty', async page => {
    assert.ok(await seen(page, '#no-zones pre'));
    assert.match(await text(page, '#no-zones pre'), /^ {4}ratelimit zone=per_client;$/m, 'indented for nginx.conf');
    assert.match(await text(page, '#redis-empty'), /counted on this node/);
    assert.ok(!await seen(page, '#tools') && !await seen(page, '#list-head'));
    assert.equal(await text(page, '#redis-now'), 'None');
    assert.deepEqual(await axe(page), []);
}));

test('a zone without Redis is shown as counted on this node', () => on('memory', async page => {
    assert.match(await text(page, '.about'), /this node$/);
    assert.match(await text(page, '.settings'), /Counted inthis node’s memory/);
    assert.equal(await text(page, '#redis-more'), 'counted on this node');
}));

test('a zone without requests shows no rates, keys or sources', () => on('idle', async page => {
    await until('rates', async () => await text(page, '#passed-now') === '0/s');
    assert.match(await text(page, '.busiest .quiet'), /No key has been refused/);
    assert.match(await text(page, '.origins .quiet'), /No decisions in the last minutes/);
}));

test('without write=on there are no buttons to free keys', () => on('readonly', async page => {
    await page.locator('.busiest tbody tr').first().waitFor();
    assert.ok(!await seen(page, '.busiest .small'));
}));

test('the states of Redis servers differ in words and shapes', () => on('away', async page => {
    const states = await texts(page, '.redis-block tbody .state');
    for (const state of ['Away 0 of 2 workers', 'Breaker open 0 of 2 workers', 'Up in part 1 of 2 workers']) {
        assert.ok(states.includes(state), state);
    }
    const shapes = await page.locator('.redis-block .mark path').evaluateAll(marks =>
        new Set(marks.map(mark => mark.getAttribute('d'))).size);
    assert.equal(shapes, 4);
    assert.equal(await text(page, '#redis-now'), '3 not up');
    assert.match(await text(page, '.about b'), /is not up/);
    assert.match((await texts(page, '.redis-block tbody td:nth-child(7)'))[0], /1,235 1,204 timeout, 31 connection/);
    await until('failures', async () => /^[\d.]+k\/s$/.test(await text(page, '#failed-now')));
    assert.deepEqual(await axe(page), []);
}));

test('a ratelimit_redis without a known server is shown as not up, with the reason', () => on('unknown', async page => {
    const blocks = await texts(page, '.redis-block');
    assert.match(blocks[0], /watched by sentinels.*No server is known: no sentinel knows where the master is/);
    assert.match(blocks[1], /cluster ?No server is known: no node of the cluster knows its slots/);
    assert.ok(!await seen(page, '.redis-block table'));
    assert.equal(await text(page, '#redis-now'), '2 not up');
    assert.match(await text(page, '.about'), /sessions has no server/);
    assert.deepEqual(await axe(page), []);
}));

test('a cluster\'s servers are its masters, and columns name the period of their figures', () =>
    on('many', async page => {
        assert.equal(await text(page, '.redis-block h3'), 'main cluster, 3 masters');
        assert.deepEqual(await texts(page, '.redis-block thead th'), ['Server', 'Role', 'State', 'p50', 'p99',
            'Calls now', 'Errors since start', 'Reconnects since start']);
        assert.deepEqual(await overflowing(page), []);
    }));

test('the figures of a zone have names and units', () => on('fleet', async (page, mock) => {
    Object.assign(mock.world.zone('per_ip').settings, { highest_use: 100, ahead: 60 });
    Object.assign(mock.world.zone('login').settings, { highest_use: 0, ahead: 0 });
    await until('the figures', async () => /Highest use in an hour100% of the limit of a key.*Ahead of Redisat most 60 units for each worker/
        .test((await texts(page, '.settings')).join()), 4);
    await page.locator('.zone', { hasText: 'login' }).locator('summary, .zone-name').first().click();
    await until('the figures', async () => /Highest use in an hour0% of the limit of a key.*Ahead of Redisoff/
        .test((await texts(page, '.settings')).join()), 4);
}));

test('a zone with calendar= says which periods it counts', () => on('fleet', async (page, mock) => {
    const end = Date.UTC(2026, 11, 14, 23) / 1000;
    Object.assign(mock.world.zone('static').settings, { rate: '10000r/month',
        calendar: { time_zone: 'Europe/Berlin', start: '15', begin: end - 30 * 86400, end } });
    await page.locator('#filter').fill('10000r/month');
    await until('the zone', async () => (await texts(page, '.zone-name')).includes('static'), 4);
    await page.locator('.zone', { hasText: 'static' }).locator('summary, .zone-name').first().click();
    await until('the setting', async () => /Periods ofEurope\/Berlin, from day 15, this one until .*2026/
        .test((await texts(page, '.settings')).join()), 4);
}));

test('the filter finds a zone by its settings after a reload of nginx', () => on('fleet', async (page, mock) => {
    const found = () => texts(page, '.zone-name');
    await page.locator('#filter').fill('777r/s');
    assert.deepEqual(await found(), []);
    Object.assign(mock.world.zone('static').settings, { rate: '777r/s', redis: 'spare' });
    await until('the zone', async () => (await found()).includes('static'), 4);
    assert.equal(await text(page, '#found'), '1 of 8 zones');
    await page.locator('#filter').fill('spare');
    assert.deepEqual(await found(), ['static']);
    await page.locator('#filter').fill('1000r/s');
    assert.deepEqual(await found(), []);
}));

test('no region of the page is empty for screen readers, and notices are announced', () => on('fleet', async (page, mock) => {
    const parts = await page.getByRole('region').all();
    assert.ok(parts.length >= 3);
    for (const part of parts) {
        assert.notEqual((await part.innerText()).trim(), '', await part.evaluate(({ id }) => id));
    }
    // The live region has to exist before the notice does.
    const notice = await page.getByRole('banner').getByRole('status').elementHandle();
    assert.equal(await notice.textContent(), '');
    mock.fails = 503;
    await until('the notice', async () => /^This node answers 503/.test(await notice.textContent()));
    assert.ok(await notice.isVisible());
}, { expected: /Failed to load resource/ }));

test('hundreds of zones: the most refused first, fifty at a time', () => on('many', async (page, mock) => {
    await until('an order', async () => await text(page, '.refused dd') !== '–');
    assert.equal(await page.locator('.zone').count(), 50);
    await until('the order', async () => {
        // The node's clock moves on, so that the list is sorted again.
        mock.world.move(10.5);
        await page.waitForTimeout(300);  // the next response
        const now = (await texts(page, '.zone:has(.zone-body[hidden]) .figure.refused dd')).map(Number);
        return now.every((rate, i) => i === 0 || rate <= 1.3 * now[i - 1] + 0.5);
    });
    assert.match(await text(page, '#more'), /^Show 50 more of 263$/);
    await page.locator('#more').click();
    assert.equal(await page.locator('.zone').count(), 100);
    assert.equal(await page.evaluate(() => [...document.querySelectorAll('.zone-name')]
        .indexOf(document.activeElement)), 50, 'the focus is on the first new one');
    await page.locator('#filter').fill('very-long');
    assert.equal(await page.locator('.zone').count(), 1);
    assert.equal(await text(page, '#found'), '1 of 313 zones');
    assert.deepEqual(await overflowing(page), []);
    await page.locator('#filter').fill('');
    await page.locator('#sort').selectOption('name');
    assert.deepEqual((await texts(page, '.zone-name')).slice(1, 3), ['tenant_001', 'tenant_002']);
}));

test('the list does not move under the pointer', () => on('fleet', async (page, mock) => {
    await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
    await page.locator('.zone-name').nth(2).hover();
    const order = await texts(page, '.zone-name');
    const last = mock.world.list.find(({ settings }) => settings.name === order.at(-1));
    Object.assign(last.flow, { 'rejected.redis': 1e4 });
    Object.assign(last.totals, { 'rejected.redis': 0 });
    const laterBy10Seconds = () => {
        mock.world.move(10.5);
        return page.waitForTimeout(400);  // a silent wait: for the next responses
    };
    await laterBy10Seconds();
    await laterBy10Seconds();
    assert.deepEqual(await texts(page, '.zone-name'), order);
    await page.locator('h1').hover();
    await laterBy10Seconds();
    const first = (await texts(page, '.zone-name')).slice(0, 2);
    assert.deepEqual(first, [order[0], order.at(-1)], 'once the pointer has left, the list is sorted around the open zone');
}));

test('when the node does not respond, the last numbers stay, and requests become rarer', () =>
    on('fleet', async (page, mock) => {
        await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
        mock.fails = 503;
        await page.locator('#notice.shown').waitFor();
        assert.match(await text(page, '#notice-text'), /^This node answers 503\. The numbers shown are the last known/);
        assert.equal(await text(page, '#live-text'), 'No numbers');
        assert.ok(await seen(page, '.chart .area'));
        const passed = await text(page, '#passed-now');
        assert.match(passed, /^[\d.]+k?\/s$/);
        assert.deepEqual(await axe(page), []);
        const next = async () => Number((await text(page, '#notice-next')).match(/\d+/)[0]);
        await until('longer pauses', async () => await next() >= 15);
        assert.equal(await text(page, '#passed-now'), passed);
        mock.fails = 'hang up';
        await page.locator('#again').click();
        await until('the other reason', async () => /^This node does not answer/.test(await text(page, '#notice-text')));
        mock.fails = null;
        await page.locator('#again').click();
        await page.locator('#live.fine').waitFor();
        assert.ok(!await seen(page, '#again'));
        assert.equal(await text(page, '#notice-text'), '');
    }, { expected: /Failed to load resource/ }));

test('a restarted node starts a new chart', () => on('fleet', async (page, mock) => {
    const points = async () => (await page.locator('.chart .top-line').first().getAttribute('d')).split(' ').length;
    await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
    await until('some points', async () => await points() > 20);
    mock.world.list.forEach(zone => zone.restart());
    mock.world.remembers = 5;
    await until('few points', async () => await points() < 12, 3);
    assert.doesNotMatch((await texts(page, '.results td, .figure dd, .sums dd')).join(' '), /-\d|NaN|undefined/);
}));

test('responses that are not the API\'s are reported as such', () => on('fleet', async (page, mock) => {
    mock.world.zones = () => ['not', 'this'];
    await until('the notice', async () => /something other than figures/.test(await text(page, '#notice-text')));
}));

test('markup in names and keys is shown as text, and each key is freed by its exact id', () => on('hostile', async (page, mock) => {
    assert.equal(await page.locator('main :is(i, u, s, img, script)').count(), 0);
    assert.equal(await page.locator('main b', { hasText: /^(bold|main|role)$/ }).count(), 0);
    const names = await texts(page, '.zone-name');
    assert.ok(names.includes('<b>bold</b>') && names.includes('зона-限制'));
    const open = page.locator('.zone', { hasText: '<b>bold</b>' });
    assert.ok((await open.locator('.busiest .code').allTextContents()).includes('user\\u{202E}gnp.exe\\u{2066}'));
    assert.match(await open.locator('.settings').textContent(), /future\{"setting":"<s>"\}/, 'unknown settings of later versions');
    const freed = [];
    const ids = mock.world.list[0].busiest.map(({ id }) => id);
    const free = mock.world.free.bind(mock.world);
    mock.world.free = (zone, argument, id) => {
        freed.push([zone, id]);
        return free(zone, argument, id);
    };
    const long = open.locator('.busiest .cut');
    assert.match(await long.textContent(), /^k+…k+end$/);
    await long.click();
    assert.equal((await long.textContent()).length, 123);
    for (let left = ids.length; left > 0; left -= 1) {
        await open.locator('.busiest .small').first().click();
        await page.locator('#free-yes').click();
        await until('the row to go', async () => await open.locator('.busiest tbody tr').count() < left);
    }
    assert.deepEqual(freed.map(([zone]) => zone), ids.map(() => '<b>bold</b>'));
    assert.deepEqual(freed.map(([, id]) => id).sort(), ids.sort());
    assert.deepEqual(await overflowing(page), []);
    assert.match(await open.locator('.busiest .quiet').textContent(), /No key is known to be refused/);
}));

test('the page requests only what it needs', () => on('fleet', async (page, mock) => {
    await page.locator('.zone-body:not([hidden]) .chart .area').first().waitFor();
    const needed = mock.requests.filter(line => !/^GET zones\/\w+\/history\?since=\d+$/.test(line));
    assert.deepEqual([...new Set(needed)].sort(), ['GET ', 'GET redis', 'GET zones']);
}));

test('with prefers-reduced-motion nothing moves', () => on('idle', async page => {
    const moving = () => page.evaluate(() => [...document.querySelectorAll('*')].flatMap(element =>
        [null, '::before', '::after'].map(part => getComputedStyle(element, part)))
        .filter(({ transitionDuration, animationName }) =>
            transitionDuration !== '0s' || animationName !== 'none').length);
    assert.equal(await moving(), 0);
}, { reducedMotion: 'reduce' }));

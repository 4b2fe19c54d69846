// The page of a fleet: its chart, tables that are sorted and filtered, links, what is shown beside a table, and keys that
// are found in all zones.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axe, overflowing, seen, text, texts, until } from './browser.mjs';
import { cells, onFleet, onNode, outcome, state } from './fleet_page.mjs';

const NARROW = { viewport: { width: 390, height: 844 } };
const focused = page => page.evaluate(() => document.activeElement.id);
const names = (page, table) => texts(page, `#fleet-${table} tbody th .code`);

test('a node of a fleet shows the fleet first, and itself when its address says so', () => onNode('ten', async page => {
    await page.locator('#fleet-nodes tbody tr').first().waitFor();
    await page.goto(`${page.url().replace(/#.*/, '')}#zones`);
    await page.reload();
    await page.locator('#zone-list > li').first().waitFor();
    assert.ok(!await seen(page, '#of-fleet'));
}));

test('the chart has the hour before the page was opened, and says when most was refused', () => onFleet(async page => {
    await until('the highest', async () => /^Most was refused at \d\d:\d\d:00: 3\dk\/s passed, 9\.0k\/s refused\.$/
        .test(await text(page, '#fleet-chart-text')));
    assert.ok(await seen(page, '#fleet-chart .area.rejected') && await seen(page, '#fleet-chart .area.passed'));
    await page.locator('#fleet-chart .chart').focus();
    await page.keyboard.press('Home');
    await until('the first minute', async () => /^\d\d:\d\d:\d\d to \d\d:\d\d:\d\d: 3\dk\/s passed, 15\/s refused$/
        .test(await text(page, '#fleet-chart-text')));
    await page.keyboard.press('End');
    const first = () => page.locator('#fleet-chart .top-line').getAttribute('d');
    const hour = await first();
    await page.getByRole('group', { name: 'Time that the chart of the fleet shows' }).getByRole('button', { name: '15 min' }).click();
    await until('another chart', async () => await first() !== hour);
    assert.match(await page.locator('#fleet-chart .chart').getAttribute('aria-label'), /last 15 minutes$/);
}));

test('the chart has six hours and two days, also after the page is loaded again, and says what is missing from them', () => onFleet(async page => {
    const choose = name => page.getByRole('group', { name: 'Time that the chart of the fleet shows' }).getByRole('button', { name }).click();
    const points = async () => (await page.locator('#fleet-chart .top-line').getAttribute('d')).split(' ').length;
    await page.reload();
    await page.locator('#fleet-chart .top-line').waitFor();
    assert.equal(await text(page, '#fleet-chart-since'), '');
    await choose('6 hours');
    await until('steps of five minutes', async () => await points() > 65);
    assert.match(await page.locator('#fleet-chart .chart').getAttribute('aria-label'), /in the last 6 hours$/);
    await choose('2 days');
    await until('the attack of yesterday', async () => /^Most was refused at [A-Z][a-z][a-z] \d\d:[03]0:00: \d+k\/s passed, 9\.0k\/s refused\.$/
        .test(await text(page, '#fleet-chart-text')));
    assert.ok(await points() > 90);
    assert.match(await text(page, '#fleet-chart-since'), /^Of a node that ended more than an hour ago, or was started again, this has nothing from before\. Started since: edge-fra-03 at .*, edge-lon-01 at .*\.$/);
    await page.locator('#fleet-chart .chart').focus();
    await page.keyboard.press('Home');
    await until('a day', async () => /^[A-Z][a-z][a-z] \d\d:\d\d:\d\d to [A-Z]/.test(await text(page, '#fleet-chart-text')));
    assert.ok((await texts(page, '#fleet-chart text[text-anchor=end]')).every(label => /^0$|\d\S*\/s$/.test(label)), 'the axis has a unit');
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(await overflowing(page), []);
}));

test('the chart marks when a limit was set, and says which', () => onFleet(async (page, mock) => {
    const marks = page.locator('#fleet-chart .mark');
    await page.locator('#fleet-chart .top-line').waitFor();
    assert.equal(await marks.count(), 0);
    const { fleet } = mock.world;
    fleet.overrides.set(JSON.stringify(['search', null]), { key: null, id: null, rate: '5r/s', reason: null, for_seconds_left: null,
        until: null, by: 'edge-fra-03 192.0.2.9', at: mock.world.time - 600 });
    await until('a mark', async () => await marks.count() === 1);
    await page.locator('#fleet-chart .chart').focus();
    await page.keyboard.press('End');
    const here = () => text(page, '#fleet-chart-text');
    for (let steps = 0; steps < 200 && !/search: 5r/.test(await here()); steps += 1) {
        await page.keyboard.press('ArrowLeft');
    }
    assert.match(await here(), /refused; then: search: 5r\/s until it is taken back$/);
}));

test('the page says when the configuration was loaded last, and what was refused before and after', () => onFleet(async (page, mock) => {
    assert.equal(await text(page, '#fleet-chart-loaded'), '');
    const { fleet } = mock.world;
    fleet.node('edge-lon-01').loaded = mock.world.time - 660;
    fleet.node('edge-mad-01').loaded = mock.world.time - 700;
    await until('the load', async () => /^Configuration loaded last at \d\d:\d\d:\d\d to \d\d:\d\d:\d\d on edge-mad-01, edge-lon-01: refused 15\/s before, \d\.\dk\/s after\.$/
        .test(await text(page, '#fleet-chart-loaded')));
    await until('its marks', async () => await page.locator('#fleet-chart .mark').count() === 2);
    await page.locator('#fleet-chart .chart').focus();
    await page.keyboard.press('End');
    const here = () => text(page, '#fleet-chart-text');
    for (let steps = 0; steps < 200 && !/loaded/.test(await here()); steps += 1) {
        await page.keyboard.press('ArrowLeft');
    }
    assert.match(await here(), /refused; then: Configuration loaded: changed search \(rate\) \(edge-mad-01, edge-lon-01\)$/);
    await page.getByRole('group', { name: 'Time that the chart of the fleet shows' }).getByRole('button', { name: '2 days' }).click();
    await until('starts, too', async () => await page.locator('#fleet-chart .mark').count() === 7);
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(await overflowing(page), []);
}));

test('nodes of an older version have no history: the chart has what the page saw', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    const json = fleet.json.bind(fleet);
    fleet.json = () => ({ ...json(), history: undefined });
    await until('the chart', async () => /^(?:Most|Nothing) was refused/.test(await text(page, '#fleet-chart-text')));
    await until('its line', () => seen(page, '#fleet-chart .top-line'));
}));

test('tables are sorted by a column, in both directions, also in a narrow window', () => onFleet(async page => {
    const zones = await names(page, 'zones');
    await page.locator('#fleet-zones').getByRole('button', { name: 'Highest use' }).click();
    assert.equal((await names(page, 'zones'))[0], 'search', 'the highest first');
    assert.equal(await page.locator('#fleet-zones [aria-sort]').getAttribute('aria-sort'), 'descending');
    await page.locator('#fleet-zones').getByRole('button', { name: 'Highest use' }).click();
    assert.equal((await names(page, 'zones')).at(-1), 'search');
    await page.locator('#fleet-zones').getByRole('button', { name: 'Zone' }).click();
    assert.deepEqual(await names(page, 'zones'), [...zones].sort());
    assert.equal((await cells(page, 'zones', 'search'))[6], '100%');

    await page.setViewportSize(NARROW.viewport);
    await page.locator('#fleet-nodes-sort').selectOption('By up for');
    assert.equal((await names(page, 'nodes'))[0], 'edge-waw-01');
    await page.locator('#fleet-nodes-sort').selectOption('As they come');
    assert.equal((await names(page, 'nodes'))[0], 'edge-fra-01');
}));

test('tables are filtered', () => onFleet(async (page, mock) => {
    await page.locator('#fleet-nodes-filter').fill('M');
    assert.deepEqual(await names(page, 'nodes'), ['edge-ams-01', 'edge-mad-01', 'edge-mil-01'].filter(name =>
        mock.world.fleet.node(name)));
    await page.locator('#fleet-nodes-filter').fill('nowhere');
    assert.equal(await text(page, '#fleet-nodes .quiet[role=status]'), 'Nothing here has “nowhere”.');
    mock.world.fleet.node('edge-lon-01').heard = mock.world.time - 200;
    await page.locator('#fleet-nodes-filter').fill('away');
    await until('the node that is away', async () => (await names(page, 'nodes')).join() === 'edge-lon-01');
    await page.locator('#fleet-keys-filter').fill('uploads');
    assert.ok((await texts(page, '#fleet-keys td:nth-child(2)')).every(zone => zone === 'uploads'));
    assert.deepEqual(await axe(page), []);
}));

test('a page of 150 nodes stays fast', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    fleet.nodes = Array.from({ length: 150 }, (_, i) => ({ ...fleet.nodes[0], name: i === 0 ? 'edge-fra-03' : `n${i}`, id: `${i}` }));
    await until('all nodes', async () => await text(page, '#fleet-count-now') === '150');
    assert.equal(await page.locator('#fleet-nodes tbody tr').count(), 50);
    await page.locator('#fleet-nodes').getByRole('button', { name: 'Show 50 more of 100' }).click();
    await until('more', async () => await page.locator('#fleet-nodes tbody tr').count() === 100);
    // The page's own work for an answer: half of its long tasks are shorter. The machine may stand still in one of them.
    const long = await page.evaluate(() => new Promise(resolve => {
        const tasks = [];
        new PerformanceObserver(list => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });
        setTimeout(() => resolve(tasks.sort((a, b) => a - b)), 40 * 2000);  // the test's clock is 40 times as fast
    }));
    const middle = long[Math.floor(long.length / 2)] ?? 0;
    assert.ok(middle < 500, `${middle} ms`);
}));

test('what is looked up is shown beside the table, and the focus goes back', () => onFleet(async page => {
    const ask = page.locator('#fleet-keys tbody tr').nth(3).getByRole('button', { name: 'Look up' });
    for (const viewport of [{ width: 1400, height: 900 }, NARROW.viewport]) {
        await page.setViewportSize(viewport);
        await ask.click();
        await until('the focus', async () => await focused(page) === 'limit-title');
        const inside = await page.locator('#limit-set button').evaluate(element => {
            const { top, bottom, left, right } = element.getBoundingClientRect();
            return top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth;
        });
        assert.ok(inside, `the form is on the screen at ${viewport.width} pixels`);
        assert.deepEqual(await axe(page), []);
        assert.deepEqual(await overflowing(page), []);
        await page.keyboard.press('Escape');
        assert.ok(!await seen(page, '#limits.beside'));
        assert.match(await page.evaluate(() => document.activeElement.textContent), /^Look up /);
    }
}));

test('a whole zone is changed from its row', () => onFleet(async (page, mock) => {
    await page.locator('#fleet-zones').getByRole('button', { name: 'Change… search' }).click();
    await until('the zone', async () => await text(page, '#limit-title') === 'All keys of search');
    await page.locator('#limit-ten').click();
    assert.equal(await text(page, '#change-title'), 'Change the limit of every key of the zone?');
    assert.match(await text(page, '#change-text'), /is 200r\/s instead of 20r\/s.* After 1 day /);
    await page.locator('#change-yes').click();
    await until('the change', () => mock.world.fleet.changes.length === 1);
    assert.deepEqual(mock.world.fleet.changes[0], ['PUT', 'search', null, { rate: '200r/s', for: '1d' }]);
}));

test('addresses lead to parts of the page, to zones and to keys', () => onFleet(async page => {
    const base = page.url().replace(/#.*/, '');
    const go = hash => page.evaluate(to => { location.hash = to; }, hash);
    await go('#nodes');
    await until('the focus', async () => await focused(page) === 'nodes');
    await go('#zone=search');
    await until('the zone', async () => await text(page, '#limit-title') === 'All keys of search');
    await go('#zone=per_ip&key=192.0.2.1');
    await until('the key', async () => await text(page, '#limit-title') === '192.0.2.1');
    await page.locator('#limit-close').click();
    assert.equal(page.url(), `${base}#fleet`);
    await page.locator('#fleet-keys tbody tr', { hasText: '203.0.113.77' }).first().getByRole('button', { name: 'Look up' }).click();
    await until('the address', () => page.url() === `${base}#zone=per_ip&id=%25CB%2500%2571M` || /#zone=per_ip&id=/.test(page.url()));
    await page.reload();
    await until('the same key', async () => await text(page, '#limit-title') === '203.0.113.77');
    await page.goto(`${base}#key=192.0.2.1`);
    await page.reload();
    await until('the zones', async () => /^192\.0\.2\.1 in \d of 8 zones, not known in 1 zone:$/.test(await text(page, '#find-text')));
    await go('#redis');
    await until('the page of the node', () => seen(page, '#zone-list'));
    await go('#zone=%3Cimg%3E&key=x');
    await until('no zone of that name: the key', () => seen(page, '#find-text'));
}, { expected: /400/ }));

test('the skip link leads to what is shown', () => onFleet(async page => {
    for (const view of ['#view-fleet', '#view-node']) {
        await page.locator(view).click();
        await page.locator('.skip').focus();
        await page.keyboard.press('Enter');
        assert.equal(await focused(page), 'main');
        await page.keyboard.press('Tab');
        assert.ok(await page.evaluate(() => document.activeElement.closest('main .view') !== null), view);
    }
}));

test('a finger finds every target', () => onFleet(async page => {
    await page.locator('#fleet-keys tbody tr').first().getByRole('button', { name: 'Look up' }).click();
    await page.locator('#limits.beside').waitFor();
    const small = await page.evaluate(() => [...document.querySelectorAll('button, input:not([type=radio]), select, a')]
        .filter(element => element.checkVisibility() && getComputedStyle(element).clipPath === 'none')
        .filter(element => element.getBoundingClientRect().height < 44).map(element => element.outerHTML.slice(0, 80)));
    assert.deepEqual(small, []);
}, NARROW));

test('dangerous changes look different, and are not kept for the next key', () => onFleet(async page => {
    const colour = selector => page.locator(selector).first().evaluate(element => getComputedStyle(element).backgroundColor);
    await page.locator('#fleet-keys').getByRole('button', { name: 'Block' }).first().click();
    const danger = await colour('#change-yes');
    await page.locator('#change-no').click();
    await page.locator('#fleet-keys').getByRole('button', { name: 'Look up' }).first().click();
    await until('the key', () => seen(page, '#limit-ten'));
    await page.locator('#limit-ten').click();
    assert.notEqual(await colour('#change-yes'), danger, 'another limit');
    await page.locator('#change-no').click();
    await page.locator('[value=block]').check();
    await page.locator('#limit-set button').click();
    assert.equal(await text(page, '#change-title'), 'Block this key?');
    assert.equal(await colour('#change-yes'), danger);
    await page.locator('#change-yes').click();
    await until('the outcome', async () => /^Changed: .*: blocked for 1 hour\.$/.test(await outcome(page)));
    await until('the first choice', () => page.locator('[value=limit]').isChecked());
    await page.locator('#fleet-zones').getByRole('button', { name: 'Change… search' }).click();
    await until('the zone', async () => await text(page, '#limit-title') === 'All keys of search');
    await page.locator('[value=unlimited]').check();
    await page.locator('#limit-set button').click();
    assert.equal(await colour('#change-yes'), danger, 'a zone without its limit');
}));

test('a key is found in all zones, with who changed it and why, and is changed there', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    fleet.overrides.set('["per_ip","%C0%00%02%01"]', { key: '192.0.2.1', id: '%C0%00%02%01', block: true, for_seconds_left: 600,
        until: mock.world.time + 600, by: 'edge-vie-01 192.0.2.8 ann', at: mock.world.time - 60, reason: 'attack <b>7</b>' });
    await page.locator('#find-key').fill(' 192.0.2.1 ');
    await page.keyboard.press('Enter');
    await until('the zones', async () => /^192\.0\.2\.1 in 7 of 8 zones, not known in 1 zone:$/.test(await text(page, '#find-text')));
    const row = page.locator('#find-list tbody tr').first();
    const [zone, limit, , passes, by] = await row.locator('th .code, td').allTextContents();
    assert.equal(zone, 'per_ip', 'where it is blocked comes first');
    assert.match(limit, /^blocked until \d\d:\d\d:\d\d, configured 100r\/m$/);
    assert.equal(passes, 'Blocked');
    assert.match(by, /^by edge-vie-01 192\.0\.2\.8 ann at \d\d:\d\d:\d\d: attack <b>7<\/b>$/);
    assert.deepEqual(await axe(page), []);
    await row.getByRole('button', { name: 'Take back' }).click();
    await page.locator('#change-yes').click();
    await until('no change', async () => (await page.locator('#find-list tbody td:nth-child(5)').allTextContents())
        .every(changed => changed === 'Not changed'));
    assert.deepEqual(fleet.changes, [['DELETE', 'per_ip', '%C0%00%02%01', '']]);

    await page.locator('#find-key').fill('gold-4711');
    await page.keyboard.press('Enter');
    await until('the zones', async () => /^gold-4711 in \d of 8 zones:$/.test(await text(page, '#find-text')));
    assert.ok(!(await texts(page, '#find-list tbody th .code')).includes('per_ip'), 'no zone of addresses has such a key');
    const gold = page.locator('#find-list tbody tr', { hasText: 'per_key' });
    await gold.getByRole('button', { name: '10 times more' }).click();
    assert.match(await text(page, '#change-text'), /^The limit of this key is 500r\/s.* After 1 day /);
    await page.locator('#change-yes').click();
    await until('the change', () => fleet.changes.length === 2);
    assert.deepEqual(fleet.changes[1], ['PUT', 'per_key', 'gold-4711', { rate: '500r/s', burst: 500, for: '1d' }]);
    await gold.getByRole('button', { name: 'Open' }).click();
    await until('the key', async () => /Changed to500r\/s, burst 500/.test(await state(page)));
    fleet.connected = false;
    await until('nothing to change', () => page.locator('#find-list').getByRole('button', { name: 'Block' }).first().isDisabled());
}, { expected: /400|503/ }));

test('what was found follows the state, whoever changes it', () => onFleet(async (page, mock) => {
    const { fleet } = mock.world;
    await page.locator('#find-key').fill('gold-4711');
    await page.keyboard.press('Enter');
    const row = page.locator('#find-list tbody tr', { hasText: 'per_key' });
    const by = () => row.locator('td').nth(3).textContent();
    await until('the row', async () => await row.count() === 1 && await by() === 'Not changed');
    fleet.overrides.set('["per_key","gold-4711"]', { key: 'gold-4711', id: 'gold-4711', block: true, for_seconds_left: 600,
        until: mock.world.time + 600, by: 'edge-vie-01 192.0.2.8 ann', at: mock.world.time, reason: null });
    await until('a block of another operator', async () => /^by edge-vie-01 192\.0\.2\.8 ann/.test(await by()));
    assert.equal(await row.locator('td').nth(2).textContent(), 'Blocked');
    fleet.overrides.clear();
    await until('its end', async () => await by() === 'Not changed');
}, { expected: /400/ }));

test('settings that differ are named, and nodes that do not say which', () => onFleet(async (page, mock) => {
    mock.world.fleet.node('edge-vie-01').differs = ['per_ip'];
    await until('the setting', async () => (await cells(page, 'zones', 'per_ip'))[7] === 'Differ: rate on edge-vie-01');
    assert.equal((await cells(page, 'nodes', 'edge-vie-01'))[8], 'Differ: per_ip (rate, 7r/s)');
    mock.world.fleet.says = false;
    await until('the node', async () => (await cells(page, 'zones', 'per_ip'))[7] === 'Differ: on edge-vie-01');
}));

test('what had no answer in a search is shown as such, and a block of an operator is one', () => onFleet(async (page, mock) => {
    const { fleet, mute } = mock.world;
    fleet.overrides.set('["per_key","gold-4711"]', { key: 'gold-4711', id: 'gold-4711', block: true, for_seconds_left: 600,
        until: mock.world.time + 600, by: 'edge-vie-01 192.0.2.8 ann', at: mock.world.time - 60, reason: null });
    fleet.silent.add('per_key');
    await page.locator('#find-key').fill('gold-4711');
    await page.keyboard.press('Enter');
    const row = page.locator('#find-list tbody tr', { hasText: 'per_key' });
    await until('the row', async () => await row.count() === 1 && await row.locator('td').nth(2).textContent() === 'Blocked');
    assert.deepEqual((await row.locator('td').allTextContents()).filter((_, i) => [0, 3].includes(i)),
        ['$plan_rate, if it was not changed', 'Not known by whom: Redis does not answer']);
    fleet.silent.clear();

    for (const name of ['per_ip', 'login']) {
        mute.add(name);
        fleet.silent.add(name);
    }
    await page.locator('#find-key').fill('192.0.2.1');
    await page.keyboard.press('Enter');
    await until('the zones', async () => await text(page, '#find-text') === '192.0.2.1 in 5 of 8 zones, not known in 3 zones:');
    const silent = await page.locator('#find-list tbody tr', { hasText: 'login' }).locator('td').allTextContents();
    assert.deepEqual(silent.slice(1, 4), ['–', 'Not known: Redis does not answer', 'Not known: Redis does not answer']);
    mock.fails = 503;
    await page.locator('#find-key').fill('192.0.2.7');
    await page.keyboard.press('Enter');
    await until('nothing known', async () => /^It is not known whether anything is counted under 192\.0\.2\.7: /.test(await text(page, '#find-text')));
    mock.fails = null;
}, { expected: /400|503/ }));

test('a key that no request has is none, and those that are like it are offered', () => onFleet(async (page, mock) => {
    mock.world.unused.add('gold-4717');
    const rated = mock.world.key.bind(mock.world);
    mock.world.key = (name, argument, value, rate) => rated(name, argument, value, name === 'per_key' ? rate ?? '50r/s' : rate);
    await page.locator('#find-key').fill('gold-4717');
    await page.keyboard.press('Enter');
    await until('nothing', async () => /^Nothing is counted under gold-4717 in any zone now/.test(await text(page, '#find-text')));
    const near = page.locator('#find-near').getByRole('button', { name: 'gold-4711' });
    assert.deepEqual(await axe(page), []);
    await near.click();
    await until('the other key', async () => /^gold-4711 in \d of 8 zones/.test(await text(page, '#find-text')));
    assert.ok(!await seen(page, '#find-near'));
}, { expected: /400/ }));

test('buttons that do nothing look so and say why', () => onFleet(async (page, mock) => {
    const block = page.locator('#fleet-keys').getByRole('button', { name: 'Block' }).first();
    const look = () => block.evaluate(element => getComputedStyle(element).borderStyle);
    const before = await look();
    mock.world.fleet.connected = false;
    await until('disabled', () => block.isDisabled());
    assert.notEqual(await look(), before);
    assert.equal(await block.getAttribute('title'), 'Nothing can be changed while Redis does not answer.');
    mock.world.fleet.connected = true;
    await until('enabled', () => block.isEnabled());
    assert.equal(await block.getAttribute('title'), null);
}, { expected: /503/ }));

test('an outage is in the sums and on the chart, also after it', () => onFleet(async (page, mock) => {
    assert.ok(!await seen(page, '#fleet-chart .area.failed_open'));
    mock.world.fleet.undecided = 3;
    await until('the sum', async () => /^\d+\/s of them without a decision$/.test(await text(page, '#fleet-passed-more')));
    assert.match(await text(page, '#fleet-chart-text'), /Requests passed without a decision from \d\d:\d\d:00 to /);
    assert.ok(await seen(page, '#fleet-chart .area.failed_open'));
    assert.deepEqual(await axe(page), []);
}));

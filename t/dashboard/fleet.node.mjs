// The page of the fleet as real nodes serve it; node.pl starts them. RATELIMIT_FLEET has their addresses.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axe, open, start, text, texts, until } from './browser.mjs';

const NODES = process.env.RATELIMIT_FLEET.split(' ');
let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

// How many of `times` requests for a key pass on a node.
async function passed(node, key, times) {
    let all = 0;
    for (let i = 0; i < times; i += 1) {
        all += (await fetch(`${NODES[node]}/api/?k=${key}`)).ok ? 1 : 0;
    }
    return all;
}

const state = async page => (await texts(page, '#limit-state > div')).join('; ');

test('a change on the page of one node is in force on the others', async () => {
    const page = await open(browser, `${NODES[0]}/ratelimit/`);
    await page.locator('#view-fleet').click();
    await until('three nodes', async () => await text(page, '#fleet-count-now') === '3');
    assert.deepEqual((await texts(page, '#fleet-nodes tbody th')), ['edge-1 this node', 'edge-2', 'edge-3']);
    assert.equal(await passed(1, 'gold', 5), 3);

    await page.locator('#limit-key').fill('gold');
    await page.locator('#limit-find button').click();
    await until('the state', async () => /Configured3r\/d; Changed tonot changed; Remaining0 of 3/.test(await state(page)));
    await page.locator('#limit-rate').fill('8r/d');
    await page.locator('#limit-set button').click();
    await page.locator('#change-yes').click();
    await until('the change', async () => /Changed to8r\/d, for another (?:1 h|60 min), set by edge-1 127\.0\.0\.1/.test(await state(page)));
    await until('it to be in force', async () => await passed(2, 'gold', 1) === 1);
    await until('the number of changes', async () => await text(page, '#fleet-changed-now') === '1');
    assert.deepEqual(await axe(page), []);

    await page.locator('[value=block]').check();
    await page.locator('#limit-set button').click();
    await page.locator('#change-yes').click();
    await until('the block', async () => /Changed toblocked/.test(await state(page)));
    await until('it to be in force', async () => await passed(1, 'gold', 1) === 0);
    await until('the busiest key', async () => (await texts(page, '#fleet-keys tbody tr')).some(row => row.startsWith('gold')));

    await page.locator('#limit-back').click();
    await page.locator('#change-yes').click();
    await until('no change', async () => /Changed tonot changed/.test(await state(page)));
    await page.locator('#limit-free').click();
    await page.locator('#change-yes').click();
    await until('the outcome', async () => /^Freed gold in per_key\.$/.test(await text(page, '#outcome-text')));
    await until('the limit of the configuration', async () => await passed(2, `other${Date.now()}`, 5) === 3);
    await until('the key to be free', async () => await passed(1, 'gold', 1) === 1);
    await page.finish();
});

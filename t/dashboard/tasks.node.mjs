// Five tasks of an operator, on three real nodes that node.pl starts: each from the start page, with its clicks and its
// time, which doc/operations.md has. SHOTS names a folder for pictures of the page.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { join } from 'node:path';

import { open, start, text, texts, until } from './browser.mjs';

const NODES = process.env.RATELIMIT_FLEET.split(' ');
const MOST_CLICKS = 3;
const WINDOWS = { wide: { width: 1400, height: 900 }, narrow: { width: 390, height: 844 } };

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const request = (node, path, client = '192.0.2.1') => fetch(`${NODES[node]}${path}`, { headers: { 'x-real-ip': client } });

// How many of `times` requests pass on a node.
async function passed(node, path, times, client) {
    let all = 0;
    for (let i = 0; i < times; i += 1) {
        all += (await request(node, path, client)).ok ? 1 : 0;
    }
    return all;
}

// An attack by a client, on all nodes, until it is ended. Returns what ends it.
function attack(client) {
    let goes = true;
    const ended = (async () => {
        for (let i = 0; goes; i += 1) {
            await request(i % NODES.length, '/site/', client);
            await new Promise(resolve => setTimeout(resolve, 20));
        }
    })();
    return () => {
        goes = false;
        return ended;
    };
}

// The page from its start, with a hand that counts its clicks. Typing and the Enter key are no clicks; the click into the
// field is one.
async function operate(name, viewport, play) {
    let clicks = 0;
    const began = performance.now();
    const page = await open(browser, `${NODES[0]}/ratelimit/`, { viewport, expected: /400/ });
    const hand = {
        click: async locator => {
            clicks += 1;
            await locator.click();
        },
        type: async (locator, words) => {
            await hand.click(locator);
            await page.keyboard.type(words);
            await page.keyboard.press('Enter');
        },
    };
    await play(page, hand);
    const seconds = (performance.now() - began) / 1000;
    console.log(`# ${viewport.width} px: ${name}: ${clicks} clicks, ${seconds.toFixed(1)} s`);
    assert.ok(clicks <= MOST_CLICKS, `${clicks} clicks`);
    if (process.env.SHOTS) {
        await page.screenshot({ path: join(process.env.SHOTS, `${name.replace(/\W+/g, '-')}-${viewport.width}.png`) });
    }
    await page.finish();
}

const find = page => page.locator('#find-key');
const found = (page, zone) => page.locator('#find-list tbody tr', { hasText: zone });

for (const [size, viewport] of Object.entries(WINDOWS)) {
    const number = size === 'wide' ? 1 : 2;
    const attacker = `203.0.113.${number}`;
    const customer = `198.51.100.${number}`;
    const gold = `gold-${size}`;
    const row = page => page.locator('#fleet-keys tbody tr', { hasText: attacker });

    test(`who is attacking, and blocking them: ${size}`, async () => {
        const end = attack(attacker);
        try {
            await operate('who is attacking', viewport, async page => {
                await until('the attacker', async () =>
                    parseFloat(await row(page).locator('td').nth(1).textContent({ timeout: 500 }).catch(() => '0')) > 0, 60);
                assert.equal(await row(page).locator('td').first().textContent(), 'per_ip');
                assert.match(await row(page).locator('td').nth(3).textContent(), /^\d\d:\d\d:\d\d$/, 'since when');
            });
            await operate('block them', viewport, async (page, hand) => {
                await hand.click(row(page).getByRole('button', { name: 'Block' }));
                await hand.click(page.locator('#change-yes'));
                await until('the outcome', async () => await text(page, '#outcome-text') === `Changed: ${attacker} in per_ip: blocked for 1 hour.`);
            });
        } finally {
            await end();
        }
        // A key that is blocked has no request left, on any node, whatever its count.
        await until('the block on another node', async () => {
            const { overrides } = await (await fetch(`${NODES[1]}/ratelimit/zones/per_ip/overrides`)).json();
            return overrides.some(({ key, block }) => key === attacker && block);
        });
        assert.equal(await passed(2, '/site/', 3, attacker), 0);
    });

    test(`who blocked this customer, and why: ${size}`, async () => {
        const answer = await fetch(`${NODES[1]}/ratelimit/zones/per_ip/keys/override?key=${customer}&user=ann`,
            { method: 'PUT', body: JSON.stringify({ block: true, for: '1d', reason: 'ticket 4711' }) });
        assert.equal(answer.status, 200);
        await operate('who blocked this customer', viewport, async (page, hand) => {
            await hand.type(find(page), customer);
            await until('the answer', async () => /by edge-2 127\.0\.0\.1 ann at \d\d:\d\d:\d\d: ticket 4711$/
                .test((await found(page, 'per_ip').locator('td').nth(3).textContent({ timeout: 500 }).catch(() => '')).trim()));
            assert.equal(await found(page, 'per_ip').locator('td').nth(2).textContent(), 'Blocked');
        });
    });

    test(`ten times more for a customer until tomorrow: ${size}`, async () => {
        assert.equal(await passed(1, `/api/?k=${gold}`, 5), 3);
        await operate('ten times more until tomorrow', viewport, async (page, hand) => {
            await hand.type(find(page), gold);
            await hand.click(found(page, 'per_key').getByRole('button', { name: '10 times more' }));
            assert.match(await text(page, '#change-text'), /^The limit of this key is 30r\/d instead of 3r\/d, on all 3 nodes.* After 1 day /);
            await hand.click(page.locator('#change-yes'));
            await until('the outcome', async () => await text(page, '#outcome-text') === `Changed: ${gold} in per_key: 30r/d for 1 day.`);
        });
        await until('the limit on another node', async () => await passed(2, `/api/?k=${gold}`, 1) === 1);
        assert.equal(await passed(0, `/api/?k=${gold}`, 20), 20);
    });

    test(`is a limit too tight: ${size}`, async () => {
        assert.equal(await passed(1, `/search/?k=${gold}`, 18), 18);
        await operate('is a limit too tight', viewport, async page => {
            const search = page.locator('#fleet-zones tbody tr', { hasText: 'search' });
            await until('the highest use', async () =>
                await search.locator('td').nth(5).textContent({ timeout: 500 }).catch(() => '') === '90%');
            assert.equal(await search.locator('td').nth(4).textContent(), '0', 'none was refused');
        });
    });
}

test('the nodes are called by their names everywhere, and the chart has what was before the page', async () => {
    const page = await open(browser, `${NODES[2]}/ratelimit/`);
    await until('the nodes', async () => (await texts(page, '#fleet-nodes tbody th')).join() === 'edge-1,edge-2,edge-3 this node');
    assert.equal(await text(page, '#node'), 'edge-3');
    const { history } = await (await fetch(`${NODES[2]}/ratelimit/fleet`)).json();
    assert.equal(history.step, 60);
    assert.ok(history.refused.reduce((sum, minute) => sum + minute, 0) > 10, 'what was refused');
    await page.finish();
});

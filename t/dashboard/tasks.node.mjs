// Five tasks of an operator, on three real nodes that node.pl starts: each from the start page, with its clicks and its
// time, which doc/operations.md has. night.node.mjs has more.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { open, text, texts, until } from './browser.mjs';
import { NODES, WINDOWS, attack, browser, operate, passed } from './operator.mjs';

const find = page => page.locator('#find-key');
const cells = async (row, ...columns) => {
    const all = await row.locator('td').allTextContents();
    return columns.map(column => all[column] ?? '');
};
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
            }, page => cells(row(page), 0, 3));
            await operate('block them', viewport, async (page, hand) => {
                await hand.click(row(page).getByRole('button', { name: 'Block' }));
                await hand.click(page.locator('#change-yes'));
                await until('the outcome', async () => await text(page, '#outcome-text') === `Changed: ${attacker} in per_ip: blocked for 1 hour.`);
            }, page => row(page).locator('.in-force').textContent());
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
        }, page => cells(found(page, 'per_ip'), 0, 2, 3));
    });

    test(`ten times more for a customer until tomorrow: ${size}`, async () => {
        assert.equal(await passed(1, `/api/?k=${gold}`, 5), 3);
        await operate('ten times more until tomorrow', viewport, async (page, hand) => {
            await hand.type(find(page), gold);
            await hand.click(found(page, 'per_key').getByRole('button', { name: '10 times more' }));
            assert.match(await text(page, '#change-text'), /^The limit of this key is 30r\/d instead of 3r\/d, on all 3 nodes.* After 1 day /);
            await hand.click(page.locator('#change-yes'));
            await until('the outcome', async () => await text(page, '#outcome-text') === `Changed: ${gold} in per_key: 30r/d for 1 day.`);
        }, page => cells(found(page, 'per_key'), 0, 3));
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
        }, page => cells(page.locator('#fleet-zones tbody tr', { hasText: 'search' }), 0, 4, 5));
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

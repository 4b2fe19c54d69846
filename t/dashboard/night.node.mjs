// More tasks of an operator, of a night with faults: see tasks.node.mjs. node.pl names the processes to stop and to reload.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';

import { text, texts, until } from './browser.mjs';
import { NODES, WINDOWS, attack, operate, passed, request } from './operator.mjs';

const PIDS = process.env.RATELIMIT_FLEET_PIDS.split(' ').map(Number);
const CONFS = process.env.RATELIMIT_FLEET_CONFS.split(' ');
const EDGE_2 = 1;
const REDIS = Number(process.env.RATELIMIT_FLEET_REDIS_PID);
const NIGHT = 13;  // changes

const get = async (node, path) => (await fetch(`${NODES[node]}/ratelimit/${path}`)).json();
const nodeRow = (page, name) => page.locator('#fleet-nodes tbody tr', { hasText: name });
const happened = (page, what) => page.locator('#happened-list tbody tr', { hasText: what }).first();
const cell = (row, column) => row.locator('td').nth(column).textContent({ timeout: 500 }).catch(() => '');

// Reloads a node with another text in its nginx.conf.
function reload(node, former, text) {
    writeFileSync(CONFS[node], readFileSync(CONFS[node], 'utf8').replace(former, text));
    process.kill(PIDS[node], 'SIGHUP');
}

// A deploy that refuses much: the page knows its effect from the next minute on.
test('did the deploy change it', async () => {
    await until('a whole minute before it', async () => (await get(0, 'fleet')).history.passed.length > 1, 70);
    NODES.forEach((_, node) => reload(node, 'zone=per_ip rate=30r/m', 'zone=per_ip rate=3r/m'));
    const end = attack('198.51.100.9');
    try {
        for (const viewport of Object.values(WINDOWS)) {
            await operate('did the deploy change it', viewport, async page => {
                const [, before, afterwards] = await until('its effect', async () =>
                    /^Configuration loaded last at \d\d:\d\d:\d\d(?: to \d\d:\d\d:\d\d)? on edge-\d, edge-\d, edge-\d: refused ([\d.]+)\/s before, ([\d.]+)\/s after\.$/
                        .exec(await text(page, '#fleet-chart-loaded')), 150);
                assert.ok(Number(afterwards) > Number(before), `${before} before, ${afterwards} after`);
                const row = happened(page, 'Configuration loaded: changed per_ip (rate)');
                assert.match(await cell(row, 1), /^edge-\d, edge-\d, edge-\d$/);
                assert.equal(await cell(row, 3), `${afterwards}/s`);
            }, async page => (await text(page, '#fleet-chart-loaded')).replace(/:\d\d(?= )|[\d.]+\/s after/g, ''));
        }
    } finally {
        await end();
    }
});

for (const [size, viewport] of Object.entries(WINDOWS)) {
    test(`which node is different: ${size}`, async () => {
        const [right, wrong] = ['zone=search rate=20r/d', 'zone=search rate=10r/d'];
        reload(EDGE_2, right, wrong);
        try {
            await operate('which node is different', viewport, async page => {
                await until('its name', async () => await text(page, '#fleet-differ')
                    === 'Settings differ between nodes, so that limits are not what one configuration says: search (rate on edge-2).', 30);
                assert.equal(await cell(nodeRow(page, 'edge-2'), 7), 'Differ: search (rate, 10r/d)');
                assert.equal(await cell(nodeRow(page, 'edge-1'), 7), 'As the others');
            }, page => Promise.all([text(page, '#fleet-differ'), cell(nodeRow(page, 'edge-2'), 7)]));
        } finally {
            reload(EDGE_2, wrong, right);
        }
        await until('no difference', async () => (await get(0, 'fleet')).zones.every(({ differ }) => differ === 0), 30);
    });

    test(`which node is missing: ${size}`, async () => {
        process.kill(-PIDS[EDGE_2], 'SIGSTOP');
        try {
            await operate('which node is missing', viewport, async page => {
                await until('its name', async () => /^Away for \d+ s$/.test(await cell(nodeRow(page, 'edge-2'), 0)), 30);
                assert.equal(await text(page, '#fleet-count-now'), '2');
                assert.equal(await text(page, '#fleet-count-more'), '1 not heard of for 5 seconds');
            }, async page => [await text(page, '#fleet-count-now'), (await cell(nodeRow(page, 'edge-2'), 0)).replace(/\d+ .*/, ''),
                await cell(nodeRow(page, 'edge-1'), 0), await cell(nodeRow(page, 'edge-3'), 0)]);
        } finally {
            process.kill(-PIDS[EDGE_2], 'SIGCONT');
        }
        await until('the node', async () => (await get(0, 'fleet')).fleet.nodes === 3, 30);
    });

    test(`what happened during the outage: ${size}`, async () => {
        process.kill(REDIS, 'SIGSTOP');
        let during;
        try {
            await until('requests without a decision', async () => {
                await Promise.all([0, 1, 2].map(node => request(node, '/site/', `192.0.2.${node}`)));
                during = new Date().toTimeString().slice(0, 5);
                const away = await Promise.all([0, 1, 2].map(async node => !(await get(node, 'fleet')).fleet.connected));
                return away.every(is => is) && /result="failed_open"\} [1-9]/.test(await (await fetch(`${NODES[0]}/ratelimit/metrics`)).text());
            }, 60);
        } finally {
            process.kill(REDIS, 'SIGCONT');
        }
        await until('Redis', async () => (await get(0, 'fleet')).fleet.connected && (await get(2, 'fleet')).fleet.connected, 30);
        await operate('what happened during the outage', viewport, async page => {
            const [, from, to] = await until('when requests passed without a decision', async () =>
                / Requests passed without a decision from (\d\d:\d\d)\S* to (\d\d:\d\d)\S*\.$/.exec(await text(page, '#fleet-chart-text')), 90);
            assert.ok(from <= during && during <= to, `${from} to ${to}, ${during}`);
            const row = happened(page, /Redis main did not answer/);
            await until('when Redis was away', async () => /^edge-\d, edge-\d, edge-\d$/.test(await cell(row, 1)), 30)
                .catch(async error => assert.fail(`${error.message}: ${(await texts(page, '#happened-list tbody tr')).join('; ')}`));
        }, async page => [(await text(page, '#fleet-chart-text')).match(/ Requests passed .*? from \d\d:\d\d/)?.[0] ?? '',
            await happened(page, /Redis main did not answer/).textContent()]);
    });

    test(`undo the night: ${size}`, async () => {
        for (let i = 0; i < NIGHT; i += 1) {
            const answer = await fetch(`${NODES[i % 3]}/ratelimit/zones/per_key/keys/override?key=night-${i}&user=ann`,
                { method: 'PUT', body: JSON.stringify({ block: true, reason: 'an attack' }) });
            assert.equal(answer.status, 200);
        }
        const { length } = (await get(0, 'overrides?limit=1000')).overrides;
        assert.ok(length >= NIGHT);
        const last = `night-${NIGHT - 1}`;
        await until('the last block on another node', async () => (await get(2, `zones/per_key/keys?key=${last}`)).override === 'block');
        assert.equal(await passed(2, `/api/?k=${last}`, 1), 0);
        await operate('undo the night', viewport, async (page, hand) => {
            await until('the changes', async () => (await texts(page, '#changes-list tbody tr')).length === length);
            await hand.click(page.locator('#changes-choose'));
            assert.equal(await text(page, '#changes-back'), `Take back ${length}…`);
            await hand.click(page.locator('#changes-back'));
            await hand.click(page.locator('#change-yes'));
            await until('the outcome', async () => await text(page, '#changes-none') === 'No limit is changed.');
        }, page => text(page, '#changes-none'));
        await until('the limits of the configuration', async () => await passed(2, `/api/?k=${last}`, 1) === 1);
    });
}

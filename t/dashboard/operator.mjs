// An operator who has the page of the fleet alone, on three real nodes that node.pl starts: the clicks and the time of a task,
// and whether a colleague, who opens the same address on another node, sees the same. SHOTS names a folder for pictures.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { join } from 'node:path';

import { open, start, until } from './browser.mjs';

export const NODES = process.env.RATELIMIT_FLEET.split(' ');
const MOST_CLICKS = 3;
export const WINDOWS = { wide: { width: 1400, height: 900 }, narrow: { width: 390, height: 844 } };

export let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

export const request = (node, path, client = '192.0.2.1') => fetch(`${NODES[node]}${path}`, { headers: { 'x-real-ip': client } });

// How many of `times` requests pass on a node.
export async function passed(node, path, times, client) {
    let all = 0;
    for (let i = 0; i < times; i += 1) {
        all += (await request(node, path, client)).ok ? 1 : 0;
    }
    return all;
}

// An attack by a client, on all nodes, until it is ended. Returns what ends it.
export function attack(client) {
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
// field is one. `facts`: of a page, what two who look at once must both see.
export async function operate(name, viewport, play, facts) {
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
    const other = await open(browser, `${NODES[2]}/ratelimit/${new URL(page.url()).hash}`, { viewport, expected: /400/ });
    let both;
    await until('a colleague to see the same', async () => {
        both = [await facts(page), await facts(other)].map(seen => JSON.stringify(seen));
        return both[0] === both[1] && !/^(?:""|\[\])$/.test(both[0]);
    }, 20).catch(error => assert.fail(`${error.message}: ${both.join(' and ')}`));
    await other.finish();
    await page.finish();
}


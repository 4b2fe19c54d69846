// The page of a fleet in a browser, for the files of its tests. Each of them has a browser of its own.

import { after, before } from 'node:test';

import { onScenario, start, text, texts, until } from './browser.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

// The page of the fleet, once it shows rates.
export const onFleet = (run, { scenario = 'ten', ...options } = {}) => onScenario(browser, scenario, async (page, mock) => {
    await page.locator('#view-fleet').click();
    await until('rates', async () => /^\d.*\/s$/.test(await text(page, '#fleet-passed-now')));
    await run(page, mock);
}, options);

export const rowOf = (page, table, name) => page.locator(`#fleet-${table} tbody tr`, { hasText: name });
export const cells = async (page, table, name) => rowOf(page, table, name).locator('th, td').allTextContents();
export const outcome = page => text(page, '#outcome-text');

// Looks a key up in a zone; an empty key: the zone.
export async function lookUp(page, zone, key) {
    await page.locator('#limit-zone').selectOption(zone);
    await page.locator('#limit-key').fill(key);
    await page.locator('#limit-find button').click();
    await page.locator('#limit-found').waitFor();
}
export const state = async page => (await texts(page, '#limit-state > div')).join('; ');

// Sends the form; returns the text of the question. `asked`: how long the change lasts, and why.
export async function change(page, answer = '#change-yes', { lasts = null, reason = '' } = {}) {
    await page.locator('#limit-set button').click();
    await page.locator('#change-reason').fill(reason);
    if (lasts) {
        await page.locator('#change-lasts').selectOption(lasts);
    }
    const question = await text(page, '#change-text');
    await page.locator(answer).click();
    return question;
}

// Pauses the page, and waits until none of its requests is on its way: what the mock changes then is not what it shows.
export async function pause(page) {
    await page.locator('#pause').click();
    let quiet = 0;  // a request may follow one that has just ended
    await until('no request', () => {
        quiet = page.flying.size === 0 ? quiet + 1 : 0;
        return quiet > 10;
    });
}

// Another page than that of ten nodes.
export const onNode = (scenario, run) => onScenario(browser, scenario, run);

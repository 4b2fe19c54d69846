// Screenshots of the page in each of its states: node shots.mjs FOLDER [name...]
// Those of the documents: see pictures.test.mjs.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { start, text, until } from './browser.mjs';
import { serve } from './mock.mjs';

const NARROW = { width: 360, height: 780 };
const DARK = { colorScheme: 'dark' };

const fail = async (page, mock) => {
    mock.fails = 502;
    await page.locator('#notice.shown').waitFor();
};

const ask = page => page.locator('.busiest tbody tr').nth(1).getByRole('button', { name: 'Free' }).click();

const refuse = async (page, mock) => {
    mock.world.free = () => [503, { error: 'Redis does not answer' }];
    await ask(page);
    await page.locator('#free-yes').click();
    await page.locator('#outcome.shown').waitFor();
};

const fleet = async (page, mock) => {
    Object.assign(mock.world.fleet.node('edge-vie-01'), { differs: ['login'] });
    mock.world.fleet.node('edge-mad-01').heard = mock.world.time - 200;
    await page.locator('#view-fleet').click();
    await page.locator('#fleet-nodes tbody tr').first().waitFor();
    await until('rates', async () => /^\d.*\/s$/.test(await text(page, '#fleet-passed-now')));
    await page.locator('#limit-zone').selectOption('per_key');
    await page.locator('#limit-key').fill('gold-4711');
    await page.locator('#limit-find button').click();
    await page.locator('#limit-found').waitFor();
    await page.locator('#limit-rate').fill('1000r/m');
    await page.locator('#limit-set button').click();
    await page.locator('#change-yes').click();
    await page.locator('#limit-back').waitFor();
    await page.locator('#outcome-close').click();
};

const days = page => page.locator('.choice', { hasText: '2 days' }).first().click();

// name: [scenario, options of the browser's context, what to do before].
const PICTURES = {
    light: ['fleet'],
    first: ['fleet', { viewport: { width: 1280, height: 824 } }],
    dark: ['fleet', DARK],
    medium: ['fleet', { viewport: { width: 860, height: 900 } }],
    narrow: ['fleet', { viewport: NARROW }],
    empty: ['empty'],
    unknown: ['unknown'],
    memory: ['memory'],
    away: ['away'],
    'away-dark': ['away', DARK],
    'away-narrow': ['away', { viewport: NARROW }],
    many: ['many'],
    'many-dark': ['many', DARK],
    hostile: ['hostile'],
    question: ['fleet', {}, ask],
    'question-dark': ['fleet', DARK, ask],
    'question-alone': ['memory', {}, ask],
    freed: ['fleet', {}, async page => {
        await ask(page);
        await page.locator('#free-yes').click();
        await page.locator('#outcome.shown').waitFor();
    }],
    'not-freed': ['fleet', {}, refuse],
    'not-freed-dark': ['fleet', DARK, refuse],
    several: ['balanced'],
    'several-dark': ['balanced', DARK],
    'several-narrow': ['balanced', { viewport: NARROW }],
    point: ['fleet', DARK, async page => {
        await page.locator('.chart').first().focus();
        for (let i = 0; i < 50; i += 1) {
            await page.keyboard.press('ArrowLeft');
        }
    }],
    ten: ['ten', {}, fleet],
    'ten-dark': ['ten', DARK, fleet],
    'ten-narrow': ['ten', { viewport: NARROW }, fleet],
    'ten-question': ['ten', {}, async (page, mock) => {
        await fleet(page, mock);
        await page.locator('#limit-back').click();
    }],
    days: ['fleet', {}, days],
    'no-answer': ['fleet', {}, fail],
    'no-answer-dark': ['fleet', DARK, fail],
};
const WHOLE = ['ten', 'ten-dark', 'ten-narrow', 'days', 'unknown', 'light', 'dark', 'medium', 'narrow', 'away', 'away-dark', 'away-narrow',
    'many', 'many-dark', 'hostile'];

// Simulates five minutes in a few seconds: the page sends 80 times as many requests, and the node's
// clock moves on by two seconds with each.
// Returns the page, with what closes it.
export async function show(browser, name) {
    const [scenario, options = {}, before = () => {}] = PICTURES[name];
    const mock = await serve(scenario);
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
    const page = await context.newPage();
    await page.addInitScript(() => {
        const real = window.setTimeout;
        window.setTimeout = (run, ms, ...rest) => real(run, ms > 500 && ms < 14000 ? ms / 80 : ms, ...rest);
    });
    await page.route('**/zones', route => {
        mock.world.move(2);
        return route.continue();
    });
    await page.goto(mock.url);
    const begun = mock.world.time;
    await until('five minutes of traffic', () => mock.fails || mock.world.time - begun > 300, 120);
    await before(page, mock);
    await page.waitForTimeout(300);
    page.end = async () => {
        await context.close();
        await mock.close();
    };
    return page;
}

export const picture = (page, name) => page.screenshot({ fullPage: WHOLE.includes(name) });

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const [folder, ...names] = process.argv.slice(2);
    if (!folder) {
        throw new Error('node shots.mjs FOLDER [name...]');
    }
    mkdirSync(folder, { recursive: true });
    const browser = await start();
    for (const name of names.length > 0 ? names : Object.keys(PICTURES)) {
        const page = await show(browser, name);
        writeFileSync(join(folder, `${name}.png`), await picture(page, name));
        await page.end();
    }
    await browser.close();
}

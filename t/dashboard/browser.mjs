// A browser for the tests, and pages in it that report what went wrong in them.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

import { chromium } from 'playwright-core';

import { serve } from './mock.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const start = () => chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});

// Opens the page. Options: those of a browser context; `fast`, which shortens the time between
// responses and the pauses of the back-off 40 times; `expected`, a pattern of console messages that
// are allowed; `prepare`, a script to run in the page before its own.
export async function open(browser, url, { fast = false, expected = null, prepare = null, ...options } = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    const faults = [];
    page.on('console', message => {
        if (['error', 'warning'].includes(message.type()) && !expected?.test(message.text())) {
            faults.push(`console: ${message.text()}`);
        }
    });
    page.on('pageerror', error => faults.push(`error: ${error.stack}`));
    page.on('dialog', dialog => faults.push(`dialog: ${dialog.message()}`));
    page.flying = new Set();  // requests that have no answer yet
    ['requestfinished', 'requestfailed'].forEach(end => page.on(end, request => page.flying.delete(request)));
    page.on('request', request => {
        page.flying.add(request);
        const there = request.url();
        if (!there.startsWith(url.replace(/#.*/, '')) && !there.startsWith('data:image/')) {
            faults.push(`request to elsewhere: ${there}`);
        }
    });
    await page.addInitScript(() => {
        window.violations = [];
        document.addEventListener('securitypolicyviolation', event =>
            window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
    });
    if (fast) {
        await page.addInitScript(() => {
            const real = window.setTimeout;
            window.setTimeout = (run, ms, ...rest) => real(run, ms / 40, ...rest);
        });
    }
    if (prepare) {
        await page.addInitScript(prepare);
    }
    await page.goto(url);
    // To be called at the end of each test: fails if anything went wrong in the page.
    page.finish = async () => {
        const violations = await page.evaluate(() => window.violations);
        // A test's route may still wait for a response.
        await page.unrouteAll({ behavior: 'ignoreErrors' });
        await context.close();
        assert.deepEqual([...faults, ...violations.map(text => `policy: ${text}`)], []);
    };
    return page;
}

// Runs a test with the page on its own mock of the API, with responses 40 times as often as usual.
export async function onScenario(browser, name, run, options = {}) {
    const mock = await serve(name);
    try {
        const page = await open(browser, mock.url, { fast: true, ...options });
        await page.locator('#live:is(.fine, .failing)').waitFor();
        await run(page, mock);
        await page.finish();
    } finally {
        await mock.close();
    }
}

export const text = (page, selector) => page.locator(selector).first().textContent();
export const texts = (page, selector) => page.locator(selector).allTextContents();
export const seen = (page, selector) => page.locator(selector).first().isVisible();

// Waits until the function, run in the test's process, returns a true value.
export async function until(what, check, seconds = 10) {
    const end = Date.now() + 1000 * seconds;
    let last;
    do {
        last = await check();
        if (last) {
            return last;
        }
        await new Promise(resolve => setTimeout(resolve, 50));
    } while (Date.now() < end);
    throw new Error(`waited ${seconds} s for ${what}`);
}

// The violations that axe finds, as lines.
export async function axe(page) {
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => window.axe.run(document, {
        preload: false,
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    }));
    return violations.flatMap(({ id, help, nodes }) =>
        nodes.map(({ target, failureSummary }) => `${id} (${help}) at ${target}: ${failureSummary}`));
}

// Elements that extend beyond the window or their panel.
export const overflowing = page => page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll('main *')].filter(element => {
        const box = element.getBoundingClientRect();
        const style = getComputedStyle(element);
        for (let outer = element.parentElement; outer !== document.body; outer = outer.parentElement) {
            if (getComputedStyle(outer).overflowX === 'hidden') {
                return false;
            }
        }
        const most = element.closest('.panel')?.getBoundingClientRect().right ?? width;
        const right = style.overflowX === 'visible' ? Math.max(box.right, box.left + element.scrollWidth) : box.right;
        return box.width > 1 && right > most + 0.5 && style.clipPath === 'none' && !element.closest('svg');
    });
    const whole = document.documentElement.scrollWidth;
    return [...(whole > width ? [`the page is ${whole} wide, the window ${width}`] : []),
        ...out.map(element => `${element.tagName}.${element.className}#${element.id}`)];
});

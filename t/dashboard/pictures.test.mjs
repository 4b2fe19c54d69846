// The pictures of the documents: what they show. RATELIMIT_PICTURES=yes writes them into doc/, with 64 colours and the
// version that they show as the PNG text "Software", which t/source/version.t reads.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { overflowing, seen, start, text, texts } from './browser.mjs';
import { picture, show } from './shots.mjs';
import { VERSION } from './version.mjs';

let browser;
before(async () => { browser = await start(); });
after(() => browser.close());

const crc32 = bytes => ~bytes.reduce((crc, byte) => Array.from({ length: 8 })
    .reduce(rest => rest & 1 ? rest >>> 1 ^ 0xEDB88320 : rest >>> 1, crc ^ byte), ~0) >>> 0;

// A PNG with another text, after its first chunk (8 bytes of signature, 25 of IHDR).
function withText(png, name, words) {
    const chunk = Buffer.from(`tEXt${name}\0${words}`, 'latin1');
    const number = value => {
        const bytes = Buffer.alloc(4);
        bytes.writeUInt32BE(value);
        return bytes;
    };
    return Buffer.concat([png.subarray(0, 33), number(chunk.length - 4), chunk, number(crc32(chunk)), png.subarray(33)]);
}

// `file`: in doc/; `name`: in shots.mjs; `check`: what the picture must show.
const shows = (file, name, check) => test(`doc/${file}`, async () => {
    const page = await show(browser, name);
    assert.equal(await text(page, '#version'), `version ${VERSION}`);
    assert.deepEqual(await overflowing(page), []);
    await check(page);
    const png = await picture(page, name);
    if (process.env.RATELIMIT_PICTURES) {
        const small = execFileSync('pngquant', ['--nofs', '--strip', '64', '-'], { input: png, maxBuffer: 2 ** 25 });
        writeFileSync(new URL(`../../doc/${file}`, import.meta.url), withText(small, 'Software', `ngx_http_ratelimit_module ${VERSION}`));
    }
    await page.end();
});

shows('dashboard.png', 'first', async page => {
    assert.equal(await text(page, '#live-text'), 'Live');
    assert.ok(await seen(page, '.zone-body .chart'), 'an open zone');
});

shows('fleet.png', 'ten', async page => {
    const versions = (await page.locator('#fleet-nodes tbody tr').all()).map(row => row.locator('td').nth(1).textContent());
    assert.deepEqual([...new Set(await Promise.all(versions))], [VERSION]);
    assert.match((await texts(page, '#fleet-nodes td.bad')).join(), /Away for .*Differ: login/);
    assert.equal(await text(page, '#changes-list tbody th'), 'gold-4711');
});

shows('fleet-change.png', 'ten-question', async page => {
    assert.ok(await seen(page, '#change'));
    assert.match(await text(page, '#change-now'), /1000r\/m until/);
});

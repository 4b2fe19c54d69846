// The header that the module's build generates from the page's files.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { hashOf, page } from './mock.mjs';

const EMBED = fileURLToPath(new URL('../../src/http/dashboard/embed.sh', import.meta.url));
const PROGRAM = `
#include <cstdio>
#include <string_view>
#include "dashboard_page.h"
static_assert(ratelimit::dashboard::script_hash.starts_with("sha256-"));
int main(int argc, char**) {
    std::string_view text = ratelimit::dashboard::page;
    if (argc > 1) {
        std::printf("%s %s\\n", ratelimit::dashboard::script_hash.data(), ratelimit::dashboard::style_hash.data());
        return 0;
    }
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
`;

const folder = mkdtempSync(join(tmpdir(), 'dashboard-'));
after(() => rmSync(folder, { recursive: true }));
const html = page();

test('the header compiles, and has the exact page and the hashes that a browser computes', () => {
    writeFileSync(join(folder, 'dashboard_page.h'), execFileSync('sh', [EMBED], { maxBuffer: 1e8 }));
    writeFileSync(join(folder, 'main.cpp'), PROGRAM);
    execFileSync('g++', ['-std=c++20', '-Wall', '-Wextra', '-Wpedantic', '-Werror', '-I', folder,
        join(folder, 'main.cpp'), '-o', join(folder, 'main')]);
    assert.equal(execFileSync(join(folder, 'main'), { encoding: 'utf8' }), html);
    assert.equal(execFileSync(join(folder, 'main'), ['hashes'], { encoding: 'utf8' }),
        `${hashOf(html, 'script')} ${hashOf(html, 'style')}\n`);
});

test('the page is its files as they are written, byte for byte', () => {
    const read = file => readFileSync(join(EMBED, '..', file), 'utf8');
    const whole = read('page.html').replace(/^@(\w+\.(?:css|js))@\n/gm, (line, file) => read(file));
    assert.doesNotMatch(whole, /^@\S+@$/m);
    assert.equal(html, whole);
});

test('the header is not generated if a file is missing', () => {
    cpSync(join(EMBED, '..'), join(folder, 'incomplete'), { recursive: true });
    rmSync(join(folder, 'incomplete', 'page.js'));
    assert.throws(() => execFileSync('sh', [join(folder, 'incomplete', 'embed.sh')], { stdio: 'pipe' }));
});

test('the page uses nothing that its policy forbids', () => {
    assert.equal(html.match(/<script/g).length, 1);
    assert.equal(html.match(/<style/g).length, 1);
    const markup = html.replace(/<(script|style)>.*?<\/\1>/gs, '');
    assert.doesNotMatch(markup, /\sstyle=|\son\w+=|javascript:/i);
    assert.doesNotMatch(markup, /(?:src|href)="(?!#|data:image\/svg|zones"|redis"|metrics")/);
    assert.doesNotMatch(html, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b/);
    assert.doesNotMatch(html, /https?:\/\/(?!www\.w3\.org\/2000\/svg)/);
});

test('every file of the page is embedded, and none is long', () => {
    const source = readFileSync(join(EMBED, '../page.html'), 'utf8');
    const files = execFileSync('ls', [join(EMBED, '..')], { encoding: 'utf8' }).trim().split('\n');
    for (const file of files) {
        const lines = readFileSync(join(EMBED, '..', file), 'utf8').split('\n').length - 1;
        assert.ok(lines <= 400, `${file} has ${lines} lines`);
        assert.ok(/\.(?:html|sh)$/.test(file) || source.includes(`@${file}@`), file);
    }
});

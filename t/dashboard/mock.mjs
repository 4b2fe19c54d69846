// A mock of the module's API, with numbers that move, for work on the dashboard and for its tests.
//
//   node mock.mjs [scenario] [port]       serves it at http://127.0.0.1:8088/ratelimit/
//
// Scenarios: see scenarios.mjs. The page is assembled for each request, so that a reload shows what
// was edited, and comes with the policy that the module sends.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

import { scenario } from './scenarios.mjs';

const EMBED = fileURLToPath(new URL('../../src/http/dashboard/embed.sh', import.meta.url));
const PREFIX = '/ratelimit/';

export const page = () => execFileSync('sh', [EMBED, 'page'], { encoding: 'utf8' });

// The hash of the page's only element of this name, as a browser computes it.
export function hashOf(html, tag) {
    const found = [...html.matchAll(new RegExp(`<${tag}>(.*?)</${tag}>`, 'gs'))];
    if (found.length !== 1) {
        throw new Error(`${found.length} elements <${tag}> instead of one`);
    }
    return `sha256-${createHash('sha256').update(found[0][1]).digest('base64')}`;
}

export const policy = html => [
    "default-src 'none'", `script-src '${hashOf(html, 'script')}'`, `style-src '${hashOf(html, 'style')}'`,
    "connect-src 'self'", 'img-src data:', "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
].join('; ');

// Starts the API of a scenario. A test can change `world` (its numbers) and `fails` (a status for
// every response, or 'hang up'), and read `requests`, all requests so far, as "GET zones".
export async function serve(name, port = 0) {
    const mock = { world: scenario(name), fails: null, requests: [] };
    const server = createServer((request, response) => answer(mock, request, response));
    await new Promise(resolve => server.listen(port, '127.0.0.1', resolve));
    const clock = setInterval(() => mock.world.move(0.25), 250);
    mock.url = `http://127.0.0.1:${server.address().port}${PREFIX}`;
    mock.close = () => {
        clearInterval(clock);
        server.closeAllConnections();
        return new Promise(resolve => server.close(resolve));
    };
    return mock;
}

async function answer(mock, request, response) {
    let sent = '';
    for await (const part of request) {
        sent += part;
    }
    const path = request.url.startsWith(PREFIX) ? request.url.slice(PREFIX.length) : null;
    mock.requests.push(`${request.method} ${path ?? request.url}`);
    if (path === '') {
        const html = page();
        response.writeHead(200, {
            'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy(html),
            'cache-control': 'no-store', 'x-content-type-options': 'nosniff',
        });
        response.end(html);
        return;
    }
    if (mock.fails === 'hang up') {
        request.socket.destroy();
        return;
    }
    const [status, body, headers] = mock.fails ? [mock.fails] : api(mock.world, request, path, sent);
    // A text body is a page of nginx, or of a proxy before it.
    const isText = typeof body === 'string';
    response.writeHead(status, { 'content-type': isText ? 'text/html' : 'application/json',
        'cache-control': 'no-store', ...headers });
    response.end(isText ? body : body && JSON.stringify(body));
}

function api(world, { method, headers }, path, sent) {
    // As nginx replies before any module sees the request.
    if (path === null || path.split('?')[0].includes('%00')) {
        return [path === null ? 404 : 400];
    }
    const [, known, since] = path.match(/^zones\/([^/?]+)\/history(?:\?since=(\d+))?$/) ?? [];
    if (method === 'GET' && known) {
        return world.history(decodeURIComponent(known), Number(since ?? 0));
    }
    const changed = world.fleet?.answer(method, path, sent, headers);
    if (changed) {
        return changed;
    }
    if (method === 'GET' && path === 'fleet' && world.fleet) {
        return [200, world.fleet.json()];
    }
    const [, zone, argument, id, rate] =
        path.match(/^zones\/([^/?]+)\/keys\?(key|hash|id)=([^/?&]+)(?:&rate=([^&]+))?$/) ?? [];
    if (method === 'GET' && id) {
        return world.key(decodeURIComponent(zone), argument, id, rate && decodeURIComponent(rate));
    }
    if (method === 'GET') {
        return path === 'zones' ? [200, world.zones()] : path === 'redis' ? [200, world.redis()]
            : [404, { error: 'no such page' }];
    }
    if (method !== 'DELETE' || !id) {
        return [404, { error: 'no such page' }];
    }
    return world.free(decodeURIComponent(zone), argument, id);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const mock = await serve(process.argv[2] ?? 'fleet', Number(process.argv[3] ?? 8088));
    console.log(mock.url);
}

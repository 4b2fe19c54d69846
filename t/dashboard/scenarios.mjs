// The mock's scenarios: zones and Redis servers whose numbers move with time.

import { FleetMock, idOf, textOf } from './fleet_mock.mjs';
import { VERSION } from './version.mjs';

// Pseudorandom numbers, the same in each run.
function chance(seed) {
    let state = seed;
    return () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return state / 2 ** 32;
    };
}

const DEFAULTS = {
    key: '$binary_remote_addr', address_bits: { ipv4: 32, ipv6: 128 }, hash_key: false, algorithm: 'sliding_window_counter', rate: '100r/m', burst: null,
    precision: null, block: null, blocks: 0, limit: 100, redis: 'main', clock: 'redis', cache: true, lease: 0, nodes: 1,
    size: 1048576, cost: 182400, charged: 0, refunded: 0, keys: 4211, evictions: 0, near_limit: 0,
};

// A zone: settings, and `flow`, its decisions a second, as {"passed.redis": n, ...}. Its rates
// swing.
class Zone {
    constructor(name, settings, flow, busiest, seed) {
        this.settings = { name, ...DEFAULTS, ...settings.key ? { address_bits: null } : {}, ...settings };
        this.flow = flow;
        this.totals = Object.fromEntries(Object.entries(flow).map(([what, rate]) => [what, rate * 1800]));
        this.busiest = busiest.map(([key, id, refused, error]) => ({ key, id, refused, would_refuse: 0, error, per_second: 0,
            since: 1799990000, rate: settings.limit === null ? '50r/s' : null }));
        this.texts = new Map(busiest.map(([key, id]) => [id, key]));
        this.random = chance(seed);
        this.time = seed * 17;
    }

    move(seconds) {
        this.time += seconds;
        const swing = 1 + 0.35 * Math.sin(this.time / 29) + 0.2 * Math.sin(this.time / 7.3);
        const burst = Math.sin(this.time / 41) > 0.55 ? 2.4 : 0.6;
        for (const [what, rate] of Object.entries(this.flow)) {
            const factor = what.startsWith('rejected') ? swing * burst : swing;
            this.totals[what] += rate * factor * seconds * (0.8 + 0.4 * this.random());
        }
        this.busiest.forEach((key, i) => {
            key.per_second = this.flow['rejected.cache'] > 0 && i < 3 ? 9 * swing / (i + 1) : 0;
            key.refused += seconds * key.per_second;
        });
        this.busiest.sort((a, b) => b.refused - a.refused);
    }

    json() {
        const counters = {};
        for (const [what, total] of Object.entries(this.totals)) {
            const [result, source] = what.split('.');
            if (Math.floor(total) > 0) {
                counters[result] = { ...counters[result], [source]: Math.floor(total) };
            }
        }
        const busiest = this.busiest.map(key => ({ ...key, refused: Math.floor(key.refused),
            blocked: this.settings.block && 412 }));
        return { ...this.settings, counters, busiest };
    }

    // The node's steps of this length that end after `since`: as many as it keeps, at most those of the last
    // `remembers` seconds.
    steps(step, kept, now, since, remembers) {
        const of = part => Object.entries(this.flow).filter(([what]) => part.test(what))
            .reduce((sum, [, rate]) => sum + rate, 0);
        const [passed, refused, would, undecided] = [/^(?:passed|delayed)|_(?:shadow|dry_run)|_open/,
            /^rejected\.|_closed/, /^rejected_/, /_open/].map(of);
        const newest = Math.floor(now / step);
        const first = Math.max(newest - kept + 1, Math.floor((now - remembers) / step),
            Math.floor(since / step));
        const series = rate => Array.from({ length: Math.max(0, newest - first + 1) }, (_, i) => {
            const time = (first + i) * step;
            const swing = 1 + 0.4 * Math.sin(time / 13000) + 0.2 * Math.sin(time / 97);
            return Math.round(rate * swing * Math.min(step, now - time));
        });
        return { step, start: first * step, passed: series(passed), refused: series(refused),
            would_refuse: series(would), undecided: series(undecided) };
    }

    free(id) {
        this.busiest = this.busiest.filter(key => key.id !== id);
    }

    // Refuses a key once: a key that was freed starts at 1 again.
    refuse(id) {
        const key = this.busiest.find(known => known.id === id);
        if (key) {
            key.refused += 1;
        } else {
            this.busiest.push({ key: this.texts.get(id), id, refused: 1, would_refuse: 0, error: 0,
                per_second: 0.1, since: 1800000000 });
        }
    }

    restart() {
        Object.keys(this.totals).forEach(what => { this.totals[what] = 0; });
        this.busiest = [];
    }
}

class World {
    write = true;
    blocks = [];
    mute = new Set();    // names of zones whose keys have no answer
    unused = new Set();  // ids of keys that no request has
    // How long the node has run; null: it is of a version without a history.
    remembers = 200000;
    // Of ratelimit_fleet; null: there is none.
    fleet = null;
    // The nodes respond in turn, with the same numbers.
    nodes = ['edge-fra-03'];

    constructor(zones, blocks = [block('main', 'standalone', ['10.0.0.5:6379'])]) {
        this.list = zones;
        this.blocks = blocks;
        // Differs from this machine's clock: the page must use the node's.
        this.time = 1800000000.123;
    }

    move(seconds) {
        this.time += seconds;
        this.list.forEach(zone => zone.move(seconds));
        this.blocks.flatMap(({ servers }) => servers).filter(({ state }) => state === 'up')
            .forEach(server => { server.calls += Math.round(640 * seconds); });
    }

    zone(name) {
        return this.list.find(({ settings }) => settings.name === name);
    }

    zones() {
        this.nodes.push(this.nodes.shift());
        const overrides = [...this.fleet?.overrides ?? []].map(([at, override]) => [...JSON.parse(at), override]);
        return { node: this.nodes[0], version: VERSION, write: this.write, fleet: this.fleet !== null, time: this.time,
            requests: this.requests(), zones: this.list.map(zone => {
                const own = overrides.filter(([name]) => name === zone.settings.name);
                const json = zone.json();
                json.busiest.forEach(key => { key.override = own.find(([, id]) => id === key.id)?.[2] ?? null; });
                return { ...json, override: own.find(([, id]) => id === null)?.[2] ?? null, overrides: own.length };
            }) };
    }

    // Requests by result. Each has one limit, but for the limits in shadow, which others have beside them.
    requests() {
        const sums = {};
        for (const [what, total] of this.list.flatMap(({ totals }) => Object.entries(totals))) {
            const result = what.split('.')[0].replace(/^\w+_shadow$/, 'passed');
            sums[result] = (sums[result] ?? 0) + Math.floor(total);
        }
        return sums;
    }

    // The status of GET zones/NAME/history, and its body.
    history(name, since) {
        const zone = this.zone(name);
        if (!zone || this.remembers === null) {
            return [404, { error: 'no such zone' }];
        }
        return [200, { zone: name, now: this.time, steps: [[10, 360], [300, 576]].map(([step, kept]) =>
            zone.steps(step, kept, this.time, since, this.remembers)) }];
    }

    redis() {
        return { node: this.nodes[0], redis: this.blocks };
    }

    // The status of GET zones/NAME/keys/ID, and its body.
    key(name, argument, value, rate) {
        const zone = this.zone(name);
        if (!zone) {
            return [404, { error: 'no such zone' }];
        }
        const id = idOf(zone.settings, argument, value);
        if (id === null) {
            return [400, { error: 'invalid key, expected an address' }];
        }
        if (this.mute.has(name)) {
            return [503, { error: 'Redis does not answer' }];
        }
        const last = zone.busiest.find(known => known.id === id)?.rate;
        if (zone.settings.limit === null && !rate && !last) {
            return [400, { error: 'the zone\'s rate is a variable, expected an argument rate=' }];
        }
        return [200, { zone: name, key: zone.texts.get(id) ?? textOf(id, zone.settings), id,
            ...this.ofOverride(name, id), rate: rate ?? last ?? zone.settings.rate, limit: 100, ...this.unused.has(id) ? { remaining: 100, reset: 0 } : { remaining: 3, reset: 41.2 },
            retry_after: 0, blocked: null, source: 'redis', counted: !this.unused.has(id),
            note: this.unused.has(id) ? 'nothing is counted under this key now' : null }];
    }

    // An operator's block is known to each node.
    ofOverride(zone, id) {
        return this.fleet?.overrides.get(JSON.stringify([zone, id]))?.block ? { override: 'block' } : {};
    }

    // The status of DELETE zones/NAME/keys/ID, and its body.
    free(name, argument, value) {
        if (!this.write) {
            return [405, { error: 'method not allowed' }];
        }
        const zone = this.zone(name);
        if (!zone) {
            return [404, { error: 'no such zone' }];
        }
        const id = idOf(zone.settings, argument, value);
        zone.free(id);
        return this.unused.has(id) ? [200, { zone: name, key: id, id, counted: false, note: 'nothing is counted under this key now' }]
            : [204];
    }
}

const server = (address, more = {}) => ({
    server: address, state: 'up', workers_up: 2, workers: 2, latency: { p50: 0.00021, p99: 0.0011 },
    calls: 812345, errors: { timeout: 0, connection: 0, error_reply: 0 }, reconnects: 0, ...more,
});

// Where servers have roles, the module reports the masters only.
const ROLES = { cluster: 'master', sentinel: 'master' };

const block = (name, topology, addresses) => ({ name, topology, servers: addresses.map(address =>
    ({ role: ROLES[topology] ?? null, ...(typeof address === 'string' ? server(address) : address) })) });

const ADDRESSES = [
    ['192.0.2.1', '%C0%00%02%01', 512704, 0],
    ['198.51.100.23', '%C63d%17', 218113, 12],
    ['203.0.113.77', '%CB%00qM', 93402, 12],
    ['192.0.2.77', '%C0%00%02%4D', 5127, 88],
    ['198.51.100.4', '%C63d%04', 812, 140],
    ['2001:db8:0:1::7', '%20%01%0D%B8%00%00%00%01%00%00%00%00%00%00%00%07', 144, 144],
];

const JWT = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.4f1g';

function fleet() {
    return new World([
        new Zone('per_ip', {}, { 'passed.redis': 640, 'passed.lease': 210, 'rejected.redis': 9,
            'rejected.cache': 160 }, ADDRESSES, 1),
        new Zone('per_key', { key: '$http_x_api_key', rate: '$plan_rate', algorithm: 'token_bucket', limit: null,
            burst: 50, lease: 20, nodes: 4 }, { 'passed.lease': 920, 'passed.redis': 140, 'rejected.cache': 3.2,
            'rejected.redis': 0.6 }, [[JWT, JWT, 1200, 0], ['gold-4711', 'gold-4711', 12, 0]], 2),
        new Zone('login', { algorithm: 'sliding_window_log', rate: '5r/15m', limit: 5, cache: false,
            evictions: 17 }, { 'passed.redis': 2.4, 'rejected.redis': 0.31, 'failed_closed.none': 0 }, [], 3),
        new Zone('uploads', { algorithm: 'leaky_bucket', rate: '10r/s', limit: 21, burst: 20, block: 600,
            blocks: 31 },
            { 'passed.redis': 8, 'delayed.redis': 5.5, 'rejected.cache': 1.1 }, ADDRESSES.slice(3, 5), 4),
        new Zone('next_limit', { algorithm: 'gcra', rate: '60r/m', limit: 31, burst: 30 },
            { 'passed_shadow.redis': 61, 'rejected_shadow.redis': 14 }, [], 5),
        new Zone('search', { rate: '20r/s', limit: 20, algorithm: 'sliding_window_buckets', precision: 1 },
            { 'passed.redis': 31, 'rejected_dry_run.redis': 4.2, 'delayed_dry_run.redis': 1.1 }, [], 6),
        new Zone('static', { redis: null, clock: 'local', rate: '1000r/s', limit: 1000 },
            { 'passed.local': 1830 }, [], 7),
        new Zone('webhooks', { rate: '1000r/d', limit: 1000, algorithm: 'fixed_window', keys: 0 }, {}, [], 8),
    ]);
}

function many() {
    const random = chance(99);
    const zones = Array.from({ length: 312 }, (_, i) => new Zone(
        `tenant_${String(i + 1).padStart(3, '0')}`, { key: '$http_x_api_key', rate: `${10 + i}r/s` },
        { 'passed.redis': 400 * random() ** 3, 'rejected.cache': i % 3 ? 0 : 40 * random() ** 4 },
        i % 3 ? [] : ADDRESSES, i + 1));
    zones.push(new Zone(`customer-with-a-very-long-name-${'that-goes-on-'.repeat(6)}end`,
        { key: '$scheme$host$request_method$http_x_api_key$binary_remote_addr$uri' },
        { 'passed.redis': 4, 'rejected.redis': 0.02 }, [], 400));
    return new World(zones, [block('main', 'cluster', ['10.0.0.5:6379', '10.0.1.6:6379', '10.0.2.7:6379'])]);
}

// Ten nodes.
function ten() {
    const world = fleet();
    world.fleet = new FleetMock(world);
    return world;
}

// Redis in all its states, and zones that fail.
function away() {
    const world = fleet();
    world.blocks = [
        block('main', 'standalone', [server('10.0.0.5:6379', { state: 'away', workers_up: 0,
            latency: { p50: 0.0004, p99: 0.1 }, errors: { timeout: 1204, connection: 31, error_reply: 0 },
            reconnects: 12 })]),
        block('ring', 'ring', ['10.0.1.1:6379', server('10.0.1.2:6379', { state: 'breaker_open',
            workers_up: 0, errors: { timeout: 5, connection: 0, error_reply: 0 }, reconnects: 1 }),
        server('cache-3.internal.a-long-domain-name.example.org:16379', { workers_up: 1,
            reconnects: 3 })]),
        block('sessions', 'sentinel', [server('[2001:db8::17]:6379', { latency: { p50: null, p99: null },
            calls: 0 })]),
        block('beside', 'standalone', ['unix:/run/redis/beside.sock']),
    ];
    for (const zone of world.list.slice(0, 3)) {
        const all = Object.values(zone.flow).reduce((sum, rate) => sum + rate, 0);
        const kind = zone.settings.name === 'login' ? 'failed_closed.none' : 'failed_open.none';
        Object.assign(zone.flow, Object.fromEntries(Object.keys(zone.flow).map(what => [what, 0])),
            { [kind]: all });
        zone.totals[kind] = all * 20;
    }
    return world;
}

// Names and keys with markup, commands or unreadable characters.
function hostile() {
    const evil = [
        ['<img src=x onerror=alert(1)>', '%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E', 90, 0],
        ['"><script>alert(2)</script>', '%22%3E%3Cscript%3Ealert(2)%3C%2Fscript%3E', 80, 0],
        ['user\u202Egnp.exe\u2066', 'user%E2%80%AEgnp.exe', 70, 3],
        ['../../redis', '..%2F..%2Fredis', 60, 60],
        ['..', '%2E%2E', 50, 0],
        ['a&key=b#c?d', 'a%26key%3Db%23c%3Fd', 40, 0],
        [`${'k'.repeat(120)}end`, `${'k'.repeat(120)}end`, 30, 0],
        ['Z̸̢̛͚̯̬a̴͙̍̓l̷̥͝g̵̗̈o', 'Z%CC%B8', 20, 0],
    ];
    return new World([
        new Zone('<b>bold</b>', { key: '${cookie_<i>}', algorithm: '<u>x</u>', future: { setting: '<s>' } },
            { 'passed.redis': 3, 'rejected.cache': 2, '__proto__.redis': 1 }, evil, 1),
        new Zone('зона-限制', { key: '日本語\u0000' }, { 'passed.redis': 1, 'odd_result.odd': 4 }, [], 2),
    ], [block('<b>main</b>', '<i>odd</i>', [server('<script>', { role: '<b>role</b>', state: '<u>' })])]);
}

const SCENARIOS = {
    fleet, ten, many, away, hostile,
    empty: () => new World([], []),
    unknown: () => new World([
        new Zone('per_client', { redis: 'sessions' }, { 'failed_open.none': 12 }, [], 1),
        new Zone('per_key', { redis: 'caches' }, { 'failed_open.none': 3 }, [], 2),
    ], [block('sessions', 'sentinel', []), block('caches', 'cluster', [])]),
    memory: () => new World([new Zone('per_client', { redis: null, clock: 'local', cache: false },
        { 'passed.local': 12, 'rejected.local': 3 }, ADDRESSES.slice(3), 1)], []),
    idle: () => new World([new Zone('per_client', {}, {}, [], 1)]),
    balanced: () => Object.assign(fleet(), { nodes: ['edge-fra-03', 'edge-fra-04'] }),
    ten_readonly: () => Object.assign(ten(), { write: false }),
    readonly: () => Object.assign(fleet(), { write: false }),
};

export const names = Object.keys(SCENARIOS);

export function scenario(name) {
    if (!(name in SCENARIOS)) {
        throw new Error(`no scenario ${name}: ${names.join(', ')}`);
    }
    return SCENARIOS[name]();
}

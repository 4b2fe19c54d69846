// The mock's fleet: ten nodes with the zones of a world, and limits that are changed at run time.

import { VERSION } from './version.mjs';

const NAMES = ['ams', 'fra', 'lon', 'mad', 'mil', 'par', 'prg', 'sto', 'vie', 'waw'].map(city => `edge-${city}-01`);

// A key as the log shows it: in a zone of addresses, four bytes are one.
export const textOf = (id, { address_bits: bits }) => bits && unescape(id).length === 4
    ? [...unescape(id)].map(byte => byte.charCodeAt(0)).join('.')
    : unescape(id).replace(/[^ -~]/g, byte => `\\x${byte.charCodeAt(0).toString(16).padStart(2, '0')}`);

// The id of a key that an argument of the API names; null: the argument is no address where one is expected.
export function idOf({ address_bits: bits }, argument, value) {
    if (argument !== 'key' || !bits) {
        return value;
    }
    const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(decodeURIComponent(value))?.slice(1).map(Number);
    return parts?.every(part => part < 256)
        ? parts.map(part => `%${part.toString(16).toUpperCase().padStart(2, '0')}`).join('') : null;
}

export class FleetMock {
    connected = true;
    says = true;            // nodes say which settings differ
    named = 20;             // so many of them are named
    lost = 0;               // overrides that Redis lost a minute ago
    undecided = 0;          // requests a second of a node, now and for two minutes of the hour
    events = [];            // what happened beside changes, starts and reloads
    changes_since = null;
    left_out = 0;           // nodes that had no room in the answer
    overrides = new Map();  // by zone and id, as JSON: [zone, id or null]
    wrong = null;           // an answer [status, body] to each change
    changes = [];           // [method, zone, id, body], as they were asked for
    tags = new Map();       // by override
    before = () => {};      // called before a change is made, with its number
    silent = new Set();     // zones whose overrides Redis does not tell

    constructor(world) {
        this.world = world;
        this.nodes = NAMES.map((name, i) => ({ name, id: String(i).repeat(32), version: VERSION, nginx: '1.26.3',
            started: world.time - 86400 * (i + 1) / 3, heard: null, differs: [], redis: 'up' }));
        this.nodes[0].name = 'edge-fra-03';
    }

    node(name) {
        return this.nodes.find(node => node.name === name);
    }

    json() {
        const { world } = this;
        this.as_of = this.connected ? world.time : this.as_of ?? world.time;
        const totals = world.list.map(zone => {
            const sum = part => Math.floor(Object.entries(zone.totals).filter(([what]) => part.test(what))
                .reduce((all, [, number]) => all + number, 0));
            return { name: zone.settings.name, limit: zone.settings.rate, passed: sum(/^(?!rejected\.)/), refused: sum(/^rejected\./), would_refuse: sum(/^rejected_/) };
        });
        const nodes = this.nodes.map(node => {
            const heard = node.heard ?? this.as_of - 0.4;
            return { name: node.name, id: node.id, version: node.version, nginx: node.nginx, heard,
                configured: node.loaded ? this.as_of - node.loaded : null,
                live: this.as_of - heard <= 5, self: node.name === world.nodes[0], uptime: this.as_of - node.started,
                passed: totals.reduce((all, { passed }) => all + passed, 0),
                refused: totals.reduce((all, { refused }) => all + refused, 0),
                undecided: Math.floor(this.undecided * (this.as_of - 1.8e9)),
                zones: totals.map(({ name, limit, passed, refused, would_refuse }) =>
                    ({ name, limit: node.differs.includes(name) ? '7r/s' : limit,
                        settings: node.differs.includes(name) ? '6b86b2' : 'd4735e', passed, refused, would_refuse })),
                redis: [{ redis: 'main', server: '10.0.0.5:6379', state: node.redis, workers_up: node.redis === 'up' ? 2 : 0,
                    workers: 2 }] };
        });
        const live = nodes.filter(node => node.live);
        const zones = totals.map(({ name, limit, passed, refused, would_refuse }) => {
            const differ = this.nodes.filter(node => node.differs.includes(name)).map(node => node.name);
            return { name, limits: differ.length > 0 ? [limit, '7r/s'] : [limit], nodes: live.length,
                passed: passed * live.length, refused: refused * live.length, would_refuse: would_refuse * live.length, settings: 'd4735e', differ: differ.length,
                settings_differ: differ.slice(0, this.named), highest_use: name === 'search' ? 100 : 41,
                differences: differ.length > 0 && this.says
                    ? [{ setting: 'rate', differ: differ.length, nodes: differ.slice(0, this.named) }] : [],
                override: this.overrides.get(JSON.stringify([name, null])) ?? null };
        });
        const busiest = world.list.flatMap(zone => zone.json().busiest.map(({ key, id, refused, per_second: now, since }) =>
            ({ zone: zone.settings.name, key, id, refused: refused * live.length, per_second: now * live.length, since,
                override: this.overrides.get(JSON.stringify([zone.settings.name, id])) ?? null })))
            .sort((a, b) => b.per_second - a.per_second || b.refused - a.refused).slice(0, 20);
        const shown = this.connected ? nodes : nodes.slice(0, 1);
        return { fleet: { nodes: live.length, known: nodes.length + this.left_out, redis: 'main', as_of: this.connected ? this.as_of : null,
            connected: this.connected, overrides: this.overrides.size, overrides_left_out: 0, unreadable: 0, left_out: this.left_out,
            overrides_lost: this.lost, lost_at: this.lost ? world.time - 60 : null, changes_since: this.changes_since },
        nodes: shown, happened: this.#happened(live), history: this.#history(60, 60), longer_history: [this.#history(300, 72), this.#history(1800, 96)], zones, busiest };
    }

    // The latest first: what a test has put into `events`, what is changed, and starts and reloads of nodes, as one if they are next
    // to each other.
    #happened(live) {
        const changes = [...this.overrides].map(([id, override]) => ({ what: 'set', at: override.at, zone: JSON.parse(id)[0], key: override.key,
            id: override.id, by: override.by, override }));
        const starts = live.map(({ name, uptime }) => ({ what: 'started', at: this.as_of - uptime, until: this.as_of - uptime, nodes: 1, names: [name] }));
        const loads = this.nodes.filter(({ loaded }) => loaded).sort((a, b) => a.loaded - b.loaded);
        const loaded = loads.length === 0 ? [] : [{ what: 'loaded', at: loads[0].loaded, until: loads.at(-1).loaded, nodes: loads.length,
            names: loads.map(({ name }) => name), settings: 'search (rate)' }];
        return [...this.events, ...changes, ...starts, ...loaded].filter(({ at }) => at > this.world.time - 172800).sort((a, b) => b.at - a.at);
    }

    // An attack began eleven minutes ago, and there was one 30 hours ago.
    #history(step, steps) {
        const last = Math.floor(this.as_of / step);
        const start = step * (last - steps + 1);
        const all = Array.from({ length: steps }, (_, i) => start + step * i);
        const part = from => Math.min(1, (this.as_of - from) / step) * step / 60;
        const ago = from => Math.floor(this.as_of / 60) - Math.floor(from / 60);  // in minutes
        return { step, start, passed: all.map((from, i) => Math.round(part(from) * (2e6 + 9e4 * (i % 7)))),
            undecided: all.map(from => ago(from) <= 19 && ago(from) > 17 ? this.undecided * 600 : 0),
            refused: all.map(from => Math.round(part(from) * (ago(from) === 7 || ago(from) >= 1770 && ago(from) < 1800 ? 540000 : ago(from) > 10 ? 900 : 90000))) };
    }

    // The answer to a request for zones/ZONE/override, zones/ZONE/keys/override?key= or overrides, [status, body, headers]; null:
    // it is another path.
    answer(method, path, body, headers = {}) {
        const [, name, argument, value] =
            path.match(/^zones\/([^/?]+)\/(?:override|keys\/override\?(key|hash|id)=([^&]+))$/) ?? [];
        if (path.startsWith('overrides?')) {
            return this.connected ? [200, this.#list(new URLSearchParams(path.slice('overrides?'.length)))]
                : [503, { error: 'Redis does not answer' }];
        }
        if (!name) {
            return null;
        }
        const zone = decodeURIComponent(name);
        const settings = this.world.zone(zone)?.settings;
        const key = value && settings ? idOf(settings, argument, value) : null;
        if (!settings) {
            return [404, { error: 'no such zone' }];
        }
        if (value && key === null) {
            return [400, { error: 'invalid key, expected an address' }];
        }
        const id = JSON.stringify([zone, key]);
        if (method === 'GET') {
            return this.connected && !this.silent.has(zone) ? [200, { override: this.overrides.get(id) ?? null }, this.#tag(id)]
                : [503, { error: 'Redis does not answer' }];
        }
        this.changes.push([method, zone, key, body && JSON.parse(body)]);
        this.before(this.changes.length);
        const { etag } = this.#tag(id);
        if (headers['if-match'] ? headers['if-match'] !== etag : etag || headers['if-none-match'] !== '*') {
            return headers['if-match'] || headers['if-none-match'] ? [412, { error: 'the override is another one: read it again' }]
                : [500, { error: 'a change without a condition' }];
        }
        return this.wrong ?? (this.world.write ? this.#change(method, id, zone, key, body)
            : [405, { error: 'method not allowed' }]);
    }

    // The ETag of an override: each change has another one.
    #tag(id) {
        const override = this.overrides.get(id);
        if (!override) {
            return {};
        }
        this.tags.set(override, this.tags.get(override) ?? this.tags.size + 1);
        return { etag: `"${String(this.tags.get(override)).padStart(40, '0')}"` };
    }

    #list(wanted) {
        const [limit, after] = ['limit', 'after'].map(name => Number(wanted.get(name)));
        const all = [...this.overrides].map(([id, override]) => ({ zone: JSON.parse(id)[0], ...override })).reverse();
        const page = all.slice(after, after + limit);
        const search = (wanted.get('search') ?? '').toLowerCase();
        return { zone: null, count: all.length, next: after + limit < all.length ? after + limit : null,
            overrides: page.filter(item => `${item.zone}\n${item.key}\n${item.block ? 'blocked' : item.rate}\n${item.by}\n${item.reason}`
                .toLowerCase().includes(search)) };
    }

    #change(method, id, zone, key, body) {
        if (method === 'DELETE') {
            return this.overrides.delete(id) ? [204] : [404, { error: 'no such override' }];
        }
        const { for: lasts, until, ...change } = JSON.parse(body);
        if (change.rate !== undefined && !/^\d+r\/\d*[smhd]$/.test(change.rate)) {
            return [400, { error: 'invalid "rate", expected a text such as "100r/s" or "1000r/15m"' }];
        }
        const seconds = until ? until - this.world.time : lasts ? Number(lasts.slice(0, -1)) * { s: 1, m: 60, h: 3600, d: 86400 }[lasts.at(-1)] : null;
        this.overrides.delete(id);  // a new change is the last one
        const override = { reason: null, ...change, ...(key === null ? { key: null, id: null } : { key: textOf(key, this.world.zone(zone).settings), id: key }),
            for_seconds_left: seconds, until: seconds && this.world.time + seconds, by: 'edge-fra-03 192.0.2.9', at: this.world.time };
        this.overrides.set(id, override);
        const unused = key !== null && this.world.unused.has(key);
        return [200, { zone, key: override.key, id: key, override, ...(key === null ? {}
            : { counted: !unused, note: unused ? 'nothing is counted under this key now' : null }) }, this.#tag(id)];
    }
}

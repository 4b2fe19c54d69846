// The mock's fleet: ten nodes with the zones of a world, and limits that are changed at run time.

const NAMES = ['ams', 'fra', 'lon', 'mad', 'mil', 'par', 'prg', 'sto', 'vie', 'waw'].map(city => `edge-${city}-01`);

// A key as the log shows it.
export const textOf = id => unescape(id).replace(/[^ -~]/g, byte =>
    `\\x${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);

export class FleetMock {
    connected = true;
    overrides = new Map();  // by zone and id, as JSON: [zone, id or null]
    wrong = null;           // an answer [status, body] to each change
    changes = [];           // [method, zone, id, body], as they were asked for

    constructor(world) {
        this.world = world;
        this.nodes = NAMES.map((name, i) => ({ name, id: String(i).repeat(32), version: '0.4', nginx: '1.26.3',
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
            return { name: zone.settings.name, limit: zone.settings.rate, passed: sum(/^(?!rejected\.)/), refused: sum(/^rejected\./) };
        });
        const nodes = this.nodes.map(node => {
            const heard = node.heard ?? this.as_of - 0.4;
            return { name: node.name, id: node.id, version: node.version, nginx: node.nginx, heard,
                live: this.as_of - heard <= 5, self: node.name === world.nodes[0], uptime: this.as_of - node.started,
                zones: totals.map(({ name, passed, refused }) => ({ name, passed, refused })),
                redis: [{ redis: 'main', server: '10.0.0.5:6379', state: node.redis, workers_up: node.redis === 'up' ? 2 : 0,
                    workers: 2 }] };
        });
        const live = nodes.filter(node => node.live);
        const zones = totals.map(({ name, limit, passed, refused }) => {
            const differ = this.nodes.filter(node => node.differs.includes(name)).map(node => node.name);
            return { name, limits: differ.length > 0 ? [limit, '7r/s'] : [limit], nodes: live.length,
                passed: passed * live.length, refused: refused * live.length, settings_differ: differ };
        });
        const busiest = world.list.flatMap(zone => zone.json().busiest.map(({ key, id, refused }) =>
            ({ zone: zone.settings.name, key, id, refused: refused * live.length })))
            .sort((a, b) => b.refused - a.refused).slice(0, 20);
        const shown = this.connected ? nodes : nodes.slice(0, 1);
        return { fleet: { nodes: live.length, known: nodes.length, redis: 'main', as_of: this.connected ? this.as_of : null,
            connected: this.connected, overrides: this.overrides.size, overrides_left_out: 0, unreadable: 0 },
        nodes: shown, zones, busiest };
    }

    // The answer to a request for zones/ZONE/override, zones/ZONE/keys/override?key= or zones/ZONE/overrides; null:
    // it is another path.
    answer(method, path, body) {
        const [, name, key] = path.match(/^zones\/([^/?]+)\/(?:override|keys\/override\?(?:key|hash)=([^&]+))$/) ?? [];
        const [, listed] = path.match(/^zones\/([^/?]+)\/overrides(?:\?.*)?$/) ?? [];
        if (!name && !listed) {
            return null;
        }
        const zone = decodeURIComponent(name ?? listed);
        if (!this.world.zone(zone)) {
            return [404, { error: 'no such zone' }];
        }
        if (listed) {
            return this.connected ? [200, this.#list(zone)] : [503, { error: 'Redis does not answer' }];
        }
        const id = JSON.stringify([zone, key ?? null]);
        if (method === 'GET') {
            return [200, { override: this.overrides.get(id) ?? null }];
        }
        this.changes.push([method, zone, key ?? null, body && JSON.parse(body)]);
        return this.wrong ?? (this.world.write ? this.#change(method, id, zone, key ?? null, body)
            : [405, { error: 'method not allowed' }]);
    }

    #list(zone) {
        const all = [...this.overrides].filter(([id]) => JSON.parse(id)[0] === zone).map(([, override]) => override);
        return { zone, count: all.length, overrides: all, next: null };
    }

    #change(method, id, zone, key, body) {
        if (method === 'DELETE') {
            return this.overrides.delete(id) ? [204] : [404, { error: 'no such override' }];
        }
        const { for: lasts, ...change } = JSON.parse(body);
        if (change.rate !== undefined && !/^\d+r\/\d*[smhd]$/.test(change.rate)) {
            return [400, { error: 'invalid "rate", expected a text such as "100r/s" or "1000r/15m"' }];
        }
        const seconds = lasts ? Number(lasts.slice(0, -1)) * { m: 60, h: 3600, d: 86400 }[lasts.at(-1)] : null;
        const override = { ...change, ...(key === null ? { key: null } : { key: textOf(key), id: key }),
            for_seconds_left: seconds, by: 'edge-fra-03 192.0.2.9', at: this.world.time };
        this.overrides.set(id, override);
        return [200, override];
    }
}

// The fleet: its nodes, zones summed over them, and the keys that all of them together refuse most.

const HERE = 'this node';

// "3 s", "12 min", "2 h", "3 d": rounded down.
function age(seconds) {
    const [unit, size] = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]].find(([, size]) => seconds >= 2 * size)
        ?? ['s', 1];
    return `${Math.max(0, Math.floor(seconds / size))} ${unit}`;
}

// What may pass of a zone with ahead=, on all nodes: "at most 1,060 of 1,000"; if its limits are not one rate alone, "at
// most 60 more".
function mostText({ limits, ahead }) {
    const [, quota] = limits?.length === 1 ? /^(\d+)r\/\S+$/.exec(limits[0]) ?? [] : [];
    return quota === undefined ? `at most ${whole(ahead)} more`
        : `at most ${whole(Number(quota) + ahead)} of ${whole(Number(quota))}`;
}

// Requests of the fleet's zones a second, from counters of each zone on each node, so that a node that comes or
// goes makes no jump.
class FleetRates {
    samples = [];

    // `time`: when Redis had these figures. Older figures, as when Redis was restarted, start again.
    add(time, nodes) {
        const last = this.samples.at(-1);
        if (last && (time < last.time || time - last.time > SECONDS_OF_GAP)) {
            this.samples = [];
        } else if (last && time === last.time) {
            return;
        }
        const counters = new Map();
        for (const { id, zones, passed: all, refused: allRefused } of nodes) {
            counters.set(JSON.stringify([id]), { id, name: null, passed: all ?? 0, refused: allRefused ?? 0 });
            for (const { name, passed, refused } of zones ?? []) {
                counters.set(JSON.stringify([id, name]), { id, name, passed, refused });
            }
        }
        this.samples.push({ time, counters });
        while (this.samples.length > 2 && this.samples[1].time <= time - SECONDS_OF_NOW) {
            this.samples.shift();
        }
    }

    // Requests, each once whatever its zones: {passed, refused} of all nodes or of the one of this id.
    requests(node = null) {
        return this.of(({ id, name }) => name === null && (node === null || id === node));
    }

    // {passed, refused} of what `wanted` selects; null: not known yet.
    of(wanted) {
        const [first, last] = [this.samples[0], this.samples.at(-1)];
        if (!first || first === last) {
            return null;
        }
        const rates = { passed: 0, refused: 0 };
        for (const [key, now] of last.counters) {
            const before = first.counters.get(key);
            if (before && wanted(now)) {
                for (const name of ['passed', 'refused']) {
                    rates[name] += Math.max(0, now[name] - before[name]) / (last.time - first.time);
                }
            }
        }
        return rates;
    }
}

// What a node's Redis servers are as it sees them: [text, whether all are up].
function redisOf({ redis = [] }) {
    const away = redis.filter(server => server.state !== 'up' || server.workers_up < server.workers);
    if (redis.length === 0) {
        return ['–', true];
    }
    return away.length === 0 ? [redis.length === 1 ? 'Up' : `${redis.length} up`, true]
        : [away.map(({ server, state }) => `${visible(server)} ${state === 'up' ? 'up in part' : words(visible(state))}`)
            .join(', '), false];
}

// A table whose rows are kept by an id, so that they do not move or lose the focus.
class KeptTable {
    rows = new Map();

    constructor(caption, columns, make = () => ({})) {
        this.columns = columns;
        this.make = make;
        const { root, head, body } = table(caption, columns);
        this.root = root;
        this.head = head;
        this.body = body;
    }

    // `show` writes an item into a row's cells.
    show(items, idOf, show) {
        const ids = new Set(items.map(idOf));
        for (const id of this.rows.keys()) {
            if (!ids.has(id)) {
                this.rows.delete(id);
            }
        }
        arrange(this.body, items.map(item => {
            const id = idOf(item);
            if (!this.rows.has(id)) {
                const made = row(this.columns);
                this.rows.set(id, { ...made, ...this.make(item, made.cells) });
            }
            const kept = this.rows.get(id);
            show(item, kept.cells, kept);
            return kept.root;
        }));
        this.root.hidden = items.length === 0;
    }
}

class FleetView {
    constructor(page) {
        this.page = page;
        this.rates = new FleetRates();
        this.nodes = new KeptTable('Nodes of the fleet', [['Node', 'wide'], ['State'], ['Version'], ['nginx'],
            ['Up for', 'number'], ['Passed now', 'number'], ['Refused now', 'number'], ['Redis'], ['Settings']],
        (node, cells) => {
            cells[0].append(longText(node.name, 36), h('span', { class: 'tag' }));
            return { tag: cells[0].lastElementChild };
        });
        this.zones = new KeptTable('Zones, summed over all nodes', [['Zone', 'wide'], ['Limit'],
            ['Nodes', 'number'], ['Passed now', 'number'], ['Refused now', 'number'], ['Refused in all', 'number'],
            ['Settings']], (zone, cells) => cells[0].append(longText(zone.name, 36)));
        this.keys = new KeptTable('Keys that all nodes together refuse most', [['Key', 'wide'], ['Zone'],
            ['Refused now', 'number'], ['In all', 'number'], ['Since'], ['', 'action']], (key, cells) => {
            cells[0].append(longText(key.key, 36));
            const zone = () => this.limits.zones.get(key.zone) ?? { name: key.zone, rate: 'that of nginx.conf' };
            const block = button('Block…', 'small', () => this.limits.block(zone(), key));
            const ask = button('Look up', 'small', () => this.limits.lookUp(key.zone, key.id));
            [block, ask].forEach(made => made.append(hidden(` ${middleCut(visible(key.key), 60)}`)));
            cells[5].append(block, ' ', ask);
            return { block };
        });
        this.keys.head.lastElementChild.append(hidden('Action'));
        byId('fleet-nodes').append(this.nodes.root);
        byId('fleet-zones').append(this.zones.root);
        byId('fleet-keys').append(this.keys.root);
        this.limits = new LimitsView(page, this);
    }

    // `data`: of /fleet, or null; `zones`: of /zones of this node.
    take(data, zones) {
        byId('fleet-none').hidden = data !== null;
        byId('fleet-all').hidden = data === null;
        if (data === null) {
            return;
        }
        // A node that Redis does not answer knows itself alone. This page may know more.
        if (data.fleet.as_of === null && this.data?.fleet.as_of) {
            data = { ...this.data, fleet: { ...this.data.fleet, connected: false } };
        }
        this.data = data;
        byId('fleet-all').classList.toggle('unknown', !this.connected);
        this.limits.takeZones(zones);
        const { fleet, nodes } = data;
        // By name, since Redis has them in the order in which they were heard of.
        nodes.sort((a, b) => a.name === b.name ? (a.id < b.id ? -1 : 1) : a.name < b.name ? -1 : 1);
        this.rates.add(fleet.as_of ?? 0, nodes.filter(({ live }) => live));
        this.#showSums(fleet, nodes);
        this.#showNotices(data);
        this.#showNodes(data);
        this.#showZones(data);
        this.keys.show(data.busiest ?? [], ({ zone, id }) => JSON.stringify([zone, id]), (key, cells, { block }) => {
            say(cells[1], visible(key.zone));
            say(cells[2], this.connected ? perSecond(key.per_second ?? null) : '–');
            cells[2].classList.toggle('some', key.per_second > 0);
            say(cells[3], whole(key.refused));
            say(cells[4], key.since ? when(key.since, this.page.time) : '');
            block.hidden = !this.page.write;
            block.disabled = !this.connected;
        });
        byId('fleet-no-keys').hidden = (data.busiest ?? []).length > 0;
        this.limits.changes.take(fleet, this.page.time);
    }

    // Whether the fleet's Redis answers: otherwise figures are old, and nothing can be changed.
    get connected() {
        return this.data?.fleet.connected === true;
    }

    get liveNodes() {
        return this.data?.fleet.nodes ?? null;
    }

    #showSums(fleet, nodes) {
        const rates = this.connected ? this.rates.requests() : null;
        const since = fleet.as_of ? `not known since ${clock(fleet.as_of)}` : 'not known';
        const all = rates && rates.passed + rates.refused;
        const away = nodes.filter(({ live }) => !live).length;
        const tell = (id, text, more, bad = false) => {
            say(byId(`fleet-${id}-now`), text);
            say(byId(`fleet-${id}-more`), more);
            byId(`fleet-${id}-now`).classList.toggle('bad', bad);
        };
        tell('count', this.connected ? whole(fleet.nodes) : '–', !this.connected ? since : away > 0 ? `${whole(away)} not heard of for 5 seconds` : 'all live', this.connected && away > 0);
        tell('passed', perSecond(rates && rates.passed), this.connected ? '' : since);
        tell('refused', perSecond(rates && rates.refused), !this.connected ? since : all ? `${percent(rates.refused, all)} of all` : '');
        tell('changed', whole(fleet.overrides ?? 0), fleet.overrides_left_out > 0
            ? `${whole(fleet.overrides_left_out)} have no room on this node` : 'changed at run time',
        fleet.overrides_left_out > 0);
    }

    // What an operator must know: figures that are old, settings that differ.
    #showNotices({ fleet, zones }) {
        const old = fleet.connected ? '' : fleet.as_of
            ? `Redis ${visible(fleet.redis)} does not answer. This page shows what was last known, from ${clock(fleet.as_of)}.`
            : `Redis ${visible(fleet.redis)} does not answer, and other nodes are not known.`;
        const differ = zones.filter(({ settings_differ: names }) => names.length > 0).map(({ name }) => visible(name));
        say(byId('fleet-old'), old);
        byId('fleet-old').hidden = old === '';
        say(byId('fleet-differ'), differ.length === 0 ? ''
            : `Settings differ between nodes, so that limits are not what one configuration says: ${differ.join(', ')}.`);
        byId('fleet-differ').hidden = differ.length === 0;
    }

    #showNodes({ fleet, nodes, zones }) {
        // A zone that differs, with the limit that it has on this node if that is what differs.
        const differing = node => zones.filter(zone => zone.settings_differ.includes(node.name)).map(({ name, limits }) => {
            const limit = (node.zones ?? []).find(zone => zone.name === name)?.limit;
            return `${visible(name)} (${limit && limits?.length > 1 ? visible(limit) : 'not in its limit'})`;
        });
        this.nodes.show(nodes, ({ id, name }) => JSON.stringify([id, name]), (node, cells, { tag }) => {
            // Of other nodes nothing is known while Redis is away.
            const known = this.connected || (node.self && fleet.as_of === null);
            const rates = node.live && known ? this.rates.requests(node.id) : null;
            const [redis, up] = known ? redisOf(node) : ['–', true];
            const differ = node.live ? differing(node) : [];
            say(tag, node.self ? ` ${HERE}` : '');
            say(cells[1], !known ? `Not known since ${clock(node.heard)}` : node.live ? 'Live'
                : `Away for ${age((fleet.as_of ?? 0) - node.heard)}`);
            cells[1].classList.toggle('bad', known && !node.live);
            say(cells[2], visible(node.version));
            say(cells[3], visible(node.nginx));
            say(cells[4], known ? age(node.uptime) : '–');
            say(cells[5], perSecond(rates && rates.passed));
            say(cells[6], perSecond(rates && rates.refused));
            say(cells[7], redis);
            cells[7].classList.toggle('bad', !up);
            say(cells[8], differ.length > 0 ? `Differ: ${differ.join(', ')}` : node.live ? 'As the others' : '–');
            cells[8].classList.toggle('bad', differ.length > 0);
        });
    }

    #showZones({ fleet, zones }) {
        this.zones.show(zones, ({ name }) => name, (zone, cells) => {
            const rates = this.connected ? this.rates.of(({ name }) => name === zone.name) : null;
            const limits = (zone.limits ?? []).map(visible).join(' or ') || '–';
            const configured = zone.ahead > 0 ? `${limits}, ${mostText(zone)} (ahead)` : limits;
            const differ = zone.settings_differ;
            say(cells[1], zone.override
                ? `${overrideText(zone.override)} ${untilText(zone.override, this.page.time)}, configured ${configured}` : configured);
            cells[1].classList.toggle('bad', Boolean(zone.override));
            say(cells[2], `${whole(zone.nodes)} of ${whole(fleet.nodes)}`);
            say(cells[3], perSecond(rates && rates.passed));
            say(cells[4], perSecond(rates && rates.refused));
            cells[4].classList.toggle('some', rates?.refused > 0);
            say(cells[5], short(zone.refused));
            cells[5].title = whole(zone.refused);
            say(cells[6], differ.length > 0 ? `Differ: ${differ.map(visible).join(', ')}` : 'The same');
            cells[6].classList.toggle('bad', differ.length > 0);
        });
    }
}

// The fleet: its nodes, zones summed over them, and the keys that all of them together refuse most.

const HERE = 'this node';
const SECONDS_OF_A_LOSS = 86400;  // for which the page tells it

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

// Where settings of a zone differ: "burst on edge-2, rate on edge-2 and edge-3", "key on edge-2 and 39 more"; a node of an
// older version does not say which setting.
function differenceText({ differ, settings_differ: nodes, differences = [], nodes: all }) {
    const names = (list, number) => number === all ? 'all nodes'
        : [...list.map(visible), ...number > list.length ? [`${whole(number - list.length)} more`] : []].join(' and ');
    return differences.length > 0
        ? differences.map(({ setting, differ: number, nodes: on }) => `${words(setting)} on ${names(on, number)}`).join(', ')
        : `on ${names(nodes, differ)}`;
}

class FleetView {
    constructor(page) {
        this.page = page;
        this.differing = new Map();  // by a node's id: [zone, settings]
        this.rates = new FleetRates();
        this.chart = new FleetChart();
        this.happened = new HappenedView();
        this.limits = new LimitsView(page, this);
        this.finder = new KeyFinder(this);
        this.details = new ChangeDetails();
        const rate = (rates, name) => rates && rates[name];
        const ofNode = name => node => node.live ? rate(this.rates.requests(node.id), name) : null;
        const ofZone = name => zone => rate(this.rates.zone(zone.name), name);
        this.nodes = new KeptTable('Nodes of the fleet', [['Node', 'wide', ({ name }) => name],
            ['State', '', ({ live, heard }) => live ? 'live' : `${heard}`], ['Version', '', ({ version }) => version],
            ['nginx', '', ({ nginx }) => nginx], ['Up for', 'number', ({ uptime }) => uptime],
            ['Passed now', 'number', ofNode('passed')], ['Refused now', 'number', ofNode('refused')],
            ['Redis', '', node => redisOf(node)[0]], ['Settings', '', ({ id }) => this.differing.has(id) ? 'differ' : 'same']],
        (node, cells) => {
            cells[0].append(longText(node.name, 36), h('span', { class: 'tag' }));
            return { tag: cells[0].lastElementChild };
        });
        this.zones = new KeptTable('Zones, summed over all nodes', [['Zone', 'wide', ({ name }) => name], ['Limit'],
            ['Nodes', 'number', ({ nodes }) => nodes], ['Passed now', 'number', ofZone('passed')],
            ['Refused now', 'number', ofZone('refused')], ['Refused in all', 'number', ({ refused }) => refused],
            ['Highest use', 'number', ({ highest_use: use }) => use],
            ['Settings', '', ({ differ }) => differ], ['', 'action']], (zone, cells) => {
            cells[0].append(longText(zone.name, 36));
            const ask = button('Change…', 'small', () => this.limits.lookUp(zone.name, null));
            ask.append(hidden(` ${visible(zone.name)}`));
            cells[8].append(ask);
        });
        this.keys = new KeptTable('Keys that all nodes together refuse most', [['Key', 'wide', ({ key }) => key],
            ['Zone', '', ({ zone }) => zone], ['Refused now', 'number', ({ per_second: now }) => now],
            ['In all', 'number', ({ refused }) => refused], ['Since', '', ({ since }) => since], ['', 'action']], (key, cells) => {
            cells[0].append(longText(key.key, 36));
            const zone = () => this.limits.zoneNamed(key.zone);
            const inForce = h('span', { class: 'in-force' });
            cells[0].append(' ', inForce);
            const now = () => this.data.busiest.find(({ zone: its, id }) => its === key.zone && id === key.id) ?? key;
            const block = button('Block…', 'small danger', () => this.limits.block(zone(), now()));
            const back = button('Take back…', 'small', () => this.limits.takeBackOf(zone(), now()));
            const ask = button('Look up', 'small', () => this.limits.lookUp(key.zone, key.id));
            [block, back, ask].forEach(made => made.append(hidden(` ${middleCut(visible(key.key), 60)}`)));
            cells[5].append(block, ' ', back, ' ', ask);
            return { block, back, inForce };
        });
        this.tables = { nodes: [this.nodes, ({ name, version, nginx, live }) => `${name} ${version} ${nginx} ${live ? 'live' : 'away'}`],
            zones: [this.zones, ({ name, limits }) => `${name} ${(limits ?? []).join(' ')}`],
            keys: [this.keys, ({ key, zone }) => `${key} ${zone}`] };
        for (const [name, [made, textOf]] of Object.entries(this.tables)) {
            byId(`fleet-${name}`).append(made.root);
            byId(`fleet-${name}-head`).append(made.tools(`fleet-${name}`, textOf));
        }
        this.keys.head.lastElementChild.append(hidden('Action'));
        this.zones.head.lastElementChild.append(hidden('Action'));
    }

    // `data`: of /fleet, or null.
    take(data) {
        byId('fleet-none').hidden = data !== null;
        byId('fleet-all').hidden = data === null;
        if (data === null) {
            return;
        }
        // A node that Redis does not answer knows itself alone. This page may know more.
        if (data.fleet.as_of === null && this.data?.fleet.as_of) {
            const lasts = ({ until }) => until === null;
            data = { ...this.data, fleet: { ...this.data.fleet, connected: false },
                happened: [...data.happened.filter(lasts), ...this.data.happened.filter(item => !lasts(item))] };
        }
        this.data = data;
        byId('fleet-all').classList.toggle('unknown', !this.connected);
        const { fleet, nodes } = data;
        // By name, since Redis has them in the order in which they were heard of.
        nodes.sort((a, b) => a.name === b.name ? (a.id < b.id ? -1 : 1) : a.name < b.name ? -1 : 1);
        this.rates.add(fleet.as_of ?? 0, nodes.filter(({ live }) => live));
        data.happened = folded(withLoss(data.happened, fleet));
        this.chart.show(data, this.rates);
        this.happened.show(data, this.page.time, (begin, end) => this.chart.refusedAround(begin, end));
        this.#showSums(fleet, nodes);
        this.#showNotices(data);
        this.#showNodes(data);
        this.#showZones(data);
        this.keys.show(data.busiest ?? [], ({ zone, id }) => JSON.stringify([zone, id]), (key, cells, { block, back, inForce }) => {
            say(cells[1], visible(key.zone));
            say(cells[2], this.connected ? perSecond(key.per_second ?? null) : '–');
            cells[2].classList.toggle('some', key.per_second > 0);
            say(cells[3], whole(key.refused));
            say(cells[4], key.since ? when(key.since, this.page.time) : '');
            sayInForce(inForce, this.details, key, this.page.time);
            block.hidden = !this.page.write || Boolean(key.override?.block);
            back.hidden = !this.page.write || !key.override;
            enable([block, back], this.page.whyNot);
        });
        byId('fleet-no-keys').hidden = (data.busiest ?? []).length > 0;
        byId('fleet-keys-head').lastElementChild.hidden = (data.busiest ?? []).length === 0;
        this.limits.changes.take(fleet, this.page.time);
        this.limits.follow();
        this.finder.follow(data.happened);
        this.page.arrive(this.limits.changes.read);
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
        const undecided = rates?.undecided ?? 0;
        tell('passed', perSecond(rates && rates.passed), !this.connected ? since
            : undecided > 0 ? `${perSecond(undecided)} of them without a decision` : '', undecided > 0);
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
        const differ = zones.filter(({ differ: number }) => number > 0).map(zone => `${visible(zone.name)} (${differenceText(zone)})`);
        say(byId('fleet-old'), old);
        byId('fleet-old').hidden = old === '';
        say(byId('fleet-differ'), differ.length === 0 ? ''
            : `Settings differ between nodes, so that limits are not what one configuration says: ${differ.join(', ')}.`);
        byId('fleet-differ').hidden = differ.length === 0;
        const lost = fleet.lost_at && this.page.time - fleet.lost_at < SECONDS_OF_A_LOSS ? fleet.overrides_lost : 0;
        say(byId('fleet-lost'), lost > 0 ? `Redis ${visible(fleet.redis)} has lost its data at ${when(fleet.lost_at, this.page.time)}: `
            + `${count(lost, 'limit that was changed is', 'limits that were changed are')} as configured again.` : '');
        byId('fleet-lost').hidden = !(lost > 0);
        const missing = fleet.left_out ?? 0;
        say(byId('fleet-left-out'), missing === 0 ? '' : `These figures are without ${whole(missing)} of ${whole(fleet.known)} nodes: `
            + 'the reports of all of them are more than one answer holds. The metrics of each node have its own.');
        byId('fleet-left-out').hidden = missing === 0;
    }

    #showNodes({ fleet, nodes, zones }) {
        // What differs on a node: a zone with its settings, and its limit if that is one of them. Of many nodes the
        // differences name some only, and the digests say which others there are.
        this.differing = new Map();
        for (const zone of zones.filter(({ differ }) => differ > 0)) {
            for (const node of nodes.filter(({ live }) => live)) {
                const own = (node.zones ?? []).find(({ name }) => name === zone.name);
                if (own && own.settings !== zone.settings) {
                    const settings = (zone.differences ?? []).filter(({ nodes: on }) => on.includes(node.name))
                        .map(({ setting }) => words(setting));
                    this.differing.set(node.id, [...this.differing.get(node.id) ?? [], [zone, settings]]);
                }
            }
        }
        const differing = node => (this.differing.get(node.id) ?? []).map(([{ name, limits, differences }, settings]) => {
            const limit = limits?.length > 1 && (!differences || settings.includes('rate') || settings.includes('burst'))
                ? (node.zones ?? []).find(zone => zone.name === name)?.limit : null;
            const texts = [...settings, ...limit ? [visible(limit)] : []];
            const known = (differences ?? []).every(({ differ: number, nodes: on }) => number === on.length);
            return texts.length > 0 ? `${visible(name)} (${texts.join(', ')})`
                : known ? `${visible(name)} (not in its limit)` : visible(name);
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
            const rates = this.connected ? this.rates.zone(zone.name) : null;
            const limits = (zone.limits ?? []).map(visible).join(' or ') || '–';
            const configured = zone.ahead > 0 ? `${limits}, ${mostText(zone)} (ahead)` : limits;
            say(cells[1], zone.override
                ? `${overrideText(zone.override)} ${untilText(zone.override, this.page.time)}, configured ${configured}` : configured);
            cells[1].classList.toggle('bad', Boolean(zone.override));
            say(cells[2], `${whole(zone.nodes)} of ${whole(fleet.nodes)}`);
            say(cells[3], perSecond(rates && rates.passed));
            say(cells[4], perSecond(rates && rates.refused) + (rates?.would_refuse > 0 ? `, ${perSecond(rates.would_refuse)} on trial` : ''));
            cells[4].classList.toggle('some', rates?.refused > 0);
            const tried = zone.would_refuse > 0;  // by a limit in shadow or a dry run, which refuse nothing
            say(cells[5], counted(zone.refused) + (tried ? `, ${counted(zone.would_refuse)} on trial` : ''));
            cells[5].title = whole(zone.refused) + (tried ? `; limits on trial (shadow, dry run) would have refused ${whole(zone.would_refuse)}` : '');
            const use = this.connected ? zone.highest_use ?? null : null;
            say(cells[6], use === null ? '–' : `${use}%`);
            cells[6].classList.toggle('some', use >= 80);
            cells[6].title = 'Of the key that used most of its limit within the last hour';
            say(cells[7], zone.differ > 0 ? `Differ: ${differenceText(zone)}` : 'The same');
            cells[7].classList.toggle('bad', zone.differ > 0);
        });
    }
}

// Redis: each block with its servers.

const STATES = {
    up: { label: 'Up', shape: 'M6,1a5,5 0 1 0 0.01,0Z' },
    part: { label: 'Up in part', shape: 'M6,1a5,5 0 1 0 0.01,0ZM6,2.5v7a3.5,3.5 0 0 0 0,-7Z' },
    away: { label: 'Away', shape: 'M3,1L6,4L9,1L11,3L8,6L11,9L9,11L6,8L3,11L1,9L4,6L1,3Z' },
    breaker_open: { label: 'Breaker open', shape: 'M6,0.5L12,11.5H0ZM6,4L3,9.7H9Z' },
};
const UNKNOWN_SHAPE = 'M6,1a5,5 0 1 0 0.01,0ZM6,3a3,3 0 1 1 -0.01,0Z';

const stateOf = ({ state, workers, workers_up: up }) => state === 'up' && up < workers ? 'part' : state;

const isTrouble = server => stateOf(server) !== 'up';

// Why a block has no servers yet.
const UNKNOWN_SERVERS = {
    cluster: 'No server is known: no node of the cluster knows its slots.',
    sentinel: 'No server is known: no sentinel knows where the master is.',
};

function topologyText({ topology, servers }) {
    const kinds = {
        standalone: 'standalone',
        ring: `ring of ${count(servers.length, 'server', 'servers')}`,
        cluster: servers.length > 0 ? `cluster, ${count(servers.length, 'master', 'masters')}` : 'cluster',
        sentinel: 'watched by sentinels',
    };
    return kinds[topology] ?? words(String(topology));
}

// The text that a zone shows after the name of its Redis; empty: all servers are up.
function troubleText({ servers }) {
    const away = servers.filter(isTrouble).length;
    if (servers.length === 0) {
        return ' has no server';
    }
    if (away === 0) {
        return '';
    }
    return servers.length === 1 ? ' is not up' : `: ${away} of ${servers.length} servers not up`;
}

class ServerRow {
    constructor(columns, { server }) {
        const { root, cells } = row(columns);
        this.root = root;
        this.cells = cells;
        this.mark = svg('path', { 'fill-rule': 'evenodd' });
        this.state = h('b');
        this.workers = h('span', { class: 'quiet' });
        this.errors = h('span');
        this.kinds = h('span', { class: 'quiet' });
        cells[0].append(longText(server, 38));
        cells[2].append(svg('svg', { class: 'mark', width: 12, height: 12, 'aria-hidden': 'true' }, this.mark),
            h('span', {}, this.state, ' ', this.workers));
        cells[6].append(this.errors, ' ', this.kinds);
    }

    show(server, time) {
        const [, role, state, p50, p99, calls, , reconnects] = this.cells;
        const name = stateOf(server);
        const { workers, workers_up: up } = server;
        say(role, visible(server.role ?? '–'));
        set(state, 'class', `state ${name in STATES ? name : 'unknown'}`);
        set(this.mark, 'd', STATES[name]?.shape ?? UNKNOWN_SHAPE);
        say(this.state, STATES[name]?.label ?? visible(words(String(name))));
        say(this.workers, workers > 1 ? `${up} of ${workers} workers` : '');
        say(p50, latency(server.latency?.p50));
        say(p99, latency(server.latency?.p99));
        say(calls, perSecond(this.#rate(server.calls ?? 0, time)));
        this.#showErrors(server.errors ?? {});
        say(reconnects, whole(server.reconnects ?? 0));
    }

    #rate(calls, time) {
        const before = this.before;
        if (!before || before.calls > calls || time - before.time > SECONDS_OF_GAP) {
            this.rate = null;
        } else if (time > before.time) {
            this.rate = (calls - before.calls) / (time - before.time);
        }
        this.before = { calls, time };
        return this.rate;
    }

    #showErrors(errors) {
        const kinds = Object.entries(errors).filter(([, number]) => number > 0);
        say(this.errors, whole(kinds.reduce((sum, [, number]) => sum + number, 0)));
        say(this.kinds, kinds.map(([kind, number]) =>
            kinds.length > 1 ? `${whole(number)} ${words(kind)}` : words(kind)).join(', '));
    }
}

class RedisBlock {
    constructor({ name }) {
        this.columns = [['Server', 'wide'], ['Role'], ['State'], ['p50', 'number'], ['p99', 'number'],
            ['Calls now', 'number'], ['Errors since start', 'number'], ['Reconnects since start', 'number']];
        const { root, body } = table(`Servers of ${visible(name)}`, this.columns);
        this.body = body;
        this.table = root;
        this.unknown = h('p', {});
        this.rows = new Map();
        this.about = h('span', { class: 'quiet' });
        this.root = h('section', { class: 'panel redis-block' },
            h('h3', {}, h('span', {}, visible(name)), ' ', this.about), this.unknown, root);
    }

    show(block, time) {
        say(this.about, topologyText(block));
        this.table.hidden = block.servers.length === 0;
        this.unknown.hidden = block.servers.length > 0;
        say(this.unknown, UNKNOWN_SERVERS[block.topology] ?? 'No server is known.');
        arrange(this.body, block.servers.map(server => {
            if (!this.rows.has(server.server)) {
                this.rows.set(server.server, new ServerRow(this.columns, server));
            }
            const view = this.rows.get(server.server);
            view.show(server, time);
            return view.root;
        }));
    }
}

class RedisView {
    constructor() {
        this.list = document.getElementById('redis-list');
        this.empty = document.getElementById('redis-empty');
        this.blocks = new Map();
        this.trouble = new Map();
    }

    // `node`: the node that answered. A rate is never computed from the figures of two nodes.
    show({ redis }, node, time) {
        if (this.node !== node) {
            this.node = node;
            this.blocks.clear();
        }
        // A block without known servers counts as one server that is not up.
        const up = redis.flatMap(block => block.servers.length > 0 ? block.servers.map(server =>
            !isTrouble(server)) : [false]);
        this.count = { all: up.length, up: up.filter(Boolean).length };
        this.trouble = new Map(redis.map(block => [block.name, troubleText(block)]));
        this.empty.hidden = redis.length > 0;
        arrange(this.list, redis.map(block => {
            if (!this.blocks.has(block.name)) {
                this.blocks.set(block.name, new RedisBlock(block));
            }
            const view = this.blocks.get(block.name);
            view.show(block, time);
            return view.root;
        }));
    }
}

// The page: its head, the sums of all zones, the list of zones, and messages about what a button did.

const ROWS_AT_A_TIME = 50;
const SECONDS_OF_OUTCOME = 15;

const SEVERAL_NODES = 'Several nodes answer at this address, each with numbers of its own: '
    + 'open one node’s own address.';

const byId = id => document.getElementById(id);

class Page {
    views = new Map();
    filter = '';
    rows = ROWS_AT_A_TIME;
    write = false;
    made = 0;
    sorted = 0;
    range = RANGES[0];

    constructor() {
        this.redis = new RedisView();
        this.nodes = new Nodes();
        this.pasts = new PastLoader();
        this.requests = new History();
        this.poller = new Poller((...answer) => this.#take(...answer), () => this.#showState());
        this.fleet = new FleetView(this);
        byId('view-node').addEventListener('click', () => this.#showView(false));
        byId('view-fleet').addEventListener('click', () => this.#showView(true));
        byId('changed-show').addEventListener('click', () => {
            this.#showView(true);
            this.#goTo('changes');
        });
        window.addEventListener('hashchange', () => this.#go());
        for (const name of ['wheel', 'touchstart', 'pointerdown', 'keydown']) {
            window.addEventListener(name, () => { this.goal = null; }, { capture: true, passive: true });
        }
        document.querySelector('.skip').addEventListener('click', event => {
            event.preventDefault();  // the address stays, which leads to a part of the page
            byId('main').focus();
        });
        byId('theme').addEventListener('click', () => theme.toggle());
        byId('pause').addEventListener('click', () => this.poller.pause(!this.poller.paused));
        byId('again').addEventListener('click', () => this.poller.ask());
        byId('outcome-close').addEventListener('click', () => this.tell('', true));
        byId('free-no').addEventListener('click', () => byId('free').close('no'));
        byId('filter').addEventListener('input', event => this.#filterBy(event.target.value));
        byId('sort').addEventListener('change', () => this.#showZones(true));
        byId('more').addEventListener('click', () => this.#showMore());
        byId('clear').addEventListener('click', () => {
            byId('filter').value = '';
            this.#filterBy('');
            byId('filter').focus();
        });
        theme.show();
        this.poller.ask();
    }

    // Looks a key up on the page of the fleet, where its limit can be changed.
    change(zone, id) {
        this.#inFleet().limits.lookUp(zone, id);
    }

    // Why no limit can be changed now; null: it can. The page of the node may not know whether Redis answers.
    get whyNot() {
        const { data } = this.fleet;
        return !this.write ? 'This API is read-only: changes need write=on.'
            : data && !data.fleet.connected ? 'Nothing can be changed while Redis does not answer.' : null;
    }

    #inFleet() {
        this.#showView(true);
        return this.fleet;
    }

    setAddress(hash) {
        history.replaceState(null, '', hash);
    }

    // Shows what the address leads to. A node of a fleet shows the fleet unless the address names its own page.
    #go() {
        const { part, zone, key, id } = placeOf(location.hash);
        if (!this.hasFleet) {
            const view = this.views.get(zone);
            view?.open(true);
            view?.root.scrollIntoView();
        } else if (zone && this.views.has(zone)) {
            const { limits } = this.#inFleet();
            id ? limits.lookUp(zone, id) : limits.lookUpKey(zone, key ?? '');
        } else if (key) {
            this.#inFleet().finder.find(key);
        } else {
            this.#showView(!(['zones', 'redis'].includes(part)));
            this.#goTo(part);
        }
    }

    // A part stays where it was gone to while the tables above it get their rows, until the user scrolls or does something else.
    #goTo(part) {
        this.goal = part ? document.querySelector(`main section[id="${CSS.escape(part)}"]`) : null;
        this.goal?.scrollIntoView();
        this.goal?.focus();
    }

    // Called when the tables of the fleet have changed. `settled`: they have all that they get at the start.
    arrive(settled) {
        this.goal?.scrollIntoView();
        this.goal = settled ? null : this.goal;
    }

    // Shows a message about what a button did, also to screen readers. `undo`: what undoes it; then the message stays.
    tell(text, good, undo = null) {
        const area = byId('outcome');
        clearTimeout(this.timer);
        say(byId('outcome-text'), text);
        area.classList.toggle('shown', text !== '');
        area.classList.toggle('bad', !good);
        byId('outcome-close').hidden = text === '';
        byId('outcome-undo').hidden = undo === null;
        byId('outcome-undo').onclick = undo;
        if (text !== '' && good && undo === null) {
            this.timer = setTimeout(() => this.tell('', true), 1000 * SECONDS_OF_OUTCOME);
        }
    }

    #take(zones, redis, fleet, asked) {
        this.asked = asked;
        this.write = zones.write === true;
        this.time = zones.time ?? Date.now() / 1000;
        const ofRedis = redis.node ?? zones.node;
        this.redis.show(redis, ofRedis, this.time);
        if (this.nodes.take(zones.node, ofRedis, asked / 1000)) {
            this.views.forEach(view => view.forget());
            this.requests = new History();
        }
        this.requests.add(this.time, Object.fromEntries(Object.entries(zones.requests ?? {})
            .map(([result, number]) => [result, { all: number }])));
        const changed = wholeZonesText(zones.zones, this.time);
        say(byId('changed-text'), changed && `Changed at run time: ${changed}.`);
        byId('changed').hidden = changed === '';
        this.#keepOnly(new Set(zones.zones.map(({ name }) => name)));
        for (const zone of zones.zones) {
            if (!this.views.has(zone.name)) {
                this.made += 1;
                this.views.set(zone.name, new ZoneView(zone.name, `zone-${this.made}`, this));
            }
            this.views.get(zone.name).take(zone, this.time);
        }
        say(byId('node'), visible(zones.node ?? ''));
        say(byId('version'), zones.version ? `version ${visible(zones.version)}`
            + (zones.hiredis ? `, hiredis ${visible(zones.hiredis)}` : '') : '');
        document.title = `${visible(zones.node ?? '')} – rate limits`;
        this.#takeFleet(zones, fleet);
        this.#openFirst();
        this.#showSums();
        this.#showZones();
    }

    // A node without ratelimit_fleet has no fleet.
    #takeFleet(zones, fleet) {
        this.hasFleet = zones.fleet === true;
        byId('views').hidden = !this.hasFleet;
        if (this.hasFleet) {
            this.fleet.limits.takeZones(zones.zones);
        }
        if (!this.begun) {
            this.begun = true;
            this.#go();
        } else if (!this.hasFleet) {
            this.#showView(false);
        } else if (this.poller.fleet && fleet !== undefined) {
            this.fleet.take(fleet);
        }
    }

    #showView(fleet) {
        if (this.poller.fleet !== fleet) {
            this.poller.fleet = fleet;
            set(byId('view-fleet'), 'aria-pressed', fleet);
            set(byId('view-node'), 'aria-pressed', !fleet);
            byId('of-fleet').hidden = !fleet;
            byId('of-node').hidden = fleet;
            say(byId('numbers-of'), fleet ? 'all live nodes together' : 'this node, all workers together');
            byId('parts-of-node').hidden = fleet;
            byId('parts-of-fleet').hidden = !fleet;
            if (this.poller.answered) {
                this.setAddress(fleet ? '#fleet' : '#zones');
            }
            this.poller.again();
        }
    }

    // If the last open zone disappears, others are opened, as at the start.
    #keepOnly(names) {
        const open = () => [...this.views.values()].some(view => view.isOpen);
        const wasOpen = open();
        for (const name of this.views.keys()) {
            if (!names.has(name)) {
                this.views.delete(name);
            }
        }
        this.opened &&= open() || !wasOpen;
    }

    // One or two zones are opened at the start; of more, the one that refuses most, once that is known.
    #openFirst() {
        const views = this.#ordered();
        const few = views.length <= 2;
        if (!this.opened && views.length > 0 && (few || views[0].history.intervals.length > 0)) {
            this.opened = true;
            (few ? views : views.slice(0, 1)).forEach(view => view.open(true));
        }
    }

    #ordered() {
        const views = [...this.views.values()];
        const byName = (a, b) => a.zone.name < b.zone.name ? -1 : 1;
        if (byId('sort').value === 'name') {
            return views.sort(byName);
        }
        const ranks = new Map(views.map(view => [view, view.history.rank()]));
        return views.sort((a, b) => ranks.get(b) - ranks.get(a) || byName(a, b));
    }

    #showSums() {
        // Requests, each once, whatever zones limit it.
        const now = this.requests.now();
        const known = now !== null || this.views.size === 0;
        const sums = overview(now ?? {});
        const all = sums.passed + sums.would + sums.refused + sums.failed;
        const tell = (id, text, more, some) => {
            const [, number, unit] = text.match(/^(.*?)(\/s)?$/);
            byId(`${id}-now`).replaceChildren(number, h('span', { class: 'unit' }, unit ?? ''));
            say(byId(`${id}-more`), more);
            byId(`${id}-now`).classList.toggle('some', Boolean(some));
        };
        tell('passed', perSecond(known ? sums.passed + sums.would : null),
            sums.would > 0 ? `trials would refuse ${perSecond(sums.would)}` : '');
        tell('refused', perSecond(known ? sums.refused : null),
            known && all > 0 ? `${percent(sums.refused, all)} of all` : '', sums.refused);
        tell('failed', perSecond(known ? sums.failed : null),
            sums.failed > 0 ? `no decision: ${[['failed_open', 'let in'], ['failed_closed', 'refused']].filter(([name]) => now[name] > 0)
                .map(([name, done]) => `${perSecond(now[name])} ${done}`).join(', ')}` : '', sums.failed);
        const { all: servers, up } = this.redis.count;
        tell('redis', servers === 0 ? 'None' : up === servers ? 'Up' : `${servers - up} not up`,
            servers === 0 ? 'counted on this node' : up === servers ? count(servers, 'server', 'servers')
                : `of ${count(servers, 'server', 'servers')}`, up < servers);
    }

    // Sets the time that all charts show.
    choose(range) {
        this.range = range;
        this.views.forEach(view => view.isOpen && view.show());
    }

    #filterBy(text) {
        this.filter = text.trim().toLowerCase();
        this.rows = ROWS_AT_A_TIME;
        this.#showZones(true);
    }

    // Moves the focus to the first of the new rows.
    #showMore() {
        const last = byId('zone-list').lastElementChild;
        this.rows += ROWS_AT_A_TIME;
        this.#showZones();
        last?.nextElementSibling?.querySelector('.zone-name').focus();
    }

    // Rows move at most once in ten seconds, so that they can be read, but at once if the user sorts or
    // filters (`asked`), even under the pointer.
    #showZones(asked = false) {
        const list = byId('zone-list');
        const held = !asked && (inUse(list) || this.time - this.sorted < SECONDS_OF_NOW);
        let found = this.#ordered().filter(view => view.matches(this.filter));
        if (!held && !asked && this.sorted) {
            found = this.#aroundOpen(found);
        }
        this.sorted = held || !this.opened ? this.sorted : this.time;
        const there = new Set(held ? list.children : []);
        const shown = [...found.filter(({ root }) => there.has(root)), ...found.filter(({ root }) => !there.has(root))]
            .slice(0, this.rows);
        arrange(list, shown.map(view => view.root), held);
        shown.forEach(view => view.show());
        say(byId('zone-count'), this.views.size ? whole(this.views.size) : '');
        say(byId('found'),
            this.filter ? `${found.length} of ${count(this.views.size, 'zone', 'zones')}` : '');
        byId('more').hidden = shown.length === found.length;
        say(byId('more'), `Show ${Math.min(ROWS_AT_A_TIME, found.length - shown.length)} more of`
            + ` ${found.length - shown.length}`);
        byId('no-zones').hidden = this.views.size > 0;
        byId('no-match').hidden = this.views.size === 0 || found.length > 0;
        byId('tools').hidden = byId('list-head').hidden = this.views.size === 0;
        byId('list-head').hidden ||= found.length === 0;
        say(byId('no-match-text'), `No zone has “${visible(this.filter)}” in its name, key, rate or Redis.`);
    }

    // An open zone stays in its row, since it is being read; the others are sorted around it.
    #aroundOpen(found) {
        const rows = [...byId('zone-list').children];
        const open = rows.map(root => found.find(view => view.root === root && view.isOpen));
        const order = found.filter(view => !open.includes(view));
        open.forEach((view, i) => {
            if (view) {
                order.splice(i, 0, view);
            }
        });
        return order;
    }

    #showState() {
        const { failures, paused, reason, answered, next } = this.poller;
        const failing = failures > 0 && !paused;
        const away = answered && this.redis.count.up < this.redis.count.all;
        set(byId('live'), 'class', paused ? 'paused' : failing || away ? 'failing' : 'fine');
        say(byId('live-text'), paused ? 'Paused' : failing ? 'No numbers' : away ? 'Live, Redis not up' : 'Live');
        say(byId('updated'), answered ? `at ${clock(this.time)}` : '');
        say(byId('pause'), paused ? 'Resume' : 'Pause');
        // All nodes of a fleet have the same page of it.
        const several = this.nodes.several && !this.poller.fleet;
        byId('notice').classList.toggle('shown', failing || several);
        document.body.classList.toggle('stale', failing && answered);
        byId('again').hidden = !failing;
        // Announced once to screen readers; the times beside it change without announcement.
        const lastKnown = answered ? ` The numbers shown are the last known, from ${clock(this.time)}.` : '';
        say(byId('notice-text'), failing ? `This node ${reason}.${lastKnown}`
            : several ? SEVERAL_NODES : '');
        say(byId('notice-next'), failing ? `Next try in ${Math.round(next)} s.` : '');
    }
}

document.addEventListener('DOMContentLoaded', () => new Page());

// One zone: its row in the list and, once opened, its details below.

// The small chart's range. That of a closed zone is read again only after a gap.
const SPARK_RANGE = { seconds: SECONDS_KEPT, step: 10, refresh: Infinity, live: true };

const ALGORITHMS_WITH_BURST = ['gcra', 'leaky_bucket'];

function burstText({ burst, algorithm }) {
    if (burst !== null && burst !== undefined) {
        return whole(burst);
    }
    if (algorithm === 'token_bucket') {
        return 'the quota';
    }
    return ALGORITHMS_WITH_BURST.includes(algorithm) ? '0' : 'none';
}

const optional = (value, otherwise, text = whole) =>
    value === null || value === undefined ? otherwise : text(value);

// What a zone allows.
const quotaText = zone => optional(zone.concurrency, zone.rate, most => `${whole(most)} at one time`);

// What is in force for a zone: what was changed at run time, or what is configured.
const inForceText = (zone, now) => zone.override
    ? `${overrideText(zone.override)} ${untilText(zone.override, now)}, configured ${quotaText(zone)}` : quotaText(zone);

const addressText = ({ ipv4, ipv6 }) => ipv4 === 32 && ipv6 === 128 ? 'addresses'
    : `${ipv4 === 32 ? 'IPv4 addresses' : `IPv4 /${ipv4}`} and IPv6 /${ipv6}`;

// "Europe/Berlin, from day 15, this one until 15 Dec 2026, 00:00".
const calendarText = ({ time_zone: timeZone, start, end }) => [timeZone, start === '1' ? null : `from day ${start}`,
    optional(end, null, seconds => `this one until ${dateFormat.format(new Date(1000 * seconds))}`)].filter(Boolean).join(', ');

// Label and text of each setting, null if the zone does not have it. Unknown settings, from a newer node, are shown as JSON.
const SETTINGS = {
    name: ['Name', zone => zone.name],
    key: ['Key', zone => zone.key],
    address_bits: ['Keys are', zone => optional(zone.address_bits, null, addressText)],
    hash_key: ['Keys are known by', zone => zone.hash_key ? 'their hash' : 'themselves'],
    algorithm: ['Algorithm', zone => words(zone.algorithm ?? '')],
    rate: ['Rate', zone => optional(zone.rate, null, rate => rate)],
    calendar: ['Periods of', zone => optional(zone.calendar, null, calendarText)],
    concurrency: ['Requests at one time', zone => optional(zone.concurrency, null)],
    in_flight: ['Held by this node now', zone => optional(zone.in_flight, null)],
    hold_seconds: ['Free without a renewal after', zone => optional(zone.hold_seconds, null, seconds => `${seconds} s`)],
    burst: ['Burst', burstText],
    precision: ['Precision', zone => optional(zone.precision, 'none', seconds => `${seconds} s`)],
    block: ['Block after a refusal', zone => optional(zone.block, 'none', duration)],
    limit: ['Limit', zone => optional(zone.limit, 'depends on the rate')],
    redis: ['Counted in', zone => optional(zone.redis, 'this node’s memory', name => `Redis ${name}`)],
    clock: ['Clock', zone => zone.clock === 'local' ? 'this node’s' : 'of Redis'],
    cache: ['Denial cache', zone => zone.cache ? 'on' : 'off'],
    lease: ['Leases', zone => zone.lease ? `up to ${whole(zone.lease)}` : 'off'],
    nodes: ['Nodes', zone => whole(zone.nodes ?? 1)],
    size: ['Memory', zone => bytes(zone.size ?? 0)],
    cost: ['Cost counted', zone => whole(zone.cost ?? 0)],
    charged: ['Charged after responses', zone => whole(zone.charged ?? 0)],
    refunded: ['Refunded after responses', zone => whole(zone.refunded ?? 0)],
    blocks: ['Blocks begun', zone => whole(zone.blocks ?? 0)],
    keys: ['Keys in memory', zone => whole(zone.keys ?? 0)],
    near_limit: ['Passed with less than a fifth left', zone => whole(zone.near_limit ?? 0)],
    overrides: ['Changed at run time', zone => whole(zone.overrides ?? 0)],
    highest_use: ['Highest use in an hour', zone => `${zone.highest_use}% of the limit of a key`],
    ahead: ['Ahead of Redis', zone => zone.ahead ? `at most ${count(zone.ahead, 'unit', 'units')} for each worker` : 'off'],
    evictions: ['Evictions', zone => whole(zone.evictions ?? 0)],
};
const NOT_SETTINGS = ['counters', 'busiest', 'override'];

function settingsOf(zone) {
    const known = Object.entries(SETTINGS).filter(([name]) => name in zone)
        .map(([, [label, text]]) => [label, text(zone)]).filter(([, text]) => text !== null);
    const more = Object.keys(zone).filter(name => !(name in SETTINGS) && !NOT_SETTINGS.includes(name))
        .map(name => [words(name), JSON.stringify(zone[name])]);
    return [...known, ...more];
}

// Results that this zone has had, and those that every zone shows.
const resultsOf = totals => RESULTS.filter(({ name }) => totals[name] > 0 || ALWAYS_SHOWN.includes(name));

const swatch = name => svg('svg', { class: 'swatch', width: 12, height: 12, 'aria-hidden': 'true' },
    svg('rect', { class: `area ${name}`, width: 12, height: 12, rx: 2 }));

// The zone's rates by result: now or at the chart's cursor, at the peak, and the total.
class ResultsTable {
    constructor() {
        this.columns = [['Result'], ['Now', 'number'], ['Peak', 'number'], ['Since start', 'number']];
        const { root, head, body } = table('Rates by result', this.columns);
        this.root = root;
        this.nowHead = head.children[1];
        this.body = body;
        this.rows = new Map();
    }

    // `intervals`: those of the chart; `at`: the one at its cursor.
    show(history, intervals, at) {
        const totals = history.last.results;
        const rates = at ? at.rates : history.now();
        const peaks = peaksOf(intervals);
        say(this.nowHead, at ? `At ${moment(at.to, history.last.time)}` : 'Now');
        arrange(this.body, resultsOf(totals).map(({ name, label }) => {
            const { root, cells } = this.#row(name, label);
            say(cells[1], rates ? perSecond(rates[name] ?? 0) : '–');
            say(cells[2], intervals.length ? perSecond(peaks[name] ?? 0) : '–');
            say(cells[3], counted(totals[name] ?? 0));
            cells[3].title = whole(totals[name] ?? 0);
            return root;
        }));
    }

    #row(name, label) {
        if (!this.rows.has(name)) {
            const made = row(this.columns);
            made.cells[0].append(swatch(name), label);
            this.rows.set(name, made);
        }
        return this.rows.get(name);
    }
}

// Shares of the sources of decisions, as a bar and as text.
class SourcesBar {
    constructor() {
        this.parts = new Map(SOURCES.map(name => [name, h('span', { class: `part ${name}` })]));
        this.labels = new Map(SOURCES.map(name => [name, h('b', { class: 'number' })]));
        this.bar = h('div', { class: 'bar', 'aria-hidden': 'true' }, ...this.parts.values());
        this.list = h('ul', { class: 'shares' }, ...SOURCES.map(name =>
            h('li', {}, h('span', { class: `part ${name}` }), `${name} `, this.labels.get(name))));
        this.nothing = h('p', { class: 'quiet' });
        this.root = h('div', {}, this.bar, this.list, this.nothing);
    }

    show(history) {
        const numbers = history.sources();
        const all = SOURCES.reduce((sum, name) => sum + (numbers[name] ?? 0), 0);
        this.bar.hidden = this.list.hidden = all === 0;
        this.nothing.hidden = all > 0;
        say(this.nothing, history.samples.length < 2 ? 'Measuring…' : 'No decisions in the last minutes.');
        for (const name of SOURCES) {
            const number = numbers[name] ?? 0;
            this.parts.get(name).style.flexGrow = all ? number / all : 0;
            this.parts.get(name).hidden = number === 0;
            this.labels.get(name).parentNode.classList.toggle('none', number === 0);
            say(this.labels.get(name), percent(number, all));
        }
    }
}

class ZoneView {
    constructor(name, id, page) {
        this.page = page;
        this.id = id;
        this.name = name;
        this.forget();
        this.title = button(h('span', {}, visible(name)), 'zone-name', () => this.open(!this.isOpen));
        this.title.title = visible(name);
        set(this.title, 'aria-expanded', 'false');
        set(this.title, 'aria-controls', `${id}-body`);
        this.aboutText = h('span');
        this.trouble = h('b');
        this.about = h('p', { class: 'about' }, this.aboutText, this.trouble);
        this.spark = svg('svg', { class: 'spark', width: 132, height: 28, viewBox: '0 0 132 28',
            preserveAspectRatio: 'none', 'aria-hidden': 'true' });
        this.numbers = {};
        const figures = [['passed', 'Passed/s'], ['refused', 'Refused/s'], ['share', 'Share'],
            ['failed', 'Failed/s']].map(([key, label]) => {
            this.numbers[key] = h('dd');
            return h('div', { class: `figure ${key}` }, h('dt', {}, label), this.numbers[key]);
        });
        this.body = h('div', { class: 'zone-body', id: `${id}-body`, hidden: '' });
        this.root = h('li', { class: 'zone' },
            h('div', { class: 'zone-head' },
                h('div', { class: 'zone-title' }, h('h3', {}, this.title), this.about),
                this.spark, h('dl', { class: 'figures' }, ...figures)),
            this.body);
    }

    get isOpen() {
        return !this.body.hidden;
    }

    open(yes) {
        this.body.hidden = !yes;
        set(this.title, 'aria-expanded', yes);
        this.#showBody();
    }

    // Drops the history when another node answers: its counters are different. The zone stays open or closed.
    forget() {
        this.history = new History();
        this.past = new Past(this.name);
    }

    // Keeps new figures. They are drawn only if the zone is shown.
    take(zone, time) {
        this.zone = zone;
        if (this.history.add(time, zone.counters)) {
            this.past = new Past(this.name);
        }
        // Each time, since a reload may change the zone's settings.
        this.text = [zone.name, zone.key, quotaText(zone), zone.redis, zone.algorithm, words(zone.algorithm ?? '')]
            .join(' ').toLowerCase();
    }

    matches(filter) {
        return this.text.includes(filter);
    }

    show() {
        const { zone, history } = this;
        this.root.classList.toggle('changed', Boolean(zone.override));
        say(this.aboutText, visible(`${inForceText(zone, this.page.time)} per ${zone.key} · ${words(zone.algorithm ?? '')}`
            + ` · ${zone.redis ? `Redis ${zone.redis}` : 'this node'}`));
        say(this.trouble, this.page.redis.trouble.get(zone.redis) ?? '');
        set(this.about, 'title', this.about.textContent);
        const now = history.now();
        const sums = now && overview(now);
        const all = sums && sums.passed + sums.refused + sums.would + sums.failed;
        // A limit on trial (shadow, dry run) refuses nothing: its row shows what it would refuse.
        const trial = Boolean(sums && sums.would > 0 && sums.refused === 0);
        const refused = sums && (trial ? sums.would : sums.refused);
        say(this.numbers.passed, short(sums && sums.passed + (trial ? 0 : sums.would)));
        say(this.numbers.refused, short(refused));
        say(this.numbers.share, sums ? percent(refused, all) : '–');
        say(this.numbers.failed, short(sums && sums.failed));
        this.root.classList.toggle('trial', trial);
        say(this.numbers.refused.previousSibling, trial ? 'On trial/s' : 'Refused/s');
        for (const name of ['refused', 'failed']) {
            this.numbers[name].classList.toggle('some', Boolean(sums && (name === 'refused' ? refused : sums.failed)));
        }
        this.#wantPast();
        drawSpark(this.spark, this.#intervals(SPARK_RANGE), history.last.time);
        this.#showBody();
    }

    // Asks for what the node remembers: of a closed zone once, for the small chart; of an open one now and then;
    // and after a gap in the page's own samples.
    #wantPast() {
        const { time } = this.history.last;
        const { seconds, refresh } = this.isOpen ? this.page.range : SPARK_RANGE;
        const gap = this.history.intervals.findLast(({ rates }) => !rates);
        if (this.past.isDue(time - seconds, time, gap?.to > this.past.asked ? 0 : refresh)) {
            this.page.pasts.want(this, time - seconds, time);
        }
    }

    #intervals(range) {
        const { history } = this;
        return this.past.intervals(range, history.recent(), history.last.time, history.last.results);
    }

    #showBody() {
        if (!this.isOpen || !this.zone) {
            return;
        }
        if (!this.chart) {
            this.#build();
        }
        const { history, zone } = this;
        const { range } = this.page;
        const intervals = this.#intervals(range);
        this.choice.show(range);
        this.choice.root.hidden = !this.past.has;
        this.chart.show(intervals, history.last.time, range.seconds,
            `Chart of ${visible(zone.name)}: rates of the last ${range.words}`);
        this.results.show(history, intervals, this.chart.at);
        this.sources.show(history);
        this.keys.show(zone, history);
        sayPairs(this.settings, settingsOf(zone));
        this.empty.hidden = intervals.length > 0;
        say(this.summary, this.#summary(intervals));
    }

    #build() {
        const { id } = this;
        this.summary = h('p', { class: 'unseen', id: `${id}-summary` });
        this.chart = new Chart(`${id}-summary`, at => this.results.show(this.history, this.chart.intervals, at));
        this.choice = new RangeChoice(`Time that the chart of ${visible(this.zone.name)} shows`,
            range => this.page.choose(range));
        this.results = new ResultsTable();
        this.sources = new SourcesBar();
        this.keys = new BusiestKeys(this.page, id);
        this.settings = h('dl', { class: 'settings' });
        this.empty = h('p', { class: 'chart-empty' }, 'Measuring: a rate needs two answers, two seconds apart.');
        const part = (classes, title, ...content) =>
            h('section', { class: `part-of-zone ${classes}` }, h('h4', {}, title), ...content);
        this.body.append(
            part('rates', 'Requests per second', this.choice.root, this.chart.root, this.empty, this.summary),
            part('results', 'Results', this.results.root),
            part('busiest', 'Busiest refused keys', this.keys.root),
            part('origins', 'Where decisions came from', this.sources.root),
            part('all-settings', 'Settings', this.settings));
    }

    #summary(intervals) {
        const { history } = this;
        const now = history.now();
        if (!now) {
            return 'Nothing is known yet.';
        }
        return `Now: ${spoken(now)}. Highest of the last ${this.page.range.words}:`
            + ` ${spoken(peaksOf(intervals))}.`
            + ' The arrow keys read the chart at a point of time.';
    }
}

// What the nodes of a fleet pass and refuse: now, and over the last hours.

// As RANGES. A node keeps what it counted as long as its nginx runs, and Redis the last report of a node for an hour.
const FLEET_RANGES = [
    { name: '15 min', words: '15 minutes', seconds: 900, step: 60, live: true },
    { name: '1 hour', words: 'hour', seconds: 3600, step: 60, live: false },
    { name: '6 hours', words: '6 hours', seconds: 21600, step: 300, live: false },
    { name: '2 days', words: 'two days', seconds: 172800, step: 1800, live: false },
];

const SECONDS_OF_STEP = 15;  // that a step must have before its rate is shown
const SECONDS_OF_REPORT = 3600;
const MOST_NODES_NAMED = 5;
const SECONDS_BESIDE = 300;  // before and after what happened

const RATES = ['passed', 'refused', 'undecided', 'would_refuse'];  // the third of nodes alone, the last of zones alone
const nothing = () => Object.fromEntries(RATES.map(name => [name, 0]));

// Requests of the fleet's nodes and zones a second, from counters of each zone on each node, so that a node that comes
// or goes makes no jump.
class FleetRates {
    samples = [];
    intervals = [];  // for the chart
    now = null;      // {all, nodes, zones}: RATES a second, by id and by name; null: not known yet

    // `time`: when Redis had these figures. Older figures, as when Redis was restarted, start again.
    add(time, nodes) {
        const last = this.samples.at(-1);
        // A rate of two answers that come shortly one after the other, as after a pause, would be a peak of chance.
        if (last && time >= last.time && time - last.time < SECONDS_OF_SAMPLE) {
            return;
        }
        if (last && (time < last.time || time - last.time > SECONDS_OF_GAP)) {
            this.samples = [];
            this.intervals = time < last.time ? [] : [...this.intervals, { from: last.time, to: time, rates: null }];
        }
        const counters = new Map();
        for (const { id, zones, passed, refused, undecided } of nodes) {
            counters.set(id, { passed: passed ?? 0, refused: refused ?? 0, undecided: undecided ?? 0,
                zones: new Map((zones ?? []).map(zone => [zone.name, zone])) });
        }
        this.samples.push({ time, counters });
        while (this.samples.length > 2 && this.samples[1].time <= time - SECONDS_OF_NOW) {
            this.samples.shift();
        }
        this.now = this.samples.length > 1 ? this.#rates(this.samples[0], this.samples.at(-1)) : null;
        if (this.now) {
            const { passed, refused, undecided } = this.now.all;
            this.intervals.push({ from: last.time, to: time,
                rates: { passed: Math.max(0, passed - undecided), rejected: refused, failed_open: undecided } });
        }
        this.intervals = this.intervals.filter(({ to }) => to > time - FLEET_RANGES[0].seconds);
    }

    // Each node and each zone is looked at once: there may be hundreds of both.
    #rates(first, last) {
        const rates = { all: nothing(), nodes: new Map(), zones: new Map() };
        const seconds = last.time - first.time;
        const add = (sums, before, after) => {
            for (const name of RATES) {
                sums[name] += Math.max(0, (after[name] ?? 0) - (before[name] ?? 0)) / seconds;
            }
        };
        for (const [id, after] of last.counters) {
            const before = first.counters.get(id);
            const ofNode = nothing();
            rates.nodes.set(id, ofNode);
            for (const [name, zone] of before ? after.zones : []) {
                const sums = rates.zones.get(name) ?? nothing();
                rates.zones.set(name, sums);
                if (before.zones.has(name)) {
                    add(sums, before.zones.get(name), zone);
                }
            }
            if (before) {
                add(ofNode, before, after);
                add(rates.all, before, after);
            }
        }
        return rates;
    }

    // Requests, each once whatever its zones, of all nodes or of the one of this id.
    requests(node = null) {
        return this.now && (node === null ? this.now.all : this.now.nodes.get(node) ?? nothing());
    }

    // Decisions of a zone on all nodes.
    zone(name) {
        return this.now && (this.now.zones.get(name) ?? nothing());
    }
}

// "edge-1, edge-2 and 3 more"
const someNames = (nodes, text = ({ name }) => visible(name)) => nodes.slice(0, MOST_NODES_NAMED).map(text).join(', ')
    + (nodes.length > MOST_NODES_NAMED ? ` and ${whole(nodes.length - MOST_NODES_NAMED)} more` : '');

// The mean of what was refused a second in intervals; null: not known.
function refusedIn(intervals) {
    const seconds = intervals.reduce((sum, { from, to }) => sum + to - from, 0);
    return seconds > 0 ? intervals.reduce((sum, { from, to, rates }) => sum + (to - from) * (rates.rejected ?? 0), 0) / seconds : null;
}

// What was refused a second before `begin` and after `end`, in the steps next to them: of scales of intervals the first that reaches
// so far back.
function refusedAround(scales, begin, end) {
    for (const { step, intervals } of scales) {
        const steps = Math.max(1, Math.round(SECONDS_BESIDE / step));
        const before = intervals.filter(({ to }) => to <= begin).slice(-steps);
        if (before.length > 0 && before.at(-1).to > begin - step) {
            return [refusedIn(before), refusedIn(intervals.filter(({ from }) => from >= end).slice(0, steps))];
        }
    }
    return [null, null];
}

// The chart of the fleet: steps that the nodes remember, and what this page saw itself.
class FleetChart {
    range = FLEET_RANGES[1];

    constructor() {
        this.chart = new Chart('fleet-chart-text', at => this.#say(at));
        this.choice = new RangeChoice('Time that the chart of the fleet shows', range => {
            this.range = range;
            this.#draw();
        }, FLEET_RANGES);
        byId('fleet-chart').append(this.choice.root, this.chart.root);
    }

    // `data`: of /fleet.
    show({ history, longer_history: longer = [], nodes, happened, fleet: { as_of: until, redis } }, rates) {
        Object.assign(this, { rates, until, happened, nodes, redis });
        this.scales = new Map([history, ...longer].filter(Boolean).map(scale => [scale.step, intervalsOf(scale, until, 'rejected_shadow')]));
        this.#draw();
    }

    // What was refused a second before and after a time of the last two days; null: not known.
    refusedAround(begin, end) {
        return refusedAround([...this.scales].map(([step, intervals]) => ({ step, intervals })), begin, end);
    }

    #draw() {
        if (!this.until) {
            return;
        }
        // Clocks of nodes differ a little, so that the first seconds of a step say nothing.
        const past = (this.scales.get(this.range.step) ?? []).filter(({ from, to }) => to - from >= SECONDS_OF_STEP);
        const known = joined(past, this.rates.intervals, this.range.live, this.until, this.range.seconds);
        this.choice.show(this.range);
        this.chart.marks = this.happened.flatMap(({ at, until }) => until > at ? [at, until] : [at]);
        this.chart.show(known, this.until, this.range.seconds,
            `Chart of all nodes: requests passed and refused in the last ${this.range.words}`);
        say(byId('fleet-chart-loaded'), this.#loadedText());
        say(byId('fleet-chart-since'), this.range.seconds > SECONDS_OF_REPORT ? this.#sinceText() : '');
        this.#say(this.chart.at);
    }

    // A node that was restarted, or is no longer there, is missing from the longer ranges.
    #sinceText() {
        const { until, range: { seconds } } = this;
        const begun = this.nodes.filter(({ uptime }) => uptime < seconds).sort((a, b) => a.uptime - b.uptime);
        const names = someNames(begun, ({ name, heard, uptime }) => `${visible(name)} at ${moment(heard - uptime, until)}`);
        return `Of a node that ended more than an hour ago, or was started again, this has nothing from before.${begun.length === 0 ? ''
            : ` Started since: ${names}.`}`;
    }

    // What was refused before and after nodes loaded their configuration last.
    #loadedText() {
        const last = this.happened.find(({ what }) => what === 'loaded');
        if (!last || last.at < this.until - this.range.seconds) {
            return '';
        }
        const [before, after] = this.refusedAround(last.at, last.until);
        return `Configuration loaded last at ${spanText(last, this.until)} on ${nodesText(last)}: refused ${perSecond(before)} before, `
            + `${after === null ? 'not known yet' : perSecond(after)} after.`;
    }

    // "; then: 198.51.100.7 in per_ip: blocked until 14:00:00; then: nginx started (edge-1)", of an interval.
    #happenedIn({ from, to }) {
        const texts = this.happened.filter(({ at, until }) => [at, until].some(time => from < time && time <= to))
            .map(item => `${happenedText(item, this.redis, this.until)}${item.names ? ` (${nodesText(item)})` : ''}`);
        return texts.slice(0, 3).map(text => `; then: ${text}`).join('') + (texts.length > 3 ? `; and ${texts.length - 3} more` : '');
    }

    #moment(time) {
        return moment(time, this.until);
    }

    // What the cursor is at, or when most was refused.
    #say(at) {
        const text = ({ rates: { passed = 0, rejected = 0, failed_open: undecided = 0 } }) => `${perSecond(passed + undecided)} passed`
            + `${undecided > 0 ? ` (${perSecond(undecided)} of them without a decision)` : ''}, ${perSecond(rejected)} refused`;
        const most = this.chart.intervals.filter(({ rates }) => rates?.rejected > 0)
            .reduce((top, each) => (top && top.rates.rejected >= each.rates.rejected ? top : each), null);
        const undecided = this.chart.intervals.filter(({ rates }) => rates?.failed_open > 0);
        const let_in = undecided.length === 0 ? '' : ` Requests passed without a decision from ${this.#moment(undecided[0].from)} to ${this.#moment(undecided.at(-1).to)}.`;
        say(byId('fleet-chart-text'), at ? `${this.#moment(at.from)} to ${this.#moment(at.to)}: ${text(at)}${this.#happenedIn(at)}`
            : most ? `Most was refused at ${this.#moment(most.from)}: ${text(most)}.${let_in}`
                : this.chart.intervals.length > 0 ? `Nothing was refused in the last ${this.range.words}.${let_in}` : 'Measuring…');
    }
}

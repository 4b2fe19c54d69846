// The history of a zone's counters: samples of the last minutes, and the rates between them.

const SECONDS_KEPT = 300;
const SECONDS_OF_NOW = 10;
// A longer interval between two samples (a hidden tab, an unavailable node) is a gap without a rate.
const SECONDS_OF_GAP = 15;
const SECONDS_OF_SAMPLE = 0.5;  // that a rate is of, at least

// Results in the order of the chart, from top to bottom: the most important ones are at the bottom, where
// they are easiest to read. `of`: the sum of `overview` that includes the result.
const RESULTS = [
    { name: 'passed', label: 'Passed', of: 'passed' },
    { name: 'passed_shadow', label: 'Passed, in shadow', of: 'passed' },
    { name: 'delayed', label: 'Delayed', of: 'passed' },
    { name: 'delayed_shadow', label: 'Would delay, in shadow', of: 'passed' },
    { name: 'delayed_dry_run', label: 'Would delay, dry run', of: 'passed' },
    { name: 'rejected_shadow', label: 'Would refuse, in shadow', of: 'would' },
    { name: 'rejected_dry_run', label: 'Would refuse, dry run', of: 'would' },
    { name: 'rejected', label: 'Refused', of: 'refused' },
    { name: 'failed_open', label: 'No decision, let in', of: 'failed' },
    { name: 'failed_closed', label: 'No decision, refused', of: 'failed' },
];
const FROM_THE_FLOOR = [...RESULTS].reverse();
const ALWAYS_SHOWN = ['passed', 'rejected'];
const SOURCES = ['redis', 'cache', 'lease', 'local', 'override'];

// {result: {source: n}} as two tables, by result and by source. Unknown results, from a newer node, are kept.
function totalsOf(counters) {
    const results = {};
    const sources = {};
    for (const [result, bySource] of Object.entries(counters ?? {})) {
        for (const [source, number] of Object.entries(bySource)) {
            results[result] = (results[result] ?? 0) + number;
            sources[source] = (sources[source] ?? 0) + number;
        }
    }
    return { results, sources };
}

const fell = (before, after) => Object.keys(before).some(name => (after[name] ?? 0) < before[name]);

function differences(before, after) {
    const result = {};
    for (const name of Object.keys(after)) {
        result[name] = after[name] - (before[name] ?? 0);
    }
    return result;
}

function ratesBetween(before, after) {
    const seconds = after.time - before.time;
    const rates = differences(before.results, after.results);
    for (const name of Object.keys(rates)) {
        rates[name] /= seconds;
    }
    return rates;
}

// Sums of a table of rates or numbers: passed, would (be refused), refused, failed.
function overview(table) {
    const sums = { passed: 0, would: 0, refused: 0, failed: 0 };
    for (const { name, of } of RESULTS) {
        sums[of] += table[name] ?? 0;
    }
    return sums;
}

class History {
    samples = [];
    intervals = [];

    // A counter that falls means that the node was restarted: older samples are dropped. The same applies
    // if the clock was set back. Returns whether they were dropped.
    add(time, counters) {
        const sample = { time, ...totalsOf(counters) };
        const last = this.samples.at(-1);
        const restarted = Boolean(last) && (time < last.time - SECONDS_OF_GAP || fell(last.results, sample.results)
            || fell(last.sources, sample.sources));
        if (restarted) {
            this.samples = [];
            this.intervals = [];
        } else if (last && time - last.time < SECONDS_OF_SAMPLE) {
            return false;
        } else if (last) {
            const gap = time - last.time > SECONDS_OF_GAP;
            this.intervals.push({ from: last.time, to: time, rates: gap ? null : ratesBetween(last, sample) });
        }
        this.samples.push(sample);
        this.#forget(time - SECONDS_KEPT);
        return restarted;
    }

    #forget(until) {
        while (this.samples.length > 1 && this.samples[1].time <= until) {
            this.samples.shift();
        }
        while (this.intervals.length > 0 && this.intervals[0].to <= until) {
            this.intervals.shift();
        }
    }

    get last() {
        return this.samples.at(-1);
    }

    // The sample at the beginning of the last `seconds`; null after the start and after a gap.
    #before(seconds) {
        let first = null;
        for (let i = this.samples.length - 2; i >= 0; i -= 1) {
            const { time } = this.samples[i];
            if (this.samples[i + 1].time - time > SECONDS_OF_GAP || this.last.time - time > seconds + 1) {
                break;
            }
            first = this.samples[i];
        }
        return first;
    }

    // Rates by result over the last seconds; null: not known yet.
    now() {
        const first = this.#before(SECONDS_OF_NOW);
        return first && ratesBetween(first, this.last);
    }

    // The newest intervals, which follow each other without a gap.
    recent() {
        const gap = this.intervals.findLastIndex(({ rates }) => !rates);
        return this.intervals.slice(gap + 1);
    }

    // Decisions by source since the first sample kept.
    sources() {
        return differences(this.samples[0].sources, this.last.sources);
    }

    // The rate that zones are sorted by: refused, would be refused, or undecided.
    rank() {
        const { refused, would, failed } = overview(this.now() ?? {});
        return refused + would + failed;
    }
}

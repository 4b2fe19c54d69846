// What the node remembers of a zone from before the page was opened: steps of 10 seconds for an hour, and of
// 5 minutes for two days.

// What a chart can show. `step`: the length of the steps that it takes; `refresh`: how often it asks for them,
// in seconds; `live`: its newest part is from the page's own samples, which are finer.
const RANGES = [
    { name: '15 min', words: '15 minutes', seconds: 900, step: 10, refresh: 60, live: true },
    { name: '1 hour', words: 'hour', seconds: 3600, step: 10, refresh: 10, live: false },
    { name: '6 hours', words: '6 hours', seconds: 21600, step: 300, refresh: 60, live: false },
    { name: '2 days', words: 'two days', seconds: 172800, step: 300, refresh: 60, live: false },
];
// A rate over a shorter time than this says little.
const SECONDS_OF_RATE = 2;

// The node does not count by which limit a request would be refused: a shadow limit, or one in a dry run.
const wouldName = totals => (totals.rejected_dry_run ?? 0) > (totals.rejected_shadow ?? 0)
    ? 'rejected_dry_run' : 'rejected_shadow';

// A step's numbers as rates by result. A small zone has no numbers of trials and undecided requests.
function ratesOfStep(scale, i, seconds, would) {
    const number = name => scale[name]?.[i] ?? 0;
    const [tried, undecided] = [number('would_refuse'), number('undecided')];
    const numbers = { passed: Math.max(0, number('passed') - tried - undecided), rejected: number('refused'),
        [would]: tried, failed_open: undecided };
    return Object.fromEntries(Object.entries(numbers).filter(([, some]) => some > 0)
        .map(([name, some]) => [name, some / seconds]));
}

// Intervals of one scale of /zones/NAME/history. The newest step is not over: its rate is that of its time
// until `now`.
function intervalsOf(scale, now, would) {
    const steps = (scale.passed ?? []).map((passed, i) => {
        const from = scale.start + i * scale.step;
        const to = Math.min(from + scale.step, now);
        return { from, to, rates: passed === null ? null : ratesOfStep(scale, i, to - from, would) };
    });
    return steps.filter(({ from, to }) => to - from >= SECONDS_OF_RATE);
}

// The intervals of a chart of the last `seconds` until `until`: those of the past and, if they are wanted (`fine`) or
// there are no others, those of the page's own samples, `live`, which follow each other without a gap.
function joined(past, live, fine, until, seconds) {
    const begun = fine && live.length > 0 ? live[0].from : Infinity;
    const before = past.filter(({ from }) => begun - from >= SECONDS_OF_RATE)
        .map(interval => interval.to > begun ? { ...interval, to: begun } : interval);
    return [...before, ...(fine || past.length === 0 ? live : [])].filter(({ to }) => to > until - seconds);
}

class Past {
    scales = new Map();
    since = Infinity;
    asked = -Infinity;
    has = true;

    constructor(name) {
        this.name = name;
    }

    // Whether the steps since `since` must be read. `refresh`: how old the answer may be.
    isDue(since, time, refresh) {
        return this.has && (time - this.asked >= refresh || this.since > since + refresh || time < this.asked);
    }

    // Asks the node. A node of an older version has no history.
    async load(since, time) {
        this.asked = time;
        this.since = since;
        const answer = await fetch(`zones/${encodeURIComponent(this.name)}/history?since=${Math.max(0, Math.floor(since))}`,
            { cache: 'no-store', signal: AbortSignal.timeout(MS_TO_ANSWER) }).catch(() => null);
        this.has = answer?.status !== 404;
        const data = answer?.ok ? await answer.json().catch(() => null) : null;
        if (Array.isArray(data?.steps)) {
            this.take(data);
        }
    }

    take({ now, steps }) {
        this.now = now;
        this.scales = new Map(steps.map(scale => [scale.step, scale]));
    }

    // Intervals of a range until `until`: the node's steps and, where the range has them, those of the page's
    // own samples, `live`, which follow each other without a gap.
    intervals({ seconds, step, live: fine }, live, until, totals) {
        const scale = this.scales.get(step);
        const past = scale ? intervalsOf(scale, this.now, wouldName(totals)) : [];
        return joined(past, live, fine, until, seconds);
    }
}

// Asks for the histories of the zones that are shown, one after the other: a page may show many.
class PastLoader {
    wanted = new Map();
    busy = false;

    // `view` is shown again once its history is there. Steps are read since `since`.
    want(view, since, time) {
        this.wanted.set(view, [since, time]);
        this.#run();
    }

    async #run() {
        if (this.busy) {
            return;
        }
        this.busy = true;
        while (this.wanted.size > 0) {
            const [[view, [since, time]]] = this.wanted;
            this.wanted.delete(view);
            await view.past.load(since, time);
            view.show();
        }
        this.busy = false;
    }
}

// The highest rate of each result.
function peaksOf(intervals) {
    const peaks = {};
    for (const { rates } of intervals) {
        for (const [name, rate] of Object.entries(rates ?? {})) {
            peaks[name] = Math.max(peaks[name] ?? 0, rate);
        }
    }
    return peaks;
}

// Buttons of which one is pressed. `onChoice` gets the range.
class RangeChoice {
    constructor(label, onChoice, ranges = RANGES) {
        this.buttons = new Map(ranges.map(range => [range, button(range.name, 'choice', () => onChoice(range))]));
        this.root = h('div', { class: 'choices', role: 'group', 'aria-label': label }, ...this.buttons.values());
    }

    show(chosen) {
        for (const [range, element] of this.buttons) {
            set(element, 'aria-pressed', range === chosen);
        }
    }
}

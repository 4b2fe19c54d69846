// The chart of a zone: stacked rates of the last minutes, hours or days, redrawn after each answer.

const CHART_HEIGHT = 176;
const MARGIN = { left: 56, right: 10, top: 10, bottom: 22 };

// The scale from 0 to `most`: ticks 1, 2 or 5 times a power of ten apart, at most five of them.
function scaleOf(most) {
    const rough = Math.max(most, 0.01) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
    const lines = Math.max(1, Math.ceil(most / step - 0.001));
    return { top: step * lines, ticks: Array.from({ length: lines + 1 }, (_, i) => step * i) };
}

// Times of the labels below a chart of `seconds` until `until`, at least `apart` seconds from each other: round
// times of the clock, which is `offset` seconds ahead of UTC.
function timeTicks(until, seconds, apart, offset) {
    const step = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400].find(it => it >= apart)
        ?? seconds;
    const first = Math.ceil((until - seconds + offset) / step) * step - offset;
    return Array.from({ length: Math.max(0, Math.floor((until - first) / step) + 1) }, (_, i) => first + i * step);
}

// "12:04", or the day at midnight.
function timeLabel(time) {
    const text = clock(time).slice(0, 5);
    return text === '00:00' ? weekday(time) : text;
}

// "0", "0.5/s", "1.5k/s"
const tickLabel = number => number === 0 ? '0' : `${short(number).replace(/\.0+(?=\D|$)/, '').replace(/(\.\d)0$/, '$1')}/s`;

// Runs of intervals that follow each other without a gap.
function runsOf(intervals) {
    const runs = [];
    let run = null;
    for (const interval of intervals) {
        if (!interval.rates) {
            run = null;
        } else if (run) {
            run.push(interval);
        } else {
            run = [interval];
            runs.push(run);
        }
    }
    return runs;
}

// Positions of a run's rates on the time axis: each in the middle of its interval; the first and the last
// rate are repeated at the ends of the run.
const timesOf = run =>
    [run[0].from, ...run.map(({ from, to }) => (from + to) / 2), run.at(-1).to];

const outToTheEnds = rates => [rates[0], ...rates, rates.at(-1)];

// Paths of the stacked areas, and of the line on top of them.
function stack(intervals, x, y) {
    const areas = new Map();
    let top = '';
    for (const run of runsOf(intervals)) {
        const times = timesOf(run).map(x);
        const line = heights => heights.map((height, i) => `${times[i]},${y(height)}`);
        let floor = times.map(() => 0);
        for (const { name } of FROM_THE_FLOOR) {
            const rates = outToTheEnds(run.map(interval => interval.rates[name] ?? 0));
            if (rates.some(rate => rate > 0)) {
                const ceiling = rates.map((rate, i) => floor[i] + rate);
                areas.set(name, `${areas.get(name) ?? ''}M${line(ceiling).join(' ')}`
                    + ` ${line(floor).reverse().join(' ')}Z`);
                floor = ceiling;
            }
        }
        top += `M${line(floor).join(' ')}`;
    }
    return [...[...areas].map(([name, d]) => svg('path', { class: `area ${name}`, d })),
        svg('path', { class: 'top-line', d: top })];
}

const sum = rates => RESULTS.reduce((all, { name }) => all + (rates?.[name] ?? 0), 0);

const rounded = number => Number(number.toFixed(1));

// The small chart in a zone's row.
function drawSpark(element, intervals, until) {
    const width = 132;
    const height = 28;
    const most = Math.max(...intervals.map(({ rates }) => sum(rates)), 0);
    const x = time => rounded(width * (1 - (until - Math.max(time, until - SECONDS_KEPT)) / SECONDS_KEPT));
    const y = rate => rounded(height - 1 - (height - 2) * rate / (most || 1));
    element.replaceChildren(svg('path', { class: 'axis', d: `M0,${height - 0.5}H${width}` }),
        ...stack(intervals, x, y));
}

// A chart with a cursor, which the pointer or the arrow keys move. `onPoint` gets the interval under the
// cursor, or null for now.
class Chart {
    intervals = [];
    until = 0;
    seconds = SECONDS_KEPT;
    at = null;
    marks = [];  // times
    width = 0;

    constructor(described, onPoint) {
        this.onPoint = onPoint;
        this.picture = svg('svg', { 'aria-hidden': 'true', height: CHART_HEIGHT });
        this.root = h('div', {
            class: 'chart', role: 'slider', tabindex: '0', 'aria-describedby': described,
            'aria-orientation': 'horizontal', 'aria-valuemin': 0, 'aria-valuemax': 0, 'aria-valuenow': 0,
            'aria-valuetext': 'now',
        }, this.picture);
        this.root.addEventListener('pointermove', event => this.#pointAt(event));
        this.root.addEventListener('pointerdown', event => this.#pointAt(event));
        this.root.addEventListener('pointercancel', () => this.point(null));
        this.root.addEventListener('pointerleave', event => this.#onLeave(event));
        this.root.addEventListener('blur', () => this.point(null));
        this.root.addEventListener('keydown', event => this.#onKey(event));
        new ResizeObserver(() => {
            if (this.root.clientWidth !== this.width) {
                this.draw();
            }
        }).observe(this.root);
    }

    // `seconds`: how much time the chart shows. The cursor stays at its time, also where other intervals take
    // the place of the former ones.
    show(intervals, until, seconds, label) {
        set(this.root, 'aria-label', label);
        this.intervals = intervals;
        this.until = until;
        this.seconds = seconds;
        if (this.at && !intervals.includes(this.at)) {
            const there = this.#around((this.at.from + this.at.to) / 2);
            if (there) {
                this.at = there;
                this.onPoint(there);
            } else {
                this.point(null);
            }
        }
        this.draw();
    }

    #around(time) {
        return this.#known.find(({ from, to }) => from < time && time <= to) ?? null;
    }

    get #known() {
        return this.intervals.filter(({ rates }) => rates);
    }

    point(interval) {
        if (interval !== this.at) {
            this.at = interval;
            this.onPoint(interval);
            this.#tell();
            this.draw();
        }
    }

    // Only when the cursor moves, not after each answer: a screen reader reads every change aloud. The
    // highest value means now.
    #tell() {
        const known = this.#known;
        set(this.root, 'aria-valuemax', known.length);
        set(this.root, 'aria-valuenow', this.at ? known.indexOf(this.at) : known.length);
        set(this.root, 'aria-valuetext', this.at ? `${moment(this.at.to, this.until)}: ${spoken(this.at.rates)}` : 'now');
    }

    // When a finger is lifted, the cursor stays until the chart loses the focus, so that the value can be
    // read. A drag does not set the focus by itself.
    #onLeave({ pointerType }) {
        if (pointerType === 'touch' && this.at) {
            this.root.focus({ preventScroll: true });
        } else {
            this.point(null);
        }
    }

    #pointAt(event) {
        this.point(this.#around(this.#time(event.clientX - this.root.getBoundingClientRect().left)));
    }

    #onKey(event) {
        const known = this.#known;
        const now = known.length;
        const here = this.at ? known.indexOf(this.at) : now;
        const there = { ArrowLeft: here - 1, ArrowRight: here + 1, ArrowDown: here - 1, ArrowUp: here + 1,
            PageUp: here + 15, PageDown: here - 15, Home: 0, End: now, Escape: now }[event.key];
        if (there === undefined || now === 0) {
            return;
        }
        event.preventDefault();
        this.point(known[Math.max(there, 0)] ?? null);
    }

    #x(time) {
        const plot = this.width - MARGIN.left - MARGIN.right;
        const ago = this.until - Math.max(time, this.until - this.seconds);
        return rounded(MARGIN.left + plot * (1 - ago / this.seconds));
    }

    #time(x) {
        const plot = this.width - MARGIN.left - MARGIN.right;
        return this.until - this.seconds * (1 - (x - MARGIN.left) / plot);
    }

    draw() {
        this.width = this.root.clientWidth;
        if (this.width < 100 || !this.until) {
            return;
        }
        const bottom = CHART_HEIGHT - MARGIN.bottom;
        const scale = scaleOf(Math.max(...this.intervals.map(({ rates }) => sum(rates)), 0));
        const x = time => this.#x(time);
        const y = rate => rounded(bottom - (bottom - MARGIN.top) * rate / scale.top);
        set(this.picture, 'width', this.width);
        this.picture.replaceChildren(
            ...this.#lines(scale, y),
            ...this.#gaps(x, bottom),
            ...stack(this.intervals, x, y),
            ...this.#times(x, bottom),
            ...this.#marks(x, bottom),
            ...this.#cursor(x, bottom));
    }

    #lines({ ticks }, y) {
        return ticks.flatMap(tick => [
            svg('path', { class: tick === 0 ? 'axis' : 'line',
                d: `M${MARGIN.left},${Math.round(y(tick)) + 0.5}H${this.width - MARGIN.right}` }),
            svg('text', { x: MARGIN.left - 8, y: y(tick) + 4, 'text-anchor': 'end' },
                tickLabel(tick)),
        ]);
    }

    #gaps(x, bottom) {
        return this.intervals.filter(({ rates }) => !rates).map(({ from, to }) =>
            svg('rect', { class: 'gap', x: x(from), y: MARGIN.top, width: Math.max(0, x(to) - x(from)),
                height: bottom - MARGIN.top }));
    }

    #times(x, bottom) {
        const marks = [];
        // A label is about 50 pixels wide.
        const apart = 60 * this.seconds / (this.width - MARGIN.left - MARGIN.right);
        const offset = -60 * new Date(1000 * this.until).getTimezoneOffset();
        for (const time of timeTicks(this.until, this.seconds, apart, offset)) {
            const inside = x(time) > MARGIN.left + 14 && x(time) < this.width - 18;
            marks.push(svg('path', { class: 'axis', d: `M${x(time)},${bottom}v4` }));
            if (inside) {
                marks.push(svg('text', { x: x(time), y: bottom + 17, 'text-anchor': 'middle' }, timeLabel(time)));
            }
        }
        return marks;
    }

    #marks(x, bottom) {
        return this.marks.filter(time => time > this.until - this.seconds && time <= this.until)
            .map(time => svg('path', { class: 'mark', d: `M${x(time)},${MARGIN.top}V${bottom}` }));
    }

    #cursor(x, bottom) {
        if (!this.at) {
            return [];
        }
        const middle = rounded((x(this.at.from) + x(this.at.to)) / 2);
        return [svg('path', { class: 'cursor', d: `M${middle},${MARGIN.top}V${bottom}` })];
    }
}

// Rates in words, for a chart's text.
function spoken(rates) {
    const known = RESULTS.filter(({ name }) => rates[name] > 0)
        .map(({ name, label }) => `${label.toLowerCase()} ${short(rates[name])} per second`);
    return known.join('; ') || 'nothing';
}

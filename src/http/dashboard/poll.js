// Polls the node every two seconds; less often if it is slow or does not answer, and not while the page is
// hidden.

const MS_BETWEEN = 2000;
const MS_AT_MOST = 30000;
const MS_TO_ANSWER = 10000;

class NoAnswer extends Error {}

async function getJson(url, holds) {
    let answer;
    try {
        answer = await fetch(url, { cache: 'no-store', signal: AbortSignal.timeout(MS_TO_ANSWER) });
    } catch {
        throw new NoAnswer('does not answer');
    }
    if (!answer.ok) {
        throw new NoAnswer(`answers ${answer.status}`);
    }
    const data = await answer.json().catch(() => null);
    if (!Array.isArray(data?.[holds])) {
        throw new NoAnswer('sends something other than figures');
    }
    return data;
}

class Poller {
    failures = 0;
    paused = false;
    busy = false;
    answered = false;

    fleet = false;  // whether the figures of the fleet are wanted, too

    // `onAnswer` gets the JSON of zones, of redis and of the fleet (null: it is not known; undefined: it was not wanted
    // when the request was sent), and the time of the request; `onState` gets this poller at each change.
    constructor(onAnswer, onState) {
        this.onAnswer = onAnswer;
        this.onState = onState;
        document.addEventListener('visibilitychange', () => this.ask());
    }

    pause(yes) {
        this.paused = yes;
        this.onState(this);
        this.ask();
    }

    // Polls once more: what is wanted has changed.
    again() {
        this.more = this.busy;
        this.ask();
    }

    // Polls now, unless paused or hidden.
    async ask() {
        clearTimeout(this.timer);
        if (this.paused || document.hidden || this.busy) {
            return;
        }
        this.busy = true;
        const started = performance.now();
        try {
            const [zones, redis, fleet] = await Promise.all([getJson('zones', 'zones'), getJson('redis', 'redis'),
                this.fleet ? getJson('fleet', 'nodes').catch(() => null) : undefined]);
            this.onAnswer(zones, redis, fleet, started);
            this.failures = 0;
            this.answered = true;
        } catch (error) {
            this.failures += 1;
            this.reason = error instanceof NoAnswer ? error.message : 'sends figures that the page cannot show';
            if (!(error instanceof NoAnswer)) {
                console.error(error);
            }
        }
        this.busy = false;
        this.#plan(performance.now() - started);
        if (this.more) {
            this.more = false;
            this.ask();
        }
    }

    // Plans the next poll. A slow node is polled less often. After a failure the intervals grow, with jitter,
    // so that many open pages do not return at the same time.
    #plan(took) {
        const growing = MS_BETWEEN * 2 ** Math.max(0, this.failures - 1) * (1 + Math.random() / 4);
        const pause = this.failures > 0 ? growing : Math.max(MS_BETWEEN - took, took);
        this.next = Math.min(pause, MS_AT_MOST) / 1000;
        this.timer = setTimeout(() => this.ask(), 1000 * this.next);
        this.onState(this);
    }
}

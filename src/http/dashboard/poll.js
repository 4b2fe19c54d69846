// Asks the node every two seconds, less often while it does not answer or is slow, and not at all while
// nobody looks.

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
        throw new NoAnswer('answers with something else than numbers');
    }
    return data;
}

class Poller {
    failures = 0;
    paused = false;
    busy = false;
    answered = false;

    // `onAnswer` gets the JSON of zones and of redis, and when they were asked for; `onState` this, at each
    // change.
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

    // Asks now, if anybody looks.
    async ask() {
        clearTimeout(this.timer);
        if (this.paused || document.hidden || this.busy) {
            return;
        }
        this.busy = true;
        const started = performance.now();
        try {
            const [zones, redis] = await Promise.all([getJson('zones', 'zones'), getJson('redis', 'redis')]);
            this.onAnswer(zones, redis, started);
            this.failures = 0;
            this.answered = true;
        } catch (error) {
            this.failures += 1;
            this.reason = error instanceof NoAnswer ? error.message : 'gives numbers that cannot be shown';
            if (!(error instanceof NoAnswer)) {
                console.error(error);
            }
        }
        this.busy = false;
        this.#plan(performance.now() - started);
    }

    // A node that is slow to answer is asked less often; one that fails at once soon again, then at
    // growing intervals, with jitter, so that many open pages do not come back all at one time.
    #plan(took) {
        const growing = MS_BETWEEN * 2 ** Math.max(0, this.failures - 1) * (1 + Math.random() / 4);
        const pause = this.failures > 0 ? growing : Math.max(MS_BETWEEN - took, took);
        this.next = Math.min(pause, MS_AT_MOST) / 1000;
        this.timer = setTimeout(() => this.ask(), 1000 * this.next);
        this.onState(this);
    }
}

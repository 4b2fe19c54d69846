// Changes of limits that are made only if what the operator saw is still in force: one limit, or those of several keys and
// zones at once.

const MOST_TARGETS_AT_A_TIME = 6;

// What is in force is what the caller saw, as far as people see it.
const isSame = (a, b) => Boolean(a) === Boolean(b)
    && (!a || overrideText(a) === overrideText(b) && Math.abs((a.until ?? 0) - (b.until ?? 0)) < 0.01);

// "192.0.2.1 in per_ip", "every key of per_ip".
const targetText = ({ zone, named, key }) => named === null ? `every key of ${visible(zone.name)}`
    : `${middleCut(visible(key), 60)} in ${visible(zone.name)}`;

// "192.0.2.1 in per_ip"; "192.0.2.1 in per_ip, uploads"; "4 limits".
function targetsText(targets) {
    const [first] = targets;
    return targets.length === 1 ? targetText(first)
        : targets.every(({ named, key }) => named !== null && key === first.key)
            ? `${middleCut(visible(first.key), 60)} in ${targets.length > 4 ? count(targets.length, 'zone', 'zones')
                : targets.map(({ zone }) => visible(zone.name)).join(', ')}`
            : count(targets.length, 'limit', 'limits');
}

// A limit that is changed. `seen`: what the page showed when the change was begun; undefined: nothing.
class Target {
    constructor({ zone, named, key, ofZone = null, seen }) {
        Object.assign(this, { zone, named, key, ofZone, seen, url: overrideUrl(zone, named) });
    }

    // What is in force now, and the tag by which the change names it.
    async read() {
        const [data, wrong, { tag }] = await call(this.url);
        Object.assign(this, { known: data !== null, before: data?.override ?? null, tag, wrong });
    }

    // Whether something else is in force than what the page showed.
    get differs() {
        return this.known && this.seen !== undefined && !isSame(this.seen, this.before);
    }

    // "192.0.2.1 in per_ip: blocked until 12:04:31, by ann at 12:00:01: an attack"
    nowText(now) {
        return `${targetText(this)}: ${!this.known ? `not known: ${this.wrong}`
            : this.before ? inForceNote(this.before, now) : 'not changed'}`;
    }

    // Makes the change if what was read is still in force; `body` null: takes the override back. Sets `outcome`.
    async change(body) {
        if (!this.known || (body === null && !this.before)) {
            this.outcome = this.known ? 'done' : 'failed';  // nothing is there to be taken back
            return;
        }
        const [answer, wrong, { status, tag }] = await call(this.url, body === null ? 'DELETE' : 'PUT', body,
            this.tag ? { 'if-match': this.tag } : { 'if-none-match': '*' });
        Object.assign(this, { wrong, outcome: answer ? 'done' : status === 412 ? 'conflict' : 'failed', after: tag,
            counted: answer?.counted });
    }

    // Brings back what was in force before the change, if the change is still in force.
    async undo(now) {
        const over = !this.before || this.before.until && this.before.until <= now;  // it would have ended by now
        const [answer, wrong, { status }] = over && !this.after ? [{}, null, {}]
            : await call(this.url, over ? 'DELETE' : 'PUT', over ? null : changeOf(this.before),
                this.after ? { 'if-match': this.after } : { 'if-none-match': '*' });
        this.outcome = answer || (over && status === 404) ? 'done' : status === 412 ? 'conflict' : 'failed';
        this.wrong = wrong;
    }
}

// Some at a time: a browser and a node have few connections for one page.
async function forEach(targets, act) {
    const left = [...targets];
    await Promise.all(Array.from({ length: MOST_TARGETS_AT_A_TIME }, async () => {
        for (let target = left.shift(); target; target = left.shift()) {
            await act(target);
        }
    }));
}

// The zones in which the key of a row is counted under the same bytes: those with the same key, or with addresses of the same
// length. Returns targets, that of the row first.
function inAllZones(of, zones) {
    const { zone, named, key } = of;
    if (named === null) {
        return [of];
    }
    const bits = ({ address_bits: is }) => JSON.stringify(is ?? null);
    const alike = other => other.name !== zone.name && (zone.address_bits ? bits(other) === bits(zone)
        : !other.address_bits && other.key === zone.key && Boolean(other.hash_key) === Boolean(zone.hash_key));
    return [of, ...zones.filter(alike).map(other =>
        ({ zone: other, named: zone.address_bits ? typedArgument('key', key) : named, key, ofZone: other.override ?? null }))];
}

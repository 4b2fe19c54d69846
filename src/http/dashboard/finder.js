// Finds a key in all zones: its limits, what is left of them, and who changed them.

const ZONES_AT_A_TIME = 6;
const MOST_ZONES = 256;

// The least time between two searches of one key, and the number of zones whose counts are read in a second.
const SECONDS_BETWEEN_SEARCHES = 4;
const ZONES_A_SECOND = 4;

const MOST_NEAR = 5;

const LONGEST_NEAR = 200;  // letters: longer texts are not compared

// How many letters must be added, removed or replaced to make one text of the other. If there are more than `most`,
// any greater number.
function editDistance(a, b, most = Infinity) {
    if (Math.abs(a.length - b.length) > most) {
        return Infinity;
    }
    let row = Array.from({ length: b.length + 1 }, (_, i) => i);
    for (let i = 1; i <= a.length; i += 1) {
        const next = [i];
        for (let j = 1; j <= b.length; j += 1) {
            next.push(Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
        }
        row = next;
        if (Math.min(...row) > most) {
            return Infinity;
        }
    }
    return row.at(-1);
}

// The keys that are most like what was typed: that have it in them, or differ in few letters.
function nearest(typed, keys) {
    if (typed.length > LONGEST_NEAR) {
        return [];
    }
    const most = Math.max(1, Math.floor(typed.length / 5));
    const far = key => key.toLowerCase().includes(typed.toLowerCase()) ? 0 : editDistance(typed, key, most);
    return [...new Set(keys)].filter(key => key !== typed).map(key => [far(key), key])
        .filter(([distance]) => distance <= most)
        .sort(([a, one], [b, other]) => a - b || (one < other ? -1 : 1)).slice(0, MOST_NEAR).map(([, key]) => key);
}

// Why the state of a key is not known, for people.
const unknownText = wrong => /rate is a variable/.test(wrong) ? 'the rate depends on the request: open the zone and give that of the key'
    : wrong;

class KeyFinder {
    asked = 0;  // numbers the searches, so that a late answer shows nothing
    found = [];
    running = 0;  // searches

    constructor(fleet) {
        this.fleet = fleet;
        this.table = new KeptTable('The key in all zones', [['Zone', 'wide', ({ zone }) => zone.name], ['Limit now'],
            ['Remaining', 'number', ({ state }) => state && state.remaining / (state.limit || 1)], ['Passes'], ['Changed'], ['', 'action']],
        (item, cells) => {
            cells[0].append(longText(item.zone.name, 36));
            const { limits } = fleet;
            const of = () => this.#of(item.zone);
            const made = { block: button('Block…', 'small danger', () => limits.blockKey(of())),
                back: button('Take back…', 'small', () => limits.takeBack([of()])),
                ten: button('10 times more…', 'small', () => limits.giveTen(of(), this.#item(item.zone)?.override, this.#item(item.zone)?.state?.rate)),
                open: button('Open', 'small', () => limits.lookUpKey(item.zone.name, this.key)) };
            Object.values(made).forEach(each => each.append(hidden(` in ${visible(item.zone.name)}`)));
            cells[5].append(...Object.values(made).flatMap(each => [each, ' ']));
            return made;
        });
        this.table.head.lastElementChild.append(hidden('Action'));
        byId('find-list').append(this.table.root);
        byId('find').addEventListener('submit', event => {
            event.preventDefault();
            this.find(byId('find-key').value);
        });
    }

    #item(zone) {
        return this.found.find(each => each.zone.name === zone.name);
    }

    #of(zone) {
        const item = this.#item(zone);
        return { zone, named: typedArgument('key', this.key), key: item?.state?.key ?? this.key, ofZone: zone.override ?? null,
            seen: item?.known ? item.override : undefined };
    }

    // Called with each answer of the node: what was found stays true, also if someone else changes it. `happened`: of /fleet.
    follow(happened) {
        const change = JSON.stringify(happened.find(({ zone }) => zone) ?? null);  // the latest
        const since = this.fleet.page.time - this.at;
        if (this.running === 0 && this.searched
            && (change !== this.change || since > Math.max(SECONDS_BETWEEN_SEARCHES, this.searched / ZONES_A_SECOND))) {
            this.change = change;
            this.again();
        }
        this.draw();
    }

    // Once more, after a change.
    async again() {
        if (this.key) {
            await this.find(this.key, false);
        }
    }

    async find(typed, fresh = true) {
        const key = typed.trim();
        this.asked += 1;
        const number = this.asked;
        byId('find-key').value = key;
        this.key = key;
        if (fresh) {
            this.searched = 0;
            this.found = [];
            this.table.show([], ({ zone }) => zone.name, () => {});
            byId('find-near').hidden = true;
            say(byId('find-text'), key ? 'Looking in all zones…' : 'Type a key: an address, an API key, or what the zones count by.');
            this.fleet.page.setAddress(key ? `#key=${encodeURIComponent(wellFormed(key))}` : '#fleet');
        }
        if (!key) {
            return;
        }
        const zones = [...this.fleet.limits.zones.values()].slice(0, MOST_ZONES);
        const found = [];
        const left = [...zones];
        this.at = this.fleet.page.time;
        this.running += 1;
        await Promise.all(Array.from({ length: ZONES_AT_A_TIME }, async () => {
            for (let zone = left.shift(); zone; zone = left.shift()) {
                const named = typedArgument('key', key);
                if (zone.address_bits && !/^[\da-f:./]+$/i.test(key)) {
                    continue;
                }
                const [state, wrong] = await call(keyUrl(zone, named));
                if (!state && /invalid.*address/.test(wrong)) {
                    continue;  // a text that is no address is no key of a zone of addresses
                }
                const [changed, notRead] = await call(overrideUrl(zone, named));
                found.push({ zone, state, wrong, override: changed?.override ?? null, known: changed !== null, notRead });
            }
        }));
        this.running -= 1;
        if (number === this.asked) {
            this.found = found.sort((a, b) => this.#rank(a) - this.#rank(b) || (a.zone.name < b.zone.name ? -1 : 1));
            this.searched = zones.length;
            this.draw();
        }
    }

    // Where the key is blocked or changed comes first, then where least is left.
    #rank({ state, override, zone }) {
        return override || state?.blocked ? -2 : zone.override ? -1 : state?.counted === false ? 3
            : state ? state.remaining / (state.limit || 1) : 2;
    }

    // Keys that were refused lately and look like the one that was typed.
    #offer(wanted) {
        const { data } = this.fleet;
        const keys = !wanted ? [] : [...data?.busiest ?? [], ...[...this.fleet.limits.zones.values()].flatMap(({ busiest }) => busiest ?? [])]
            .map(({ key }) => key);
        const offered = nearest(this.key, keys);
        byId('find-near').hidden = offered.length === 0;
        if (JSON.stringify(offered) !== this.offered) {
            this.offered = JSON.stringify(offered);
            byId('find-near').replaceChildren('Refused lately and much like it: ',
                ...offered.flatMap(key => [button(middleCut(visible(key), 60), 'small code', () => this.find(key)), ' ']));
        }
    }

    // Also when it becomes known whether anything can be changed.
    draw() {
        if (!this.key || !this.searched) {
            return;
        }
        const { page } = this.fleet;
        const now = page.time;
        const key = visible(middleCut(this.key, 60));
        const isThere = ({ state, override }) => override || (state && state.counted !== false);
        const counted = this.found.filter(isThere).length;
        const unknown = this.found.filter(item => !isThere(item) && !item.state).length;
        const rest = unknown > 0 ? `, not known in ${count(unknown, 'zone', 'zones')}` : '';
        say(byId('find-text'), this.found.length === 0 ? `No zone has such a key: all of them count addresses, and ${key} is none.`
            : counted > 0 ? `${key} in ${counted} of ${count(this.searched, 'zone', 'zones')}${rest}:`
                : unknown === this.found.length ? `It is not known whether anything is counted under ${key}: ${unknownText(this.found[0].wrong)}.`
                : `Nothing is counted under ${key} in ${unknown === 0 ? 'any zone' : `${this.searched - unknown} of ${count(this.searched, 'zone', 'zones')}`}`
                    + ` now${rest}: no request has it, or it is typed in another form.`);
        this.#offer(counted === 0);
        this.table.show(this.found, ({ zone }) => zone.name, ({ zone, state, wrong, override, known, notRead }, cells, made) => {
            const change = override ?? zone.override ?? null;
            const byOperator = change?.block || state?.override === 'block';
            say(cells[1], !known && !change ? `${quotaText(zone)}, if it was not changed` : change ? `${overrideText(change)} ${untilText(change, now)}, configured ${quotaText(zone)}` : quotaText(zone));
            cells[1].classList.toggle('bad', Boolean(change?.block));
            say(cells[2], state?.counted === false ? 'Nothing counted' : state ? `${whole(state.remaining)} of ${whole(state.limit)}` : '–');
            cells[2].title = state?.note ? visible(state.note) : '';
            cells[2].classList.toggle('some', state?.remaining === 0);
            say(cells[3], byOperator ? 'Blocked' : state?.blocked ? `Blocked for another ${duration(state.blocked)} by block= of the zone`
                : !state ? `Not known: ${unknownText(wrong)}` : state.counted === false ? '–' : state.retry_after === null ? 'Never' : state.retry_after > 0
                    ? `In ${duration(state.retry_after)}` : 'Now');
            cells[3].classList.toggle('bad', Boolean(byOperator || state?.blocked));
            say(cells[4], !known ? `Not known${byOperator ? ' by whom' : ''}: ${notRead}` : !change ? 'Not changed' : `${override ? '' : 'The whole zone, '}by ${visible(change.by ?? 'someone')}`
                + `${change.at ? ` at ${when(change.at, now)}` : ''}${change.reason ? `: ${visible(change.reason)}` : ''}`);
            made.block.hidden = !page.write || Boolean(override?.block || byOperator && !zone.override?.block);
            made.back.hidden = !page.write || !override;
            made.ten.hidden = !page.write || Boolean(override) || !tenTimes(zone, null, state?.rate);
            enable([made.block, made.back, made.ten], page.whyNot);
        });
    }
}

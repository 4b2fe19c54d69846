// Finds a key in all zones: its limits, what is left of them, and who changed them.

const ZONES_AT_A_TIME = 6;
const MOST_ZONES = 256;

class KeyFinder {
    asked = 0;  // numbers the searches, so that a late answer shows nothing
    found = [];

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
            say(byId('find-text'), key ? 'Looking in all zones…' : 'Type a key: an address, an API key, or what the zones count by.');
            this.fleet.page.setAddress(key ? `#key=${encodeURIComponent(wellFormed(key))}` : '#fleet');
        }
        if (!key) {
            return;
        }
        const zones = [...this.fleet.limits.zones.values()].slice(0, MOST_ZONES);
        const found = [];
        const left = [...zones];
        await Promise.all(Array.from({ length: ZONES_AT_A_TIME }, async () => {
            for (let zone = left.shift(); zone; zone = left.shift()) {
                const named = typedArgument('key', key);
                if (zone.address_bits && !/^[\da-f:./]+$/i.test(key)) {
                    continue;
                }
                const [state, wrong] = await call(keyUrl(zone, named));
                // A text that is no address is no key of a zone of addresses.
                const [changed] = state || !/invalid.*address/.test(wrong) ? await call(overrideUrl(zone, named)) : [null];
                if (state || changed) {
                    found.push({ zone, state, wrong, override: changed?.override ?? null, known: changed !== null });
                }
            }
        }));
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

    // Also when it becomes known whether anything can be changed.
    draw() {
        if (!this.key || !this.searched) {
            return;
        }
        const { page } = this.fleet;
        const now = page.time;
        const key = visible(middleCut(this.key, 60));
        const some = this.found.some(({ state, override }) => override || (state && state.counted !== false));
        const counted = this.found.filter(({ state, override }) => override || state?.counted !== false).length;
        say(byId('find-text'), this.found.length === 0 ? 'No zone has such a key: it is no address, or Redis does not answer.'
            : some ? `${key} in ${counted} of ${count(this.searched, 'zone', 'zones')}:`
                : `Nothing is counted under ${key} in any zone now: no request has it, or it is typed in another form.`);
        this.table.show(this.found, ({ zone }) => zone.name, ({ zone, state, wrong, override }, cells, made) => {
            const change = override ?? zone.override ?? null;
            say(cells[1], change ? `${overrideText(change)} ${untilText(change, now)}, configured ${quotaText(zone)}` : quotaText(zone));
            cells[1].classList.toggle('bad', Boolean(change?.block));
            say(cells[2], state?.counted === false ? 'Nothing counted' : state ? `${whole(state.remaining)} of ${whole(state.limit)}` : '–');
            cells[2].title = state?.note ? visible(state.note) : '';
            cells[2].classList.toggle('some', state?.remaining === 0);
            say(cells[3], change?.block ? 'Blocked' : state?.blocked ? `Blocked for another ${duration(state.blocked)} by block= of the zone`
                : !state ? `Not known: ${wrong}` : state.counted === false ? '–' : state.retry_after === null ? 'Never' : state.retry_after > 0
                    ? `In ${duration(state.retry_after)}` : 'Now');
            cells[3].classList.toggle('bad', Boolean(change?.block || state?.blocked));
            say(cells[4], !change ? 'Not changed' : `${override ? '' : 'The whole zone, '}by ${visible(change.by ?? 'someone')}`
                + `${change.at ? ` at ${when(change.at, now)}` : ''}${change.reason ? `: ${visible(change.reason)}` : ''}`);
            made.block.hidden = !page.write || Boolean(override?.block);
            made.back.hidden = !page.write || !override;
            made.ten.hidden = !page.write || Boolean(override) || !tenTimes(zone, null, state?.rate);
            enable([made.block, made.back, made.ten], page.whyNot);
        });
    }
}

// Limits changed at run time: a key is looked up, freed, blocked or given another limit, and so is a zone.

const SECONDS_TO_CHANGE = 10;

// How long a change may last, as the API takes it; null: until it is taken back.
const LASTING = [['15m', '15 minutes'], ['1h', '1 hour'], ['1d', '1 day'], ['7d', '7 days'], [null, 'Until it is taken back']];

// What a user may give as a key, by the API's argument. What is typed is never guessed.
const GIVEN_AS = { key: zone => zone?.address_bits ? 'an address or network' : 'the key itself',
    hash: () => 'the hash of a key', id: () => 'the bytes of a key, %HH' };

const typedArgument = (as, typed) => as === 'id' ? idArgument(typed.trim())
    : `${as}=${encodeURIComponent(wellFormed(typed.trim()))}`;

// Where a key's override is, or a zone's if there is no key.
const overrideUrl = (zone, named) => named === null ? `zones/${encodeURIComponent(zone.name)}/override`
    : keyUrl(zone, named).replace(/\/keys\?/, '/keys/override?');

const untilText = ({ until }, now) => until ? `until ${when(until, now)}` : 'until it is taken back';

// What an override says: "1000r/m, burst 50", "blocked", "no limit", "3 at one time".
function overrideText(override) {
    if (override.block) {
        return 'blocked';
    }
    if (override.unlimited) {
        return 'no limit';
    }
    if (override.concurrency) {
        return `${whole(override.concurrency)} at one time`;
    }
    const burst = override.burst === null || override.burst === undefined ? '' : `, burst ${whole(override.burst)}`;
    return override.rate ? `${visible(override.rate)}${burst}` : 'not known to this version';
}

// When an override ends, and who set it.
function overrideNote({ for_seconds_left: left, by }) {
    const ends = left === null || left === undefined ? 'until it is taken back' : `for another ${duration(Math.ceil(left))}`;
    return `${ends}${by ? `, set by ${visible(by)}` : ''}`;
}

// What a change will do, where, when and for how long, in words. `ofZone`: the zone's override, under which its keys
// are without one of their own.
function consequence({ change, lasts, zone, key, ofZone, nodes }) {
    const where = `on ${nodes === null ? 'all nodes' : nodes > 1 ? `all ${whole(nodes)} nodes`
        : 'this node and all that join it'}, within two seconds`;
    const who = key === null ? `every key of ${visible(zone.name)} that has no limit of its own` : 'this key';
    const configured = ofZone ? overrideText(ofZone) : quotaText(zone);
    const otherwise = ofZone ? `the limit of the zone that was changed at run time, ${configured},`
        : `the limit of the configuration, ${configured},`;
    const then = lasts === null ? 'It stays until it is taken back, also when nodes are restarted.'
        : `After ${lasts} ${otherwise} is in force again.`;
    if (change === null) {
        return `For ${who}, ${otherwise} is in force again ${where}. What was counted stays counted.`;
    }
    const what = change.block ? `Every request of ${who} is refused`
        : change.unlimited ? `${visible(zone.name)} no longer limits ${who}`
            : `The limit of ${who} is ${overrideText(change)} instead of ${configured}`;
    return `${what}, ${where}. ${then}`;
}

// Asks the node; returns [JSON or null, error text]. A timeout leaves open whether a change was made.
async function call(url, method = 'GET', body = null) {
    try {
        const answer = await fetch(url, { method, cache: 'no-store', body: body && JSON.stringify(body),
            headers: body ? { 'content-type': 'application/json' } : {},
            signal: AbortSignal.timeout(1000 * SECONDS_TO_CHANGE) });
        return answer.ok ? [await answer.json().catch(() => ({})), null] : [null, await refusalText(answer)];
    } catch {
        return [null, method === 'GET' ? 'no answer' : 'no answer: it may be done or not'];
    }
}

// Opens the dialog; resolves to null, or to {for, reason} as the API takes them if the user confirmed. `text`: of how
// long the change lasts, in words, or null. `asks`: whether the user says how long, and why.
function confirmChange({ title, key, text, yes, asks, danger }) {
    const dialog = byId('change');
    const lasts = byId('change-lasts');
    const describe = () => say(byId('change-text'), text(LASTING[lasts.selectedIndex][0] && LASTING[lasts.selectedIndex][1]));
    say(byId('change-title'), title);
    say(byId('change-key'), key);
    say(byId('change-yes'), yes);
    byId('change-yes').classList.toggle('danger', danger);
    byId('change-ask').hidden = !asks;
    lasts.selectedIndex = 1;
    lasts.onchange = describe;
    byId('change-reason').value = '';
    describe();
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise(resolve => {
        byId('change-yes').onclick = () => dialog.close('yes');
        dialog.onclose = () => {
            const [length] = LASTING[lasts.selectedIndex];
            const reason = byId('change-reason').value.trim();
            if (!dialog.open) {
                resolve(dialog.returnValue !== 'yes' ? null
                    : { ...(length ? { for: length } : {}), ...(reason ? { reason } : {}) });
            }
        };
    });
}

// The change that brings an override back, for the rest of its time.
function changeOf({ rate, burst, concurrency, block, unlimited, for_seconds_left: left, reason }) {
    return JSON.parse(JSON.stringify({ rate, burst, concurrency, block, unlimited,
        for: left === null || left === undefined ? undefined : `${Math.max(1, Math.ceil(left))}s`,
        reason: reason ?? undefined }));
}

class LimitsView {
    zones = new Map();
    shown = null;  // {zone, named, key, override}: what was looked up; named null: the zone

    constructor(page, fleet) {
        this.page = page;
        this.fleet = fleet;
        byId('change-lasts').append(...LASTING.map(([, words]) => h('option', {}, words)));
        byId('limit-zone').addEventListener('change', () => this.#chooseZone());
        for (const id of ['limit-key', 'limit-as', 'limit-known-rate']) {
            byId(id).addEventListener('input', () => this.#forget());
        }
        byId('limit-find').addEventListener('submit', event => this.#find(event));
        byId('limit-set').addEventListener('submit', event => this.#set(event));
        byId('change-no').addEventListener('click', () => byId('change').close('no'));
        byId('limit-back').addEventListener('click', () => this.takeBack(this.shown, this.shown.ofZone));
        byId('limit-free').addEventListener('click', () => this.#free());
        for (const radio of document.querySelectorAll('[name=limit-kind]')) {
            radio.addEventListener('change', () => this.#showKind());
        }
        this.changes = new ChangesView(page, this);
    }

    takeZones(zones) {
        const select = byId('limit-zone');
        const names = zones.map(({ name }) => name);
        this.zones = new Map(zones.map(zone => [zone.name, zone]));
        if (JSON.stringify(names) !== this.names) {
            this.names = JSON.stringify(names);
            const chosen = select.value;
            select.replaceChildren(...names.map(name => h('option', { value: name }, visible(name))));
            select.value = names.includes(chosen) ? chosen : names[0] ?? '';
            this.#chooseZone();
        }
        this.#showButtons();
    }

    // Looks a key up by its id, or with null the zone, as from a table.
    async lookUp(zone, id) {
        byId('limit-zone').value = zone;
        this.#chooseZone();
        byId('limit-key').value = id ?? '';
        byId('limit-as').value = id === null ? 'key' : 'id';
        byId('limits').scrollIntoView({ block: 'nearest' });
        await this.#show(id === null ? null : idArgument(id));
        if (this.shown?.zone.address_bits && id !== null) {
            byId('limit-key').value = this.shown.key;  // as a user would type it
            byId('limit-as').value = 'key';
        }
        byId('limit-title').focus();
    }

    // How a key is given. In a zone with hash_key both keys and hashes are at hand, so the user must choose.
    #chooseZone() {
        const zone = this.zones.get(byId('limit-zone').value);
        byId('limit-as').replaceChildren(...zone?.hash_key ? [h('option', { value: '' }, 'choose…')] : [],
            ...Object.entries(GIVEN_AS).map(([value, text]) => h('option', { value }, text(zone))));
        byId('limit-known-rate-line').hidden = zone?.limit !== null || Boolean(zone?.override);
        byId('limit-known-rate').value = '';
        this.#forget();
    }

    async #find(event) {
        event.preventDefault();
        const zone = this.zones.get(byId('limit-zone').value);
        const typed = byId('limit-key').value;
        const as = byId('limit-as').value;
        byId('limit-as').setCustomValidity(typed.trim() && !as ? 'Say what was typed: a key, or the hash of one.' : '');
        if (zone && byId('limit-as').reportValidity()) {
            await this.#show(typed.trim() === '' ? null : typedArgument(as, typed));
            byId('limit-title').focus();
        }
    }

    // The rate of a key whose zone's rate is a variable: what the user gave, or what the node said of this key.
    // Otherwise the node uses that of the key's last refusal, which it forgets when the key is freed.
    get #rateArgument() {
        const rate = byId('limit-known-rate').value.trim() || (this.shown?.rate ?? '');
        return byId('limit-known-rate-line').hidden || rate === '' ? '' : `&rate=${encodeURIComponent(wellFormed(rate))}`;
    }

    #forget() {
        this.shown = null;
        byId('limit-found').hidden = true;
        byId('limit-as').setCustomValidity('');
        document.querySelector('[name=limit-kind]').checked = true;  // no block is left over for the next key
        this.#showKind();
    }

    // Asks for the key's state and for what was changed, and shows both.
    async #show(named) {
        const zone = this.zones.get(byId('limit-zone').value);
        if (!zone) {
            return;
        }
        const [state, wrong] = named === null ? [null, null] : await call(keyUrl(zone, named) + this.#rateArgument);
        const [changed, notChanged] = await call(overrideUrl(zone, named));
        const override = changed?.override ?? null;
        const [zoneChanged] = named === null ? [null] : await call(overrideUrl(zone, null));
        const ofZone = zoneChanged?.override ?? null;
        const typed = byId('limit-key').value.trim();
        this.shown = { zone, named, override, ofZone, known: changed !== null, rate: state?.override ? null : state?.rate,
            key: state?.key ?? typed };
        byId('limit-found').hidden = false;
        say(byId('limit-title'), named === null ? `All keys of ${visible(zone.name)}` : visible(this.shown.key));
        const lines = [['Configured', quotaText(zone)],
            ['Changed to', override ? `${overrideText(override)}, ${overrideNote(override)}`
                : changed ? 'not changed' : `not known: ${notChanged}`]];
        if (override?.reason) {
            lines.push(['Why', visible(override.reason)]);
        }
        if (ofZone) {
            lines.push(['The zone', `${overrideText(ofZone)}, ${overrideNote(ofZone)}`]);
        }
        if (state) {
            if (zone.limit === null && !state.override && state.rate) {
                lines.push(['Rate of the key', state.rate + (byId('limit-known-rate').value ? '' : ', when it was refused last')]);
            }
            lines.push(['Remaining', `${whole(state.remaining)} of ${whole(state.limit)}`],
                ['Passes again', state.retry_after === null ? 'never' : state.retry_after > 0
                    ? `in ${duration(state.retry_after)}` : 'now'],
                ['Blocked', state.blocked ? `for another ${duration(state.blocked)}` : 'no']);
        } else if (named !== null) {
            lines.push(['Count', wrong]);
        }
        byId('limit-state').replaceChildren(...lines.map(([label, text]) =>
            h('div', {}, h('dt', {}, label), h('dd', {}, text))));
        this.#showKind();
        this.#showButtons();
    }

    // A zone of concurrency= has no rate.
    #showKind() {
        const kind = document.querySelector('[name=limit-kind]:checked').value;
        const concurrency = this.shown?.zone.algorithm === 'concurrency';
        byId('limit-rate-line').hidden = kind !== 'limit' || concurrency;
        byId('limit-most-line').hidden = kind !== 'limit' || !concurrency;
        byId('limit-burst-line').hidden = kind !== 'limit'
            || !['token_bucket', ...ALGORITHMS_WITH_BURST].includes(this.shown?.zone.algorithm);
        byId('limit-rate').required = !byId('limit-rate-line').hidden;
        byId('limit-most').required = !byId('limit-most-line').hidden;
    }

    #showButtons() {
        // Nothing can be changed while the fleet's Redis is away, nor where it is not known what is in force.
        const { write } = this.page;
        const able = write && this.fleet.connected && this.shown?.known === true;
        byId('limit-set').hidden = byId('limit-actions').hidden = !able;
        byId('limit-read-only').hidden = able;
        say(byId('limit-read-only'), !write ? 'This API is read-only: changes need write=on.'
            : !this.fleet.connected ? 'Nothing can be changed while Redis does not answer.'
                : 'Nothing can be changed: it is not known what is in force.');
        byId('limit-back').hidden = !this.shown?.override;
        byId('limit-free').hidden = !this.shown || this.shown.named === null;
        byId('limit-actions').hidden ||= byId('limit-back').hidden && byId('limit-free').hidden;
    }

    #wanted() {
        const kind = document.querySelector('[name=limit-kind]:checked').value;
        if (kind !== 'limit') {
            return { [kind]: true };
        }
        if (this.shown.zone.algorithm === 'concurrency') {
            return { concurrency: Number(byId('limit-most').value) };
        }
        const burst = byId('limit-burst').value;
        return { rate: byId('limit-rate').value.trim(),
            ...(byId('limit-burst-line').hidden || burst === '' ? {} : { burst: Number(burst) }) };
    }

    // A confirmation, then the change; its outcome is shown, with what undoes it. `of`: {zone, named, key}; `body`: of a
    // change, without its length and reason, which the user is asked for; null: the override is taken back.
    async #change(of, { body, url = overrideUrl(of.zone, of.named), title, text, yes, done, failed, undoes = true }) {
        const { zone, named, key } = of;
        const wanted = this.busy ? null : await confirmChange({ title, text, yes, asks: body !== null,
            danger: Boolean(body?.block), key: named === null
                ? `every key of ${visible(zone.name)}` : `${visible(key)} in ${visible(zone.name)}` });
        if (wanted === null) {
            return;
        }
        this.busy = true;
        const [before] = undoes ? await call(url) : [null];
        const [answer, wrong] = await call(url, body === null ? 'DELETE' : 'PUT', body && { ...body, ...wanted });
        this.busy = false;
        this.page.tell(answer ? done : `${failed}: ${wrong}.`, Boolean(answer),
            answer && before ? () => this.#undo(url, before.override) : null);
        await this.#refresh(answer);
    }

    async #undo(url, before) {
        this.page.tell('', true);
        const [answer, wrong] = await call(url, before ? 'PUT' : 'DELETE', before && changeOf(before));
        this.page.tell(answer ? 'Undone.' : `Not undone: ${wrong}.`, Boolean(answer));
        await this.#refresh(answer);
    }

    async #refresh(changed) {
        if (changed && this.shown) {
            await this.#show(this.shown.named);
        }
        await this.changes.load();
    }

    // Takes an override back. `ofZone`: that of the zone, if `of` is a key.
    takeBack(of, ofZone) {
        return this.#change(of, { body: null, title: 'Take the change back?', yes: 'Take it back',
            text: () => consequence({ change: null, zone: of.zone, key: of.named, ofZone, nodes: this.fleet.liveNodes }),
            done: 'Taken back.', failed: 'Not taken back' });
    }

    // Blocks a key of a table.
    block(zone, { id, key }) {
        return this.#put({ zone, named: idArgument(id), key, ofZone: zone.override ?? null }, { block: true });
    }

    #put(of, change) {
        const { zone, named, ofZone } = of;
        const what = named === null ? 'every key of the zone' : 'this key';
        return this.#change(of, { body: change,
            title: change.block ? `Block ${what}?` : change.unlimited ? `Remove the limit of ${what}?`
                : `Change the limit of ${what}?`,
            text: lasts => consequence({ change, lasts, zone, key: named, ofZone, nodes: this.fleet.liveNodes }),
            yes: change.block ? 'Block' : change.unlimited ? 'Remove the limit' : 'Change the limit',
            done: `Changed: ${overrideText(change)}.`, failed: 'Not changed' });
    }

    #set(event) {
        event.preventDefault();
        this.#put(this.shown, this.#wanted());
    }

    #free() {
        const { zone, named } = this.shown;
        this.#change(this.shown, { body: null, url: keyUrl(zone, named) + this.#rateArgument, undoes: false,
            title: 'Free this key?', yes: 'Free the key',
            text: () => 'Its count starts from zero, and all nodes forget its refusals within two seconds.'
                + ' A limit that was changed stays changed.',
            done: `Freed ${middleCut(visible(this.shown.key), 60)} in ${visible(zone.name)}.`, failed: 'Not freed' });
    }
}

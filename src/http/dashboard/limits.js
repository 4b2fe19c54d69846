// Limits changed at run time: a key is looked up, freed, blocked or given another limit, and so is a zone.

const SECONDS_TO_CHANGE = 10;

// How long a change may last, as the API takes it; null: until it is taken back.
const LASTING = [['15m', '15 minutes'], ['1h', '1 hour'], ['1d', '1 day'], ['7d', '7 days'], [null, 'Until it is taken back']];

// What a user typed as a key, percent-encoded: %HH is a byte, everything else is text. An IPv4 address in a zone
// that counts binary addresses is its four bytes.
function typedId(zone, typed) {
    const text = typed.trim();
    const binary = ['$binary_remote_addr', '$ratelimit_client'].includes(zone.key);
    const bytes = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)?.slice(1).map(Number);
    if (binary && !zone.hash_key && bytes?.every(byte => byte < 256)) {
        return bytes.map(byte => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
    }
    return text.replace(/%[0-9A-Fa-f]{2}|[^]/gu, part =>
        part.length === 3 && part.startsWith('%') ? part : encodeURIComponent(part.replace(/[\uD800-\uDFFF]/gu, '\uFFFD')));
}

// Where a key's override is, or a zone's if there is no key.
const overrideUrl = (zone, id) => id === null ? `zones/${encodeURIComponent(zone.name)}/override`
    : keyUrl(zone, id).replace(/\/keys\?/, '/keys/override?');

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
    const where = `on ${nodes > 1 ? `all ${whole(nodes)} nodes` : 'this node and all that join it'}, within two seconds`;
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

// Opens the dialog; resolves to whether the user confirmed.
function confirmChange({ title, key, text, yes }) {
    const dialog = byId('change');
    say(byId('change-title'), title);
    say(byId('change-key'), key);
    say(byId('change-text'), text);
    say(byId('change-yes'), yes);
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise(resolve => {
        byId('change-yes').onclick = () => dialog.close('yes');
        dialog.onclose = () => !dialog.open && resolve(dialog.returnValue === 'yes');
    });
}

class LimitsView {
    zones = new Map();
    shown = null;  // {zone, id, state, override}: what was looked up; id null: the zone

    constructor(page, fleet) {
        this.page = page;
        this.fleet = fleet;
        byId('limit-lasts').append(...LASTING.map(([, words]) => h('option', {}, words)));
        byId('limit-lasts').selectedIndex = 1;
        byId('limit-zone').addEventListener('change', () => this.#forget());
        byId('limit-key').addEventListener('input', () => this.#forget());
        byId('limit-find').addEventListener('submit', event => this.#find(event));
        byId('limit-set').addEventListener('submit', event => this.#set(event));
        byId('change-no').addEventListener('click', () => byId('change').close('no'));
        byId('limit-back').addEventListener('click', () => this.#takeBack());
        byId('limit-free').addEventListener('click', () => this.#free());
        for (const radio of document.querySelectorAll('[name=limit-kind]')) {
            radio.addEventListener('change', () => this.#showKind());
        }
        this.list = new KeptTable('Limits of this zone that were changed at run time', [['Key', 'wide'], ['Limit'],
            ['In force'], ['', 'action']], (item, cells) => {
            cells[0].append(item.key === null || item.key === undefined ? 'the whole zone' : longText(item.key, 36));
            const ask = button('Look up', 'small', () => this.lookUp(byId('limit-zone').value, item.id ?? null));
            ask.append(hidden(` ${middleCut(visible(item.key ?? 'the whole zone'), 60)}`));
            cells[3].append(ask);
        });
        this.list.head.lastElementChild.append(hidden('Action'));
        byId('limit-list').append(this.list.root);
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
            this.#forget();
        }
        this.#showButtons();
    }

    // Looks a key up, or with null the zone, as from a table above.
    async lookUp(zone, id) {
        byId('limit-zone').value = zone;
        byId('limit-key').value = id ?? '';
        byId('limits').scrollIntoView({ block: 'nearest' });
        await this.#show(id);
        byId('limit-title').focus();
    }

    async #find(event) {
        event.preventDefault();
        const zone = this.zones.get(byId('limit-zone').value);
        const typed = byId('limit-key').value;
        if (zone) {
            await this.#show(typed.trim() === '' ? null : typedId(zone, typed));
            byId('limit-title').focus();
        }
    }

    #forget() {
        this.shown = null;
        byId('limit-found').hidden = true;
    }

    // Asks for the key's state and for what was changed, and shows both.
    async #show(id) {
        const zone = this.zones.get(byId('limit-zone').value);
        if (!zone) {
            return;
        }
        const [state, wrong] = id === null ? [null, null] : await call(keyUrl(zone, id));
        const [changed] = await call(overrideUrl(zone, id));
        const override = changed?.override ?? null;
        const [zoneChanged] = id === null ? [null] : await call(overrideUrl(zone, null));
        const ofZone = zoneChanged?.override ?? null;
        this.shown = { zone, id, override, ofZone, key: state?.key ?? (id === null ? null : id) };
        byId('limit-found').hidden = false;
        say(byId('limit-title'), id === null ? `All keys of ${visible(zone.name)}` : visible(this.shown.key));
        const lines = [['Configured', quotaText(zone)],
            ['Changed to', override ? `${overrideText(override)}, ${overrideNote(override)}`
                : changed ? 'not changed' : 'not known']];
        if (ofZone) {
            lines.push(['The zone', `${overrideText(ofZone)}, ${overrideNote(ofZone)}`]);
        }
        if (state) {
            lines.push(['Remaining', `${whole(state.remaining)} of ${whole(state.limit)}`],
                ['Passes again', state.retry_after === null ? 'never' : state.retry_after > 0
                    ? `in ${duration(state.retry_after)}` : 'now'],
                ['Blocked', state.blocked ? `for another ${duration(state.blocked)}` : 'no']);
        } else if (id !== null) {
            lines.push(['Count', wrong]);
        }
        byId('limit-state').replaceChildren(...lines.map(([label, text]) =>
            h('div', {}, h('dt', {}, label), h('dd', {}, text))));
        this.#showKind();
        this.#showButtons();
        await this.#showList(zone);
    }

    async #showList(zone) {
        const [page] = await call(`zones/${encodeURIComponent(zone.name)}/overrides?limit=100`);
        const items = page?.overrides ?? [];
        this.list.show(items, ({ id, key }) => JSON.stringify([zone.name, id ?? key ?? null]), (item, cells) => {
            say(cells[1], overrideText(item));
            say(cells[2], overrideNote(item));
        });
        say(byId('limit-listed'), !page ? 'What else was changed is not known: Redis does not answer.'
            : items.length === 0 ? `Nothing of ${visible(zone.name)} was changed.`
                : page.next ? `The first ${whole(items.length)} changes of ${visible(zone.name)}:`
                    : `Changes of ${visible(zone.name)}:`);
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
        const { write } = this.page;
        byId('limit-set').hidden = byId('limit-actions').hidden = !write;
        byId('limit-read-only').hidden = write;
        byId('limit-back').hidden = !this.shown?.override;
        byId('limit-free').hidden = !this.shown || this.shown.id === null;
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

    // A confirmation, then the change; the answer is shown and the key looked up again.
    async #change({ method, url, body = null, title, text, yes, done, failed }) {
        const { zone, id, key } = this.shown;
        if (this.busy || !await confirmChange({ title, text, yes,
            key: id === null ? `every key of ${visible(zone.name)}` : `${visible(key)} in ${visible(zone.name)}` })) {
            return;
        }
        this.busy = true;
        const [answer, wrong] = await call(url, method, body);
        this.busy = false;
        this.page.tell(answer ? done : `${failed}: ${wrong}.`, Boolean(answer));
        if (answer) {
            await this.#show(id);
        }
    }

    async #set(event) {
        event.preventDefault();
        const { zone, id, ofZone } = this.shown;
        const change = this.#wanted();
        const [lasts, words] = LASTING[byId('limit-lasts').selectedIndex];
        await this.#change({
            method: 'PUT', url: overrideUrl(zone, id), body: { ...change, ...(lasts ? { for: lasts } : {}) },
            title: id === null ? 'Change the limit of the zone?' : 'Change the limit of this key?',
            text: consequence({ change, lasts: lasts && words, zone, key: id, ofZone,
                nodes: this.fleet.liveNodes }),
            yes: change.block ? 'Block' : change.unlimited ? 'Remove the limit' : 'Change the limit',
            done: `Changed: ${overrideText(change)}.`, failed: 'Not changed' });
    }

    async #takeBack() {
        const { zone, id, ofZone } = this.shown;
        await this.#change({
            method: 'DELETE', url: overrideUrl(zone, id), title: 'Take the change back?', yes: 'Take it back',
            text: consequence({ change: null, zone, key: id, ofZone, nodes: this.fleet.liveNodes }), done: 'Taken back.', failed: 'Not taken back' });
    }

    async #free() {
        const { zone, id } = this.shown;
        await this.#change({
            method: 'DELETE', url: keyUrl(zone, id), title: 'Free this key?', yes: 'Free the key',
            text: 'Its count starts from zero, and all nodes forget its refusals within two seconds.'
                + ' A limit that was changed stays changed.',
            done: `Freed ${middleCut(visible(this.shown.key), 60)} in ${visible(zone.name)}.`, failed: 'Not freed' });
    }
}

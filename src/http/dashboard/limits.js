// Limits changed at run time: a key is looked up, freed, blocked or given another limit, and so is a zone.

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
        byId('limit-ten').addEventListener('click', () => this.giveTen(this.shown, this.shown.override, this.shown.rateNow));
        byId('limit-close').addEventListener('click', () => this.close());
        document.addEventListener('keydown', event => event.key === 'Escape' && !document.querySelector('dialog[open]')
            && this.isBeside && this.close());
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

    // A zone; also one that this node does not have.
    zoneNamed(name) {
        return this.zones.get(name) ?? { name, rate: 'that of nginx.conf' };
    }

    // Looks a key up by its id, or with null the zone, as from a table, beside which its limit is then shown.
    async lookUp(zone, id) {
        await this.#openBeside(zone, id === null ? 'key' : 'id', id ?? '');
        if (this.shown?.zone.address_bits && id !== null) {
            byId('limit-key').value = this.shown.key;  // as a user would type it
            byId('limit-as').value = 'key';
        }
    }

    // Looks up what a link names; empty: the zone.
    lookUpKey(zone, key) {
        return this.#openBeside(zone, 'key', key);
    }

    async #openBeside(zone, as, typed) {
        this.opener = this.isBeside ? this.opener : document.activeElement;
        byId('limit-zone').value = zone;
        this.#chooseZone();
        byId('limit-key').value = typed;
        byId('limit-as').value = as;
        await this.#show(typed === '' ? null : typedArgument(as, typed));
        if (this.shown) {
            byId('limits').classList.add('beside');
            byId('limit-close').hidden = false;
            this.page.setAddress(`#zone=${encodeURIComponent(wellFormed(zone))}`
                + (typed === '' ? '' : `&${as}=${encodeURIComponent(wellFormed(typed))}`));
        }
        byId('limit-title').focus();
    }

    get isBeside() {
        return byId('limits').classList.contains('beside');
    }

    // The part goes back to its place below the tables, and the focus to where it was.
    close() {
        byId('limits').classList.remove('beside');
        byId('limit-close').hidden = true;
        this.#forget();
        this.page.setAddress('#fleet');
        if (this.opener?.isConnected) {
            this.opener.focus();
        }
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
            rateNow: state?.rate, key: state?.key ?? typed };
        byId('limits').classList.toggle('not-counted', named !== null && !state);
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
        if (state?.counted === false) {
            lines.push(['Count', visible(state.note)]);  // what is left of nothing would look like "not limited"
        } else if (state) {
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
        byId('limit-ten').hidden = !this.shown || !tenTimes(this.shown.zone, this.shown.override, this.shown.rateNow);
        byId('limit-actions').hidden ||= ['back', 'free', 'ten'].every(name => byId(`limit-${name}`).hidden);
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
    // change, without its length and reason, which the user chooses; null: the override is taken back.
    async #change(of, { body, url = overrideUrl(of.zone, of.named), title, text, yes, done, failed, undoes = true, lasts }) {
        const { zone, named, key } = of;
        const wanted = this.busy ? null : await confirmChange({ title, text, yes, lasts, asks: body !== null,
            danger: isDangerous(body, named), key: named === null
                ? `every key of ${visible(zone.name)}` : `${visible(key)} in ${visible(zone.name)}` });
        if (wanted === null) {
            return;
        }
        this.busy = true;
        const [before] = undoes ? await call(url) : [null];
        const [answer, wrong] = await call(url, body === null ? 'DELETE' : 'PUT', body && { ...body, ...wanted });
        this.busy = false;
        const told = answer?.counted !== false ? done : body === null
            ? `Nothing was counted under ${middleCut(visible(key), 60)} in ${visible(zone.name)}.` : `${done} Nothing is counted under this key now.`;
        this.page.tell(answer ? told : `${failed}: ${wrong}.`, Boolean(answer),
            answer && before ? () => this.#undo(url, before.override) : null);
        await this.#refresh(answer);
    }

    async #undo(url, before) {
        this.page.tell('', true);
        const over = !before || before.until && before.until <= this.page.time;  // it would have ended by now
        const [answer, wrong] = await call(url, over ? 'DELETE' : 'PUT', over ? null : changeOf(before));
        this.page.tell(answer ? 'Undone.' : `Not undone: ${wrong}.`, Boolean(answer));
        await this.#refresh(answer);
    }

    async #refresh(changed) {
        if (changed && this.shown) {
            document.querySelector('[name=limit-kind]').checked = true;
            await this.#show(this.shown.named);
        }
        await Promise.all([this.changes.load(), changed && this.fleet.finder.again()]);
    }

    // Takes an override back. `ofZone`: that of the zone, if `of` is a key.
    takeBack(of, ofZone) {
        return this.#change(of, { body: null, title: 'Take the change back?', yes: 'Take it back',
            text: () => consequence({ change: null, zone: of.zone, key: of.named, ofZone, nodes: this.fleet.liveNodes }),
            done: 'Taken back.', failed: 'Not taken back' });
    }

    // Blocks a key of a table.
    block(zone, { id, key }) {
        return this.blockKey({ zone, named: idArgument(id), key, ofZone: zone.override ?? null });
    }

    blockKey(of) {
        return this.#put(of, { block: true });
    }

    // Gives a key ten times as much, for a day if the user says nothing else.
    giveTen(of, override, rate) {
        return this.#put(of, tenTimes(of.zone, override, rate), '1d');
    }

    #put(of, change, length) {
        const { zone, named, ofZone } = of;
        const what = named === null ? 'every key of the zone' : 'this key';
        return this.#change(of, { body: change, lasts: length,
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

// Limits changed at run time: a key is looked up, freed, blocked or given another limit, and so is a zone.

class LimitsView {
    zones = new Map();
    shown = null;  // {zone, named, key, override}: what was looked up; named null: the zone
    asked = 0;     // numbers the reads, so that a late answer shows nothing

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
        byId('limit-back').addEventListener('click', () => this.takeBack([this.#seen()]));
        byId('limit-free').addEventListener('click', () => this.#free());
        byId('limit-ten').addEventListener('click', () => this.giveTen(this.#seen(), this.shown.override, this.shown.rateNow));
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
        this.asked += 1;
        byId('limit-found').hidden = true;
        byId('limit-as').setCustomValidity('');
        document.querySelector('[name=limit-kind]').checked = true;  // no block is left over for the next key
        this.#showKind();
    }

    // What is shown, as a change begins with it.
    #seen() {
        return { ...this.shown, seen: this.shown.known ? this.shown.override : undefined };
    }

    // Asks for the key's state and for what was changed, and shows both. A late answer shows nothing.
    async #show(named) {
        const zone = this.zones.get(byId('limit-zone').value);
        if (!zone) {
            return;
        }
        this.asked += 1;
        const shown = await this.#ask(zone, named, byId('limit-key').value.trim(), this.asked);
        if (shown) {
            this.shown = shown;
            this.#draw();
            this.#showKind();
        }
    }

    // The key that was looked up stays true: it is read again with each answer of the node. If it is not known then, the last state
    // stays, with its time.
    async follow() {
        const { shown } = this;
        this.#showButtons();
        if (!shown || this.following || this.busy) {
            return;
        }
        this.following = true;
        const again = await this.#ask(this.zoneNamed(shown.zone.name), shown.named, shown.key, this.asked);
        this.following = false;
        if (again && this.shown === shown) {
            this.shown = again.known ? again : Object.assign(shown, { lost: again.lost });
            this.#draw();
        }
    }

    async #ask(zone, named, typed, number) {
        const [state, wrong] = named === null ? [null, null] : await call(keyUrl(zone, named) + this.#rateArgument);
        const [changed, notChanged] = await call(overrideUrl(zone, named));
        const [zoneChanged] = named === null ? [null] : await call(overrideUrl(zone, null));
        return number !== this.asked ? null : { zone, named, state, wrong, override: changed?.override ?? null, known: changed !== null,
            lost: notChanged, ofZone: zoneChanged?.override ?? null, rate: state?.override ? null : state?.rate, rateNow: state?.rate,
            key: state?.key ?? typed, at: this.page.time };
    }

    #draw() {
        const { zone, named, state, wrong, override, ofZone, known, lost, key, at } = this.shown;
        byId('limits').classList.toggle('not-counted', named !== null && !state);
        byId('limit-found').hidden = false;
        say(byId('limit-title'), named === null ? `All keys of ${visible(zone.name)}` : visible(key));
        const lines = [['Configured', quotaText(zone)],
            ['Changed to', override ? `${overrideText(override)}, ${overrideNote(override)}`
                : known ? 'not changed' : `not known: ${lost}`]];
        if (override?.at) {
            lines.push(['Since', when(override.at, this.page.time)]);
        }
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
            lines.push(['Count', /rate is a variable/.test(wrong)
                ? `not known: the rate of this zone is a variable, ${zone.rate}. Say above which rate this key has.` : wrong]);
        }
        lines.push(['As of', known && lost ? `${clock(at)}, not known since: ${lost}` : clock(at)]);
        byId('limit-state').classList.toggle('unknown', Boolean(lost));
        sayPairs(byId('limit-state'), lines);
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
        const why = this.page.whyNot ?? (this.shown?.known === true ? null : 'Nothing can be changed: it is not known what is in force.');
        const able = why === null;
        byId('limit-set').hidden = byId('limit-actions').hidden = !able;
        byId('limit-read-only').hidden = able;
        say(byId('limit-read-only'), why ?? '');
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

    // A question, then the change of what the user chose in it, if what the question showed is still in force. What could not be
    // changed for that reason comes in a second question. The outcome is shown, with what undoes it. `scopes`: as of Question.ask, with
    // what Target needs; `body`: of a change, without its length and reason, which the user chooses; null: the override is taken back.
    async #change(scopes, { body, title, text, yes, done, failed, lasts }) {
        if (this.busy) {
            return;
        }
        this.busy = true;
        let wanted = { change: { for: lasts } };
        const all = [];
        let left = scopes.map(({ label, targets }) => ({ label, targets: targets.map(each => new Target(each)) }));
        for (let conflict = ''; left.length > 0; conflict = 'This was changed meanwhile, and the change was not made:') {
            const asked = await Question.ask({ title, yes, text, conflict, scopes: left, asks: body !== null,
                dangerous: isDangerous(body, left[0].targets[0].named), lasts: wanted.change.until ?? wanted.change.for ?? null, reason: wanted.change.reason,
                now: () => this.page.time });
            if (asked === null) {
                break;
            }
            wanted = asked;
            await forEach(asked.targets, target => target.change(body && { ...body, ...asked.change }));
            const again = asked.targets.filter(({ outcome }) => outcome === 'conflict');
            all.push(...asked.targets.filter(({ outcome }) => outcome !== 'conflict'));
            again.forEach(target => Object.assign(target, { known: undefined, seen: undefined }));
            left = again.length > 0 ? [{ label: '', targets: again }] : [];
        }
        this.busy = false;
        if (all.length > 0) {
            this.#tell(all, { done: targets => done(targets, wanted.change), failed });
            await this.#refresh(true);
        }
    }

    #tell(all, { done, failed }) {
        const made = all.filter(({ outcome }) => outcome === 'done');
        const not = all.filter(({ outcome }) => outcome === 'failed');
        const unused = made.length === 1 && made[0].counted === false ? ' Nothing is counted under this key now.' : '';
        const wrong = not.length === 0 ? '' : `${failed}${all.length > 1 ? `: ${targetsText(not)}` : ''}: ${not[0].wrong}.`;
        this.page.tell([made.length > 0 ? done(made) + unused : '', wrong].filter(Boolean).join(' '), not.length === 0,
            made.some(({ tag, after }) => tag || after) ? () => this.#undo(made) : null);
    }

    // Brings back what was in force before, but where it was changed again since.
    async #undo(targets) {
        this.page.tell('', true);
        await forEach(targets, target => target.undo(this.page.time));
        const of = outcome => targets.filter(target => target.outcome === outcome);
        const [conflicts, failed] = [of('conflict'), of('failed')];
        await forEach(conflicts, target => target.read());
        const texts = [...conflicts.map(target => `changed since, ${target.nowText(this.page.time)}`),
            ...failed.map(target => `${targetText(target)}: ${target.wrong}`)];
        this.page.tell(texts.length === 0 ? 'Undone.' : `Not undone: ${texts.join('; ')}.`, texts.length === 0);
        await this.#refresh(true);
    }

    async #refresh(changed) {
        if (changed && this.shown) {
            document.querySelector('[name=limit-kind]').checked = true;
            await this.#show(this.shown.named);
        }
        await Promise.all([this.changes.load(), changed && this.fleet.finder.again()]);
    }

    // Takes overrides back. `targets`: as of Target.
    takeBack(targets) {
        return this.#change([{ label: '', targets }], { body: null, yes: 'Take it back',
            title: all => all.length === 1 ? 'Take the change back?' : `Take ${whole(all.length)} changes back?`,
            text: (lasts, all) => consequence({ change: null, targets: all, nodes: this.fleet.liveNodes }),
            done: made => `Taken back: ${targetsText(made)}.`, failed: 'Not taken back' });
    }

    // Blocks a key of a table.
    block(zone, { id, key, override }) {
        return this.blockKey({ zone, named: idArgument(id), key, ofZone: zone.override ?? null, seen: override });
    }

    // Takes back what is in force for a key of a table.
    takeBackOf(zone, { id, key, override }) {
        return this.takeBack([{ zone, named: idArgument(id), key, ofZone: zone.override ?? null, seen: override }]);
    }

    // Blocks a key, in a zone or in all that count it.
    blockKey(of) {
        return this.#put(of, { block: true }, '1h', inAllZones(of, [...this.zones.values()]));
    }

    // Gives a key ten times as much, for a day if the user says nothing else.
    giveTen(of, override, rate) {
        return this.#put(of, tenTimes(of.zone, override, rate), '1d');
    }

    #put(of, change, length = '1h', everywhere = [of]) {
        const what = of.named === null ? 'every key of the zone' : 'this key';
        const scopes = [{ label: `${visible(of.zone.name)} alone`, targets: [of] },
            ...everywhere.length > 1 ? [{ label: `all ${whole(everywhere.length)} zones that count this key: `
                + everywhere.map(({ zone }) => visible(zone.name)).join(', '), targets: everywhere }] : []];
        return this.#change(scopes, { body: change, lasts: length,
            title: () => change.block ? `Block ${what}?` : change.unlimited ? `Remove the limit of ${what}?`
                : `Change the limit of ${what}?`,
            text: (lasts, targets) => consequence({ change, lasts, targets, nodes: this.fleet.liveNodes }),
            yes: change.block ? 'Block' : change.unlimited ? 'Remove the limit' : 'Change the limit',
            done: (made, asked) => `Changed: ${targetsText(made)}: ${overrideText(change)}${lengthText(asked, this.page.time)}.`, failed: 'Not changed' });
    }

    #set(event) {
        event.preventDefault();
        const change = this.#wanted();
        change.block && this.shown.named !== null ? this.blockKey(this.#seen()) : this.#put(this.#seen(), change);
    }

    async #free() {
        const { zone, named, key } = this.shown;
        const confirmed = this.busy ? null : await Question.ask({ title: () => 'Free this key?', yes: 'Free the key', asks: false, dangerous: false,
            scopes: [{ label: '', targets: [new Target(this.shown)] }], now: () => this.page.time,
            text: () => 'Its count starts from zero, and all nodes forget its refusals within two seconds.'
                + ' A limit that was changed stays changed.' });
        if (confirmed === null) {
            return;
        }
        const [answer, wrong] = await call(keyUrl(zone, named) + this.#rateArgument, 'DELETE');
        const name = `${middleCut(visible(key), 60)} in ${visible(zone.name)}`;
        this.page.tell(!answer ? `Not freed: ${wrong}.` : answer.counted === false ? `Nothing was counted under ${name}.` : `Freed ${name}.`,
            Boolean(answer));
        await this.#refresh(answer);
    }
}

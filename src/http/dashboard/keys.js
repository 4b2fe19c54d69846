// The keys that a zone refuses most, and freeing one of them.

const SECONDS_TO_FREE = 10;

// The key is always an argument: in a path, nginx and browsers resolve "..", percent-encoded or not, so that
// an untrusted key could lead to another zone, or out of the API.
// `named`: the argument, such as that of an id.
const keyUrl = ({ name }, named) => `zones/${encodeURIComponent(name)}/keys?${named}`;

// The exact key: its bytes, percent-encoded.
const idArgument = id => `id=${wellFormed(id).replace(/[^A-Za-z0-9_.~%-]/gu, encodeURIComponent)}`;

// Why a key was not freed: the meaning of the status, and the API's error text. Error pages of nginx or of a
// proxy before it are not JSON.
async function refusalText(answer) {
    const known = {
        403: 'this address or user may not',
        405: 'the API is read-only (write=on is not set)',
    }[answer.status];
    const error = (await answer.json().catch(() => null))?.error;
    const detail = typeof error === 'string' && error !== '' ? middleCut(visible(error), 200) : null;
    return [known, detail].filter(Boolean).join(': ') || `the node answered ${answer.status}`;
}

// Returns [freed, message].
async function freeKey(zone, key) {
    const name = `${middleCut(visible(key.key), 60)} in ${visible(zone.name)}`;
    try {
        const answer = await fetch(keyUrl(zone, idArgument(key.id)),
            { method: 'DELETE', cache: 'no-store', signal: AbortSignal.timeout(1000 * SECONDS_TO_FREE) });
        if (answer.ok) {
            const { counted } = await answer.json().catch(() => ({}));  // 204 has no body
            return [true, counted === false ? `Nothing was counted under ${name}.` : `Freed ${name}.`];
        }
        return [false, `Not freed: ${name}: ${await refusalText(answer)}.`];
    } catch {
        return [false, `No answer: ${name} may be freed or not.`];
    }
}

// Opens the dialog; resolves to whether the user confirmed.
function confirmFree(zone, key, inFleet) {
    const dialog = document.getElementById('free');
    const yes = document.getElementById('free-yes');
    say(document.getElementById('free-key'), visible(key.key));
    say(document.getElementById('free-zone'), visible(zone.name));
    // Other nodes remember refusals only of zones that are counted in Redis and have a cache.
    const others = document.getElementById('free-others');
    others.hidden = !zone.redis || !zone.cache;
    say(others, inFleet ? 'All nodes forget its refusals within two seconds.'
        : 'Other nodes may refuse it from memory for up to a minute.');
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise(resolve => {
        yes.onclick = () => dialog.close('yes');
        // The event is asynchronous: the one of an earlier dialog may come when this one is open.
        dialog.onclose = () => {
            if (!dialog.open) {
                resolve(dialog.returnValue === 'yes');
            }
        };
    });
}

// "5,115 to 5,127": the node's count is too high by at most `error`.
const refusals = ({ refused, error }) =>
    error > 0 ? `${whole(Math.max(0, refused - error))} to ${whole(refused)}` : whole(refused);

// Keys that were freed here. An answer that was requested before that may still contain such a key, which is
// then hidden. In a later answer, or with a smaller count, the key was refused again.
class FreedKeys {
    freed = new Map();

    add({ id, refused }, at) {
        this.freed.set(id, { refused, at });
    }

    // The keys of an answer that are shown. `asked`: when the answer was requested.
    seen(keys, asked) {
        const refused = new Map(keys.map(key => [key.id, key.refused]));
        for (const [id, before] of this.freed) {
            if (asked >= before.at || !(refused.get(id) >= before.refused)) {
                this.freed.delete(id);
            }
        }
        return keys.filter(({ id }) => !this.freed.has(id));
    }
}

class BusiestKeys {
    rows = new Map();
    freed = new FreedKeys();

    constructor(page, id) {
        this.page = page;
        this.columns = [['Key', 'wide'], ['Refused now', 'number'], ['In all', 'number'], ['Since'], ['', 'action']];
        const { root, head, body } = table('Busiest refused keys', this.columns);
        head.lastElementChild.append(hidden('Action'));
        this.table = root;
        this.table.id = `${id}-keys`;
        this.body = body;
        this.nothing = h('p', { class: 'quiet', tabindex: '-1' });
        this.root = h('div', {}, this.table, this.nothing);
    }

    show(zone, history) {
        this.zone = zone;
        const keys = this.freed.seen(zone.busiest ?? [], this.page.asked);
        const ids = new Set(keys.map(({ id }) => id));
        for (const id of this.rows.keys()) {
            if (!ids.has(id)) {
                this.rows.delete(id);
            }
        }
        arrange(this.body, keys.map(key => this.#show(key)));
        this.#someOrNone(keys.length > 0);
        this.table.classList.toggle('read-only', !this.page.write);
        say(this.nothing, history.last.results.rejected > 0
            ? 'No key is known to be refused now.' : 'No key has been refused.');
    }

    #show(key) {
        if (!this.rows.has(key.id)) {
            this.rows.set(key.id, this.#make(key));
        }
        const { root, cells, blocked, tried, buttons, inForce, block, back } = this.rows.get(key.id);
        say(cells[1], perSecond(key.per_second ?? null));
        cells[1].classList.toggle('some', key.per_second > 0);
        say(cells[2], refusals(key));
        say(cells[3], key.since ? when(key.since, this.page.time) : '');
        // Refusals by a limit in shadow or a dry run, which refused no request.
        say(tried, key.would_refuse > 0 ? `${whole(key.would_refuse)} on trial` : '');
        blocked.hidden = !(key.blocked > 0);
        say(blocked, blocked.hidden ? '' : `blocked for ${duration(key.blocked)}`);
        sayInForce(inForce, this.page.fleet.details, { ...key, zone: this.zone.name }, this.page.time);
        buttons.forEach(made => { made.hidden = !this.page.write || (made.ofFleet && !this.page.hasFleet); });
        block.hidden ||= Boolean(key.override?.block);
        back.hidden ||= !key.override;
        enable([block, back], this.page.whyNot);
        return root;
    }

    #someOrNone(some) {
        this.table.hidden = !some;
        this.nothing.hidden = some;
        this.root.closest('.zone-body')?.classList.toggle('no-keys', !some);
    }

    #make(key) {
        const made = row(this.columns);
        const text = visible(key.key);
        made.blocked = h('span', { class: 'blocked' });
        made.tried = h('span', { class: 'blocked' });
        made.inForce = h('span', { class: 'in-force' });
        made.cells[0].append(longText(key.key, 36), ' ', made.inForce, ' ', made.blocked, ' ', made.tried);
        made.free = button('Free', 'small', () => this.#free(key));
        const now = () => this.zone.busiest.find(({ id }) => id === key.id) ?? key;
        made.block = button('Block…', 'small danger', () => this.page.fleet.limits.block(this.zone, now()));
        made.back = button('Take back…', 'small', () => this.page.fleet.limits.takeBackOf(this.zone, now()));
        const change = button('Change…', 'small', () => this.page.change(this.zone.name, key.id));
        made.block.ofFleet = made.back.ofFleet = change.ofFleet = true;
        made.buttons = [made.free, made.block, made.back, change];
        made.buttons.forEach(each => each.append(hidden(` ${middleCut(text, 60)}`)));
        made.cells[4].append(...made.buttons.flatMap(each => [each, ' ']));
        return made;
    }

    async #free(key) {
        const { free } = this.rows.get(key.id) ?? {};
        if (!free || free.getAttribute('aria-disabled') || !await confirmFree(this.zone, key, this.page.hasFleet)) {
            return;
        }
        // Not `disabled`, which would remove the focus.
        set(free, 'aria-disabled', 'true');
        const [freed, text] = await freeKey(this.zone, key);
        set(free, 'aria-disabled', null);
        if (freed) {
            this.#remove(key);
        }
        this.page.tell(text, freed);
    }

    // Moves the focus to the next key's button, or to the text that is shown without keys.
    #remove(key) {
        const current = (this.zone.busiest ?? []).find(({ id }) => id === key.id);
        this.freed.add(current ?? key, performance.now());
        // Undefined if an answer that arrived meanwhile did not have the key.
        const root = this.rows.get(key.id)?.root;
        const focused = root?.contains(document.activeElement) || document.activeElement === document.body;
        const beside = root?.nextElementSibling ?? root?.previousElementSibling;
        this.rows.delete(key.id);
        root?.remove();
        const next = beside ?? this.body.firstElementChild;
        if (!next) {
            this.#someOrNone(false);
            say(this.nothing, 'No key is known to be refused now.');
        }
        if (focused) {
            (next?.querySelector('.small') ?? this.nothing).focus();
        }
    }
}

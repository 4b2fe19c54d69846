// The keys that a zone refuses most, and freeing one of them.

const SECONDS_TO_FREE = 10;

// Always as an argument: of a path, nginx and browsers resolve "..", percent-encoded or not, so that a
// stranger's key could lead to another zone, or out of the API.
// Of a zone with hash_key, what is shown as a key is its hash.
function keyUrl({ name, hash_key: hashed }, id) {
    return `zones/${encodeURIComponent(name)}/keys?${hashed ? 'hash' : 'key'}=${id.replace(/[^A-Za-z0-9_.~%-]/g, encodeURIComponent)}`;
}

// Why it was not done: what the API says of it, and what that does not say. Pages of nginx or of what
// stands before it are no JSON.
async function refusalText(answer) {
    const known = {
        403: 'this address or user may not',
        405: 'the API is read-only (write=on is not set)',
    }[answer.status];
    const said = (await answer.json().catch(() => null))?.error;
    const told = typeof said === 'string' && said !== '' ? middleCut(visible(said), 200) : null;
    return [known, told].filter(Boolean).join(': ') || `the node answered ${answer.status}`;
}

// [freed, what became of it in words].
async function freeKey(zone, key) {
    const name = `${middleCut(visible(key.key), 60)} in ${visible(zone.name)}`;
    try {
        const answer = await fetch(keyUrl(zone, key.id),
            { method: 'DELETE', cache: 'no-store', signal: AbortSignal.timeout(1000 * SECONDS_TO_FREE) });
        return answer.ok ? [true, `Freed ${name}.`]
            : [false, `Not freed: ${name}: ${await refusalText(answer)}.`];
    } catch {
        return [false, `No answer: ${name} may be freed or not.`];
    }
}

// Asks in the page, and resolves to whether to go on.
function confirmFree(zone, key) {
    const dialog = document.getElementById('free');
    const yes = document.getElementById('free-yes');
    say(document.getElementById('free-key'), visible(key.key));
    say(document.getElementById('free-zone'), visible(zone.name));
    // Only what is counted in Redis is refused by other nodes too, and only a cache remembers it there.
    document.getElementById('free-others').hidden = !zone.redis || !zone.cache;
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise(resolve => {
        yes.onclick = () => dialog.close('yes');
        // The event comes later: that of a question before this one finds it open again.
        dialog.onclose = () => {
            if (!dialog.open) {
                resolve(dialog.returnValue === 'yes');
            }
        };
    });
}

// "5,115 to 5,127": the node's number is too high by at most its error.
const refusals = ({ refused, error }) =>
    error > 0 ? `${whole(Math.max(0, refused - error))} to ${whole(refused)}` : whole(refused);

// Keys that were freed here. Only an answer that was asked for before that can still have one as it was:
// in any later one, or with a smaller number, it was refused again.
class FreedKeys {
    freed = new Map();

    add({ id, refused }, at) {
        this.freed.set(id, { refused, at });
    }

    // Those of an answer's keys that are to be seen; `asked` is when it was asked for.
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
        this.columns = [['Key', 'wide'], ['Refused now', 'number'], ['In all', 'number'], ['', 'action']];
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
        arrange(this.body, keys.map(key => this.#show(key, history)));
        this.#someOrNone(keys.length > 0);
        this.table.classList.toggle('read-only', !this.page.write);
        say(this.nothing, history.last.results.rejected > 0
            ? 'No key is known to be refused now.' : 'No key has been refused.');
    }

    #show(key, history) {
        if (!this.rows.has(key.id)) {
            this.rows.set(key.id, this.#make(key));
        }
        const { root, cells, free } = this.rows.get(key.id);
        const now = history.refusedNow(key.id);
        say(cells[1], perSecond(now));
        cells[1].classList.toggle('some', now > 0);
        say(cells[2], refusals(key));
        free.hidden = !this.page.write;
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
        made.cells[0].append(longText(key.key, 36));
        made.free = button('Free', 'small', () => this.#free(key));
        made.free.append(hidden(` ${middleCut(text, 60)}`));
        made.cells[3].append(made.free);
        return made;
    }

    async #free(key) {
        const { free } = this.rows.get(key.id) ?? {};
        if (!free || free.getAttribute('aria-disabled') || !await confirmFree(this.zone, key)) {
            return;
        }
        // Not `disabled`, which would take the focus from it.
        set(free, 'aria-disabled', 'true');
        const [freed, text] = await freeKey(this.zone, key);
        set(free, 'aria-disabled', null);
        if (freed) {
            this.#remove(key);
        }
        this.page.tell(text, freed);
    }

    // The focus goes to the next key's button, or to what is said when there is none.
    #remove(key) {
        const current = (this.zone.busiest ?? []).find(({ id }) => id === key.id);
        this.freed.add(current ?? key, performance.now());
        // None, when an answer that came meanwhile had the key no more.
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

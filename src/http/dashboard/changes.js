// All limits that were changed at run time, the newest first, and the line that says that a whole zone is.

const CHANGES_AT_A_TIME = 50;
const MOST_CALLS = 20;  // of one search
const SECONDS_BETWEEN_LISTS = 30;
const MS_OF_TYPING = 300;
const MOST_DETAILS = 500;
const MOST_DETAILS_AT_A_TIME = 20;
const MS_UNTIL_DETAILS = 4000;  // before they are read again

const nameOfChange = ({ zone, id }) => JSON.stringify([zone, id]);

class ChangesView {
    items = [];
    next = null;   // where the next page begins; null: there is none
    known = false; // whether the list was read
    read = false;  // whether the first read has ended
    chosen = new Set();  // to take back at once, by nameOfChange
    asked = 0;     // numbers the loads, so that a late answer shows nothing

    constructor(page, limits) {
        this.page = page;
        this.limits = limits;
        this.table = new KeptTable('Limits that were changed at run time, the newest first', [['Key', 'wide'], ['Zone'],
            ['Limit now'], ['Until'], ['Set by'], ['Why'], ['Set'], ['', 'action']], (item, cells) => {
            const name = visible(item.key ?? 'the whole zone');
            const pick = h('input', { type: 'checkbox', 'aria-label': `Choose ${middleCut(name, 60)} in ${visible(item.zone)}` });
            pick.addEventListener('change', () => {
                pick.checked ? this.chosen.add(nameOfChange(item)) : this.chosen.delete(nameOfChange(item));
                this.#showChosen();
            });
            cells[0].append(pick, item.key === null ? h('b', {}, name) : longText(item.key, 36));
            const ask = button('Look up', 'small', () => this.limits.lookUp(item.zone, item.id));
            const back = button('Take back', 'small', () => this.#takeBack([item]));
            [ask, back].forEach(made => made.append(hidden(` ${middleCut(name, 60)} in ${visible(item.zone)}`)));
            cells[7].append(ask, ' ', back);
            const unused = h('span', { class: 'tag below' });
            cells[0].append(unused);
            return { back, unused, pick };
        });
        this.table.most = Infinity;  // they come in pages
        this.table.head.lastElementChild.append(hidden('Action'));
        byId('changes-list').append(this.table.root);
        byId('changes-more').addEventListener('click', () => this.load(true));
        byId('changes-choose').addEventListener('click', () => {
            this.chosen = new Set(this.#allChosen ? [] : this.items.map(nameOfChange));
            this.#show();
        });
        byId('changes-back').addEventListener('click', () => this.#takeBack(this.#toTakeBack));
        byId('changes-search').addEventListener('input', () => {
            clearTimeout(this.typing);
            this.typing = setTimeout(() => this.load(), MS_OF_TYPING);
        });
    }

    // Called with each answer of the node. `fleet`: of /fleet.
    take(fleet, time) {
        this.time = time;
        const state = `${fleet.connected} ${fleet.overrides}`;
        if (state !== this.state || time - this.loaded > SECONDS_BETWEEN_LISTS) {
            this.state = state;
            if (byId('changes-search') !== document.activeElement) {
                this.load();
            }
        }
        this.#show();
    }

    // Reads the list from its beginning, as far as it was shown, or its next page. What is searched is searched in all of it, page
    // by page. A list that could not be read leaves the one that is shown.
    async load(more = false) {
        this.loaded = this.time;
        const asked = this.asked += 1;
        const search = byId('changes-search').value.trim();
        const same = search === this.search;
        let items = more ? this.items : [];
        let next = more ? this.next : 0;
        const wanted = more ? items.length + CHANGES_AT_A_TIME : same ? Math.max(this.items.length, CHANGES_AT_A_TIME) : CHANGES_AT_A_TIME;
        // New changes are above those that are chosen: then the list grows by a page.
        const isEnough = () => items.length >= wanted + CHANGES_AT_A_TIME
            || (items.length >= wanted && (!same || this.#areIn(items)));
        let wrong = null;
        for (let calls = 0; next !== null && !isEnough() && calls < MOST_CALLS; calls += 1) {
            const most = search ? 1000 : Math.min(1000, Math.max(wanted - items.length, CHANGES_AT_A_TIME));
            const [page, why] = await call(`overrides?limit=${most}&after=${next}`
                + (search ? `&search=${encodeURIComponent(wellFormed(search))}` : ''));
            if (asked !== this.asked) {
                return;
            }
            if (!page) {
                wrong = why;
                break;
            }
            items = [...items, ...page.overrides ?? []];
            next = page.next ?? null;
        }
        Object.assign(this, { wrong, known: this.known || !wrong, read: true }, wrong && same ? {} : { items, next, search, listed: this.time });
        this.#show();
        this.page.arrive(false);
    }

    // Whether all changes that are chosen are among these.
    #areIn(items) {
        const there = new Set(items.map(nameOfChange));
        return [...this.chosen].every(name => there.has(name));
    }

    #show() {
        const there = new Set(this.items.map(nameOfChange));
        this.chosen = new Set([...this.chosen].filter(name => there.has(name)));  // nothing is taken back that is not shown
        this.table.show(this.items, nameOfChange, (item, cells, { back, unused, pick }) => {
            pick.hidden = !this.page.write;
            pick.checked = this.chosen.has(nameOfChange(item));
            // Requests of a blocked key are not counted: what this node knows are its refusals.
            say(unused, item.counted !== false ? '' : item.block ? 'no request of it is known on this node' : 'nothing is counted under it');
            unused.title = item.counted === false ? visible(item.note) : '';
            say(cells[1], visible(item.zone));
            say(cells[2], overrideText(item));
            say(cells[3], item.until ? when(item.until, this.time) : 'it is taken back');
            say(cells[4], visible(item.by ?? ''));
            say(cells[5], visible(item.reason ?? ''));
            say(cells[6], item.at ? when(item.at, this.time) : '');
            back.hidden = !this.page.write;
            enable([back], this.page.whyNot);
        });
        this.#showChosen();
        byId('changes-more').hidden = this.next === null || this.wrong !== null;
        say(byId('changes-none'), this.wrong ? `What was changed is not known: ${visible(this.wrong)}.${this.items.length > 0 ? ` The list is of ${clock(this.listed)}.` : ''}`
            : this.items.length > 0 ? '' : !this.known ? 'What was changed is not read yet.'
            : this.search ? `No change has “${visible(this.search)}” in its zone, key, limit, author or reason.`
                : 'No limit is changed.');
    }

    // Those that are chosen, or else all that a search has found and shows.
    get #toTakeBack() {
        return this.chosen.size > 0 ? this.items.filter(item => this.chosen.has(nameOfChange(item))) : this.search ? this.items : [];
    }

    get #allChosen() {
        return this.chosen.size === this.items.length;
    }

    #showChosen() {
        const [choose, back] = [byId('changes-choose'), byId('changes-back')];
        choose.hidden = !this.page.write || this.items.length < 2;
        say(choose, this.#allChosen ? 'Choose none' : 'Choose all shown');
        const wanted = this.#toTakeBack.length;
        back.hidden = !this.page.write || wanted === 0;
        say(back, this.chosen.size > 0 ? `Take back ${whole(wanted)}…` : `Take back the ${whole(wanted)} found…`);
        enable([back], this.page.whyNot);
    }

    #takeBack(items) {
        this.limits.takeBack(items.map(item => {
            const zone = this.limits.zoneNamed(item.zone);
            const named = item.id === null ? null : idArgument(item.id);
            return { zone, named, key: item.key, ofZone: named === null ? null : zone.override ?? null, seen: item };
        }));
    }
}

// Who changed the limits of the keys that tables show, when and why. A node's figures have only what is in force: the rest is
// read, once for each override. Of more keys than MOST_DETAILS those that were shown first have it.
class ChangeDetails {
    known = new Map();  // by name: {override, shown}; the one that was shown last is at the end
    reading = 0;

    // `override`: of a key in a table. Returns it with by, at and reason as soon as they are known.
    of(zone, id, override) {
        const name = JSON.stringify([zone, id, overrideText(override), override.until ?? null]);
        const now = performance.now();
        const known = this.known.get(name);
        if (known) {
            this.known.delete(name);
            this.known.set(name, Object.assign(known, { shown: now }));
        } else if (this.reading < MOST_DETAILS_AT_A_TIME && this.#hasRoom(now)) {
            this.#read(name, { zone, id, override }, now);
        }
        return known?.override ?? override;
    }

    // Forgets those that are no longer shown.
    #hasRoom(now) {
        for (const [name, { shown }] of this.known) {
            if (this.known.size < MOST_DETAILS || now - shown < MS_UNTIL_DETAILS) {
                break;
            }
            this.known.delete(name);
        }
        return this.known.size < MOST_DETAILS;
    }

    async #read(name, { zone, id, override }, shown) {
        const entry = { override, shown };
        this.known.set(name, entry);
        this.reading += 1;
        const [data] = await call(overrideUrl({ name: zone }, idArgument(id)));
        this.reading -= 1;
        if (data?.override && isSame(data.override, override)) {
            entry.override = data.override;
        } else {
            setTimeout(() => this.known.delete(name), MS_UNTIL_DETAILS);
        }
    }
}

// Shows in a row what is in force for its key: what, until when, by whom, since when, why.
function sayInForce(element, details, { zone, id, override }, now) {
    element.hidden = !override;
    say(element, override ? inForceNote(details.of(zone, id, override), now) : '');
    element.classList.toggle('bad', Boolean(override?.block));
}

// "per_ip is blocked until 12:04:31; search is 5r/s until it is taken back": zones that are changed as a whole.
const wholeZonesText = (zones, now) => zones.filter(({ override }) => override)
    .map(zone => `${visible(zone.name)} is ${overrideText(zone.override)} ${untilText(zone.override, now)}`).join('; ');

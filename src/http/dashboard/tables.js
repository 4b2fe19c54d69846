// Tables whose rows can be sorted, and filtered by a text. Of many rows the first are shown, with a button for more.

const LONG_WORD = /\S{17}/;  // which a cell may break

// Numbers by size, texts by their letters; what is not known comes last.
function compare(a, b) {
    const [known, other] = [a, b].map(value => value !== null && value !== undefined);
    if (!known || !other) {
        return other - known;
    }
    return typeof a === 'number' && typeof b === 'number' ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

// Rows are kept by an id, so that they do not move or lose the focus. Columns: [name, class, value], where `value` is
// what the column is sorted by, a function of an item; null: it is not sorted by this column.
class KeptTable {
    rows = new Map();
    most = ROWS_AT_A_TIME;
    filter = '';
    sorted = null;  // {column, down}; null: in the order of the items

    constructor(caption, columns, make = () => ({})) {
        this.columns = columns;
        this.caption = caption;
        this.make = make;
        const { root, head, body } = table(caption, columns);
        this.table = root;
        this.head = head;
        this.body = body;
        this.none = h('p', { class: 'quiet', role: 'status' });
        this.more = button('Show more', 'more', () => this.#showMore());
        this.root = h('div', {}, root, this.none, this.more);
        columns.forEach(([name, , value], i) => value && head.children[i].replaceChildren(
            button(name, 'sort', () => this.sort(i, this.sorted?.column === i ? !this.sorted.down : i > 0))));
        this.table.hidden = this.none.hidden = this.more.hidden = true;
    }

    // A field that filters and, for narrow windows, whose tables have no visible heads, a list of columns to sort by.
    // `textOf`: what is searched in an item.
    tools(id, textOf) {
        this.textOf = textOf;
        const field = h('input', { type: 'search', id: `${id}-filter`, placeholder: 'Filter', autocomplete: 'off', spellcheck: 'false' });
        field.addEventListener('input', () => {
            this.filter = field.value.trim().toLowerCase();
            this.most = ROWS_AT_A_TIME;
            this.#again();
        });
        this.select = h('select', { id: `${id}-sort`, class: 'sort-by' }, h('option', { value: '' }, 'As they come'),
            ...this.columns.flatMap(([name, , value], i) => value ? [h('option', { value: i }, `By ${name.toLowerCase()}`)] : []));
        this.select.addEventListener('change', () =>
            this.select.value === '' ? this.sort(null) : this.sort(Number(this.select.value), Number(this.select.value) > 0));
        return h('div', { class: 'tools', role: 'search', 'aria-label': this.caption },
            h('label', { class: 'unseen', for: `${id}-filter` }, 'Filter'), field,
            h('label', { class: 'unseen sort-by', for: `${id}-sort` }, 'Sort'), this.select);
    }

    sort(column, down = false) {
        this.sorted = column === null ? null : { column, down };
        this.columns.forEach((_, i) =>
            set(this.head.children[i], 'aria-sort', i !== column ? null : down ? 'descending' : 'ascending'));
        if (this.select) {
            this.select.value = column ?? '';
        }
        this.#again();
    }

    #showMore() {
        const last = this.body.lastElementChild;
        this.most += ROWS_AT_A_TIME;
        this.#again();
        last?.nextElementSibling?.querySelector('button')?.focus();
    }

    // At once, also under the pointer: the user asked for it.
    #again() {
        if (this.last) {
            this.#show(false, ...this.last);
        }
    }

    // `show` writes an item into a row's cells.
    show(items, idOf, show) {
        this.last = [items, idOf, show];
        this.#show(undefined, items, idOf, show);
    }

    #show(held, items, idOf, show) {
        const found = this.filter ? items.filter(item => this.textOf(item).toLowerCase().includes(this.filter)) : [...items];
        if (this.sorted) {
            const { column, down } = this.sorted;
            const values = new Map(found.map(item => [item, this.columns[column][2](item)]));
            const known = item => values.get(item) !== null && values.get(item) !== undefined;
            found.sort((a, b) => (down && known(a) && known(b) ? -1 : 1) * compare(values.get(a), values.get(b)));
        }
        const shown = found.slice(0, this.most);
        const ids = new Set(shown.map(idOf));
        for (const id of this.rows.keys()) {
            if (!ids.has(id)) {
                this.rows.delete(id);
            }
        }
        arrange(this.body, shown.map(item => {
            const id = idOf(item);
            if (!this.rows.has(id)) {
                const made = row(this.columns);
                this.rows.set(id, { ...made, ...this.make(item, made.cells) });
            }
            const kept = this.rows.get(id);
            show(item, kept.cells, kept);
            kept.cells.forEach(cell => cell.classList.toggle('whole', !LONG_WORD.test(cell.textContent)));
            return kept.root;
        }), held);
        this.table.hidden = shown.length === 0;
        this.more.hidden = found.length <= shown.length;
        say(this.more, `Show ${Math.min(ROWS_AT_A_TIME, found.length - shown.length)} more of ${whole(found.length - shown.length)}`);
        this.none.hidden = found.length > 0 || items.length === 0;
        say(this.none, this.none.hidden ? '' : `Nothing here has “${visible(this.filter)}”.`);
    }
}

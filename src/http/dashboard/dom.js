// Elements. Text goes in as text, never as markup: names and keys come from strangers.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== null) {
            element.setAttribute(name, value);
        }
    }
    element.append(...children);
    return element;
}

const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

// Writes only what has changed: an untouched node keeps its selection and wakes no screen reader.
function say(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

function set(element, name, value) {
    if (value === null) {
        element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
        element.setAttribute(name, value);
    }
}

function button(text, classes, onClick) {
    const element = h('button', { type: 'button', class: classes }, text);
    element.addEventListener('click', onClick);
    return element;
}

const hidden = text => h('span', { class: 'unseen' }, text);

const canHover = matchMedia('(hover: hover)');

// Somebody points into it or has the focus there: its rows must not move.
const inUse = element =>
    (canHover.matches && element.matches(':hover')) || element.contains(document.activeElement);

// Children of `parent` become `wanted`, in that order; in an element that is in use (`held`) those that
// were there stay where they are. Only what is out of place moves, so that the focus stays.
function arrange(parent, wanted, held = inUse(parent)) {
    const there = new Set(parent.children);
    const keep = new Set(wanted);
    for (const child of there) {
        if (!keep.has(child)) {
            child.remove();
        }
    }
    if (held) {
        parent.append(...wanted.filter(child => !there.has(child)));
        return;
    }
    let place = parent.firstElementChild;
    for (const child of wanted) {
        if (child === place) {
            place = place.nextElementSibling;
        } else {
            parent.insertBefore(child, place);
        }
    }
}

// A table whose cells know their column, for narrow windows where each row becomes a block; roles keep
// it a table there for screen readers. Columns: [name, class].
function table(caption, columns) {
    const head = h('tr', { role: 'row' }, ...columns.map(([name, classes]) =>
        h('th', { scope: 'col', role: 'columnheader', class: classes ?? '' }, name)));
    const body = h('tbody', { role: 'rowgroup' });
    const root = h('table', { role: 'table' },
        h('caption', { class: 'unseen' }, caption),
        h('thead', { role: 'rowgroup' }, head), body);
    return { root, head, body };
}

// A row and its cells; the first names the row.
function row(columns) {
    const cells = columns.map(([name, classes], i) => i === 0
        ? h('th', { scope: 'row', role: 'rowheader', class: classes ?? '' })
        : h('td', { role: 'cell', class: classes ?? '', 'data-label': name }));
    return { root: h('tr', { role: 'row' }, ...cells), cells };
}

// A key or an address: where it is long, cut in the middle, and a button that shows all of it.
function longText(text, most) {
    const all = visible(text);
    const cut = middleCut(all, most);
    if (cut === all) {
        return h('bdi', { class: 'code', dir: 'ltr' }, all);
    }
    const element = button('', 'code cut', () => show(element.getAttribute('aria-expanded') === 'false'));
    const show = open => {
        say(element, open ? all : cut);
        element.setAttribute('aria-expanded', open);
    };
    element.title = all;
    element.dir = 'ltr';
    show(false);
    return element;
}

// Helpers for elements. Text is always inserted as text, never as markup: names and keys are not trusted.

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

// Writes only if the text has changed: an unchanged node keeps its selection, and no screen reader reads it
// again.
function say(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

// The same for a list of pairs [label, text].
function sayPairs(list, pairs) {
    while (list.children.length > pairs.length) {
        list.lastElementChild.remove();
    }
    pairs.forEach(([label, text], i) => {
        const pair = list.children[i] ?? list.appendChild(h('div', {}, h('dt'), h('dd')));
        say(pair.children[0], label);
        say(pair.children[1], visible(text));
    });
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

// Buttons that do nothing now look so, and say why: to a pointer, and to a screen reader, which finds them. `why`: null if they
// work.
function enable(buttons, why) {
    for (const element of buttons) {
        element.disabled = why !== null;
        set(element, 'title', why);
        set(element, 'aria-description', why);
    }
}

const hidden = text => h('span', { class: 'unseen' }, text);

const canHover = matchMedia('(hover: hover)');

// The element has the pointer or the focus: its rows must not move.
const inUse = element =>
    (canHover.matches && element.matches(':hover')) || element.contains(document.activeElement);

// Makes `wanted` the children of `parent`, in that order; in an element that is in use (`held`), children
// that are present keep their positions. Only misplaced children move, so that the focus stays.
function arrange(parent, wanted, held = inUse(parent)) {
    const present = new Set(parent.children);
    const keep = new Set(wanted);
    for (const child of present) {
        if (!keep.has(child)) {
            child.remove();
        }
    }
    if (held) {
        parent.append(...wanted.filter(child => !present.has(child)));
        return;
    }
    let next = parent.firstElementChild;
    for (const child of wanted) {
        if (child === next) {
            next = next.nextElementSibling;
        } else {
            parent.insertBefore(child, next);
        }
    }
}

// A table. Each cell has its column's name, for narrow windows, where each row becomes a block; the roles
// keep it a table for screen readers there. Columns: [name, class].
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

// A key or an address. A long one is shortened in the middle, and a button that shows all of it.
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

// The theme: the system's, or the one chosen by the button, which is stored if the browser allows it.

const DARK = matchMedia('(prefers-color-scheme: dark)');

function remembered() {
    try {
        return localStorage.getItem('ratelimit-theme');
    } catch {
        return null;
    }
}

// null: the system's theme.
function remember(theme) {
    try {
        if (theme) {
            localStorage.setItem('ratelimit-theme', theme);
        } else {
            localStorage.removeItem('ratelimit-theme');
        }
    } catch {
        // Not stored: the choice applies to this page only.
    }
}

const theme = {
    chosen: ['light', 'dark'].find(name => name === remembered()) ?? null,

    get dark() {
        return this.chosen ? this.chosen === 'dark' : DARK.matches;
    },

    show() {
        set(document.documentElement, 'data-theme', this.chosen);
        set(document.getElementById('theme') ?? document.createElement('i'), 'aria-pressed', this.dark);
    },

    // A choice that equals the system's theme is not stored: the page follows the system again.
    toggle() {
        const wanted = this.dark ? 'light' : 'dark';
        this.chosen = (wanted === 'dark') === DARK.matches ? null : wanted;
        remember(this.chosen);
        this.show();
    },
};

// Before the page is drawn.
theme.show();
DARK.addEventListener('change', () => theme.show());

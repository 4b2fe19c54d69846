// Light or dark: as the system says, or as the button was set, which is remembered where that may be.

const DARK = matchMedia('(prefers-color-scheme: dark)');

function remembered() {
    try {
        return localStorage.getItem('ratelimit-theme');
    } catch {
        return null;
    }
}

// null: as the system.
function remember(theme) {
    try {
        if (theme) {
            localStorage.setItem('ratelimit-theme', theme);
        } else {
            localStorage.removeItem('ratelimit-theme');
        }
    } catch {
        // It holds for this page only.
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

    // Back to the system's own is back to following it.
    toggle() {
        const wanted = this.dark ? 'light' : 'dark';
        this.chosen = (wanted === 'dark') === DARK.matches ? null : wanted;
        remember(this.chosen);
        this.show();
    },
};

// At once, before the page is drawn.
theme.show();
DARK.addEventListener('change', () => theme.show());

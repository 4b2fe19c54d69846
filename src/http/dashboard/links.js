// What the end of the page's address leads to: "#nodes" to a part of the page, "#zone=per_ip" to a zone, "#zone=per_ip&key=…"
// to a key of it, and "#key=…" to a key in all zones.
function placeOf(hash) {
    const text = hash.replace(/^#/, '');
    if (!text.includes('=')) {
        return { part: text };
    }
    const named = new URLSearchParams(text);
    return Object.fromEntries(['zone', 'key', 'id'].map(name => [name, named.get(name)]));
}

// What a change of a limit says, in words and to the API, and the question before it.

const SECONDS_TO_CHANGE = 10;

// How long a change may last, as the API takes it; null: until it is taken back.
const LASTING = [['15m', '15 minutes'], ['1h', '1 hour'], ['1d', '1 day'], ['7d', '7 days'], [null, 'Until it is taken back']];

// What a user may give as a key, by the API's argument. What is typed is never guessed.
const GIVEN_AS = { key: zone => zone?.address_bits ? 'an address or network' : 'the key itself',
    hash: () => 'the hash of a key', id: () => 'the bytes of a key, %HH' };

const typedArgument = (as, typed) => as === 'id' ? idArgument(typed.trim())
    : `${as}=${encodeURIComponent(wellFormed(typed.trim()))}`;

// Where a key's override is, or a zone's if there is no key.
const overrideUrl = (zone, named) => named === null ? `zones/${encodeURIComponent(zone.name)}/override`
    : keyUrl(zone, named).replace(/\/keys\?/, '/keys/override?');

const untilText = ({ until }, now) => until ? `until ${when(until, now)}` : 'until it is taken back';

// What an override says: "1000r/m, burst 50", "blocked", "no limit", "3 at one time".
function overrideText(override) {
    if (override.block) {
        return 'blocked';
    }
    if (override.unlimited) {
        return 'no limit';
    }
    if (override.concurrency) {
        return `${whole(override.concurrency)} at one time`;
    }
    const burst = override.burst === null || override.burst === undefined ? '' : `, burst ${whole(override.burst)}`;
    return override.rate ? `${visible(override.rate)}${burst}` : 'not known to this version';
}

// When an override ends, and who set it.
function overrideNote({ for_seconds_left: left, by }) {
    const ends = left === null || left === undefined ? 'until it is taken back' : `for another ${duration(Math.ceil(left))}`;
    return `${ends}${by ? `, set by ${visible(by)}` : ''}`;
}

// What a change will do, where, when and for how long, in words. `ofZone`: the zone's override, under which its keys
// are without one of their own.
function consequence({ change, lasts, zone, key, ofZone, nodes }) {
    const where = `on ${nodes === null ? 'all nodes' : nodes > 1 ? `all ${whole(nodes)} nodes`
        : 'this node and all that join it'}, within two seconds`;
    const who = key === null ? `every key of ${visible(zone.name)} that has no limit of its own` : 'this key';
    const configured = ofZone ? overrideText(ofZone) : quotaText(zone);
    const otherwise = ofZone ? `the limit of the zone that was changed at run time, ${configured},`
        : `the limit of the configuration, ${configured},`;
    const then = lasts === null ? 'It stays until it is taken back, also when nodes are restarted.'
        : `After ${lasts} ${otherwise} is in force again.`;
    if (change === null) {
        return `For ${who}, ${otherwise} is in force again ${where}. What was counted stays counted.`;
    }
    const what = change.block ? `Every request of ${who} is refused`
        : change.unlimited ? `${visible(zone.name)} no longer limits ${who}`
            : `The limit of ${who} is ${overrideText(change)} instead of ${configured}`;
    return `${what}, ${where}. ${then}`;
}

// What gives a key ten times as much as a zone, or what was changed of it, gives it; null: it has no such limit.
// `rate`: of the key, if the zone's rate is a variable.
function tenTimes(zone, override, rate) {
    const known = override?.rate || override?.concurrency ? override : { ...zone, rate: zone.limit === null && rate ? rate : zone.rate };
    if (known.concurrency) {
        return { concurrency: 10 * known.concurrency };
    }
    const [, quota, per] = /^(\d+)(r\/\d*[a-z]+)$/.exec(known.rate ?? '') ?? [];
    return quota && Number(quota) * 10 <= Number.MAX_SAFE_INTEGER
        ? { rate: `${10 * Number(quota)}${per}`, ...(known.burst > 0 ? { burst: 10 * known.burst } : {}) } : null;
}

// Asks the node; returns [JSON or null, error text]. A timeout leaves open whether a change was made.
async function call(url, method = 'GET', body = null) {
    try {
        const answer = await fetch(url, { method, cache: 'no-store', body: body && JSON.stringify(body),
            headers: body ? { 'content-type': 'application/json' } : {},
            signal: AbortSignal.timeout(1000 * SECONDS_TO_CHANGE) });
        return answer.ok ? [await answer.json().catch(() => ({})), null] : [null, await refusalText(answer)];
    } catch {
        return [null, method === 'GET' ? 'no answer' : 'no answer: it may be done or not'];
    }
}

// Opens the dialog; resolves to null, or to {for, reason} as the API takes them if the user confirmed. `text`: of how
// long the change lasts, in words, or null. `asks`: whether the user says how long, and why.
function confirmChange({ title, key, text, yes, asks, danger, lasts: length = '1h' }) {
    const dialog = byId('change');
    const lasts = byId('change-lasts');
    const describe = () => say(byId('change-text'), text(LASTING[lasts.selectedIndex][0] && LASTING[lasts.selectedIndex][1]));
    say(byId('change-title'), title);
    say(byId('change-key'), key);
    say(byId('change-yes'), yes);
    byId('change-yes').classList.toggle('danger', danger);
    byId('change-ask').hidden = !asks;
    dialog.classList.toggle('danger', danger);
    lasts.selectedIndex = LASTING.findIndex(([name]) => name === length);
    lasts.onchange = describe;
    byId('change-reason').value = '';
    describe();
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise(resolve => {
        byId('change-yes').onclick = () => dialog.close('yes');
        dialog.onclose = () => {
            const [length] = LASTING[lasts.selectedIndex];
            const reason = byId('change-reason').value.trim();
            if (!dialog.open) {
                resolve(dialog.returnValue !== 'yes' ? null
                    : { ...(length ? { for: length } : {}), ...(reason ? { reason } : {}) });
            }
        };
    });
}

// Whether a change refuses requests of people who did nothing, or lets in what may be an attack.
const isDangerous = (change, named) => Boolean(change) && Boolean(change.block || (named === null && change.unlimited));

// The change that brings an override back, until its time.
function changeOf({ rate, burst, concurrency, block, unlimited, until, reason }) {
    return JSON.parse(JSON.stringify({ rate, burst, concurrency, block, unlimited, until: until ?? undefined,
        reason: reason ?? undefined }));
}

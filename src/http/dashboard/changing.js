// What a change of a limit says, in words and to the API, and the question before it.

const SECONDS_TO_CHANGE = 10;

// How long a change may last, as the API takes it; null: until it is taken back. Two are times: see lastsUntil.
const LASTING = [['15m', '15 minutes'], ['1h', '1 hour'], ['1d', '1 day'], ['7d', '7 days'],
    ['morning', 'Until tomorrow 08:00'], ['time', 'Until another time'], [null, 'Until it is taken back']];

// Tomorrow at 08:00 in the browser's time zone.
function tomorrowMorning(now) {
    const date = new Date(1000 * now);
    date.setDate(date.getDate() + 1);
    return date.setHours(8, 0, 0, 0) / 1000;
}

// The time that is chosen in the dialog, in seconds; null: a length is chosen; NaN: the time is not whole.
const lastsUntil = (name, now) => name === 'morning' ? tomorrowMorning(now)
    : name === 'time' ? new Date(byId('change-time').value).getTime() / 1000 : null;

// A time as a field of the browser has it: "2026-01-31T08:00", local.
const fieldTime = seconds => new Date(1000 * (seconds - 60 * new Date(1000 * seconds).getTimezoneOffset())).toISOString().slice(0, 16);

// " for 1 hour", " until 08:00:00", " until it is taken back"
const lengthText = ({ for: lasts, until }, now) => lasts ? ` for ${wordsOf(lasts)}` : ` ${untilText({ until }, now)}`;

// "1 hour"
const wordsOf = length => LASTING.find(([name]) => name === length)?.[1] ?? length;

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

// Who set it, when and why, as far as that is known: "by edge-1 192.0.2.9 ann at 12:00:01: an attack".
const authorText = ({ by, at, reason }, now) => [by ? `by ${visible(by)}` : '', at ? `at ${when(at, now)}` : ''].filter(Boolean)
    .join(' ') + (reason ? `: ${visible(reason)}` : '');

// "blocked until 13:00:01, by edge-1 192.0.2.9 ann at 12:00:01: an attack"
const inForceNote = (override, now) => [`${overrideText(override)} ${untilText(override, now)}`, authorText(override, now)]
    .filter(Boolean).join(', ');

// "; in search the limit of the whole zone, 5r/s, that was changed at run time": of several targets, what keys fall back to that
// is not of the configuration. A zone that is itself taken back is not.
function wholeZonesOf(targets) {
    const zones = new Map(targets.filter(({ named, ofZone }) => named !== null && ofZone).map(({ zone, ofZone }) => [zone.name, ofZone]));
    targets.filter(({ named }) => named === null).forEach(({ zone }) => zones.delete(zone.name));
    return [...zones].map(([name, override]) =>
        `; in ${visible(name)} the limit of the whole zone, ${overrideText(override)}, that was changed at run time`).join('');
}

// What a change will do, where, when and for how long, in words. `targets`: what is changed; `lasts`: "After 1 hour", null:
// until it is taken back.
function consequence({ change, lasts, targets, nodes }) {
    if (targets.length === 0) {
        return 'Nothing can be changed: it is not known what is in force.';
    }
    const [{ zone, named, ofZone }] = targets;
    const where = `on ${nodes === null ? 'all nodes' : nodes > 1 ? `all ${whole(nodes)} nodes`
        : 'this node and all that join it'}, within two seconds`;
    const one = targets.length === 1;
    const who = !one ? `these ${count(targets.length, 'limit', 'limits')}`
        : named === null ? `every key of ${visible(zone.name)} that has no limit of its own` : 'this key';
    const configured = ofZone ? overrideText(ofZone) : quotaText(zone);
    const otherwise = ofZone
        ? `the limit of the zone that was changed at run time, ${configured},` : `the limit of the configuration, ${configured},`;
    const then = lasts === null ? 'It stays until it is taken back, also when nodes are restarted.'
        : `${lasts} ${one ? otherwise : 'each limit of the configuration'} is in force again${one ? '' : wholeZonesOf(targets)}.`;
    if (change === null) {
        return one ? `For ${who}, ${otherwise} is in force again ${where}. What was counted stays counted.`
            : `For ${who}, those of the configuration are in force again ${where}${wholeZonesOf(targets)}. What was counted stays counted.`;
    }
    const names = targets.map(target => visible(target.zone.name)).join(', ');
    const limited = one ? `that ${visible(zone.name)} limits` : `that one of these zones limits: ${names}`;
    const what = change.block ? named === null ? `Every request of ${who} is refused`
        : `Every request of this key ${limited} is refused`
        : change.unlimited ? `${visible(zone.name)} no longer limits ${who}`
            : `The limit of ${who} is ${overrideText(change)} instead of ${configured}`;
    const others = change.block && named !== null ? ' What other zones limit still passes.' : '';
    return `${what}, ${where}.${others} ${then}`;
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

// Asks the node; returns [JSON or null, error text, {status, tag}]. A timeout leaves open whether a change was made.
async function call(url, method = 'GET', body = null, condition = {}) {
    try {
        const answer = await fetch(url, { method, cache: 'no-store', body: body && JSON.stringify(body),
            headers: { ...body ? { 'content-type': 'application/json' } : {}, ...condition },
            signal: AbortSignal.timeout(1000 * SECONDS_TO_CHANGE) });
        const about = { status: answer.status, tag: answer.headers.get('etag') };
        return answer.ok ? [await answer.json().catch(() => ({})), null, about] : [null, await refusalText(answer), about];
    } catch {
        return [null, method === 'GET' ? 'no answer' : 'no answer: it may be done or not', { status: 0, tag: null }];
    }
}

// The question before a change.
class Question {
    // Opens the dialog; resolves to null, or to {change: {for or until, reason}, targets}, as the API takes them, if the user
    // confirmed. `lasts`: the length at first, or a time in seconds.
    // `scopes`: [{label, targets}], of which the user chooses one if there are several; what is in force for its targets is read
    // and shown before the change can be made. Where it is not known, nothing is changed. `title`: of the targets; `text`: of when
    // it ends ("After 1 hour" or null), and of the targets.
    // `asks`: whether the user says how long, and why. `conflict`: why the question comes once more.
    static ask({ title, yes, scopes, text, asks, dangerous, lasts = '1h', reason = '', conflict = '', now = () => 0 }) {
        const dialog = byId('change');
        const length = byId('change-lasts');
        const question = { scopes, chosen: scopes[0] };
        const show = () => Question.#show(question, { title, text, now, conflict });
        say(byId('change-yes'), conflict ? `${yes} nevertheless` : yes);
        byId('change-yes').classList.toggle('danger', dangerous);
        byId('change-ask').hidden = !asks;
        dialog.classList.toggle('danger', dangerous);
        const time = byId('change-time');
        length.selectedIndex = LASTING.findIndex(([name]) => name === (typeof lasts === 'number' ? 'time' : lasts));
        time.value = fieldTime(typeof lasts === 'number' ? lasts : tomorrowMorning(now()));
        length.onchange = time.oninput = show;
        byId('change-reason').value = reason;
        byId('change-where').hidden = scopes.length < 2;
        byId('change-scopes').replaceChildren(...scopes.map((scope, i) => {
            const radio = h('input', { type: 'radio', name: 'change-scope', checked: i === 0 ? '' : null });
            radio.addEventListener('change', () => Question.#choose(question, scope, show));
            return h('label', {}, radio, ` ${scope.label}`);
        }));
        dialog.returnValue = 'no';
        dialog.showModal();
        Question.#choose(question, scopes[0], show);
        return new Promise(resolve => {
            byId('change-yes').onclick = () => {
                const until = lastsUntil(LASTING[length.selectedIndex][0], now());
                time.setCustomValidity(until === null || until > now() ? '' : 'Say a time that is to come.');
                if (time.reportValidity()) {
                    dialog.close('yes');
                }
            };
            dialog.onclose = () => {
                const [name] = LASTING[length.selectedIndex];
                const until = lastsUntil(name, now());
                const why = byId('change-reason').value.trim();
                if (!dialog.open) {
                    resolve(dialog.returnValue !== 'yes' ? null
                        : { change: { ...until ? { until } : name ? { for: name } : {}, ...why ? { reason: why } : {} }, targets: question.chosen.targets });
                }
            };
        });
    }

    static async #choose(question, scope, show) {
        question.chosen = scope;
        byId('change-yes').disabled = true;
        show();
        await forEach(scope.targets.filter(target => target.known !== true), target => target.read());
        if (question.chosen === scope) {
            show();
            byId('change-yes').disabled = scope.targets.every(({ known }) => !known);
        }
    }

    static #show({ chosen: { targets } }, { title, text, now, conflict }) {
        const read = targets.every(({ known }) => known !== undefined);
        const able = read ? targets.filter(({ known }) => known) : targets;
        const lasts = LASTING[byId('change-lasts').selectedIndex];
        say(byId('change-title'), title(able));
        say(byId('change-key'), targetsText(targets));
        const until = lastsUntil(lasts[0], now());
        byId('change-time-line').hidden = lasts[0] !== 'time';
        say(byId('change-text'), text(until !== null ? until > now() ? `At ${when(until, now())}` : 'Then' : lasts[0] && `After ${lasts[1]}`, able));
        const others = targets.some(({ differs }) => differs);
        say(byId('change-conflict'), conflict || (read && others ? 'This is not what the page showed: it was changed meanwhile.' : ''));
        byId('change-conflict').hidden = byId('change-conflict').textContent === '';
        const unlike = targets.filter(({ known, before }) => !known || before);
        byId('change-now').replaceChildren(...!read ? [h('li', {}, 'Reading what is in force…')]
            : unlike.length === 0 ? [h('li', {}, 'Not changed.')] : unlike.map(target =>
                h('li', {}, target.nowText(now()) + (!target.known && able.length > 0 ? ': it is left out' : ''))));
    }
}

// Whether a change refuses requests of people who did nothing, or lets in what may be an attack.
const isDangerous = (change, named) => Boolean(change) && Boolean(change.block || (named === null && change.unlimited));

// The change that brings an override back, until its time.
function changeOf({ rate, burst, concurrency, block, unlimited, until, reason }) {
    return JSON.parse(JSON.stringify({ rate, burst, concurrency, block, unlimited, until: until ?? undefined,
        reason: reason ?? undefined }));
}

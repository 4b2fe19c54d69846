// Numbers, times and texts as the page shows them.

const wholeNumber = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clockFormat = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const dateFormat = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
const dayFormat = new Intl.DateTimeFormat('en-GB', { weekday: 'short' });

// "0", "0.34", "3.4", "340", "1.2k", "12k", "3.4M": at most four characters and a unit.
function short(number) {
    if (number === null || !Number.isFinite(number)) {
        return '–';
    }
    if (number > 0 && number < 0.005) {
        return '<0.01';
    }
    // The unit is chosen after rounding: 999.6 is "1.0k", not "1000".
    const units = ['', 'k', 'M', 'G', 'T'];
    let unit = 0;
    while (number >= 999.5 && unit < units.length - 1) {
        number /= 1000;
        unit += 1;
    }
    const digits = number === 0 || number >= 9.95 ? 0 : number >= 0.995 || unit > 0 ? 1 : 2;
    return number.toFixed(digits) + units[unit];
}

const perSecond = number => number === null ? '–' : short(number) + '/s';

// A number of things: "7", "999", "1.2k".
const counted = number => number < 1000 ? whole(number) : short(number);

const whole = number => wholeNumber.format(number);

// "0%" is exactly none and "100%" exactly all: shares close to them are "<1%" and ">99%".
function percent(part, all) {
    if (!all) {
        return '–';
    }
    const share = 100 * part / all;
    if (share > 0 && share < 1) {
        return '<1%';
    }
    if (share < 100 && share > 99) {
        return '>99%';
    }
    return Math.round(share) + '%';
}

function latency(seconds) {
    if (seconds === null || seconds === undefined) {
        return '–';
    }
    const ms = 1000 * seconds;
    return ms >= 999.5 ? seconds.toFixed(1) + ' s' : ms.toFixed(ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0) + ' ms';
}

// "45 s", "10 min", "2 h", "3 d": rounded up, as it is how long to wait.
function duration(seconds) {
    for (const [unit, size] of [['d', 86400], ['h', 3600], ['min', 60]]) {
        if (seconds >= 2 * size || seconds % size === 0 && seconds > 0) {
            return `${Math.ceil(seconds / size)} ${unit}`;
        }
    }
    return `${Math.ceil(seconds)} s`;
}

function bytes(number) {
    for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
        if (number >= size) {
            return Number((number / size).toFixed(1)) + ' ' + unit;
        }
    }
    return number + ' bytes';
}

// "?" for a number that is no time: a page that ended here would show nothing of all else.
function formatted(format, seconds) {
    const date = new Date(1000 * seconds);
    return Number.isNaN(date.getTime()) ? '?' : format.format(date);
}

// A time in seconds since 1970, in the browser's time zone: "12:04:31".
const clock = seconds => formatted(clockFormat, seconds);

// "Sat"
const weekday = seconds => formatted(dayFormat, seconds);

// A time in a range that ends at `until`: with the day if that is not clear.
const moment = (seconds, until) =>
    until - seconds > 12 * 3600 ? `${weekday(seconds)} ${clock(seconds)}` : clock(seconds);

// A time to come, or one that was: with its date if it is not near.
const when = (seconds, now) => Math.abs(seconds - now) > 12 * 3600
    ? formatted(dateFormat, seconds) : clock(seconds);

const count = (number, one, many) => `${whole(number)} ${number === 1 ? one : many}`;

const words = name => name.replaceAll('_', ' ');

// A lone half of a character would make encodeURIComponent fail.
const wellFormed = text => text.replace(/[\uD800-\uDFFF]/gu, '\uFFFD');

// Makes untrusted text readable: invisible characters, and those that change the direction of text, are
// written as \u{...}.
function visible(text) {
    return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu,
        character => `\\u{${character.codePointAt(0).toString(16).toUpperCase()}}`);
}

// Shortens a text to its beginning and its end: together they distinguish keys better than the beginning.
function middleCut(text, most) {
    const characters = Array.from(text);
    if (characters.length <= most) {
        return text;
    }
    const end = Math.floor(most / 3);
    return `${characters.slice(0, most - end - 1).join('')}…${characters.slice(-end).join('')}`;
}

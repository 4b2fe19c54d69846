// Numbers, times and texts as the page shows them.

const wholeNumber = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clockFormat = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

// "0", "0.34", "3.4", "340", "1.2k", "12k", "3.4M": at most four characters and a unit.
function short(number) {
    if (number === null || !Number.isFinite(number)) {
        return '–';
    }
    if (number > 0 && number < 0.005) {
        return '<0.01';
    }
    // Told by what is left after rounding: 999.6 is "1.0k", and no "1000".
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

const whole = number => wholeNumber.format(number);

// "0%" is none and "100%" is all: what is almost that says so.
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

function bytes(number) {
    for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
        if (number >= size) {
            return Number((number / size).toFixed(1)) + ' ' + unit;
        }
    }
    return number + ' bytes';
}

// Of a time in seconds since 1970, in this browser's zone: "12:04:31".
const clock = seconds => clockFormat.format(new Date(1000 * seconds));

const count = (number, one, many) => `${whole(number)} ${number === 1 ? one : many}`;

const words = name => name.replaceAll('_', ' ');

// Text of strangers for reading: what is not seen, or turns the direction of what follows, is spelt out.
function visible(text) {
    return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu,
        character => `\\u{${character.codePointAt(0).toString(16).toUpperCase()}}`);
}

// The beginning and the end, which tell keys apart better than the beginning alone.
function middleCut(text, most) {
    const characters = Array.from(text);
    if (characters.length <= most) {
        return text;
    }
    const end = Math.floor(most / 3);
    return `${characters.slice(0, most - end - 1).join('')}…${characters.slice(-end).join('')}`;
}

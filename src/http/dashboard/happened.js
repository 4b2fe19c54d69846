// What happened to the fleet in the last two days, and what was refused before and after.

const HAPPENINGS_AT_FIRST = 5;  // below them is who is refused now
const SECONDS_OF_HAPPENED = 172800;
const SECONDS_OF_ONE_GO = 600;  // between two changes

// "edge-1, edge-2 and 298 more"
const nodesText = ({ names, nodes }) => names.map(visible).join(', ') + (nodes > names.length ? ` and ${whole(nodes - names.length)} more` : '');

// "198.51.100.7 in per_ip and 12 more"
const keyOrZone = ({ key, zone, all = [] }) => (key === null ? visible(zone) : `${middleCut(visible(key), 60)} in ${visible(zone)}`)
    + (all.length > 1 ? ` and ${whole(all.length - 1)} more` : '');

const HAPPENED = {
    redis_away: ({ times, until }, redis) => `Redis ${visible(redis)} ${until === null ? 'does' : 'did'} not answer${times > 1 ? `, ${whole(times)} times` : ''}`,
    redis_lost: ({ count: lost }, redis) => `Redis ${visible(redis)} lost its data: ${count(lost, 'limit that was changed is', 'limits that were changed are')} as configured again`,
    loaded: ({ settings }) => `Configuration loaded: ${settings ? `changed ${visible(settings)}` : 'no zone was changed'}`,
    started: ({ nodes }) => nodes === 1 ? 'nginx started' : `nginx started on ${whole(nodes)} nodes`,
    ended: ({ nodes }) => nodes === 1 ? 'nginx ended' : `nginx ended on ${whole(nodes)} nodes`,
    away: ({ nodes }) => `${count(nodes, 'node was', 'nodes were')} not heard of any more`,
    set: (item, redis, now) => `${keyOrZone(item)}: ${overrideText(item.override)} ${untilText(item.override, now)}`
        + (item.override.reason ? ` (${visible(item.override.reason)})` : ''),
    taken_back: item => `${keyOrZone(item)}: taken back`,
    freed: item => `${keyOrZone(item)}: its count reset`,
};

// A kind of a later version has its name alone.
const happenedText = (item, redis, now) => HAPPENED[item.what]?.(item, redis, now) ?? words(visible(item.what));

// "14:02:11", "14:02:11 to 14:03:15", "since 14:02:11"
function spanText({ at, until }, now) {
    return until === null ? `since ${moment(at, now)}` : (until ?? at) - at < 1 ? moment(at, now) : `${moment(at, now)} to ${moment(until, now)}`;
}

// Whether one operator made both changes in one go.
const areOne = (a, b) => a.zone !== undefined && a.what === b.what && a.by === b.by && a.at - b.at < SECONDS_OF_ONE_GO
    && (a.what !== 'set' || overrideText(a.override) === overrideText(b.override));

// Changes in one go are one row, as those of a night are set and taken back. The latest first.
function folded(happened) {
    const rows = [];
    for (const item of happened.flatMap(({ all, ...row }) => all ?? [row])) {
        const last = rows.at(-1);
        if (item.zone === undefined) {
            rows.push(item);
        } else if (last && areOne(last, item)) {
            last.all.push(item);
            last.at = item.at;
        } else {
            rows.push({ ...item, until: item.at, all: [item] });
        }
    }
    return rows;
}

const endOf = ({ at, until }) => until === null ? Infinity : until ?? at;

// The overrides that this node saw lost are one of it. The one that ended last comes first.
const withLoss = (happened, { lost_at: at, overrides_lost: lost }) => [...happened.filter(({ what }) => what !== 'redis_lost'),
    ...at ? [{ what: 'redis_lost', at, count: lost }] : []].sort((a, b) => endOf(b) - endOf(a) || b.at - a.at);

class HappenedView {
    constructor() {
        this.table = new KeptTable('What happened in the last two days', [['When'], ['What', 'wide'], ['Where, or by whom'],
            ['Refused before', 'number'], ['Refused after', 'number']]);
        this.table.most = HAPPENINGS_AT_FIRST;
        byId('happened-list').append(this.table.root);
    }

    // `data`: of /fleet; `refusedAround`: what was refused a second before and after a time.
    show({ fleet, happened }, now, refusedAround) {
        // Numbered from the oldest of its kind on, so that a row stays what it is when others are added.
        const numbers = {};
        const ids = new Map([...happened].reverse().map(item =>
            [item, `${item.what} ${numbers[item.what] = (numbers[item.what] ?? 0) + 1}`]));
        this.table.show(happened, item => ids.get(item), (item, cells) => {
            const { at, until, by } = item;
            const [before, after] = refusedAround(at, until === null ? Infinity : until ?? at);
            say(cells[0], spanText(item, now));
            say(cells[1], happenedText(item, fleet.redis, now));
            cells[1].classList.toggle('bad', item.what === 'redis_lost' || until === null);
            say(cells[2], item.names ? nodesText(item) : visible(by ?? ''));
            say(cells[3], perSecond(before));
            say(cells[4], perSecond(after));
            cells[4].classList.toggle('some', after > before);
        });
        byId('happened-none').hidden = happened.length > 0;
        const since = fleet.changes_since;
        say(byId('happened-since'), `Nothing older than two days is here. ${since && now - since < SECONDS_OF_HAPPENED
            ? `Changes are here since ${moment(since, now)}. ` : ''}A node that was started again no longer knows its outages of Redis and reloads from before.`);
    }
}

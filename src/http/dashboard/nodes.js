// The node that answers. Behind a load balancer there may be several, each with its own counters.

const SECONDS_OF_SEVERAL = 60;

class Nodes {
    changes = [];

    // Records which node answered with the zones and which with Redis; `now` in seconds. Returns whether the
    // zones are of another node than before.
    take(zones, redis, now) {
        const other = this.name !== undefined && this.name !== zones;
        if (other || zones !== redis) {
            this.changes.push(now);
        }
        this.changes = this.changes.filter(time => now - time < SECONDS_OF_SEVERAL);
        this.name = zones;
        return other;
    }

    // One change means that a node took over; two within a minute mean that several nodes take turns.
    get several() {
        return this.changes.length > 1;
    }
}

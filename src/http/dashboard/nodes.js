// Which node answers: behind a load balancer several may, each with counters of its own.

const SECONDS_OF_SEVERAL = 60;

class Nodes {
    changes = [];

    // What an answer tells, `now` in seconds: who gave the zones, and who gave Redis. Returns whether the
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

    // One change is a node that took over; a second one soon after it is several that take turns.
    get several() {
        return this.changes.length > 1;
    }
}

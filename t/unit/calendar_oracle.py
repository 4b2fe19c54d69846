"""Calendar periods by Python's zoneinfo, for calendar_test.cpp: random instants in random time zones.

Arguments: seed, how many. Each line: time zone, kind of period, day of the month on which a month
begins, an instant, begin and end of its period (seconds since the epoch), the period's number.
"""
import calendar
import random
import sys
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

KINDS = ["day", "week", "month", "year"]
ODD = """Africa/Cairo Africa/Casablanca America/Asuncion America/Havana America/Santiago America/Sao_Paulo
America/Scoresbysund America/St_Johns Antarctica/Troll Asia/Amman Asia/Beirut Asia/Gaza Asia/Kathmandu Asia/Kolkata
Asia/Pyongyang Asia/Tehran Atlantic/Azores Australia/Eucla Australia/Lord_Howe Europe/Berlin Europe/Dublin Europe/London
Pacific/Apia Pacific/Chatham Pacific/Fakaofo Pacific/Kiritimati Pacific/Marquesas Pacific/Norfolk America/New_York
America/Los_Angeles Asia/Shanghai Asia/Tokyo Europe/Moscow UTC""".split()


def seconds(moment):
    return int((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())


def first_instant(zone, day):
    midnight = datetime(day.year, day.month, day.day)
    both = [midnight.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc) for fold in (0, 1)]
    real = [moment for moment in both if moment.astimezone(zone).replace(tzinfo=None) == midnight]
    if real:
        return seconds(min(real))
    # Clocks skip midnight: the two readings of that time are on both sides of the change.
    before, after = seconds(min(both)), seconds(max(both))
    offset = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def starts(kind, start, around):
    """First days of the periods before, at and after a date, in order."""
    if kind == "day":
        return [around + timedelta(days=n) for n in range(-3, 4)]
    if kind == "week":
        monday = around - timedelta(days=around.isoweekday() - 1)
        return [monday + timedelta(days=7 * n) for n in range(-2, 4)]
    if kind == "year":
        return [date(around.year + n, 1, 1) for n in range(-2, 4)]
    found = []
    for n in range(-3, 4):
        year, month = divmod(around.year * 12 + around.month - 1 + n, 12)
        last = calendar.monthrange(year, month + 1)[1]
        found.append(date(year, month + 1, min(start, last)))
    return found


def period(zone, kind, start, now):
    days = starts(kind, start, datetime.fromtimestamp(now, zone).date())
    begins = [first_instant(zone, day) for day in days]
    index = max(i for i, begin in enumerate(begins) if begin <= now)
    day = days[index]
    number = ((day.year * 100 + day.month) * 100 + day.day) * 10 + KINDS.index(kind) + 1
    return begins[index], begins[index + 1], number


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    for _ in range(count):
        name = chance.choice(ODD)
        zone = ZoneInfo(name)
        kind = chance.choice(KINDS)
        start = chance.choice([1, chance.randint(1, 31), chance.randint(28, 31)])
        now = chance.randint(seconds(datetime(2001, 2, 1, tzinfo=timezone.utc)),
                             seconds(datetime(2098, 1, 1, tzinfo=timezone.utc)))
        begin, end, number = period(zone, kind, start, now)
        # Half of the instants are close to a boundary or on it.
        if chance.random() < 0.5:
            now = chance.choice([begin, end]) + chance.choice([-7200, -3600, -1800, -61, -1, 0, 1, 60, 3600])
            begin, end, number = period(zone, kind, start, now)
        print(name, kind, start, now, begin, end, number)


if __name__ == "__main__":
    main()

"""The time of a line by its own stamp, where nobody saw it being written and nothing around it says when."""

import re
from datetime import datetime

DAY = 86400.0  # by which a zone may put a stamp ahead

_STAMP = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)


def stamp_time(stamp: str, now: float) -> float | None:
    """Return the Unix time of `MM-DD HH:MM:SS` or `YYYY-MM-DD HH:MM:SS`; None for what is no time.

    A stamp has no zone, and mostly no year: the host's zone and the latest year that does not lie ahead are taken.
    """
    match = _STAMP.match(stamp)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else 0 for part in match.groups())
    this_year = datetime.fromtimestamp(now).year
    for each in (year,) if year else (this_year + 1, this_year, this_year - 1):
        try:
            moment = datetime(each, month, day, hour, minute, second)
        except ValueError:  # 29 February of another year
            continue
        if year or moment.timestamp() <= now + DAY:
            return min(_not_ahead(moment, now), now)
    return None


def _not_ahead(moment: datetime, now: float) -> float:
    """Return the Unix time of a moment; of the hour that an end of summer time repeats, the later one that may be."""
    later = moment.replace(fold=1).timestamp()
    return later if later <= now else moment.timestamp()

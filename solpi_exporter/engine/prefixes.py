"""What stands before an engine's own head on a line: the prefixes of collectors, and the time that some of them tell.

Called for the few lines that may report something, after `envelope` and before the dialect. What an engine's own head
begins with looks much like a prefix: the table says by what follows which of the two it is.
"""

import re
from datetime import datetime

MOST = 4  # prefixes on one line

_ANSI = r"(?:\x1b\[[0-9;]{0,16}m){0,3}"
_RFC3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_TIME = rf"(?P<time>{_RFC3339})"
_PRIORITY = r"(?:<\d{1,3}> ?)?"
_MONTH_DAY = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
_HOST = r"[\w.:-]{1,255}"
_UNIT = r"[^\s\[\]:()]{1,255}"
_TAG = r"\([A-Za-z]\w{0,63}(?: rank=\d{1,5})? pid=\d{1,10}\)"  # vLLM's own, and most of Ray's
_ANY_TAG = r"\([\w.:-]{1,128} (?:rank=\d{1,5} )?pid=\d"
_LEVEL = rf"{_ANSI}(?:DEBUG|INFO|WARNING|ERROR|CRITICAL){_ANSI} {_ANSI}\d\d-\d\d "
_LABEL = r"\[[\w./:-]{1,64}\]"
_BEFORE_VLLM = rf"(?={_ANSI}(?:{_LABEL} ?)?(?:{_ANSI}{_ANY_TAG}|{_LEVEL}))"

_OWN = re.compile(rf"{_ANSI}(?:{_TAG}{_ANSI} (?:{_LABEL} ?)?)?{_LEVEL}", re.ASCII)
_RFC3339_WHOLE = re.compile(_RFC3339, re.ASCII)

_COMPOSE = rf"{_ANSI}[A-Za-z0-9][\w.-]{{0,127}} {{1,64}}\|{_ANSI} (?:\x1b\[0?m)?"
_RFC5424 = (
    rf"<\d{{1,3}}>1 (?:{_TIME}|-) \S{{1,255}} \S{{1,255}} \S{{1,128}} \S{{1,32}} "
    r"(?:-|(?:\[(?:[^\]\\]|\\.){0,2000}\]){1,8}) \ufeff?"
)
_SYSLOG = rf"{_PRIORITY}{_MONTH_DAY} (?:{_HOST} )?{_UNIT}(?:\[\d{{1,10}}\])?: "
_JOURNALD_ISO = rf"{_PRIORITY}{_TIME} {_HOST} {_UNIT}\[\d{{1,10}}\]: "
# TGI's own head begins with a time too: its level is right-aligned, and a module's name follows.
_TIMESTAMP = rf"{_TIME} (?! |(?:ERROR|DEBUG|TRACE) [a-z_])"
_KUBECTL = r"\[pod/[\w.-]{1,253}/[\w.-]{1,253}\] "
# SGLang's own head is a date in brackets, and those of others are words in brackets.
_DATE = rf"\[\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\] {_BEFORE_VLLM}"
_LOGGING_PREFIX = rf"{_LABEL} ?{_BEFORE_VLLM}"
# With a colon or an address: no process of vLLM's is called so.
_RAY_REPLICA = (
    rf"{_ANSI}\((?=[^()]{{0,200}}(?::|, ip=))[\w.:-]{{1,128}} pid=\d{{1,10}}(?:, ip=[\w.:]{{1,64}})?\){_ANSI} "
)
# vLLM's own tag stands before a level, or before the head of torch.
_RAY_ACTOR = rf"{_ANSI}{_TAG}{_ANSI} (?={_ANSI}(?:{_ANY_TAG}|\[(?!rank\d)))"

# By name: the prefix, and whether its time is one with a zone. The first that matches is taken off.
PREFIXES: tuple[tuple[str, re.Pattern[str], bool], ...] = (
    ("compose", re.compile(_COMPOSE, re.ASCII), False),
    ("syslog RFC 5424", re.compile(_RFC5424, re.ASCII), True),
    ("syslog, journald short", re.compile(_SYSLOG, re.ASCII), False),
    ("journald short-iso", re.compile(_JOURNALD_ISO, re.ASCII), True),
    ("docker -t, kubectl --timestamps", re.compile(_TIMESTAMP, re.ASCII), True),
    ("kubectl --prefix", re.compile(_KUBECTL, re.ASCII), False),
    ("date of a user's", re.compile(_DATE, re.ASCII), False),
    ("Ray replica", re.compile(_RAY_REPLICA, re.ASCII), False),
    ("Ray actor", re.compile(_RAY_ACTOR, re.ASCII), False),
    ("VLLM_LOGGING_PREFIX", re.compile(_LOGGING_PREFIX, re.ASCII), False),
)


def unwrap(text: str) -> tuple[str, float | None]:
    """Return a line from where the engine's own begins, and the time by the prefix that is nearest to it."""
    time: float | None = None
    for _ in range(MOST):
        prefix = None if _OWN.match(text) else _prefix(text)
        if prefix is None:
            break
        length, stamp = prefix
        text, time = text[length:], unix_time(stamp) if stamp else time
    return text, time


def _prefix(text: str) -> tuple[int, str | None] | None:
    """Return the length of the prefix that a line begins with, and its time as text where it has one."""
    for _, pattern, has_time in PREFIXES:
        if match := pattern.match(text):
            return match.end(), match["time"] if has_time else None
    return None


def unix_time(text: str) -> float | None:
    """Return Unix seconds of an RFC 3339 time with its zone, to the microsecond; None for what is no such time."""
    if _RFC3339_WHOLE.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None

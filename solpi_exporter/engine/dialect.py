"""What a dialect is: a pure function from one line of an engine's log to one event, and the events there are."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """A periodic state line; `values` are attributes of EngineReading, `stamp` the line's own `MM-DD HH:MM:SS`."""

    engine: str
    stamp: str
    values: Mapping[str, float]

    kind = "stats"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of one engine's KV cache, in tokens or, where only that is said, in blocks."""

    engine: str
    tokens: float | None = None
    blocks: float | None = None

    kind = "capacity"


@dataclass(frozen=True, slots=True)
class Setting:
    """Facts told at start, by name.

    `server` is set on the first line of a server that starts, `engine` on the line with which an engine starts: what
    the one before it said holds no more.
    """

    values: Mapping[str, str]
    server: bool = False
    engine: str | None = None

    kind = "setting"


Event = Stats | Capacity | Setting


@dataclass(frozen=True, slots=True)
class Said:
    """What one line reports, and which of the server's processes says so: its role and pid, where the head has them."""

    event: Event
    role: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks. A line without any of `markers` reports nothing and need not be decoded.

    `start` matches the line with which an engine starts: around it its start-up facts are told.
    """

    name: str
    markers: tuple[bytes, ...]
    start: re.Pattern[bytes]
    parse: Callable[[str], Said | None]

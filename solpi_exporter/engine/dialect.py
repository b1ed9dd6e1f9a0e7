"""What a dialect is: a pure function from one line of an engine's log to one event, and the events there are."""

import re
from collections.abc import Callable, Iterator, Mapping
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
    """How one engine speaks. A line without `gate`, or without any of `markers`, reports nothing and is not decoded.

    `gate`, one byte, is in every line of the engine's logger and in few others: a search for it passes over an access
    log at the speed of memory. `start` matches the line with which an engine starts: around it its facts are told.
    """

    name: str
    gate: bytes
    markers: tuple[bytes, ...]
    start: re.Pattern[bytes]
    parse: Callable[[str], Said | None]

    def candidates(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines of a block of complete lines that may report something."""
        position = data.find(self.gate)
        while position >= 0:
            begin = data.rfind(b"\n", 0, position) + 1
            end = data.find(b"\n", position)
            line = data[begin:end]
            if any(marker in line for marker in self.markers):
                yield line
            position = data.find(self.gate, end)

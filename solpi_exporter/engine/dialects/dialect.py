"""What a dialect is: a pure function from one line of an engine's log to one event, and the events there are."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NEWLINE = b"\n"
ANSI = re.compile(r"\x1b\[[0-9;]{0,16}m")  # what colours a line, to be taken out of it
# The beginning of a line, for a `start`: of its own, or within docker's record or CRI's.
WRAPPED = rb"^(?:\{[^\n\[]{0,40}\"log\": ?\"|[\dT:.Z+-]{20,40} std(?:out|err) [FP]\S{0,40} )?"
ALL = "all"  # the engine of a line that sums up several
TROUBLES = (  # kinds of Trouble: a label may hold what stands on this list, no more
    "engine_dead",
    "start_failed",
    "worker_died",
    "cuda_error",
    "out_of_memory",
    "nccl_timeout",
    "step_timeout",
    "broadcast_wait",
    "kv_load_failed",
    "ulimit",
    "preemption",
)

Values = Mapping[str, float]  # by attribute of EngineReading, in its units


@dataclass(frozen=True, slots=True)
class Stats:
    """A periodic state line. `engine` is "" where it does not say whether it speaks of one engine or of all.

    `counted` are amounts since the last such line, which belong to counters. One that is `partial` adds to the engine's
    last report what it names, and leaves the rest.
    """

    engine: str
    values: Values
    counted: Values = field(default_factory=dict)
    partial: bool = False

    kind = "stats"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step of an engine: how long it took, and what else it says of the engine's state."""

    engine: str
    seconds: float | None
    values: Values = field(default_factory=dict)

    kind = "iteration"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Requests that were put back for want of KV cache: so many by this line, or so many at least since the start."""

    engine: str
    count: float = 0.0
    at_least: float = 0.0

    kind = "preemption"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a KV connector has moved since its last line; `values` are its state."""

    engine: str
    counted: Values
    values: Values = field(default_factory=dict)

    kind = "transfer"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of one engine's KV cache: tokens or blocks, how many of the longest requests fit, or several of these.

    `facts` are settings that the same line tells.
    """

    engine: str
    tokens: float | None = None
    blocks: float | None = None
    concurrency: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line that speaks of trouble; `what` is one of TROUBLES."""

    what: str

    kind = "error"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A server ends as it was told to: what its last report says is true no more."""

    kind = "shutdown"


Event = Stats | Iteration | Preemption | Transfer | Capacity | Setting | Trouble | Shutdown
KINDS = tuple(event.kind for event in (Stats, Iteration, Preemption, Transfer, Capacity, Setting, Trouble, Shutdown))


class Said(NamedTuple):  # made for every line that reports something, as plain tuples are in half the time
    """What one line reports, and which of the server's processes says so: its role and pid, where the head has them.

    `stamp` is the line's own time, `MM-DD HH:MM:SS` or `YYYY-MM-DD HH:MM:SS`, in the zone of whoever wrote it; "" where
    it has none.
    """

    event: Event
    stamp: str = ""
    role: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks. A line without `gate`, or without any of `markers`, reports nothing and is not decoded.

    `gate`, one byte, is in every line of the engine's logger and in few others: a search for it passes over an access
    log at the speed of memory. Where `structured` is in a block, its logger writes JSON, and each line is looked at.
    `start` matches the line with which an engine starts: around it its facts are told. One of `begins` is in it.
    """

    name: str
    gate: bytes
    markers: tuple[bytes, ...]
    start: re.Pattern[bytes]
    parse: Callable[[str], Said | None]
    begins: tuple[bytes, ...]
    structured: bytes = b""

    def starts_in(self, data: bytes) -> bool:
        """Whether an engine that speaks so starts in a block."""
        return any(begin in data for begin in self.begins) and self.start.search(data) is not None

    def candidates(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines of a block of complete lines that may report something."""
        gate = NEWLINE if self.structured and _holds_objects(data) and self.structured in data else self.gate
        markers = self.markers
        if gate == NEWLINE:
            markers = tuple(marker for marker in markers if marker in data)
            if not markers:
                return
        position = data.find(gate)
        while position >= 0:
            begin = data.rfind(NEWLINE, 0, position) + 1
            end = data.find(NEWLINE, position)
            if end < 0:  # which is nobody's line yet
                return
            line = data[begin:end]
            for marker in markers:  # any() of a generator would take twice as long
                if marker in line:
                    yield line
                    break
            position = data.find(gate, end + 1)


def _holds_objects(data: bytes) -> bool:
    """Whether a line of a block begins with a brace: the search for one byte is far faster than that for a word."""
    position = data.find(b"{")
    while position > 0 and data[position - 1] != NEWLINE[0]:
        position = data.find(b"{", position + 1)
    return position >= 0

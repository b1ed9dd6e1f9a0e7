"""The board: what every source said last, and how it fares. Sources write through the runner, the collector reads.

Data and health are kept apart. A snapshot is immutable, so that a scrape never waits for a source.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from solpi_exporter.metric import Sample
from solpi_exporter.source import OriginGone, Reading, SourceAbsent, SourceError

Kind = TypeVar("Kind")


class State(Enum):
    """How a source fares; all but PENDING are values of the label `state` of solpi_source_state."""

    OK = "ok"
    DOWN = "down"
    ABSENT = "absent"
    OFF = "off"
    QUIESCED = "quiesced"  # let go of on request
    PENDING = "pending"


class Outcome(Enum):
    """How one poll ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"


def _no_polls() -> Mapping[Outcome, int]:
    return MappingProxyType(dict.fromkeys(Outcome, 0))


@dataclass(frozen=True, slots=True)
class Entry:
    """One source on the board.

    `readings` are those of the last good poll, taken at `time` (the clock's monotonic) and `success_time` (Unix);
    `notices` are known without one: what a failure itself tells, or what is kept of a source that is not polled.
    `since` is when the poll in flight began, None between polls; `late` says that it was already counted as timed out.
    """

    source: str
    state: State = State.PENDING
    readings: tuple[Reading, ...] = ()
    notices: tuple[Reading, ...] = ()
    time: float | None = None
    success_time: float | None = None
    seconds: float | None = None
    since: float | None = None
    late: bool = False
    polls: Mapping[Outcome, int] = field(default_factory=_no_polls)

    def samples(self) -> Iterator[Sample]:
        """Yield what may be shown: a failing source keeps its totals and loses its gauges."""
        for reading in self.readings:
            for sample in reading.samples():
                if self.state is State.OK or sample.metric.kind.cumulative:
                    yield sample
        for notice in self.notices:
            yield from notice.samples()

    def counted(self, outcome: Outcome) -> Mapping[Outcome, int]:
        """Return the poll counts with one more of `outcome`; the end of a late poll was counted as its time-out."""
        if self.late:
            return self.polls
        return MappingProxyType({**self.polls, outcome: self.polls[outcome] + 1})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The board at one instant: entries in the order of precedence; `version` changes whenever they do."""

    version: int
    entries: tuple[Entry, ...]

    def readings(self, kind: type[Kind]) -> Iterator[tuple[float, Kind]]:
        """Yield the readings of one kind that hold now, each with the instant of its poll."""
        for entry in self.entries:
            if entry.state is State.OK and entry.time is not None:
                for reading in entry.readings:
                    if isinstance(reading, kind):
                        yield entry.time, reading


class Board:
    """Latest readings and health per source, safe to write from one thread a source and to read from any.

    The order in which sources are added is their precedence: where two sources yield the same series, the earlier
    one is shown and the later one stands in while the earlier has nothing to say.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._entries: dict[str, Entry] = {}
        self._timeouts: dict[str, float] = {}

    def add(self, source: str, timeout: float) -> None:
        """Make room for a source that will be polled; a poll longer than `timeout` seconds counts as hung."""
        self._timeouts[source] = timeout
        self._put(Entry(source))

    def set_aside(self, source: str, state: State, notices: Iterable[Reading] = ()) -> None:
        """List a source that will not be polled: switched off, let go of, or with nothing to read.

        `notices` are readings that are shown all the same.
        """
        self._put(Entry(source, state, notices=tuple(notices)))

    def begin(self, source: str, now: float) -> None:
        """Note that a poll has begun at `now` (monotonic)."""
        with self._lock:
            self._entries[source] = replace(self._entries[source], since=now)

    def succeed(
        self, source: str, readings: Sequence[Reading], now: float, wall: float, time: float | None = None
    ) -> None:
        """Replace the source's readings by those of a poll that ended at `now` (monotonic) and `wall` (Unix).

        `time` is `now` on the clock by which the readings were integrated, where that is another.
        """
        with self._lock:
            old = self._entries[source]
            new = Entry(
                source,
                State.OK,
                tuple(readings),
                time=now if time is None else time,
                success_time=wall,
                seconds=_elapsed(old, now),
                polls=old.counted(Outcome.SUCCESS),
            )
            self._replace(new, changed=old.state is not State.OK or old.readings != new.readings)

    def fail(self, source: str, error: Exception, now: float) -> None:
        """Withdraw the source's gauges after a poll that ended with `error` at `now` (monotonic).

        And its totals, where the error says that they were somebody else's.
        """
        with self._lock:
            old = self._entries[source]
            never_there = isinstance(error, SourceAbsent) and old.time is None
            state = State.ABSENT if never_there else State.DOWN
            notices = error.readings if isinstance(error, SourceError) else ()
            readings = () if isinstance(error, OriginGone) else old.readings
            new = replace(
                old,
                state=state,
                readings=readings,
                notices=notices,
                seconds=_elapsed(old, now),
                since=None,
                late=False,
                polls=old.counted(Outcome.FAILURE),
            )
            self._replace(new, changed=old.state is not state or old.notices != notices or old.readings != readings)

    def expire(self, now: float) -> list[str]:
        """Mark every source whose poll has been in flight for longer than its timeout; return their names."""
        with self._lock:
            hung = [entry for entry in self._entries.values() if self._is_hung(entry, now)]
            for entry in hung:
                polls = entry.counted(Outcome.TIMEOUT)
                new = replace(entry, state=State.DOWN, since=None, late=True, polls=polls)
                self._replace(new, changed=True)
            return [entry.source for entry in hung]

    def snapshot(self) -> Snapshot:
        """Return the board as it stands."""
        with self._lock:
            return Snapshot(self._version, tuple(self._entries.values()))

    def _is_hung(self, entry: Entry, now: float) -> bool:
        return entry.since is not None and now - entry.since > self._timeouts[entry.source]

    def _put(self, entry: Entry) -> None:
        with self._lock:
            self._replace(entry, changed=True)

    def _replace(self, entry: Entry, *, changed: bool) -> None:
        self._entries[entry.source] = entry
        self._version += changed


def _elapsed(entry: Entry, now: float) -> float | None:
    """Return how long the poll took; None for one that had already been given up."""
    return None if entry.since is None else now - entry.since

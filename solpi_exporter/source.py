"""What a source is: the one-method seam between everything that measures and the trunk that publishes."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from solpi_exporter.metric import Sample


class Reading(Protocol):
    """One frozen result of a poll; what it does not know it does not yield."""

    def samples(self) -> Iterable[Sample]:
        """Yield the reading's values."""
        ...


class Source(Protocol):
    """Something that can be read again and again.

    `poll` returns everything the source knows now: what it leaves out disappears from the exposition. Counters
    and histograms are accumulated in the source and travel as totals.
    """

    @property
    def name(self) -> str:
        """The value of the label `source`."""
        ...

    @property
    def interval(self) -> float:
        """Seconds from the start of one poll to the start of the next."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds after which a poll in flight counts as hung."""
        ...

    def poll(self) -> Sequence[Reading]:
        """Read once; raise SourceError when there is nothing to be read."""
        ...

    def close(self) -> None:
        """Let go of files, threads and libraries."""
        ...


class SourceError(Exception):
    """A source could not be read; the message says what, where and what to do about it, in one line.

    `readings` is what is known in spite of that, such as that an engine does not answer.
    """

    def __init__(self, message: str, readings: Sequence[Reading] = ()) -> None:
        super().__init__(message)
        self.readings = tuple(readings)


class OriginGone(SourceError):
    """What was counted is another process's to tell: while it does not answer, its totals are not known either."""


class SourceAbsent(SourceError):
    """The thing to be read is not there at all: no driver, no torch. Not an outage unless it once was."""


class NeedsRestart(SourceError):
    """Only a new process can go on, since what was loaded into this one no longer fits; the message says why."""

"""What the log source is fed with: blocks of complete lines, from files or from the journal. Knows no engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from solpi_exporter.follow.position import Position


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines. `time` is when they were written (Unix), None for a past that only their own stamps can tell.

    `name` is the log that they were written to. `head` marks what was written to a log before it was joined: shown for
    its start-up facts, and not counted; the last such block ends where the log is joined.
    """

    data: bytes
    time: float | None
    name: str = ""
    head: bool = False


@dataclass(slots=True)
class LineCounters:
    """What has been read so far, and what is known to have been lost. Kept over a restart with the position."""

    bytes: int = 0
    lines: int = 0
    truncated_lines: int = 0
    damaged_lines: int = 0
    lost_bytes: int = 0
    renames: int = 0
    truncations: int = 0
    open_failures: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """How the following fares at present; None where that is no question.

    `lag` is in bytes written and not read; `files` are open; `notified` says whether the system tells of new files.
    """

    lag: int | None = None
    files: int | None = None
    notified: bool | None = None
    overflows: int | None = None


class Lines(Protocol):
    """A log that is followed."""

    @property
    def counters(self) -> LineCounters:
        """What has been read so far."""
        ...

    def read(self, limit: int) -> Iterator[Block]:
        """Yield what is new, at most about `limit` bytes; raise SourceError when nothing can be followed.

        Position and counters are those after the blocks that were yielded.
        """
        ...

    def position(self) -> Position:
        """Return from where a successor has to go on."""
        ...

    def health(self) -> Health:
        """Return how it fares."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

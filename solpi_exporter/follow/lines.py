"""What the log source is fed with: blocks of complete lines, from files or from the journal. Knows no engine."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines. `time` is when they were written (Unix), None for a past that only their own stamps can tell.

    `head` marks the start of a log that was joined late: shown for its start-up facts, and not counted.
    """

    data: bytes
    time: float | None
    head: bool = False


@dataclass(slots=True)
class LineCounters:
    """What has been read so far."""

    bytes: int = 0
    lines: int = 0
    truncated_lines: int = 0
    rotations: Counter[str] = field(default_factory=lambda: Counter(rename=0, truncate=0))


class Lines(Protocol):
    """A log that is followed."""

    @property
    def counters(self) -> LineCounters:
        """What has been read so far."""
        ...

    def read(self, limit: int) -> Iterator[Block]:
        """Yield what is new, at most about `limit` bytes; raise SourceError when nothing can be followed."""
        ...

    def lag(self) -> int | None:
        """Return how many bytes are written and not yet read, None where that cannot be known."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

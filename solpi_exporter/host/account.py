"""CPU time of one server, made of processes that come and go: totals that never go backwards.

What a process or a cgroup had counted before it was first seen is not the server's; what it counts between the last
poll and its end is lost. So a total is a lower bound, and the less so the shorter the interval.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from solpi_exporter.host.cgroup import read_membership, throttled_seconds
from solpi_exporter.host.process import read_stat, run_delays

Key = TypeVar("Key")
Started = tuple[int, int]  # pid and start time: a pid alone may be another process by the next poll


@dataclass(slots=True)
class Total(Generic[Key]):
    """Seconds gathered from several counters. `seconds` is None until there was one; one no longer there is forgotten.

    `combine` makes one increase of those of all counters.
    """

    combine: Callable[[Iterable[float]], float] = sum
    seconds: float | None = None
    _last: Mapping[Key, float] = field(default_factory=dict)

    def advance(self, counters: Mapping[Key, float]) -> None:
        """Add by how much each counter has grown since the last call; the first sight of one adds nothing."""
        grown = [max(0.0, now - self._last[key]) for key, now in counters.items() if key in self._last]
        if counters:
            self.seconds = (self.seconds or 0.0) + (self.combine(grown) if grown else 0.0)
        self._last = counters


@dataclass(slots=True)
class ServerAccount:
    """What one server's processes cost and waited, in seconds since each was first seen."""

    cpu: Total[Started] = field(default_factory=Total)
    run_delay: Total[tuple[Started, int]] = field(default_factory=Total)
    # Levels of one tree hold back the same processes at the same time: the largest increase, not the sum.
    throttled: Total[str] = field(default_factory=lambda: Total(max))

    def advance(self, pids: Iterable[int], proc: Path, cgroups: Path) -> None:
        """Read the server's processes, those of them that are still there."""
        stats = {pid: stat for pid in pids if (stat := read_stat(pid, proc)) is not None}
        delays = {pid: run_delays(pid, proc) for pid in stats}
        folders = {read_membership(pid, proc).folder for pid in stats}
        levels = [throttled_seconds(folder, cgroups) for folder in folders if folder is not None]
        self.cpu.advance({(pid, stat.started): stat.cpu_seconds for pid, stat in stats.items()})
        self.run_delay.advance(
            {
                ((pid, stats[pid].started), thread): seconds
                for pid, threads in delays.items()
                for thread, seconds in threads.items()
            }
        )
        self.throttled.advance({level: seconds for tree in levels for level, seconds in tree.items()})

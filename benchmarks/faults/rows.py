"""The probe's worker, with a bench that replays what was recorded on an H200 (tests/recordings/h200-probe).

    python -m benchmarks.faults.rows "late read-back" FAULTY

The daemon starts it in place of a Python with torch, and speaks with it as with any worker. From when the file FAULTY
is there on, it replays the cycles in which the fault was; before, those without it, of the same pairs.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from unittest import mock

from solpi_exporter import __version__
from solpi_exporter.probe import worker
from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.result import BatchResult, Costs, Identity
from tests.probe.recorded import RecordedCycle, cycles

GRAPHS = "eager instead of graph"


def recorded(fault: str, *, faulty: bool) -> list[RecordedCycle]:
    """Return the seven cycles of a fault, without it or with it."""
    return [one for one in cycles("faults") if one.tags["fault"] == fault and one.tags["has_fault"] is faulty]


def good_day(fault: str) -> list[RecordedCycle]:
    """Return what the host measured without any fault, in all pairs: it wanders by more than a factor of two.

    What "eager instead of graph" is without the fault is no launched step, and compared with its own alone.
    """
    shape = recorded(fault, faulty=False)[0].identity
    return [
        one
        for one in cycles("faults")
        if not one.tags["has_fault"] and one.identity == shape and (one.tags["fault"] == GRAPHS) is (fault == GRAPHS)
    ]


class RecordedBench:
    """Answers each cycle with the next recorded one."""

    used = Used()
    is_open = True

    def __init__(self, fault: str, faulty: Path) -> None:
        self._faulty = faulty
        self._rows: dict[bool, Iterator[RecordedCycle]] = {
            has_fault: cycle(recorded(fault, faulty=has_fault)) for has_fault in (False, True)
        }
        self._current = next(self._rows[False])

    @property
    def identity(self) -> Identity:
        """That of the H200."""
        return self._current.identity

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        """Begin the next cycle."""
        self._current = next(self._rows[self._faulty.exists()])
        return self._current.costs

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Return what was recorded of a batch size."""
        return next(one for one in self._current.results if one.batch == batch)

    def close(self) -> None:
        """Nothing: a worker is ended."""


if __name__ == "__main__":
    with mock.patch.object(worker, "open_bench", return_value=RecordedBench(sys.argv[1], Path(sys.argv[2]))):
        worker.main(__version__)

"""The raw costs of a GPU and its host, and the gate that tells whether others keep the GPU busy. No torch in here."""

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from solpi_exporter.probe.result import LATE_SHARE, Costs
from solpi_exporter.probe.rig import NODES, Copy, Rig, Variant
from solpi_exporter.probe.timing import p50_p99, undisturbed, wakeup_overshoot

# Round trips come in bursts: together they take longer than a time slice of a busy CPU, in which a neighbour that is
# starved itself leaves the GPU alone.
BURSTS, TRIPS = 5, 40
BURST_PAUSE = 5e-3  # seconds between two of them, at least
# More than a hiccup of the host, less than a time slice of the GPU, which is about a millisecond.
LATE_SECONDS = 500e-6
ENOUGH_LATE = math.floor(LATE_SHARE * BURSTS * TRIPS) + 1  # to decide: each more would cost the neighbour a switch
LAUNCHES = 50  # at once; a stream holds about a thousand before a launch waits for one to finish

Value = TypeVar("Value")
Quiet = AbstractContextManager[object]


def late(trips: Sequence[float]) -> int:
    """Return how many round trips came after a time slice of somebody else."""
    return sum(trip > LATE_SECONDS for trip in trips)


class CostMeter:
    """Measures on a rig, `repeats` times; `rest` is called between what runs in a row, with how long it has to last."""

    def __init__(self, rig: Rig, repeats: int, rest: Callable[[float], None]) -> None:
        self._rig = rig
        self._repeats = repeats
        self._rest = rest
        self._quickest = math.inf

    def gate(self, quiet: Quiet) -> list[float]:
        """Return round trips, as many as it takes to tell whether others keep the GPU busy."""
        trips: list[float] = []
        for _ in range(BURSTS):
            trips += self.trips(TRIPS, ENOUGH_LATE - late(trips), quiet)
            if late(trips) >= ENOUGH_LATE:
                break
            self._rest(BURST_PAUSE)
        return trips

    def trips(self, count: int, enough_late: int, quiet: Quiet) -> list[float]:
        """Return so many round trips in a row, fewer once enough of them have come late."""
        taken: list[float] = []
        with quiet, undisturbed():
            while len(taken) < count and late(taken) < enough_late:
                taken.append(self._rig.round_trip())
        return taken

    def measure(self, variant: Variant, trips: Sequence[float], quiet: Quiet) -> Costs:
        """Measure the rest; the graph is that of `variant`."""
        self._quickest = min(self._quickest, *trips)
        with quiet, undisturbed():
            wakeup = wakeup_overshoot()
        short, long = (min(self._repeat(partial(self._rig.nodes, count), self._wake, quiet)) for count in NODES)
        return Costs(
            wakeup=wakeup,
            round_trip=p50_p99(trips),
            quickest_round_trip=self._quickest if self._quickest <= LATE_SECONDS else None,
            late_round_trips=late(trips) / len(trips),
            launch=statistics.median(self._repeat(partial(self._rig.launch, LAUNCHES), self._wake, quiet)),
            graph_launch=statistics.median(self._repeat(partial(self._rig.graph_launch, variant), self._wake, quiet)),
            graph_node=(long - short) / (NODES[1] - NODES[0]),
            copy_bandwidth=_bandwidth(self._repeat(self._rig.copy, self._rig.copy, quiet)),
            clock=self._rig.clock(),
        )

    def _wake(self) -> None:
        """Launch a short graph: after a rest the first takes five times as long as the next."""
        self._rig.nodes(NODES[0])

    def _repeat(self, measure: Callable[[], Value], wake: Callable[[], object], quiet: Quiet) -> list[Value]:
        """Measure some times, each time after something like it that does not count: after a rest the host is cold."""
        values = []
        for _ in range(self._repeats):
            self._rest(0.0)
            with quiet, undisturbed():
                wake()
                values.append(measure())
        return values


def _bandwidth(copies: Sequence[Copy | None]) -> float | None:
    """Return bytes per second, read and written, of the quickest copy; None where none was made."""
    return max((copy.moved / copy.seconds for copy in copies if copy is not None), default=None)

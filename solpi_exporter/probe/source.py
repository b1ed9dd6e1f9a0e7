"""The probe as a source: opens a bench when it is first polled, measures each batch size, keeps the histograms."""

import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import cycle, islice

from solpi_exporter.clock import Clock
from solpi_exporter.metric import Tally
from solpi_exporter.probe.guard import REASONS, Skip
from solpi_exporter.probe.pace import Pace
from solpi_exporter.probe.plan import Opening
from solpi_exporter.probe.quantities import BatchReading, ConditionsReading, ProbeReading
from solpi_exporter.probe.result import MEASURED, BatchResult, Bench, Costs, Cycle, Identity, crossing_batch, verdict
from solpi_exporter.probe.setback import SetbackKeeper, Setbacks
from solpi_exporter.source import NeedsRestart, Reading, SourceAbsent, SourceError

SUCCESS, NOISY, CONTENDED = "success", "noisy", "contended"
HELD_BACK = "held_back"  # a reason to skip, beside those of the guard
BOUNDS = (*(round(digit * 10.0**power, 6) for power in range(-4, 0) for digit in (1, 1.5, 2, 3, 5, 7)), 1.0)


def torch_is_there() -> bool:
    """Return whether torch can be imported, without importing it."""
    return find_spec("torch") is not None


def open_bench(wanted: Opening) -> Bench:
    """Import torch and make a bench.

    Raises SourceAbsent without torch, SourceError where the device is not there or its memory does not suffice.
    """
    if not torch_is_there():
        raise SourceAbsent(f"torch is not installed: run {sys.executable} -m pip install 'torch>=2.4'")
    # NVML counts GPUs in PCI order, CUDA by speed unless told otherwise; read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch without numpy; not used here
        from solpi_exporter.probe.device import make_bench  # torch: seconds and 300 MB, so only once the probe runs

    return make_bench(wanted)


def _unguarded(_: Identity | None) -> None:
    """Skip nothing."""


def _no_baseline(_: Cycle) -> None:
    """Compare with nothing."""


class ProbeSource:
    """Measures every batch size at each poll, and one of `rotation` in turn. `open_bench` is called once.

    `quiet` is held while steps are timed; whatever else in this process would disturb them takes it too. `guard` says
    why a cycle must be left out, of the GPU on which the bench holds memory, None while it holds none. `compare`
    returns the baseline to be shown beside a cycle.
    """

    name = "probe"
    timeout = 120.0  # the first run imports torch, starts CUDA and captures graphs

    def __init__(
        self,
        open_bench: Callable[[], Bench],
        batches: Sequence[int],
        quiet: AbstractContextManager[object],
        clock: Clock,
        interval: float,
        rotation: Sequence[int] = (),
        guard: Callable[[Identity | None], Skip | None] = _unguarded,
        compare: Callable[[Cycle], Reading | None] = _no_baseline,
        keeper: SetbackKeeper | None = None,
    ) -> None:
        self._open_bench = open_bench
        self._batches = tuple(batches)
        self._rotation = cycle(rotation)
        self._quiet = quiet
        self._clock = clock
        self._pace = Pace(interval)
        self._guard = guard
        self._compare = compare
        self._keeper = keeper or SetbackKeeper(Setbacks(), lambda _: False)
        self._bench: Bench | None = None
        self._identity: Identity | None = None
        self._runs = Counter({SUCCESS: 0, NOISY: 0, CONTENDED: 0})
        self._skips = Counter(dict.fromkeys((HELD_BACK, *REASONS), 0))
        self._steps: dict[tuple[int, str], Tally] = {}
        self._last_success: float | None = None

    @property
    def interval(self) -> float:
        """Seconds from one cycle to the next."""
        return self._pace.interval

    def poll(self) -> list[Reading]:
        """Measure the raw costs and this cycle's batch sizes, or count why not.

        Raises SourceError when there is nothing to measure on, NeedsRestart when CUDA is spoilt for this process.
        """
        reason = self._reason_to_skip()
        if reason is not None:
            self._skips[reason] += 1
            self._pace.skipped(reason)
            return [self._totals()]
        self._pace.begun()
        try:
            return [*self._cycle(), self._totals()]
        except NeedsRestart as error:
            if self._keeper.happened(self._clock.time()):
                raise
            # Another process would not know of it, and fail alike: a loop that takes all other readings along.
            raise SourceError(f"{error}; then restart the exporter, which does so itself with a --state-dir") from error

    def close(self) -> None:
        """Close the bench."""
        if self._bench is not None:
            self._bench.close()

    def _reason_to_skip(self) -> str | None:
        if self._keeper.setbacks.left(self._clock.time()):
            return HELD_BACK
        holds_memory = self._bench is not None and self._bench.is_open
        skip = self._guard(self._identity if holds_memory else None)
        return None if skip is None else skip.reason

    def _cycle(self) -> Iterator[Reading]:
        if self._bench is None:
            self._bench = self._open_bench()
        identity, batches = self._bench.identity, (*self._batches, *islice(self._rotation, 1))
        if identity != self._identity:
            self._steps.clear()  # they were another device's
        self._identity = identity
        costs = self._bench.costs(self._quiet)
        # In random order: a cycle that is stopped for its cost leaves out another batch size each time.
        measured = {batch: self._measure(self._bench, batch, costs) for batch in random.sample(batches, len(batches))}
        results = [measured[batch] for batch in batches]
        self._keeper.is_over()
        self._pace.measured(self._bench.used)
        for result in results:
            yield BatchReading(identity, result)
        yield ConditionsReading(identity, costs, verdict(costs, results), crossing_batch(results))
        baseline = self._compare(Cycle(identity, costs, results))
        if baseline is not None:
            yield baseline

    def _totals(self) -> ProbeReading:
        bench = self._bench
        return ProbeReading(
            self._identity,
            tuple(self._runs.items()),
            tuple((str(batch), mode, tally.distribution()) for (batch, mode), tally in self._steps.items()),
            self._last_success,
            tuple(self._skips.items()),
            None if bench is None or bench.used is None else bench.used.total,
        )

    def _measure(self, bench: Bench, batch: int, costs: Costs) -> BatchResult:
        result = bench.measure(batch, self._quiet)
        outcome = _outcome(result)
        self._runs[outcome] += 1
        if outcome == SUCCESS:
            self._last_success = self._clock.time()
        if not costs.is_contended and outcome != CONTENDED:  # else a step took turns with somebody else's work
            for mode, timed in result.modes.items():
                self._steps.setdefault((batch, mode), Tally(BOUNDS)).observe(timed.steps)
        return result


def _outcome(result: BatchResult) -> str:
    if not result.splits:
        return NOISY
    return SUCCESS if result.splits[0].basis == MEASURED else CONTENDED

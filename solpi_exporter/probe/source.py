"""The probe as a source: opens a bench when it is first polled, measures each batch size, keeps the histograms."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec

from solpi_exporter.clock import Clock
from solpi_exporter.metric import Distribution, Kind, Metric, Sample, Tally
from solpi_exporter.probe.bench import EAGER_SYNC, BatchResult, Bench, Identity
from solpi_exporter.source import SourceAbsent

_ON = ("device", "uuid", "batch")

INFO = Metric(
    "solpi_probe_info",
    "Constant 1; on what the probe measures: figures of another shape, depth or context are not comparable.",
    labels=("device", "uuid", "model", "shape", "layers", "context", "dtype", "torch"),
)
TOKEN = Metric("solpi_probe_token_seconds", "Wall time of one decode step.", labels=(*_ON, "mode", "basis"))
PHASE = Metric(
    "solpi_probe_phase_seconds",
    "What the eager token was spent on; the phases of a batch sum to its token.",
    labels=(*_ON, "phase", "basis"),
)
PHASE_ERROR = Metric(
    "solpi_probe_phase_standard_error_seconds",
    "Standard error of a phase, from leaving out one round of measurement at a time.",
    labels=(*_ON, "phase"),
)
RESIDUE = Metric(
    "solpi_probe_residue_seconds", "What setting negative phases to zero moved between phases.", labels=_ON
)
CONTROL = Metric("solpi_probe_control_ratio", "Share of the eager token in scheduling and sync.", labels=_ON)
RECLAIMABLE = Metric(
    "solpi_probe_reclaimable_ratio", "Share of the eager token that this mode gives back.", labels=(*_ON, "mode")
)
ENQUEUE = Metric("solpi_probe_enqueue_seconds", "Host time to enqueue a step.", labels=(*_ON, "mode"))
ENQUEUE_CPU = Metric(
    "solpi_probe_enqueue_cpu_seconds", "CPU time of the enqueuing thread in that span.", labels=(*_ON, "mode")
)
OFF_CPU = Metric(
    "solpi_probe_off_cpu_seconds",
    "Mean time of a step in which the thread did not run: a starved host.",
    labels=(*_ON, "mode"),
)
STEPS = Metric("solpi_probe_step_seconds", "Wall times of single decode steps.", Kind.HISTOGRAM, (*_ON, "mode"))
RUNS = Metric(
    "solpi_probe_runs_total", "Batch sizes measured; a noisy one yields no split.", Kind.COUNTER, ("outcome",)
)
LAST_SUCCESS = Metric("solpi_probe_last_success_timestamp_seconds", "When a split was last measured.")

METRICS = (
    INFO, TOKEN, PHASE, PHASE_ERROR, RESIDUE, CONTROL, RECLAIMABLE,
    ENQUEUE, ENQUEUE_CPU, OFF_CPU, STEPS, RUNS, LAST_SUCCESS,
)  # fmt: skip

MEASURED = "measured"
SUCCESS, NOISY = "success", "noisy"
BOUNDS = (*(round(digit * 10.0**power, 6) for power in range(-4, 0) for digit in (1, 1.5, 2, 3, 5, 7)), 1.0)


@dataclass(frozen=True, slots=True)
class BatchReading:
    """The last result of one batch size; without a split where the run was noisy."""

    identity: Identity
    result: BatchResult

    def samples(self) -> Iterator[Sample]:
        """Yield the token and raw costs of each mode, and the split."""
        on = (self.identity.device, self.identity.uuid, str(self.result.batch))
        for mode, timed in self.result.modes.items():
            yield ENQUEUE.sample(timed.enqueue, *on, mode)
            yield ENQUEUE_CPU.sample(timed.enqueue_cpu, *on, mode)
            yield OFF_CPU.sample(timed.off_cpu, *on, mode)
        if self.result.split is not None:
            yield from self._split(on)

    def _split(self, on: tuple[str, str, str]) -> Iterator[Sample]:
        split = self.result.split
        assert split is not None
        for mode, timed in self.result.modes.items():
            yield TOKEN.sample(timed.token, *on, mode, MEASURED)
            reclaimable = self.result.reclaimable(mode)
            if reclaimable is not None and mode != EAGER_SYNC:
                yield RECLAIMABLE.sample(reclaimable, *on, mode)
        for phase, seconds in split.phases.items():
            yield PHASE.sample(seconds, *on, phase, MEASURED)
            if phase in self.result.errors:
                yield PHASE_ERROR.sample(self.result.errors[phase], *on, phase)
        yield RESIDUE.sample(split.residue, *on)
        yield CONTROL.sample(split.control_ratio, *on)


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """The probe's identity, its counters and histograms."""

    identity: Identity
    runs: tuple[tuple[str, int], ...]
    steps: tuple[tuple[str, str, Distribution], ...]
    last_success: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield what belongs to the probe as a whole."""
        one = self.identity
        yield INFO.sample(
            1.0, one.device, one.uuid, one.model, one.shape, str(one.layers), str(one.context), one.dtype, one.torch
        )
        for outcome, count in self.runs:
            yield RUNS.sample(count, outcome)
        for batch, mode, distribution in self.steps:
            yield STEPS.sample(distribution, one.device, one.uuid, batch, mode)
        if self.last_success is not None:
            yield LAST_SUCCESS.sample(self.last_success)


def torch_is_there() -> bool:
    """Return whether torch can be imported, without importing it."""
    return find_spec("torch") is not None


def open_bench(device: str, shape: str, batches: Sequence[int]) -> Bench:
    """Import torch and make a bench on `device` ("auto", "cpu", "cuda" or "cuda:N").

    Raises SourceAbsent without torch, SourceError where the device is not there or its memory does not suffice.
    """
    if not torch_is_there():
        raise SourceAbsent("torch is not installed: run pip install 'torch>=2.4' in the exporter's environment")
    # NVML counts GPUs in PCI order, CUDA by speed unless told otherwise; read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch without numpy; not used here
        from solpi_exporter.probe.device import make_bench  # torch: seconds and 300 MB, so only once the probe runs

    return make_bench(device, shape, batches)


class ProbeSource:
    """Measures every batch size at each poll. `open_bench` is called at the first and its bench is kept.

    `quiet` is held while steps are timed; whatever else in this process would disturb them takes it too.
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
    ) -> None:
        self.interval = interval
        self._open_bench = open_bench
        self._batches = tuple(batches)
        self._quiet = quiet
        self._clock = clock
        self._bench: Bench | None = None
        self._runs = Counter({SUCCESS: 0, NOISY: 0})
        self._steps: dict[tuple[int, str], Tally] = {}
        self._last_success: float | None = None

    def poll(self) -> list[BatchReading | ProbeReading]:
        """Measure every batch size; raise SourceError when there is nothing to measure on."""
        if self._bench is None:
            self._bench = self._open_bench()
        identity = self._bench.identity
        readings = [BatchReading(identity, self._measure(self._bench, batch)) for batch in self._batches]
        steps = tuple((str(batch), mode, tally.distribution()) for (batch, mode), tally in self._steps.items())
        return [*readings, ProbeReading(identity, tuple(self._runs.items()), steps, self._last_success)]

    def close(self) -> None:
        """Nothing: memory is released with the process, since an engine that starts must not see it move."""

    def _measure(self, bench: Bench, batch: int) -> BatchResult:
        result = bench.measure(batch, self._quiet)
        for mode, timed in result.modes.items():
            self._steps.setdefault((batch, mode), Tally(BOUNDS)).observe(timed.steps)
        if result.split is None:
            self._runs[NOISY] += 1
        else:
            self._runs[SUCCESS] += 1
            self._last_success = self._clock.time()
        return result

"""The probe's metrics, and how the results of a bench become samples of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from solpi_exporter.metric import Distribution, Kind, Metric, Sample
from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    MEASURED,
    BatchResult,
    Costs,
    Identity,
    SplitResult,
    Verdict,
)

_DEVICE = ("device", "uuid")
_ON = (*_DEVICE, "batch")

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
    labels=(*_ON, "phase", "basis"),
)
RESIDUE = Metric(
    "solpi_probe_residue_seconds", "What setting negative phases to zero moved between phases.", labels=_ON
)
CONTROL = Metric(
    "solpi_probe_control_ratio", "Share of the eager token in scheduling and sync.", labels=(*_ON, "basis")
)
RECLAIMABLE = Metric(
    "solpi_probe_reclaimable_ratio",
    "Share of the eager token that this mode gives back.",
    labels=(*_ON, "mode", "basis"),
)
SPEED_OF_LIGHT = Metric(
    "solpi_probe_speed_of_light_ratio",
    "What a step's bytes take at the bandwidth of a copy, as a share of its token.",
    labels=(*_ON, "mode"),
)
HEAD = Metric("solpi_probe_head_seconds", "Device time of an eager step until its first kernel begins.", labels=_ON)
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

CROSSING = Metric(
    "solpi_probe_crossing_batch",
    "Batch size below which the host takes longer to launch a step than the GPU to run it.",
    labels=_DEVICE,
)
LAUNCH = Metric("solpi_probe_launch_seconds", "Host time to launch one small kernel.", labels=_DEVICE)
GRAPH_LAUNCH = Metric("solpi_probe_graph_launch_seconds", "Host time to launch a step's CUDA graph.", labels=_DEVICE)
GRAPH_NODE = Metric("solpi_probe_graph_node_seconds", "Device time of a node that does nothing.", labels=_DEVICE)
ROUND_TRIP = Metric(
    "solpi_probe_round_trip_seconds",
    "From launching one small kernel to knowing that it has run.",
    labels=(*_DEVICE, "percentile"),
)
WAKEUP = Metric(
    "solpi_probe_wakeup_overshoot_seconds", "By how much a short sleep is overslept.", labels=(*_DEVICE, "percentile")
)
BANDWIDTH = Metric("solpi_probe_copy_bytes_per_second", "Memory bandwidth of a copy, read and written.", labels=_DEVICE)
CLOCK = Metric("solpi_probe_sm_clock_hertz", "SM clock while the probe runs.", labels=_DEVICE)
CONTENDED = Metric(
    "solpi_probe_gpu_contended", "Whether others kept the GPU busy: then splits are modelled.", labels=_DEVICE
)
STARVED = Metric("solpi_probe_host_starved", "Whether the measuring thread was kept from running.", labels=_DEVICE)
RUNS = Metric(
    "solpi_probe_runs_total",
    "Batch sizes measured; a noisy one yields no split, beside a busy GPU it is modelled.",
    Kind.COUNTER,
    ("outcome",),
)
SKIPPED = Metric(
    "solpi_probe_skipped_total",
    "Cycles that were left out, for they would have done harm or meant nothing; the exporter's log says more.",
    Kind.COUNTER,
    ("reason",),
)
GPU_SECONDS = Metric(
    "solpi_probe_gpu_seconds_total",
    "Time for which the probe's own work ran on the GPU, its warm-up included.",
    Kind.COUNTER,
)
LAST_SUCCESS = Metric("solpi_probe_last_success_timestamp_seconds", "When a split was last measured.")

METRICS = (
    INFO, TOKEN, PHASE, PHASE_ERROR, RESIDUE, CONTROL, RECLAIMABLE, SPEED_OF_LIGHT, HEAD, ENQUEUE, ENQUEUE_CPU, OFF_CPU,
    STEPS, CROSSING, LAUNCH, GRAPH_LAUNCH, GRAPH_NODE, ROUND_TRIP, WAKEUP, BANDWIDTH, CLOCK, CONTENDED, STARVED, RUNS,
    SKIPPED, GPU_SECONDS, LAST_SUCCESS,
)  # fmt: skip

PERCENTILES = ("50", "99")


@dataclass(frozen=True, slots=True)
class BatchReading:
    """The last result of one batch size; without a split where the run was noisy."""

    identity: Identity
    result: BatchResult

    def samples(self) -> Iterator[Sample]:
        """Yield raw costs of each mode, and the splits."""
        on = (self.identity.device, self.identity.uuid, str(self.result.batch))
        for mode, timed in self.result.modes.items():
            yield ENQUEUE.sample(timed.enqueue, *on, mode)
            yield ENQUEUE_CPU.sample(timed.enqueue_cpu, *on, mode)
            yield OFF_CPU.sample(timed.off_cpu, *on, mode)
        if self.result.head is not None:
            yield HEAD.sample(self.result.head, *on)
        for one in self.result.splits:
            yield from self._split(one, on)

    def _split(self, one: SplitResult, on: tuple[str, str, str]) -> Iterator[Sample]:
        for phase, seconds in one.split.phases.items():
            yield PHASE.sample(seconds, *on, phase, one.basis)
            if phase in one.errors:
                yield PHASE_ERROR.sample(one.errors[phase], *on, phase, one.basis)
        yield CONTROL.sample(one.split.control_ratio, *on, one.basis)
        yield TOKEN.sample(one.split.token, *on, EAGER_SYNC, one.basis)
        if one.basis == MEASURED:
            yield RESIDUE.sample(one.split.residue, *on)
            yield from self._measured_modes(on)
        elif one.basis == EXTRAPOLATED:
            yield from self._whole_modes(on)

    def _measured_modes(self, on: tuple[str, str, str]) -> Iterator[Sample]:
        for mode, timed in self.result.modes.items():
            reclaimable = self.result.reclaimable(mode)
            if mode != EAGER_SYNC:
                yield TOKEN.sample(timed.token, *on, mode, MEASURED)
            if reclaimable is not None and mode != EAGER_SYNC:
                yield RECLAIMABLE.sample(reclaimable, *on, mode, MEASURED)
            if self.result.floor is not None:
                yield SPEED_OF_LIGHT.sample(self.result.floor / timed.token, *on, mode)

    def _whole_modes(self, on: tuple[str, str, str]) -> Iterator[Sample]:
        for mode, timed in self.result.modes.items():
            reclaimable = self.result.reclaimable_at_full_depth(mode)
            if mode == EAGER_SYNC or timed.full_depth is None or reclaimable is None:
                continue
            yield TOKEN.sample(timed.full_depth, *on, mode, EXTRAPOLATED)
            yield RECLAIMABLE.sample(reclaimable, *on, mode, EXTRAPOLATED)


@dataclass(frozen=True, slots=True)
class ConditionsReading:
    """What single things cost in this cycle, and beside whom it was measured."""

    identity: Identity
    costs: Costs
    verdict: Verdict
    crossing: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield what is known of it."""
        on = (self.identity.device, self.identity.uuid)
        costs = self.costs
        for metric, value in (
            (CROSSING, self.crossing),
            (LAUNCH, costs.launch),
            (GRAPH_LAUNCH, costs.graph_launch),
            (GRAPH_NODE, costs.graph_node),
            (BANDWIDTH, costs.copy_bandwidth),
            (CLOCK, costs.clock),
            (CONTENDED, self.verdict.gpu_contended),
            (STARVED, self.verdict.host_starved),
        ):
            if value is not None:
                yield metric.sample(float(value), *on)
        for metric, pair in ((ROUND_TRIP, costs.round_trip), (WAKEUP, costs.wakeup)):
            for percentile, value in zip(PERCENTILES, pair or (), strict=False):
                yield metric.sample(value, *on, percentile)


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """What belongs to the probe as a whole: its counters and histograms, and its identity once it has a bench."""

    identity: Identity | None
    runs: tuple[tuple[str, int], ...]
    steps: tuple[tuple[str, str, Distribution], ...]
    last_success: float | None
    skips: tuple[tuple[str, int], ...] = ()
    gpu_seconds: float | None = None

    def samples(self) -> Iterator[Sample]:
        """Yield all that is known."""
        for outcome, count in self.runs:
            yield RUNS.sample(count, outcome)
        for reason, count in self.skips:
            yield SKIPPED.sample(count, reason)
        if self.gpu_seconds is not None:
            yield GPU_SECONDS.sample(self.gpu_seconds)
        if self.last_success is not None:
            yield LAST_SUCCESS.sample(self.last_success)
        if self.identity is not None:
            yield from self._of_bench(self.identity)

    def _of_bench(self, one: Identity) -> Iterator[Sample]:
        yield INFO.sample(
            1.0, one.device, one.uuid, one.model, one.shape, str(one.layers), str(one.context), one.dtype, one.torch
        )
        for batch, mode, distribution in self.steps:
            yield STEPS.sample(distribution, one.device, one.uuid, batch, mode)

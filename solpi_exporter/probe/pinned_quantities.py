"""The metrics of a pinned baseline: what stands beside the probe's live series, under the same labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from solpi_exporter.metric import Metric, Sample
from solpi_exporter.probe.baseline import (
    COPY,
    ENQUEUE,
    GRAPH_LAUNCH,
    GRAPH_NODE,
    LAUNCH,
    PHASE,
    RECLAIMABLE,
    ROUND_TRIP,
    TOKEN,
    WAKEUP,
    Baseline,
    Figure,
)
from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.rounds import CONTROL_RATIO

_DEVICE = ("device", "uuid")
_ON = (*_DEVICE, "batch")


def _metric(name: str, what: str, *labels: str) -> Metric:
    return Metric(f"solpi_probe_baseline_{name}", f"{what}, as the pinned baseline has it.", labels=labels)


INFO = Metric(
    "solpi_probe_baseline_info",
    "Constant 1; how the machine was set up when the baseline was pinned.",
    labels=(*_DEVICE, "driver", "cuda", "torch", "kernel", "governor", "ecc", "persistence"),
)
TIMESTAMP = Metric("solpi_probe_baseline_timestamp_seconds", "When the baseline was made.", labels=_DEVICE)
BASELINE_TOKEN = _metric("token_seconds", "Wall time of one decode step", *_ON, "mode")
BASELINE_PHASE = _metric("phase_seconds", "What the eager token was spent on", *_ON, "phase")
BASELINE_CONTROL = _metric("control_ratio", "Share of the eager token in scheduling and sync", *_ON)
BASELINE_RECLAIMABLE = _metric("reclaimable_ratio", "Share of the eager token that this mode gives back", *_ON, "mode")
BASELINE_ENQUEUE = _metric("enqueue_seconds", "Host time to enqueue a step", *_ON, "mode")
BASELINE_LAUNCH = _metric("launch_seconds", "Host time to launch one small kernel", *_DEVICE)
BASELINE_GRAPH_LAUNCH = _metric("graph_launch_seconds", "Host time to launch a step's CUDA graph", *_DEVICE)
BASELINE_GRAPH_NODE = _metric("graph_node_seconds", "Device time of a node that does nothing", *_DEVICE)
BASELINE_ROUND_TRIP = _metric(
    "round_trip_seconds", "From launching one small kernel to knowing that it has run", *_DEVICE, "percentile"
)
BASELINE_WAKEUP = _metric("wakeup_overshoot_seconds", "By how much a short sleep is overslept", *_DEVICE, "percentile")
BASELINE_COPY = _metric("copy_bytes_per_second", "Memory bandwidth of a copy, read and written", *_DEVICE)

METRICS = (
    INFO, TIMESTAMP, BASELINE_TOKEN, BASELINE_PHASE, BASELINE_CONTROL, BASELINE_RECLAIMABLE, BASELINE_ENQUEUE,
    BASELINE_LAUNCH, BASELINE_GRAPH_LAUNCH, BASELINE_GRAPH_NODE, BASELINE_ROUND_TRIP, BASELINE_WAKEUP, BASELINE_COPY,
)  # fmt: skip

# The share of the time off the CPU has no live series to stand beside.
_OF_FIGURES: Mapping[str, Metric] = MappingProxyType(
    {
        TOKEN: BASELINE_TOKEN,
        PHASE: BASELINE_PHASE,
        CONTROL_RATIO: BASELINE_CONTROL,
        RECLAIMABLE: BASELINE_RECLAIMABLE,
        ENQUEUE: BASELINE_ENQUEUE,
        LAUNCH: BASELINE_LAUNCH,
        GRAPH_LAUNCH: BASELINE_GRAPH_LAUNCH,
        GRAPH_NODE: BASELINE_GRAPH_NODE,
        ROUND_TRIP: BASELINE_ROUND_TRIP,
        WAKEUP: BASELINE_WAKEUP,
        COPY: BASELINE_COPY,
    }
)


@dataclass(frozen=True, slots=True)
class BaselineReading:
    """A baseline beside the live series of a bench, whose device and UUID it is labelled with."""

    identity: Identity
    baseline: Baseline

    def samples(self) -> Iterator[Sample]:
        """Yield every figure that has a live series, and how the machine was set up then."""
        on = (self.identity.device, self.identity.uuid)
        yield INFO.sample(1.0, *on, *self._setup())
        yield TIMESTAMP.sample(self.baseline.time, *on)
        for figure in self.baseline.figures:
            metric = _OF_FIGURES.get(figure.name)
            if metric is not None:
                yield metric.sample(figure.value, *on, *_further(figure))

    def _setup(self) -> Iterator[str]:
        """Yield the label values of the info series; empty for what is not known."""
        around = self.baseline.surroundings
        for text in (around.driver, around.cuda, around.torch, around.kernel, around.governor):
            yield "" if text is None else str(text)
        for switch in (around.ecc, around.persistence):
            yield "" if switch is None else ("on" if switch else "off")


def _further(figure: Figure) -> Iterator[str]:
    if figure.batch is not None:
        yield str(figure.batch)
    if figure.part is not None:
        yield figure.part

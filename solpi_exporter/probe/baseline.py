"""A baseline: the probe's figures of a machine that is known to be good, and of which machine and method they are.

It is made of several cycles. One cycle's standard errors are those of a second or two, and the host wanders from minute
to minute (docs/probe.md): how far the figures of cycles lie apart says more of what is noise. `compare.py` holds two
baselines against each other, `baseline_file.py` keeps one as a file, `pinned.py` makes one of a day. No torch in here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median, stdev

from solpi_exporter.probe.result import EAGER_SYNC, MEASURED, BatchResult, Costs, Identity, ModeResult, verdict
from solpi_exporter.probe.rounds import CONTROL_RATIO
from solpi_exporter.probe.surroundings import Surroundings

PROBE_VERSION = 1  # of the method: raised with every change after which the same machine has other figures

# Of which a saved baseline is made, and what is compared with it. Held against others of the same machine, three of the
# recorded quiet cycles were called worse in 20 of 90 pairs, five in 11, seven in 10. Each takes seconds.
RUNS = 5

TOKEN, PHASE, ENQUEUE, RECLAIMABLE, OFF_CPU = "token", "phase", "enqueue", "reclaimable_ratio", "off_cpu_ratio"
LAUNCH, GRAPH_LAUNCH, GRAPH_NODE = "launch", "graph_launch", "graph_node"
ROUND_TRIP, WAKEUP, COPY = "round_trip", "wakeup_overshoot", "copy_bytes_per_second"
P50 = "50"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What makes figures incomparable where it differs. `device` is cuda or cpu, `model` the GPU's, or "CPU"."""

    device: str
    model: str
    cpu: str | None
    shape: str
    layers: int
    context: int
    dtype: str
    probe_version: int = PROBE_VERSION

    def differences(self, other: "Fingerprint") -> tuple[str, ...]:
        """Return what is another one there, as "shape 8b -> 1b"."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return tuple(f"{_WORDS.get(name, name)} {old} -> {new}" for name, old, new in pairs if old != new)


_WORDS = {"cpu": "CPU model", "model": "GPU model", "probe_version": "probe version"}


def fingerprint_of(identity: Identity, cpu: str | None) -> Fingerprint:
    """Return the fingerprint of a bench on a host whose CPU is a `cpu`."""
    return Fingerprint(
        identity.device.partition(":")[0],
        identity.model,
        cpu,
        identity.shape,
        identity.layers,
        identity.context,
        identity.dtype,
    )


@dataclass(frozen=True, slots=True)
class Key:
    """Names a figure: of one batch size or of none; `part` is its mode, phase or percentile."""

    name: str
    batch: int | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure over `runs` cycles, in seconds, bytes per second or as a share: their median.

    `error` is the median of the standard errors within a cycle, `spread` the standard deviation from cycle to cycle.
    None is not known.
    """

    name: str
    batch: int | None
    part: str | None
    value: float
    error: float | None = None
    spread: float | None = None
    runs: int = 1

    def __post_init__(self) -> None:
        if self.runs < 1 or (self.error or 0.0) < 0 or (self.spread or 0.0) < 0:
            raise ValueError(f"figure {self.name} has no runs, or an error or spread below zero")

    @property
    def key(self) -> Key:
        """Which it is."""
        return Key(self.name, self.batch, self.part)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Figures with the machine, the method and the surroundings they are of; `time` in Unix seconds."""

    fingerprint: Fingerprint
    surroundings: Surroundings
    time: float
    figures: tuple[Figure, ...]


Measured = tuple[float, float | None]  # a figure of one cycle and its standard error where that is known


def figures_of(costs: Costs, results: Sequence[BatchResult]) -> dict[Key, Measured]:
    """Return the figures of one cycle; none where others kept the GPU busy, and none of a batch size without a split.

    Beside others, what a step takes is theirs as well.
    """
    if costs.is_contended:
        return {}
    figures = dict(_of_costs(costs))
    for result in results:
        if result.splits and result.splits[0].basis == MEASURED:
            figures.update(_of_batch(result))
    return figures


def over(cycles: Sequence[Mapping[Key, Measured]]) -> tuple[Figure, ...]:
    """Return every figure over the cycles that have it."""
    keys = dict.fromkeys(key for cycle in cycles for key in cycle)
    return tuple(figure_of(key, [cycle[key] for cycle in cycles if key in cycle]) for key in keys)


def figure_of(key: Key, runs: Sequence[Measured]) -> Figure:
    """Return one figure over its runs, at least one."""
    values = [value for value, _ in runs]
    errors = [error for _, error in runs if error is not None]
    return Figure(
        key.name,
        key.batch,
        key.part,
        median(values),
        median(errors) if errors else None,
        stdev(values) if len(values) > 1 else None,
        len(values),
    )


def conditions(cycles: Sequence[tuple[Costs, Sequence[BatchResult]]]) -> str | None:
    """Return under which conditions most of the cycles were measured; None where that cannot be told."""
    names = Counter(verdict(costs, results).name for costs, results in cycles)
    return names.most_common(1)[0][0]


def _of_costs(costs: Costs) -> Iterator[tuple[Key, Measured]]:
    for key, value in (
        (Key(LAUNCH), costs.launch),
        (Key(GRAPH_LAUNCH), costs.graph_launch),
        (Key(GRAPH_NODE), costs.graph_node),
        (Key(ROUND_TRIP, part=P50), None if costs.round_trip is None else costs.round_trip[0]),
        (Key(WAKEUP, part=P50), costs.wakeup[0]),
        (Key(COPY), costs.copy_bandwidth),
    ):
        if value is not None:
            yield key, (value, None)


def _of_batch(result: BatchResult) -> Iterator[tuple[Key, Measured]]:
    one, batch = result.splits[0], result.batch
    for phase, seconds in one.split.phases.items():
        yield Key(PHASE, batch, phase), (seconds, one.errors.get(phase))
    yield Key(CONTROL_RATIO, batch), (one.split.control_ratio, one.errors.get(CONTROL_RATIO))
    for mode, timed in result.modes.items():
        yield Key(TOKEN, batch, mode), (timed.token, None)
        yield Key(ENQUEUE, batch, mode), (timed.enqueue, None)
        reclaimable = result.reclaimable(mode)
        if mode == EAGER_SYNC:
            yield Key(OFF_CPU, batch), (_off_cpu_ratio(timed), None)
        elif reclaimable is not None:
            yield Key(RECLAIMABLE, batch, mode), (reclaimable, None)


def _off_cpu_ratio(timed: ModeResult) -> float:
    """Return the share of a step in which its thread did not run: the clean sign of a starved host."""
    return timed.off_cpu * len(timed.steps) / sum(timed.steps)

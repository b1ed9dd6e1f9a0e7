"""What a bench is: something that measures one batch size after another, and what it hands to the source."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log2
from types import MappingProxyType
from typing import Protocol

from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.split import Split

EAGER_SYNC = "eager_sync"  # launched call by call, the token read back before the next step
GRAPH_SYNC = "graph_sync"  # the same step as one CUDA graph
GRAPH_ASYNC = "graph_async"  # the same, read back one step behind: what a modern engine does

# Of round trips, above which somebody else uses the GPU. On an H200 none was late without a neighbour, 9 % and more
# beside one on a host so loaded that the neighbour was starved too, 47 % and more beside one that was not.
LATE_SHARE = 0.03

UUIDS = ("GPU-", "MIG-")  # how that of a GPU, and of an instance of one, begins

STARVED_SHARE = 0.1  # of launched steps in which their thread did not run, above which the host is starved
VERDICTS = MappingProxyType(
    {
        (False, False): "quiet",
        (False, True): "host starved",
        (True, False): "GPU contended",
        (True, True): "both",
    }
)

MEASURED = "measured"
MODELLED = "modelled"  # beside a GPU that others keep busy: what the parts that can be timed there come to
EXTRAPOLATED = "extrapolated"  # to the depth of a whole model, from two depths


@dataclass(frozen=True, slots=True)
class Identity:
    """On what a bench measures: labels of every result. `cuda` is the version torch was built for, None for none."""

    device: str
    uuid: str
    model: str
    shape: str
    layers: int
    context: int
    dtype: str
    torch: str
    cuda: float | None = None


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode at one batch size, in seconds; `steps` are the single steps that count.

    `off_cpu` is a plain mean: trimming would throw away the slow steps in which a starved host shows. `full_depth` is
    the token of a whole model.
    """

    token: float
    enqueue: float
    enqueue_cpu: float
    off_cpu: float
    steps: tuple[float, ...]
    full_depth: float | None = None


@dataclass(frozen=True, slots=True)
class SplitResult:
    """A split, how it was come by, and the standard errors of its phases and of "control_ratio" where known."""

    basis: str
    split: Split
    errors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch size: the modes that could be timed, and the splits, of which the first is that of the step as it is.

    `noise` says why there is none. In seconds: `head` is what passes on the GPU until the first kernel of a launched
    step begins, `floor` what the bytes of a step take at the bandwidth of a copy.
    """

    batch: int
    modes: Mapping[str, ModeResult]
    splits: tuple[SplitResult, ...] = ()
    noise: str | None = None
    head: float | None = None
    floor: float | None = None

    @property
    def split(self) -> Split | None:
        """The split of the step as it is, measured or modelled."""
        return self.splits[0].split if self.splits else None

    def reclaimable(self, mode: str) -> float | None:
        """Return the share of the launched token that `mode` would give back; None where it was not run."""
        if mode not in self.modes or EAGER_SYNC not in self.modes:
            return None
        return 1 - self.modes[mode].token / self.modes[EAGER_SYNC].token

    def reclaimable_at_full_depth(self, mode: str) -> float | None:
        """Return the same of a whole model; None where only one depth was run."""
        if mode not in self.modes or EAGER_SYNC not in self.modes:
            return None
        of_mode, launched = self.modes[mode].full_depth, self.modes[EAGER_SYNC].full_depth
        return None if of_mode is None or not launched else 1 - of_mode / launched


@dataclass(frozen=True, slots=True)
class Costs:
    """What single things cost on this host, in seconds, of which shares say nothing until they are the bottleneck.

    Pairs are (P50, P99). `launch` is one kernel's, `graph_launch` the host's time for a whole step's graph,
    `graph_node` the GPU's for one empty node. `late_round_trips` is the share of round trips that came
    after a time slice of somebody else; `quickest_round_trip` is that of all cycles, None where none was quiet.
    """

    wakeup: tuple[float, float]
    round_trip: tuple[float, float] | None = None
    quickest_round_trip: float | None = None
    late_round_trips: float | None = None
    launch: float | None = None
    graph_launch: float | None = None
    graph_node: float | None = None
    copy_bandwidth: float | None = None  # bytes per second, read and written
    clock: float | None = None  # of the SMs, hertz

    @property
    def is_contended(self) -> bool:
        """Whether others keep the GPU busy. The median does not tell: beside a busy host only the tail is late."""
        return self.late_round_trips is not None and self.late_round_trips > LATE_SHARE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Under which conditions was measured; None where that cannot be told."""

    gpu_contended: bool | None
    host_starved: bool | None

    @property
    def name(self) -> str | None:
        """One of four, None where one side is not known."""
        if self.gpu_contended is None or self.host_starved is None:
            return None
        return VERDICTS[self.gpu_contended, self.host_starved]


def verdict(costs: Costs, results: Sequence[BatchResult]) -> Verdict:
    """Tell whether others keep the GPU busy, and whether the measuring thread was kept from running."""
    launched = [one.modes[EAGER_SYNC] for one in results if EAGER_SYNC in one.modes]
    off_cpu = sum(mode.off_cpu for mode in launched)
    whole = sum(sum(mode.steps) / len(mode.steps) for mode in launched)
    contended = None if costs.late_round_trips is None else costs.is_contended or any(map(_is_modelled, results))
    return Verdict(contended, off_cpu > STARVED_SHARE * whole if launched else None)


def _is_modelled(one: BatchResult) -> bool:
    return any(split.basis == MODELLED for split in one.splits)


def crossing_batch(results: Sequence[BatchResult]) -> float | None:
    """Return the batch size at which the host needs as long to launch a step as the GPU to run it, Q = G.

    Between two batch sizes that were measured, on a logarithmic scale; infinite where the host takes longer at all of
    them, None where it does at none.
    """
    ordered = sorted((one for one in results if one.split is not None), key=lambda one: one.batch)
    ahead = [(log2(one.batch), _host_ahead(one)) for one in ordered]
    for (low, before), (high, after) in pairwise(ahead):
        if before > 0 >= after:
            return float(2 ** (low + (high - low) * before / (before - after)))
    return inf if ahead and all(seconds > 0 for _, seconds in ahead) else None


def _host_ahead(one: BatchResult) -> float:
    """Return Q - G of a batch size that has a split."""
    assert one.split is not None
    return one.modes[EAGER_SYNC].enqueue - one.split.compute - one.split.memory


@dataclass(frozen=True, slots=True)
class Cycle:
    """All batch sizes, measured one after another on one device."""

    identity: Identity
    costs: Costs
    results: Sequence[BatchResult]


class Bench(Protocol):
    """Measures on one device; memory is allocated when it is made and stays."""

    @property
    def identity(self) -> Identity:
        """On what it measures."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it holds its memory."""
        ...

    @property
    def used(self) -> Used | None:
        """How long it used a GPU; None where it uses none."""
        ...

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        """Measure the raw costs, once before the batch sizes of a cycle; `quiet` is held meanwhile."""
        ...

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Measure one batch size, holding `quiet` while steps are timed."""
        ...

    def close(self) -> None:
        """End what runs elsewhere. Memory of this process stays: an engine that starts must not see it move."""
        ...

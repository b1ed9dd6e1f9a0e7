"""What a bench is: something that measures one batch size, and what it hands to the source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from solpi_exporter.probe.split import NoisyRun, Split, standard_errors, trimmed_mean

ROUNDS = 6  # interleaved rounds of one batch size
STEPS = 6  # timed steps of each variant in a round
MIN_KEPT = 0.5  # share of steps that must not be void

EAGER_SYNC = "eager_sync"
GRAPH_SYNC = "graph_sync"


@dataclass(frozen=True, slots=True)
class Identity:
    """On what a bench measures: labels of every result."""

    device: str
    uuid: str
    model: str
    shape: str
    layers: int
    context: int
    dtype: str
    torch: str


@dataclass(frozen=True, slots=True)
class Step:
    """One timed step, in seconds: wall, host enqueue and its thread CPU time, device span (None on a CPU)."""

    wall: float
    enqueue: float
    enqueue_cpu: float
    span: float | None
    void: bool

    @property
    def off_cpu(self) -> float:
        """How long the enqueuing thread was not running: the clean sign of a starved host."""
        return max(0.0, self.enqueue - self.enqueue_cpu)


@dataclass(slots=True)
class Round:
    """The steps of each mode and the times of each reference, taken together; void references are left out."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    references: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode at one batch size, in seconds; `steps` are the single steps."""

    token: float
    enqueue: float
    enqueue_cpu: float
    off_cpu: float
    steps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch size: the modes, and the split with its standard errors or the reason why there is none."""

    batch: int
    modes: Mapping[str, ModeResult]
    split: Split | None
    errors: Mapping[str, float]
    noise: str | None = None

    def reclaimable(self, mode: str) -> float | None:
        """Return the share of the launched token that `mode` would give back; None where it was not run."""
        if mode not in self.modes or EAGER_SYNC not in self.modes:
            return None
        return 1 - self.modes[mode].token / self.modes[EAGER_SYNC].token


class Bench(Protocol):
    """Measures on one device; memory is allocated when it is made and stays."""

    @property
    def identity(self) -> Identity:
        """On what it measures."""
        ...

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Measure one batch size, holding `quiet` while steps are timed."""
        ...


def summarise(batch: int, rounds: Sequence[Round], split: Callable[[Sequence[Round]], Split]) -> BatchResult:
    """Aggregate interleaved rounds: each mode by itself, the split over all, its errors from round to round."""
    modes = {mode: _mode(rounds, mode) for mode in rounds[0].steps}
    try:
        _require_kept(rounds)
        whole = split(rounds)
    except NoisyRun as noise:
        return BatchResult(batch, modes, None, {}, str(noise))
    return BatchResult(batch, modes, whole, standard_errors(list(_single_rounds(rounds, split))))


def kept(rounds: Sequence[Round], mode: str) -> list[Step]:
    """Return the steps of a mode in which no sibling thread ran and no throttling fell."""
    return [step for one in rounds for step in one.steps[mode] if not step.void]


def reference(rounds: Sequence[Round], name: str) -> float:
    """Return the trimmed mean of a reference over the rounds; raise NoisyRun when none of it was undisturbed."""
    values = [value for one in rounds for value in one.references[name]]
    if not values:
        raise NoisyRun(f"the reference {name} was never taken undisturbed")
    return trimmed_mean(values)


def _mode(rounds: Sequence[Round], mode: str) -> ModeResult:
    steps = kept(rounds, mode) or [step for one in rounds for step in one.steps[mode]]
    return ModeResult(
        token=trimmed_mean([step.wall for step in steps]),
        enqueue=trimmed_mean([step.enqueue for step in steps]),
        enqueue_cpu=trimmed_mean([step.enqueue_cpu for step in steps]),
        off_cpu=trimmed_mean([step.off_cpu for step in steps]),
        steps=tuple(step.wall for step in steps),
    )


def _require_kept(rounds: Sequence[Round]) -> None:
    total = sum(len(one.steps[EAGER_SYNC]) for one in rounds)
    share = len(kept(rounds, EAGER_SYNC)) / total
    if share < MIN_KEPT:
        raise NoisyRun(f"only {share:.0%} of the steps ran undisturbed: other threads of this process, or throttling")


def _single_rounds(rounds: Sequence[Round], split: Callable[[Sequence[Round]], Split]) -> Iterator[Split]:
    for one in rounds:
        try:
            if kept([one], EAGER_SYNC):
                yield split([one])
        except NoisyRun:
            continue  # a single round may contradict itself where the whole does not

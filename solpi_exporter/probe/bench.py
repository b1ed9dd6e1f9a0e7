"""What a bench is: something that measures one batch size, and what it hands to the source."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from solpi_exporter.probe.split import PHASES, NoisyRun, Split, jackknife, settle, trimmed_mean

MIN_KEPT = 0.5  # share of a variant's steps that must not be void

EAGER_SYNC = "eager_sync"
GRAPH_SYNC = "graph_sync"

CONTROL_RATIO = "control_ratio"
FIGURES = (*PHASES, CONTROL_RATIO)


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
class Step:
    """One timed step, in seconds: wall and host enqueue, the thread's CPU time in each, device span (None on a CPU)."""

    wall: float
    cpu: float
    enqueue: float
    enqueue_cpu: float
    span: float | None
    void: bool

    @property
    def off_cpu(self) -> float:
        """How long the thread was not running: the clean sign of a starved host."""
        return max(0.0, self.wall - self.cpu)


@dataclass(slots=True)
class Round:
    """The steps of each mode and the times of each reference, taken together; a void reference is None."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    references: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode at one batch size, in seconds; `steps` are the single steps that count.

    `off_cpu` is a plain mean: trimming would throw away the slow steps in which a starved host shows.
    """

    token: float
    enqueue: float
    enqueue_cpu: float
    off_cpu: float
    steps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch size: the modes that could be timed, and the split or the reason why there is none.

    `errors` are standard errors of the phases and of "control_ratio", empty where they are not known.
    """

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


def summarise(batch: int, rounds: Sequence[Round], estimate: Callable[[Sequence[Round]], Split]) -> BatchResult:
    """Aggregate interleaved rounds: each mode by itself, the split over all, its errors from leaving rounds out."""
    modes = {mode: _mode(rounds, mode) for mode in rounds[0].steps if _is_kept(one.void for one in _all(rounds, mode))}
    try:
        if EAGER_SYNC not in modes:
            raise NoisyRun("most steps were disturbed: other threads of this process, or throttling")
        split = settle(estimate(rounds))
    except NoisyRun as noise:
        return BatchResult(batch, modes, None, {}, str(noise))
    return BatchResult(batch, modes, split, _errors(rounds, estimate))


def kept(rounds: Sequence[Round], mode: str) -> list[Step]:
    """Return the steps of a mode in which no sibling thread ran and no throttling fell; raise NoisyRun without any."""
    steps = [step for step in _all(rounds, mode) if not step.void]
    if not steps:
        raise NoisyRun(f"no step of {mode} ran undisturbed")
    return steps


def reference(rounds: Sequence[Round], name: str) -> float:
    """Return the trimmed mean of a reference over the rounds; raise NoisyRun when most of it was disturbed."""
    times = [time for one in rounds for time in one.references[name]]
    if not _is_kept(time is None for time in times):
        raise NoisyRun(f"most of the reference {name} was disturbed: other threads of this process, or throttling")
    return trimmed_mean([time for time in times if time is not None])


def _all(rounds: Sequence[Round], mode: str) -> list[Step]:
    return [step for one in rounds for step in one.steps[mode]]


def _is_kept(void: Iterable[bool]) -> bool:
    flags = list(void)
    return flags.count(False) >= MIN_KEPT * len(flags)


def _mode(rounds: Sequence[Round], mode: str) -> ModeResult:
    steps = kept(rounds, mode)
    return ModeResult(
        token=trimmed_mean([step.wall for step in steps]),
        enqueue=trimmed_mean([step.enqueue for step in steps]),
        enqueue_cpu=trimmed_mean([step.enqueue_cpu for step in steps]),
        off_cpu=sum(step.off_cpu for step in steps) / len(steps),
        steps=tuple(step.wall for step in steps),
    )


def _errors(rounds: Sequence[Round], estimate: Callable[[Sequence[Round]], Split]) -> dict[str, float]:
    """Return the standard error of each figure; none where a part of the rounds would not have been enough."""

    def figure(name: str, part: Sequence[Round]) -> float:
        return float(getattr(estimate(part), name))

    try:
        errors = {name: jackknife(rounds, partial(figure, name)) for name in FIGURES}
    except NoisyRun:
        return {}
    return {name: error for name, error in errors.items() if error is not None}

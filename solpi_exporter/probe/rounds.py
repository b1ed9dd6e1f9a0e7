"""From interleaved rounds of steps to one result. No torch in here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    GRAPH_ASYNC,
    MEASURED,
    MODELLED,
    BatchResult,
    ModeResult,
    SplitResult,
)
from solpi_exporter.probe.shape import Depths
from solpi_exporter.probe.split import (
    PHASES,
    NoisyRun,
    Split,
    jackknife,
    low_quantile,
    settle,
    split_modelled,
    trimmed_mean,
)

MIN_KEPT = 0.5  # share of a variant's steps that must not be void

CONTROL_RATIO = "control_ratio"
FIGURES = (*PHASES, CONTROL_RATIO)


@dataclass(frozen=True, slots=True)
class Step:
    """One timed step, in seconds: wall and host enqueue, the thread's CPU time in each.

    `span` is the device's, None on a CPU, and `head` its part before the first kernel, where that was asked for.
    """

    wall: float
    cpu: float
    enqueue: float
    enqueue_cpu: float
    span: float | None
    void: bool
    head: float | None = None

    @property
    def off_cpu(self) -> float:
        """How long the thread was not running: the clean sign of a starved host."""
        return max(0.0, self.wall - self.cpu)


@dataclass(slots=True)
class Round:
    """The steps of each mode and the times of each reference, taken together; a void reference is None.

    `shallow` is the same with fewer layers, where two depths are run.
    """

    steps: dict[str, list[Step]] = field(default_factory=dict)
    references: dict[str, list[float | None]] = field(default_factory=dict)
    shallow: "Round | None" = None


Estimate = Callable[[Sequence[Round]], Split]


def summarise(batch: int, rounds: Sequence[Round], estimate: Estimate, depths: Depths | None = None) -> BatchResult:
    """Aggregate interleaved rounds: each mode by itself, the split over all, its errors from leaving rounds out."""
    modes = _modes(rounds)
    try:
        if EAGER_SYNC not in modes:
            raise NoisyRun("most steps were disturbed: other threads of this process, or throttling")
        splits = [_split(MEASURED, rounds, estimate)]
    except NoisyRun as noise:
        return BatchResult(batch, modes, noise=str(noise))
    if depths is not None:
        modes, whole = _at_full_depth(modes, rounds, estimate, depths)
        splits += whole
    heads = [step.head for step in kept(rounds, EAGER_SYNC) if step.head is not None]
    return BatchResult(batch, modes, tuple(splits), head=trimmed_mean(heads) if heads else None)


def model(
    batch: int, rounds: Sequence[Round], graph: str, graph_without_kv: str, round_trip: float | None
) -> BatchResult:
    """Model what the step would be on a GPU of its own, where others keep it busy; `round_trip` is the quiet one.

    The host's part is timed as it is. A replay is shorter than a time slice of the GPU, so the fast ones ran alone.
    """
    modes = _modes(rounds)
    if EAGER_SYNC not in modes:
        return BatchResult(batch, modes, noise="most steps were disturbed, beside a busy GPU")
    if round_trip is None:
        return BatchResult(batch, modes, noise="beside a busy GPU, and no raw cost is known yet")

    def estimate(part: Sequence[Round]) -> Split:
        enqueue = trimmed_mean([step.enqueue for step in kept(part, EAGER_SYNC)])
        return split_modelled(enqueue, _fastest(part, graph), _fastest(part, graph_without_kv), round_trip)

    try:
        modelled = _split(MODELLED, rounds, estimate)
        # The jackknife does not hold for a quantile: of the host's part alone the error is known.
        errors = {name: error for name, error in modelled.errors.items() if name == "scheduling"}
        return BatchResult(batch, modes, (replace(modelled, errors=errors),))
    except NoisyRun as noise:
        return BatchResult(batch, modes, noise=str(noise))


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


def _fastest(rounds: Sequence[Round], name: str) -> float:
    return low_quantile([time for one in rounds for time in one.references[name] if time is not None])


def voided(one: Round) -> Round:
    """Return a round of which no step counts; times of the device alone do."""
    steps = {mode: [replace(step, void=True) for step in steps] for mode, steps in one.steps.items()}
    return Round(steps, one.references, None if one.shallow is None else voided(one.shallow))


def _all(rounds: Sequence[Round], mode: str) -> list[Step]:
    return [step for one in rounds for step in one.steps.get(mode, ())]


def _is_kept(void: Iterable[bool]) -> bool:
    flags = list(void)
    return flags.count(False) >= MIN_KEPT * len(flags)


def _mode(rounds: Sequence[Round], mode: str) -> ModeResult:
    steps = kept(rounds, mode)
    return ModeResult(
        token=_token(rounds, mode),
        enqueue=trimmed_mean([step.enqueue for step in steps]),
        enqueue_cpu=trimmed_mean([step.enqueue_cpu for step in steps]),
        off_cpu=sum(step.off_cpu for step in steps) / len(steps),
        steps=tuple(step.wall for step in steps),
    )


def _modes(rounds: Sequence[Round]) -> dict[str, ModeResult]:
    """Return the modes that could be timed, in an order that does not depend on that of the measurement.

    The first round has all of them; later ones may have fewer.
    """
    timed = (mode for mode in sorted(rounds[0].steps) if _is_kept(step.void for step in _all(rounds, mode)))
    return {mode: _mode(rounds, mode) for mode in timed}


def _token(rounds: Sequence[Round], mode: str) -> float:
    """Return a mode's token; of one that is read one step behind, from the means of whole rounds.

    There, a step that came late is followed by short ones, since the device went on: trimming would keep those.
    """
    if mode != GRAPH_ASYNC:
        return trimmed_mean([step.wall for step in kept(rounds, mode)])
    walls = ([step.wall for step in one.steps.get(mode, ()) if not step.void] for one in rounds)
    return trimmed_mean([sum(each) / len(each) for each in walls if each])


def _at_full_depth(
    modes: Mapping[str, ModeResult], rounds: Sequence[Round], estimate: Estimate, depths: Depths
) -> tuple[dict[str, ModeResult], list[SplitResult]]:
    """Return the modes with the token of a whole model, and its split, where the shallow rounds allow that."""

    def whole(part: Sequence[Round]) -> Split:
        shallow, deep = estimate(_shallow(part)), estimate(part)
        phases = {name: depths.extrapolate(getattr(shallow, name), getattr(deep, name)) for name in PHASES}
        return Split(token=sum(phases.values()), **phases)

    tokens = {mode: _token(_shallow(rounds), mode) for mode in modes if _is_kept_shallow(rounds, mode)}
    if EAGER_SYNC not in tokens:
        return dict(modes), []
    deeper = {
        mode: replace(one, full_depth=depths.extrapolate(tokens[mode], one.token)) if mode in tokens else one
        for mode, one in modes.items()
    }
    try:
        return deeper, [_split(EXTRAPOLATED, rounds, whole)]
    except NoisyRun:
        return deeper, []


def _shallow(rounds: Sequence[Round]) -> list[Round]:
    return [one.shallow for one in rounds if one.shallow is not None]


def _is_kept_shallow(rounds: Sequence[Round], mode: str) -> bool:
    steps = [step for one in _shallow(rounds) for step in one.steps.get(mode, ())]
    return bool(steps) and _is_kept(step.void for step in steps)


def _split(basis: str, rounds: Sequence[Round], estimate: Estimate) -> SplitResult:
    return SplitResult(basis, settle(estimate(rounds)), _errors(rounds, estimate))


def _errors(rounds: Sequence[Round], estimate: Estimate) -> dict[str, float]:
    """Return the standard error of each figure; none where a part of the rounds would not have been enough."""

    def figure(name: str, part: Sequence[Round]) -> float:
        return float(getattr(estimate(part), name))

    try:
        errors = {name: jackknife(rounds, partial(figure, name)) for name in FIGURES}
    except NoisyRun:
        return {}
    return {name: error for name, error in errors.items() if error is not None}

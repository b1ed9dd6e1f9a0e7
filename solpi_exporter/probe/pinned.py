"""The baseline that a daemon compares with: its first good day, or a file from another host.

The day is gathered cycle by cycle, and pinned as medians once it is whole; from then on it stays, whatever happens to
driver, kernel or torch, until another one is asked for. Setups whose figures are incomparable have one each.
Saved before shown, so that a restart neither forgets a baseline nor moves it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solpi_exporter.probe.baseline import (
    Baseline,
    Figure,
    Fingerprint,
    Key,
    Measured,
    figure_of,
    figures_of,
    fingerprint_of,
)
from solpi_exporter.probe.pinned_quantities import BaselineReading
from solpi_exporter.probe.result import BatchResult, Costs, Identity, verdict
from solpi_exporter.probe.surroundings import Surroundings

STATE = "probe_baseline"  # the name under which it is kept

DAY_SECONDS = 86400.0
LEAST_CYCLES = 12  # good ones, of each batch size
MOST_SETUPS = 4
MOST_VALUES = 32  # kept of a figure; a day of cycles brings 288


@dataclass(frozen=True, slots=True)
class Gathered:
    """The values of one figure so far: of `count` cycles every `stride`-th, so that they span all of the time."""

    name: str
    batch: int | None
    part: str | None
    values: tuple[float, ...] = ()
    count: int = 0
    stride: int = 1

    @property
    def key(self) -> Key:
        """Whose values they are."""
        return Key(self.name, self.batch, self.part)

    def taken(self, value: float) -> "Gathered":
        """Return them with one more; beyond the most that are kept, every other one goes."""
        values = self.values if self.count % self.stride else (*self.values, value)
        thin = 1 + (len(values) > MOST_VALUES)
        return replace(self, values=values[::thin], count=self.count + 1, stride=self.stride * thin)

    def figure(self) -> Figure:
        """Return their median, with how they spread."""
        return figure_of(self.key, [(value, None) for value in self.values])


@dataclass(frozen=True, slots=True)
class PinnedState:
    """What is kept: the day as far as it has come, since `begun` (Unix seconds), and the baseline once it is pinned."""

    fingerprint: Fingerprint | None = None
    surroundings: Surroundings = field(default_factory=Surroundings)
    begun: float | None = None
    gathered: tuple[Gathered, ...] = ()
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class PinnedStates:
    """What is kept of the setups whose figures are incomparable, the one measured last first.

    So a GPU that was away for one start, for which the CPU stood in, finds its baseline again.
    """

    states: tuple[PinnedState, ...] = ()

    def of(self, fingerprint: Fingerprint) -> PinnedState:
        """Return that of one setup, which may be new."""
        return next((one for one in self.states if one.fingerprint == fingerprint), PinnedState(fingerprint))

    def updated(self, state: PinnedState) -> "PinnedStates":
        """Return them with a newer one; the setup that was measured longest ago goes where there are too many."""
        others = (one for one in self.states if one.fingerprint != state.fingerprint)
        return PinnedStates((state, *others)[:MOST_SETUPS])


Save = Callable[[PinnedStates], bool]  # returns whether it need not be tried again


def _save_nothing(states: PinnedStates) -> bool:
    """Keep nothing."""
    return True


def _not_asked() -> bool:
    """Ask for nothing."""
    return False


def _report_nothing(told: object) -> None:
    """Report to nobody."""


class PinnedBaseline:
    """Gathers a day of good cycles of these `batches`, pins it, and shows it from then on.

    `cpu` is the host's CPU model. `saved` is the state of before and `save` keeps one. `given` is a baseline of another
    host, which is shown instead where it fits. `is_asked` tells, once, that another day is wanted. `report_pinned` is
    told of a baseline that was pinned, `report_unfit` what makes the given one unfit.
    """

    def __init__(
        self,
        batches: Sequence[int],
        cpu: str | None,
        saved: PinnedStates | None = None,
        save: Save = _save_nothing,
        given: Baseline | None = None,
        is_asked: Callable[[], bool] = _not_asked,
        report_pinned: Callable[[Baseline], None] = _report_nothing,
        report_unfit: Callable[[str], None] = _report_nothing,
    ) -> None:
        self._batches = tuple(batches)
        self._cpu = cpu
        self._states = PinnedStates() if saved is None else saved
        self._save = save
        self._is_saved = True
        self._given = given
        self._unfit: list[str] = []  # what was reported to make it so
        self._is_asked = is_asked
        self._report_pinned = report_pinned
        self._report_unfit = report_unfit

    def observe(
        self,
        identity: Identity,
        costs: Costs,
        results: Sequence[BatchResult],
        surroundings: Surroundings,
        now: float,
    ) -> BaselineReading | None:
        """Take in one cycle, at `now` (Unix seconds); return the baseline to be shown, None while there is none."""
        fingerprint = fingerprint_of(identity, self._cpu)
        is_asked = self._is_asked()  # also beside a file, for which it means nothing: else it would be asked for later
        if self._fits(fingerprint):
            assert self._given is not None
            return BaselineReading(identity, self._given)
        state = PinnedState(fingerprint) if is_asked else self._states.of(fingerprint)
        if state.baseline is None and is_good(costs, results):
            state = pinned(gather(state, figures_of(costs, results), surroundings, now), self._batches, now)
        self._keep(state)
        return None if state.baseline is None else BaselineReading(identity, state.baseline)

    def _fits(self, fingerprint: Fingerprint) -> bool:
        """Return whether a given baseline is of this machine and method; report, when that changes, where it is not."""
        if self._given is None:
            return False
        other = list(self._given.fingerprint.differences(fingerprint))
        if other and other != self._unfit:
            self._report_unfit(", ".join(other))
        self._unfit = other
        return not other

    def _keep(self, state: PinnedState) -> None:
        """Save what is new, and what could not be saved; report a baseline that was not there before."""
        assert state.fingerprint is not None
        before = self._states.of(state.fingerprint)
        self._states = self._states.updated(state)
        if state != before or not self._is_saved:
            self._is_saved = self._save(self._states)
        if state.baseline is not None and before.baseline is None:
            self._report_pinned(state.baseline)


def is_good(costs: Costs, results: Sequence[BatchResult]) -> bool:
    """Whether a cycle was quiet, as far as that can be told: a CPU has no neighbours that would show."""
    found = verdict(costs, results)
    return found.host_starved is False and not found.gpu_contended


def gather(state: PinnedState, figures: Mapping[Key, Measured], surroundings: Surroundings, now: float) -> PinnedState:
    """Return the state with one more good cycle; a day over which the setup was changed begins anew with it."""
    if surroundings.is_other_setup(state.surroundings):
        state = PinnedState(state.fingerprint)
    known = {one.key: one for one in state.gathered}
    for key, (value, _) in figures.items():
        known[key] = known.get(key, Gathered(key.name, key.batch, key.part)).taken(value)
    return replace(
        state,
        surroundings=surroundings.filled(state.surroundings),
        begun=now if state.begun is None else min(state.begun, now),  # a clock may be set back
        gathered=tuple(known.values()),
    )


def pinned(state: PinnedState, batches: Sequence[int], now: float) -> PinnedState:
    """Return the state with a baseline where the day is whole, as it is where that is not so yet."""
    if state.fingerprint is None or state.begun is None or now - state.begun < DAY_SECONDS:
        return state
    whole = [one for one in state.gathered if one.count >= LEAST_CYCLES]
    if not {one.batch for one in whole}.issuperset(batches):
        return state
    figures = tuple(one.figure() for one in _wanted(whole, batches))
    return PinnedState(state.fingerprint, baseline=Baseline(state.fingerprint, state.surroundings, now, figures))


def _wanted(whole: Sequence[Gathered], batches: Sequence[int]) -> Iterator[Gathered]:
    """Yield the raw costs and what is of the batch sizes that are measured now."""
    return (one for one in whole if one.batch is None or one.batch in batches)

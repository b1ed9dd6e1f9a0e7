"""What sources keep over a restart: the state directory with somebody to complain to, and how that fares as metrics.

Where there is no directory everything works, and lasts as long as the process.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from solpi_exporter.clock import Clock
from solpi_exporter.metric import Kind, Metric, Sample
from solpi_exporter.statedir import StateDir, StateNotSaved

COPY_SECONDS = 10.0  # how much a power cut may take from a state that changes all the time

State = TypeVar("State")

LOADS = Metric(
    "solpi_state_loads_total",
    "States read at the start: ok; copy, where an earlier one was used; damaged, none could be; none, there is none.",
    Kind.COUNTER,
    ("state", "outcome"),
)
SAVED = Metric("solpi_state_saved_timestamp_seconds", "When the state was last written.", labels=("state",))
FAILURES = Metric(
    "solpi_state_write_failures_total", "Times that a state could not be written.", Kind.COUNTER, ("state",)
)

METRICS = (LOADS, SAVED, FAILURES)


class Kept:
    """Each name is read once, and written by one thread at a time."""

    def __init__(self, directory: StateDir | None, log: FilteringBoundLogger, clock: Clock) -> None:
        self._directory = directory
        self._log = log
        self._clock = clock
        self._outcomes: dict[str, str] = {}
        self._saved: dict[str, float] = {}
        self._copied: dict[str, float] = {}
        self._failures: Counter[str] = Counter()
        self._failing: set[str] = set()

    @property
    def lasts(self) -> bool:
        """Whether there is a directory, so that what is written is there after a restart."""
        return self._directory is not None

    def read(self, name: str, kind: type[State]) -> State | None:
        """Return what was kept under a name; None where that is nothing, or damaged beyond use."""
        if self._directory is None:
            return None
        loaded = self._directory.read(name, kind)
        match loaded.value, loaded.damage:
            case None, None:
                self._outcomes[name] = "none"
            case _, None:
                self._outcomes[name] = "ok"
            case value, damage:
                self._outcomes[name] = "damaged" if value is None else "copy"
                used = "nothing, it begins anew" if value is None else f"one of up to {COPY_SECONDS:.0f} s before"
                self._log.error("state_damaged", state=name, reason=damage, used=used)
        return loaded.value

    def write(self, name: str, value: object, *, often: bool = False) -> bool:
        """Keep a value; return whether it need not be tried again. One written `often` is not copied every time."""
        if self._directory is None:
            return True
        now = self._clock.real()
        copy = not often or name not in self._copied or now - self._copied[name] >= COPY_SECONDS
        try:
            self._directory.write(name, value, copy=copy)
        except StateNotSaved as error:
            self._complain(name, error)
            return False
        self._failing.discard(name)
        if copy:
            self._copied[name] = now
        self._saved[name] = self._clock.time()
        return True

    def _complain(self, name: str, error: StateNotSaved) -> None:
        """Count a failure, and log it when it begins: what changes all the time is tried all the time."""
        self._failures[name] += 1
        if name not in self._failing:
            self._log.warning("state_not_saved", state=name, reason=str(error))
        self._failing.add(name)

    def samples(self) -> Iterator[Sample]:
        """Yield how every state fares."""
        for name, outcome in list(self._outcomes.items()):
            yield LOADS.sample(1, name, outcome)
            yield FAILURES.sample(self._failures[name], name)
            if name in self._saved:
                yield SAVED.sample(self._saved[name], name)
